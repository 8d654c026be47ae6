"""What readers with fresh eyes found in capture; each stays found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.capture import spool_reader as spool
from clia.capture.recording import Recorder
from clia.capture.transcripts import read_bytes
from clia.errors import BackendError, InvalidInput
from clia.facade.forge_address import address_of, mark, unmark
from clia.space.traces import Traces
from clia.store.file_locks import FileLocks
from support.captured import agent_of, new_space, put, recorded, rehearse, take_in, waiting
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


def writer(name: str) -> dict[str, Any]:
    return {"subagent": name, "task": f"Write {name}.txt.", "steps": [{"write": f"{name}.txt", "text": f"{name}\n"}, {"say": name}]}


def authors(space: clia.Space, agent: str, path: str) -> set[str | None]:
    return {line.agent for line in space.blame(agent, path)}


def test_the_work_of_sub_agents_one_after_the_other_is_each_ones_own(root: Path, space: clia.Space) -> None:
    """The second one's start commits what is there: the first one's offer is taken in before that."""
    agent = at_once(root, [{"prompt": "Go."}, writer("one"), writer("two"), {"say": "Done."}, {"stop": True}])
    for name in ("one", "two"):
        (author,) = authors(space, agent, f"{name}.txt")
        assert author is not None
        assert author.startswith(f"{agent}-{name}-")
    assert [each.kind for each in space.relations(agent) if each.kind == "offers-merge"] == []


def test_the_work_of_a_sub_agent_is_its_own_after_the_session_was_killed_and_resumed(root: Path, space: clia.Space) -> None:
    agent = at_once(root, [{"prompt": "Go."}, writer("one"), {"say": "Now I die."}])
    at_once(root, [{"resume": 1}, {"prompt": "Go on."}, {"say": "Done."}, {"stop": True}])
    (author,) = authors(space, agent, "one.txt")
    assert author is not None
    assert author.startswith(f"{agent}-one-")


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
    assert address_of(space) is None
    mark(space, "http://127.0.0.1:8337/s/repo")
    assert address_of(space) == "http://127.0.0.1:8337/s/repo"
    unmark(space)
    assert address_of(space) is None
    code = "import sys, clia; from clia.facade.forge_address import mark; mark(clia.open(sys.argv[1]), 'http://127.0.0.1:1/s/x')"
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    assert os.path.isfile(root / ".git" / "clia" / "forge.json")
    assert address_of(space) is None
    (root / ".git" / "clia" / "forge.json").write_text('{"address": 7, "pid": 1}')
    assert address_of(space) is None


# What a hostile reader found


def told_by(space: clia.Space, kind: str) -> list[str]:
    return [entry["text"] for _, entry in recorded(space) if entry["kind"] == kind]


def hook(root: Path, name: str, session: str = "abcdef12-9", **more: Any) -> None:
    body = {"session_id": session, "hook_event_name": name, "cwd": str(root), **more}
    put(root, json.dumps(body).encode())


def test_a_path_with_half_a_character_is_in_nobodys_way(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", tool_name="Write", tool_use_id="t1", tool_input={"file_path": "/x/\ud800", "content": "a"})
    hook(root, "UserPromptSubmit", session="99999999-1", prompt="innocent")
    made = take_in(root)
    assert (made.trouble, made.done.left, made.done.rejected) == ((), 0, 0)
    assert told_by(space, "prompt") == ["innocent"]


def test_what_is_nested_deeper_than_can_be_written_is_told_all_the_same(root: Path, space: clia.Space) -> None:
    deep = '{"content":[' * 200 + '"x"' + "]}" * 200
    body = {
        "session_id": "abcdef12-9",
        "hook_event_name": "PostToolUse",
        "cwd": str(root),
        "tool_use_id": "t1",
        "tool_response": "DEEP",
    }
    put(root, json.dumps(body).replace('"DEEP"', deep).encode())
    made = take_in(root)
    assert (made.trouble, made.done.rejected, made.done.entries) == ((), 0, 1)


def test_what_nobody_foresaw_in_one_session_leaves_the_others_alone(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Recorder, hook: Any) -> None:
        if hook.told.session == "aaaaaaaa":
            raise ZeroDivisionError("oops")
        take(self, hook)

    take = Recorder.take
    monkeypatch.setattr(Recorder, "take", broken)
    hook(root, "UserPromptSubmit", session="aaaaaaaa", prompt="one")
    hook(root, "UserPromptSubmit", session="bbbbbbbb", prompt="two")
    made = take_in(root)
    assert (made.done.rejected, told_by(space, "prompt")) == (1, ["two"])
    (why,) = (root / ".git" / "clia" / "spool" / "rejected").glob("*.why.json")
    assert "ZeroDivisionError" in why.read_text()


def test_where_git_refuses_the_files_what_was_said_is_recorded(root: Path, space: clia.Space) -> None:
    """A repository inside that has no commit yet, say."""
    (root / "inner").mkdir()
    subprocess.run(["git", "init", "--quiet", str(root / "inner")], check=True)
    hook(root, "UserPromptSubmit", prompt="Go.", prompt_id="p")
    hook(root, "Stop", last_assistant_message="Done.")
    made = take_in(root)
    assert (made.trouble, made.done.left) == ((), 0)
    (agent,) = space.agents()
    trace = space.trace_for(space.head(agent))
    assert trace is not None
    assert {"Go.", "Done."} <= {each["text"] for each in trace.entries}


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


def test_a_prompt_told_before_the_transcript_was_known_counts_once(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Codex may not know its file yet when the first prompt comes."""
    file = tmp_path / "rollout.jsonl"
    body = {"session_id": "s1", "cwd": str(root), "turn_id": "t"}
    put(
        root,
        json.dumps({**body, "hook_event_name": "UserPromptSubmit", "prompt": "Go.", "transcript_path": None}).encode(),
        "codex",
    )
    take_in(root)
    line = {"timestamp": "2026-11-15T10:00:00.000Z", "type": "event_msg", "payload": {"type": "user_message", "message": "Go."}}
    file.write_text(json.dumps(line) + "\n")
    put(root, json.dumps({**body, "hook_event_name": "Stop", "transcript_path": str(file)}).encode(), "codex")
    take_in(root)
    assert told_by(space, "prompt") == ["Go."]


