"""A captured turn records what its session touched, within the limits, and nothing else of the directory."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.capture.changes.directory_looks import DirectoryLooks
from clia.capture.installation import hook_health
from clia.capture.installation.hook_tools import CliaProgram
from support import git
from support.captured import END, Script, agent_of, hook, later_file_time, recorded, rehearse, run_ingest, texts_of_kind
from support.fake_secrets import ALNUM
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ghp_" + ALNUM[:36]
SESSION = "abcdef12-9"
SCRIPT: Script = [
    *({"prompt": "Write."}, {"write": "main.txt", "text": "main\n"}, {"bash": "echo made > made.txt"}, {"say": "Done."}),
    *({"stop": True}, {"prompt": "More."}, {"write": "more.txt", "text": "more\n"}, {"say": "Done."}, {"stop": True}),
]


def objects(root: Path) -> bytes:
    """The content of every object, loose or packed, reachable or not."""
    words = ["git", "cat-file", "--batch-all-objects", "--unordered", "--batch"]
    return subprocess.run(words, cwd=root, capture_output=True, check=True).stdout


def configure(root: Path, text: str) -> None:
    (root / ".git/clia/config.toml").write_text(text)


def send(root: Path, name: str, **more: Any) -> None:
    """Report an event, and ingest it."""
    hook(root, name, **more)
    run_ingest(root)


def start(root: Path) -> None:
    send(root, "SessionStart", source="startup")
    prompt(root)


def prompt(root: Path, number: int = 1) -> None:
    send(root, "UserPromptSubmit", prompt="Work.", prompt_id=str(number))


def files(space: clia.Space) -> set[str]:
    (agent,) = space.agents()
    return set(space.files(agent))


def left_out(space: clia.Space) -> dict[str, str]:
    """The files that traces name as not recorded, and why."""
    notes = [entry["data"]["left_out"] for _, entry in recorded(space) if "left_out" in entry.get("data", {})]
    return {file["path"]: file["code"] for note in notes for file in note}


def uncommitted(space: clia.Space, path: str) -> list[str | None]:
    """The agents of the lines of a file in the worktree."""
    return [line.agent for line in space.history.blame_worktree(path, space.captures.running_turns(path))]


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "afterwards"])
@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini"])
def test_a_huge_file_and_credentials_beside_a_session_reach_no_object(
    root: Path, space: clia.Space, tool: str, is_late: bool
) -> None:
    with (root / "data.bin").open("wb") as file:
        file.truncate(300_000_000)
    (root / ".env").write_text(f"GITHUB_TOKEN={KEY}\n")
    (root / "notes.txt").write_text("only mine\n")
    later_file_time(root)
    rehearse(root, [*SCRIPT, *END], tool=tool, after=None if is_late else lambda: run_ingest(root))
    run_ingest(root)
    assert {"main.txt", "made.txt", "more.txt"} < files(space)
    assert not {"data.bin", ".env", "notes.txt"} & files(space)
    everything = objects(root)
    assert len(everything) < 1_000_000
    assert KEY.encode() not in everything
    assert b"only mine" not in everything
    assert left_out(space) == {}, "the session has nothing to do with them"
    assert space.verify().findings == ()


def test_files_that_a_turn_makes_are_left_out_if_they_are_too_large_or_contain_a_secret(root: Path, space: clia.Space) -> None:
    start(root)
    with (root / "data.bin").open("wb") as file:
        file.truncate(12_300_000)
    (root / ".env").write_text(f"GITHUB_TOKEN={KEY}\n")
    (root / "key.py").write_text(f'KEY = "{KEY}"\n')
    (root / "made.txt").write_text("made\n")
    send(root, "Stop")
    assert files(space) == {"README.md", "made.txt"}
    assert left_out(space) == {".env": "secret", "data.bin": "too-large", "key.py": "secret"}
    (note,) = [text for text in texts_of_kind(space, "note") if "not recorded" in text]
    assert note.splitlines() == [
        "3 files are not recorded:",
        ".env: it seems to contain a secret: github-token in line 1",
        "data.bin: 12.3 MB, more than the limit of 10 MB",
        "key.py: it seems to contain a secret: github-token in line 1",
    ]
    assert KEY.encode() not in objects(root)
    prompt(root, 2)
    send(root, "Stop")
    assert len([text for text in texts_of_kind(space, "note") if "not recorded" in text]) == 1, "once"


def test_doctor_and_ingest_tell_what_is_not_recorded_as_long_as_it_is_there(root: Path, space: clia.Space) -> None:
    def findings() -> list[str]:
        captured = hook_health.captured_in(str(root), settings())
        health = hook_health.examine(str(root), environment={}, program=CliaProgram("clia", ""), captured=captured)
        return [finding.message for finding in health.findings if finding.code == "files-not-recorded"]

    start(root)
    (root / "key.py").write_text(f'KEY = "{KEY}"\n')
    hook(root, "Stop")
    assert run_ingest(root).done.left_out == 1
    (agent,) = space.agents()
    assert findings() == [f"not recorded for {agent}: key.py: it seems to contain a secret: github-token in line 1"]
    prompt(root, 2)
    hook(root, "Stop")
    assert run_ingest(root).done.left_out == 0, "it is told once"
    assert len(findings()) == 1
    (root / "key.py").write_text("KEY = None\n")
    prompt(root, 3)
    send(root, "Stop")
    assert findings() == []


def test_the_configuration_sets_the_limit_and_allows_paths(root: Path, space: clia.Space) -> None:
    configure(root, '[capture]\nsize_mb = 1\nallow = ["tests/keys/", "*.pem", "/big.bin"]\n')
    start(root)
    allowed = ("tests/keys/a.txt", "tests/keys/deep/b.txt", "deep/c.pem", "big.bin")
    refused = ("keys/a.txt", "deep/big.bin", "tests/keys.txt", "tests/big.txt")
    for path in (*allowed, *refused):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{KEY}\n" + ("x" * 1_000_000 if "big" in path else ""))
    send(root, "Stop")
    assert files(space) == {"README.md", *allowed}
    assert left_out(space).keys() == {*refused}


def test_an_untracked_file_whose_name_has_a_secret_is_left_out_and_named_without_it(root: Path, space: clia.Space) -> None:
    start(root)
    (root / f"backup-{KEY}.txt").write_text("made\n")
    (root / f"login={KEY}").mkdir()
    (root / f"login={KEY}" / "made.txt").write_text("made\n")
    (root / "link").symlink_to(f"https://x:{KEY}@host/repository.git")
    (root / "made.txt").write_text("made\n")
    send(root, "Stop")
    assert files(space) == {"README.md", "made.txt"}
    assert sorted(left_out(space).values()) == ["secret"] * 3
    assert all(KEY not in path for path in left_out(space))
    (note,) = [text for text in texts_of_kind(space, "note") if "not recorded" in text]
    assert "its name seems to contain a secret: github-token" in note
    assert KEY.encode() not in objects(root)
    (session,) = space.captures.sessions()
    assert KEY not in json.dumps(session.left_out)
    told = dict(session.left_out)
    prompt(root, 2)
    send(root, "Stop")
    assert space.captures.sessions()[0].left_out == told, "as long as it is there"
    configure(root, '[capture]\nallow = ["backup-*"]\n')
    prompt(root, 3)
    (root / f"backup-{KEY}.txt").write_text("more\n")
    send(root, "Stop")
    assert files(space) == {"README.md", "made.txt", f"backup-{KEY}.txt"}


def test_a_tracked_file_whose_name_has_a_secret_is_recorded(root: Path, space: clia.Space) -> None:
    (root / f"{KEY}.txt").write_text("fixture\n")
    git("add", ".", cwd=root)
    git("commit", "-qm", "A fixture", cwd=root)
    start(root)
    (root / f"{KEY}.txt").write_text("fixture\nand the tool\n")
    send(root, "Stop")
    (agent,) = space.agents()
    assert (space.files(agent)[f"{KEY}.txt"], left_out(space)) == (b"fixture\nand the tool\n", {})


def test_a_tracked_file_keeps_its_version_while_it_has_a_new_secret(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "README.md").write_text(f"people\n{KEY}\n")
    send(root, "Stop")
    (agent,) = space.agents()
    assert (space.files(agent)["README.md"], left_out(space)) == (b"people\n", {"README.md": "secret"})
    prompt(root, 2)
    (root / "README.md").write_text("people\nand the tool\n")
    send(root, "Stop")
    assert space.files(agent)["README.md"] == b"people\nand the tool\n"
    assert [line.agent for line in space.blame(agent, "README.md")] == [None, agent]


def test_a_tracked_file_with_a_secret_can_be_edited(root: Path, space: clia.Space) -> None:
    (root / "README.md").write_text(f"{KEY}\n")
    git("commit", "-qam", "A fixture", cwd=root)
    start(root)
    (root / "README.md").write_text(f"{KEY}\nand the tool\n")
    send(root, "Stop")
    (agent,) = space.agents()
    assert (space.files(agent)["README.md"], left_out(space)) == (f"{KEY}\nand the tool\n".encode(), {})


def test_what_people_change_before_a_session_or_between_its_turns_has_the_same_limits(root: Path, space: clia.Space) -> None:
    git("rm", "-q", "--cached", "README.md", cwd=root)
    git("add", "README.md", cwd=root)
    (root / "README.md").write_text(f"mine\n{KEY}\n")
    start(root)
    send(root, "Stop")
    (agent,) = space.agents()
    assert (space.files(agent)["README.md"], left_out(space)) == (b"people\n", {"README.md": "secret"})
    assert KEY.encode() not in objects(root)


def test_an_untracked_file_that_a_turn_changes_is_recorded_and_its_lines_stay_the_persons(root: Path, space: clia.Space) -> None:
    (root / "notes.txt").write_bytes(b"one\r\ntwo\r\nthree\r\nfour")
    (root / "same.txt").write_text("mine\n")
    (root / "old.txt").write_text("mine\n")
    start(root)
    (root / "notes.txt").write_bytes(b"zero\r\none\r\nTWO\r\nthree\r\nfour")
    (root / "old.txt").write_text("all new\n")
    (root / "same.txt").chmod(0o755)
    (agent,) = space.agents()
    assert uncommitted(space, "notes.txt") == [agent, None, agent, None, None]
    send(root, "Stop")
    assert [(line.text.strip(), line.agent) for line in space.blame(agent, "notes.txt")] == [
        ("zero", agent),
        ("one", None),
        ("TWO", agent),
        ("three", None),
        ("four", None),
    ]
    assert [line.agent for line in space.blame(agent, "old.txt")] == [agent]
    assert [line.agent for line in space.blame(agent, "same.txt")] == [None]
    assert b"two\r\n" not in objects(root), "what the session removed was never recorded"
    assert space.verify().findings == ()


@pytest.mark.parametrize("more", [0, 1, 9])
def test_an_untracked_file_that_a_turn_moves_and_changes_keeps_the_lines_of_the_person(
    root: Path, space: clia.Space, more: int
) -> None:
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    (root / "other.txt").write_text("one\nand\nmuch\nelse\n")
    start(root)
    (root / "notes.txt").rename(root / "moved.txt")
    with (root / "moved.txt").open("a") as file:
        file.writelines(f"new {number}\n" for number in range(more))
    (agent,) = space.agents()
    assert uncommitted(space, "moved.txt") == [None] * 3 + [agent] * more
    send(root, "Stop")
    assert [line.agent for line in space.blame(agent, "moved.txt")] == [None] * 3 + [agent] * more
    assert "other.txt" not in files(space)
    assert space.verify().findings == ()


def test_an_untracked_file_that_the_tool_commits_itself_keeps_the_lines_of_the_person(root: Path, space: clia.Space) -> None:
    (root / "notes.txt").write_text("mine\n")
    (root / "same.txt").write_text("mine\n")
    start(root)
    call = {"tool_name": "Bash", "tool_use_id": "t1"}
    send(root, "PreToolUse", **call, tool_input={"command": "git add -A && git commit -m all"})
    (root / "notes.txt").write_text("mine\nthe tool's\n")
    git("add", "-A", cwd=root)
    git("commit", "-qm", "all", cwd=root)
    send(root, "PostToolUse", **call, tool_response="")
    send(root, "Stop")
    (agent,) = space.agents()
    assert [line.agent for line in space.blame(agent, "notes.txt")] == [None, agent]
    assert [line.agent for line in space.blame(agent, "same.txt")] == [None]


def test_blame_gives_untouched_files_to_the_person_while_a_turn_runs(root: Path, space: clia.Space) -> None:
    (root / "notes.txt").write_text("mine\n")
    start(root)
    (root / "made.txt").write_text("made\n")
    assert uncommitted(space, "notes.txt") == [None]
    assert uncommitted(space, "made.txt") == space.agents()


def test_a_recorded_file_stays_recorded_and_later_changes_of_people_are_theirs(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "made.txt").write_text("made\n")
    send(root, "Stop")
    (root / "made.txt").write_text("made\nmine\n")
    prompt(root, 2)
    (root / "made.txt").write_text("made\nmine\nmore\n")
    send(root, "Stop")
    (agent,) = space.agents()
    assert [line.agent for line in space.blame(agent, "made.txt")] == [agent, None, agent]
    (root / "made.txt").unlink()
    prompt(root, 3)
    assert "made.txt" not in space.files(agent)


def test_a_call_that_names_a_file_touches_it(root: Path, space: clia.Space) -> None:
    """Even if its content is the same as before."""
    (root / "named.txt").write_text("same\n")
    start(root)
    send(root, "PreToolUse", tool_name="Write", tool_use_id="t1", tool_input={"file_path": str(root / "named.txt")})
    send(root, "Stop")
    assert "named.txt" in files(space)


def test_a_lost_record_of_found_files_records_only_what_is_newer_than_the_session(root: Path, space: clia.Space) -> None:
    (root / "mine.txt").write_text("mine\n")
    later_file_time(root)
    start(root)
    (root / "made.txt").write_text("made\n")
    for file in (root / ".git/clia/found").iterdir():
        file.unlink()
    send(root, "Stop")
    assert files(space) == {"README.md", "made.txt"}


def test_a_session_that_an_older_version_began_records_what_appeared_since_its_last_look(root: Path, space: clia.Space) -> None:
    """The older version knew no found files: it had committed all of them."""
    start(root)
    captured = space.captures.get("claude-code", SESSION)
    assert captured is not None
    (root / "made.txt").write_text("made\n")
    for file in (root / ".git/clia/found").iterdir():
        file.unlink()
    space.captures.keep(captured._replace(begun=0))
    later_file_time(root)
    send(root, "Stop")
    assert files(space) == {"README.md", "made.txt"}


def test_a_file_that_appears_while_the_found_files_are_read_is_not_one_of_them(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook did not wait for the ingest, and the first call of the session makes a file."""
    first_look = DirectoryLooks.look

    def look_beside_a_call(*values: Any, **named: Any) -> Any:
        monkeypatch.undo()
        hook(root, "PreToolUse", tool_name="Bash", tool_use_id="t1", tool_input={"command": "make"})
        (root / "made.txt").write_text("made\n")
        return first_look(*values, **named)

    (root / "mine.txt").write_text("mine\n")
    later_file_time(root)
    hook(root, "SessionStart", source="startup")
    monkeypatch.setattr(DirectoryLooks, "look", look_beside_a_call)
    run_ingest(root)
    send(root, "Stop")
    assert files(space) == {"README.md", "made.txt"}


