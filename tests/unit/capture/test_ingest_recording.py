from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.facade.forge_address import address_of, mark, unmark
from support.captured import new_space, put, recorded, rehearse, take_in
from support.fake_secrets import FAKES
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "repo")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as made:
        yield made


def at_once(root: Path, script: list[dict[str, Any]]) -> str:
    """A session whose events are all taken in as they come; its agent."""
    told = rehearse(root, script, after=lambda: take_in(root))
    take_in(root)
    return f"claude-{told['session'][:8]}"


def test_what_a_session_left_in_its_first_turn_is_its_own_work(root: Path, space: clia.Space) -> None:
    """Killed before its first commit, it has done something all the same."""
    agent = at_once(root, [{"prompt": "Go."}, {"write": "x.txt", "text": "x\n"}])
    at_once(root, [{"resume": 1}, {"prompt": "Go on."}, {"say": "Done."}, {"stop": True}])
    made = next(each for each in space.session_log(agent) if "x.txt" in {file.path for file in space.changed(each.cid)})
    assert made.message.startswith("left when the session was interrupted")


def test_a_name_that_is_none_is_told_in_the_trace(root: Path, space: clia.Space) -> None:
    put(root, b'{"session_id": "abcdef12", "hook_event_name": "Stop", "last_assistant_message": "x"}', agent="Bad Name")
    take_in(root)
    assert any("'Bad Name'" in entry["text"] for _, entry in recorded(space))


def test_where_a_space_is_served_is_known_while_it_is(root: Path, space: clia.Space) -> None:
    """A forge that was killed leaves its mark behind; it names a process that is gone."""
    assert address_of(space.home) is None
    mark(space.home, "http://127.0.0.1:8337/s/repo")
    assert address_of(space.home) == "http://127.0.0.1:8337/s/repo"
    unmark(space.home)
    assert address_of(space.home) is None
    code = (
        "import sys, clia; from clia.facade.forge_address import mark; mark(clia.open(sys.argv[1]).home, 'http://127.0.0.1:1/s/x')"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    assert os.path.isfile(root / ".git" / "clia" / "forge.json")
    assert address_of(space.home) is None
    (root / ".git" / "clia" / "forge.json").write_text('{"address": 7, "pid": 1}')
    assert address_of(space.home) is None


def hook(root: Path, name: str, session: str = "abcdef12-9", **more: Any) -> None:
    body = {"session_id": session, "hook_event_name": name, "cwd": str(root), **more}
    put(root, json.dumps(body).encode())


SECRET = next(each for each in FAKES if each.kind == "github-token")


def test_a_secret_at_a_cut_is_taken_out_before_the_cut(root: Path, space: clia.Space) -> None:
    """In the subject, in the body, in what is kept of a tool's input, and in what the store keeps."""
    for length in (40, 3990, 4080, 65520):
        session = f"{length:08d}"
        hook(root, "UserPromptSubmit", session=session, prompt=f"{'x' * length} {SECRET.text}", prompt_id=str(length))
        given = {"command": f"{'y' * length} {SECRET.text}"}
        hook(root, "PreToolUse", session=session, tool_name="Bash", tool_use_id=f"t{length}", tool_input=given)
        hook(root, "Stop", session=session, last_assistant_message=f"{'z' * length} {SECRET.text}")
    take_in(root)
    start = SECRET.secret[:12]
    written = subprocess.run(["git", "log", "--all", "--notes=*", "-p"], cwd=root, capture_output=True, check=True).stdout
    assert start.encode() not in written
    assert all(start not in str(entry) for _, entry in recorded(space))
    assert all(start not in str(each) for each in space.captures.sessions())


def test_ids_with_anything_in_them_are_told_apart(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", session="a/b", tool_name="Read", tool_use_id="t1")
    hook(root, "PreToolUse", session="a", agent_id="b/", agent_type="x", tool_name="Read", tool_use_id="t2")
    hook(root, "PreToolUse", session="c" * 200, agent_id="d" * 200, agent_type="x", tool_name="Read", tool_use_id="t3")
    made = take_in(root)
    assert (made.trouble, made.done.rejected) == ((), 0)
    whose = {entry["data"]["id"]: agent for agent, entry in recorded(space) if entry["kind"] == "tool-call"}
    assert len({whose[each] for each in ("t1", "t2", "t3")}) == 3


def test_a_file_where_the_agents_head_has_a_folder_by_now_is_taken(root: Path, space: clia.Space) -> None:
    hook(root, "SessionStart", source="startup")
    take_in(root)
    (agent,) = space.agents()
    space.commit(agent, "finding", changes={"place/inner.txt": b"another's\n"})
    (root / "place").write_text("a file\n")
    hook(root, "Stop")
    take_in(root)
    assert space.files(agent) == {"README.md": b"people\n", "place": b"a file\n"}


def test_what_is_kept_of_a_session_does_not_grow_with_its_turns(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", tool_name="Write", tool_use_id="t", tool_input={"file_path": str(root / "a.txt")})
    take_in(root)
    (known,) = space.captures.sessions()
    assert known.paths == ("a.txt",)
    hook(root, "Stop")
    take_in(root)
    (known,) = space.captures.sessions()
    assert known.paths == ()


def test_of_entries_with_one_key_in_one_batch_the_first_counts(root: Path, space: clia.Space) -> None:
    """It is the hook's, which says more than the transcript's line."""
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    given = [{"kind": "note", "text": text, "key": key} for text, key in (("one", "k"), ("two", "k"), ("other", "l"))]
    assert space.trace_once("scout", given) == 2
    assert [each["text"] for each in space.trace_pending("scout")] == ["one", "other"]


def test_a_checkout_stays_where_it_is_when_a_commit_has_not_all_of_its_files(root: Path, space: clia.Space) -> None:
    """A file that a person put back by hand is no work of the turn; a checkout moved on would say that it is committed."""
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    place = root.parent / "checkout"
    space.checkout("scout", place)
    put(root, json.dumps({"session_id": "s", "hook_event_name": "SessionStart", "cwd": str(place)}).encode(), cwd=str(place))
    take_in(root)
    (place / "README.md").write_text("by hand\n")
    base = space.commit_dir("scout", "finding", place)
    (place / "README.md").write_text("people\n")
    (place / "new.txt").write_text("new\n")
    put(root, json.dumps({"session_id": "s", "hook_event_name": "Stop", "cwd": str(place)}).encode(), cwd=str(place))
    take_in(root)
    assert space.files("scout") == {"README.md": b"by hand\n", "new.txt": b"new\n"}
    found = space.checkout_at(place)
    assert found is not None
    assert found.base == base != space.head("scout")


def test_a_checkout_keeps_up_when_a_turn_is_committed_without_its_files(root: Path, space: clia.Space) -> None:
    """Its base is the agent's head: what is committed there by hand afterwards goes through."""
    place = root.parent / "checkout"
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    space.checkout("scout", place)

    def there(name: str, **more: Any) -> None:
        body = {"session_id": "s", "hook_event_name": name, "cwd": str(place), **more}
        put(root, json.dumps(body).encode(), cwd=str(place))

    there("SessionStart")
    take_in(root)
    (place / "new.txt").write_text("new\n")
    there("Stop", last_assistant_message="a")
    there("PreToolUse", tool_name="Bash", tool_use_id="t")
    take_in(root)
    there("Stop", last_assistant_message="b")
    take_in(root)
    assert set(space.files("scout")) == {"README.md", "new.txt"}
    (place / "more.txt").write_text("more\n")
    space.commit_dir("scout", "finding", place)