def said_line(text: str, at: int) -> str:
    content = [{"type": "text", "text": text}]
    return json.dumps({"type": "assistant", "timestamp": f"2026-11-15T10:00:{at:02d}.000Z", "message": {"content": content}}) + "\n"


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "another"])
def test_a_transcript_that_goes_on_in_another_file_loses_and_doubles_nothing(
    root: Path, space: clia.Space, tmp_path: Path, copied: bool
) -> None:
    """A copy says again what was said; another file says more, perhaps in the same words."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text(said_line("Done.", 1))
    hook(root, "Stop", transcript_path=str(first))
    take_in(root)
    second.write_text((first.read_text() if copied else "") + said_line("Done.", 2))
    hook(root, "Stop", transcript_path=str(second))
    take_in(root)
    assert told_by(space, "said") == ["Done.", "Done."]


def test_a_last_message_that_is_too_long_for_an_entry_counts_once(root: Path, space: clia.Space, tmp_path: Path) -> None:
    file, text = tmp_path / "a.jsonl", "word " * 20_000
    file.write_text(said_line(text, 1))
    hook(root, "Stop", transcript_path=str(file), last_assistant_message=text)
    take_in(root)
    assert len(told_by(space, "said")) == 1


def test_ids_with_anything_in_them_are_told_apart(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", session="a/b", tool_name="Read", tool_use_id="t1")
    hook(root, "PreToolUse", session="a", agent_id="b/", agent_type="x", tool_name="Read", tool_use_id="t2")
    hook(root, "PreToolUse", session="c" * 200, agent_id="d" * 200, agent_type="x", tool_name="Read", tool_use_id="t3")
    made = take_in(root)
    assert (made.trouble, made.done.rejected) == ((), 0)
    whose = {entry["data"]["id"]: agent for agent, entry in recorded(space) if entry["kind"] == "tool-call"}
    assert len({whose[each] for each in ("t1", "t2", "t3")}) == 3


def test_an_entry_that_cannot_be_kept_is_said_so_and_the_turn_is_recorded(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(self: Any, name: str, entries: Any) -> int:
        given = list(entries)
        if any(each["text"] == "odd" for each in given):
            raise InvalidInput("no")
        return add(self, name, given)

    add = Traces.add_once
    monkeypatch.setattr(Traces, "add_once", picky)
    hook(root, "UserPromptSubmit", prompt="odd", prompt_id="p")
    hook(root, "Stop", last_assistant_message="Done.")
    made = take_in(root)
    assert (made.done.rejected, made.done.left, made.done.commits) == (0, 0, 1)
    assert "a prompt could not be recorded" in told_by(space, "note")
    assert told_by(space, "said") == ["Done."]


# What a broken line of the code was not noticed by


def test_where_an_event_cannot_be_recorded_those_after_it_wait_in_their_order_and_are_tried_once(
    root: Path, space: clia.Space
) -> None:
    """Else a later turn would be committed before it, and what waits would be gone through again and again."""
    steps: list[str] = []

    def full(step: str) -> None:
        steps.append(step)
        if steps.count("event-recorded") == 1 and step == "event-recorded":
            raise BackendError("the disk is full", code="disk-full")

    hook(root, "SessionStart", source="startup")
    for text in ("one", "two"):
        hook(root, "UserPromptSubmit", prompt=text, prompt_id=text)
        hook(root, "Stop", last_assistant_message=f"{text} is done")
    tried: list[tuple[int, int]] = []
    made = take_in(root, full, progress=lambda number, total: tried.append((number, total)))
    assert (made.done.left, len(made.trouble), told_by(space, "said")) == (5, 1, [])
    assert tried == [(number, 5) for number in range(6)]
    assert not take_in(root).trouble
    (agent,) = space.agents()
    assert [each.message.splitlines()[0] for each in space.session_log(agent)][:2] == ["two", "one"]


def test_an_event_that_comes_while_ingest_lets_go_of_the_spool_is_recorded(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hook saw that somebody is at it, and started nobody."""
    late = iter(["late"])

    def forget(place: str) -> None:
        """The last that a pass does."""
        for prompt in late:
            hook(root, "UserPromptSubmit", prompt=prompt, prompt_id=prompt)
        forget_error(place)

    forget_error = spool.forget_error
    monkeypatch.setattr(spool, "forget_error", forget)
    hook(root, "UserPromptSubmit", prompt="early", prompt_id="early")
    assert take_in(root).done.events == 2
    assert (told_by(space, "prompt"), waiting(root)) == (["early", "late"], [])