def test_a_resumed_session_records_neither_what_it_found_nor_what_people_made_meanwhile(root: Path, space: clia.Space) -> None:
    (root / ".env").write_text(f"TOKEN={KEY}\n")
    start(root)
    (root / "made.txt").write_text("made\n")
    send(root, "Stop")
    send(root, "SessionEnd", reason="other")
    (root / "mine.txt").write_text("mine\n")
    for number in (2, 3):
        send(root, "SessionStart", source="resume")
        prompt(root, number)
        (root / f"{number}.txt").write_text("made\n")
        send(root, "Stop")
        send(root, "SessionEnd", reason="other")
    assert files(space) == {"README.md", "made.txt", "2.txt", "3.txt"}
    everything = objects(root)
    assert KEY.encode() not in everything
    assert b"mine" not in everything


def test_a_file_that_a_call_names_is_told_if_it_is_left_out(root: Path, space: clia.Space) -> None:
    (root / "data.bin").write_bytes(b"0" * 11_000_000)
    (root / ".env").write_text(f"TOKEN={KEY}\n")
    start(root)
    for number, name in enumerate(("data.bin", ".env")):
        send(root, "PreToolUse", tool_name="Write", tool_use_id=f"t{number}", tool_input={"file_path": str(root / name)})
    send(root, "Stop")
    assert files(space) == {"README.md"}
    assert left_out(space) == {"data.bin": "too-large", ".env": "secret"}
    everything = objects(root)
    assert KEY.encode() not in everything
    assert len(everything) < 1_000_000