def test_one_who_holds_the_spool_for_an_instant_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook does, to see whether anybody is at it; an ingest that gave up then would leave its event to nobody."""
    hook(root, "UserPromptSubmit", prompt="Go.")
    with ExitStack() as held:
        held.enter_context(FileLocks(spool.home_of(str(root / ".git"))).hold(spool.LOCK))
        monkeypatch.setattr("clia.capture.ingest.time", SimpleNamespace(sleep=lambda seconds: held.close()))
        made = take_in(root, wait=False)
    assert (made.busy, made.done.events) == (False, 1)


def test_a_file_where_the_agents_head_has_a_folder_by_now_is_taken(root: Path, space: clia.Space) -> None:
    hook(root, "SessionStart", source="startup")
    take_in(root)
    (agent,) = space.agents()
    space.commit(agent, "finding", changes={"place/inner.txt": b"another's\n"})
    (root / "place").write_text("a file\n")
    hook(root, "Stop")
    take_in(root)
    assert space.files(agent) == {"README.md": b"people\n", "place": b"a file\n"}


def test_a_sub_agent_that_goes_on_beside_others_has_the_files_that_it_named_since(root: Path, space: clia.Space) -> None:
    """What it named before, and others have changed meanwhile, is not its work a second time."""
    for sub in ("s1", "s2"):
        hook(root, "SubagentStart", agent_id=sub, agent_type="maker")
    for name in ("a.txt", "b.txt"):
        hook(root, "PreToolUse", agent_id="s1", tool_name="Write", tool_use_id=name, tool_input={"file_path": str(root / name)})
        (root / name).write_text("s1\n")
        hook(root, "SubagentStop", agent_id="s1")
        take_in(root)
        (root / "a.txt").write_text("another\n")
    maker = agent_of(space, "claude-code", "abcdef12-9", "s1")
    assert space.files(maker) == {"README.md": b"people\n", "a.txt": b"s1\n", "b.txt": b"s1\n"}


def test_what_is_kept_of_a_session_does_not_grow_with_its_turns(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", tool_name="Write", tool_use_id="t", tool_input={"file_path": str(root / "a.txt")})
    take_in(root)
    (known,) = space.captures.sessions()
    assert known.paths == ("a.txt",)
    hook(root, "Stop")
    take_in(root)
    (known,) = space.captures.sessions()
    assert known.paths == ()


def test_what_a_sub_agent_said_last_is_its_own_also_where_it_has_no_transcript(root: Path, space: clia.Space) -> None:
    hook(root, "SubagentStart", agent_id="s1", agent_type="maker")
    hook(root, "SubagentStop", agent_id="s1", last_assistant_message="Made it.")
    take_in(root)
    maker = agent_of(space, "claude-code", "abcdef12-9", "s1")
    assert [(agent, entry["text"]) for agent, entry in recorded(space) if entry["kind"] == "said"] == [(maker, "Made it.")]


def test_the_same_words_again_count_again_where_there_is_no_transcript(root: Path, space: clia.Space) -> None:
    """Also in another ingest than the first ones were told in."""
    for _ in range(2):
        hook(root, "UserPromptSubmit", prompt="Go on.")
        take_in(root)
        hook(root, "Stop", last_assistant_message="Done.")
        take_in(root)
    assert (told_by(space, "prompt"), told_by(space, "said")) == (["Go on."] * 2, ["Done."] * 2)


def test_a_line_longer_than_a_piece_is_read_and_one_that_is_too_long_is_passed_over(
    root: Path, space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it is read."""
    looks = Counter[int]()

    def bounded(path: str, offset: int, limit: int) -> bytes | None:
        looks[offset] += 1
        assert looks[offset] < 100, "it reads the same again and again"
        return read_bytes(path, offset, limit)

    monkeypatch.setattr("clia.capture.recording.read_bytes", bounded)
    monkeypatch.setattr("clia.capture.recording._PIECE", 256)
    monkeypatch.setattr("clia.capture.recording.READ_MAX", 4096)
    texts = ["first", "long " * 400, "too long " * 1000, "last"]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(said_line(text, number) for number, text in enumerate(texts)))
    hook(root, "Stop", transcript_path=str(file))
    made = take_in(root)
    assert not made.trouble
    assert made.done.unreadable > 0
    assert told_by(space, "said") == [texts[0], texts[1], texts[3]]


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


@pytest.mark.parametrize("step", ["entries-made", "entries-recorded", "turn-recorded", "event-recorded"])
def test_a_failure_anywhere_in_an_end_of_a_turn_doubles_nothing_without_a_transcript(
    root: Path, space: clia.Space, step: str
) -> None:
    reached: list[str] = []

    def full(name: str) -> None:
        reached.append(name)
        if name == step and reached.count(name) == 1:
            raise BackendError("the disk is full", code="disk-full")

    hook(root, "UserPromptSubmit", prompt="Go.")
    hook(root, "Stop", last_assistant_message="one")
    take_in(root, full)
    take_in(root)
    assert told_by(space, "prompt") + told_by(space, "said") == ["Go.", "one"]


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


# What a second reader found, with ingest after all of it


def late(root: Path, script: list[dict[str, Any]]) -> str:
    """A session that is taken in when it is over; its agent."""
    told = rehearse(root, script)
    take_in(root)
    return f"claude-{told['session'][:8]}"


def test_a_sub_agent_of_after_a_resumption_is_not_taken_for_one_of_before(root: Path, space: clia.Space) -> None:
    """Its transcript lies there already when the first end is taken in."""
    (root / "mine.txt").write_text("mine\n")
    first: list[dict[str, Any]] = [{"prompt": "One."}, {"write": "one.txt", "text": "one\n"}, {"stop": True}, {"end": "other"}]
    agent = late(root, [*first, {"resume": 1}, {"prompt": "Two."}, writer("two"), {"say": "Done."}, {"stop": True}])
    (sub,) = space.sub_agents(agent)
    assert sub.startswith(f"{agent}-two-")
    assert [each.kind for each in space.session_log(sub)] == ["turn", "spawn"]
    assert set(space.files(sub)) - {"README.md"} <= {"two.txt"}
    assert [each.kind for each in space.session_log(agent)].count("session-merge") <= 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_lines_of_others_in_a_file_that_a_sub_agent_named_are_not_its_own(root: Path, space: clia.Space, when: str) -> None:
    """Late, nobody can tell whose each line is: the file comes with the session's turn."""
    edits: dict[str, Any] = {"subagent": "alpha", "task": "T.", "steps": [{"edit": "s.txt", "old": "one", "new": "alpha"}]}
    start = {"write": "s.txt", "text": "one\nthree\n"}
    after: list[dict[str, Any]] = [{"edit": "s.txt", "old": "three", "new": "parent"}] if when == "after" else []
    if when == "after":
        (root / "s.txt").write_text("one\nthree\n")
    steps = [edits, *after] if when == "after" else [start, edits]
    agent = late(root, [{"prompt": "Go."}, *steps, {"say": "Done."}, {"stop": True}])
    assert authors(space, agent, "s.txt") == {agent}