def test_a_found_file_that_a_stash_removed_and_restored_is_as_it_was_found(root: Path, space: clia.Space) -> None:
    """The tool changes the other one while it is away."""
    (root / "mine.txt").write_text("mine\n")
    (root / "both.txt").write_text("mine\n")
    start(root)
    git("stash", "-qu", cwd=root)
    send(root, "Stop")
    prompt(root, 2)
    git("stash", "pop", "-q", cwd=root)
    (root / "both.txt").write_text("mine\nthe tool's\n")
    send(root, "Stop")
    (agent,) = space.agents()
    assert files(space) == {"README.md", "both.txt"}
    assert [line.agent for line in space.blame(agent, "both.txt")] == [None, agent]


def test_sub_agents_record_what_they_touched(root: Path, space: clia.Space) -> None:
    (root / ".env").write_text(f"KEY={KEY}\n")
    start(root)
    sub = {"agent_id": "a1", "agent_type": "writer"}
    send(root, "SubagentStart", **sub)
    (root / "made.txt").write_text("made\n")
    (root / "secret.txt").write_text(f"{KEY}\n")
    send(root, "SubagentStop", **sub, last_assistant_message="Done.")
    send(root, "Stop")
    session = agent_of(space, "claude-code", SESSION)
    (agent,) = set(space.agents()) - {session}
    assert set(space.files(agent)) == set(space.files(session)) == {"README.md", "made.txt"}
    assert [line.agent for line in space.blame(session, "made.txt")] == [agent]
    assert left_out(space) == {"secret.txt": "secret"}
    assert KEY.encode() not in objects(root)


def test_a_repository_beside_the_session_is_recorded_if_the_session_makes_it_or_commits_in_it(
    root: Path, space: clia.Space
) -> None:
    def commit(name: str) -> None:
        git("commit", "-q", "--allow-empty", "-m", "one", cwd=root / name)

    for name in ("beside", "used"):
        git("init", "-q", name, cwd=root)
        commit(name)
    start(root)
    git("init", "-q", "made", cwd=root)
    commit("made")
    commit("used")
    send(root, "Stop")
    assert files(space) == {"README.md", "made", "used"}


def test_pipes_and_links_never_fail_a_turn(root: Path, space: clia.Space) -> None:
    outside = root.parent / "outside.txt"
    outside.write_text(f"{KEY}\n")
    start(root)
    (root / "README.md").unlink()
    os.mkfifo(root / "README.md")
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to(outside)
    (root / "image.bin").write_bytes(bytes(range(256)) * 40)
    hook(root, "Stop", last_assistant_message="Done.")
    assert run_ingest(root).trouble == ()
    assert files(space) == {"README.md", "link", "image.bin"}
    assert left_out(space) == {"README.md": "special-file"}
    assert KEY.encode() not in objects(root)


def test_the_record_of_found_files_is_private_and_has_no_text(root: Path, space: clia.Space) -> None:
    (root / ".env").write_text(f"KEY={KEY}\n")
    start(root)
    (record,) = (root / ".git/clia/found").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert KEY.encode() not in record.read_bytes()
    (agent,) = space.agents()
    assert b".env" in record.read_bytes()
    space.traces.purge(agent, ".env")
    assert b".env" not in record.read_bytes()


def test_allowed_patterns_must_be_texts(root: Path) -> None:
    configure(root, '[capture]\nallow = "*.pem"\n')
    with pytest.raises(clia.errors.InvalidDocument, match=r"capture\.allow must be a list"):
        clia.open(root, settings=settings()).close()
