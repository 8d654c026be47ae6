"""Recording a session: commits of its turns, redaction, and its checkout."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support import git
from support.captured import agent_of, hook, ingest_live, later_file_time, put, recorded, run_ingest
from support.fake_secrets import FAKES

if TYPE_CHECKING:
    from pathlib import Path


def test_changes_left_in_the_first_turn_are_committed_for_the_session(root: Path, space: clia.Space) -> None:
    """Even if the session was killed before its first commit."""
    agent = ingest_live(root, [{"prompt": "Go."}, {"write": "x.txt", "text": "x\n"}])
    ingest_live(root, [{"resume": 1}, {"prompt": "Go on."}, {"say": "Done."}, {"stop": True}])
    commit = next(
        candidate for candidate in space.session_log(agent) if "x.txt" in {file.path for file in space.changed(candidate.cid)}
    )
    assert commit.message.startswith("left when the session was interrupted")


def test_an_invalid_agent_name_is_noted_in_the_trace(root: Path, space: clia.Space) -> None:
    put(root, b'{"session_id": "abcdef12", "hook_event_name": "Stop", "last_assistant_message": "x"}', agent="Bad Name")
    run_ingest(root)
    assert any("'Bad Name'" in entry["text"] for _, entry in recorded(space))


SECRET = next(fake for fake in FAKES if fake.kind == "github-token")


def test_secrets_are_removed_before_texts_are_truncated(root: Path, space: clia.Space) -> None:
    """In the subject, the body, the recorded tool input and the store."""
    for length in (40, 3990, 4080, 65520):
        session = f"{length:08d}"
        hook(root, "UserPromptSubmit", session=session, prompt=f"{'x' * length} {SECRET.text}", prompt_id=str(length))
        tool_input = {"command": f"{'y' * length} {SECRET.text}"}
        hook(root, "PreToolUse", session=session, tool_name="Bash", tool_use_id=f"t{length}", tool_input=tool_input)
        hook(root, "Stop", session=session, last_assistant_message=f"{'z' * length} {SECRET.text}")
    run_ingest(root)
    start = SECRET.secret[:12]
    log = subprocess.run(["git", "log", "--all", "--notes=*", "-p"], cwd=root, capture_output=True, check=True).stdout
    assert start.encode() not in log
    assert all(start not in str(entry) for _, entry in recorded(space))
    assert all(start not in str(captured) for captured in space.captures.sessions())


def test_unusual_ids_are_kept_apart(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", session="a/b", tool_name="Read", tool_use_id="t1")
    hook(root, "PreToolUse", session="a", agent_id="b/", agent_type="x", tool_name="Read", tool_use_id="t2")
    hook(root, "PreToolUse", session="c" * 200, agent_id="d" * 200, agent_type="x", tool_name="Read", tool_use_id="t3")
    report = run_ingest(root)
    assert (report.trouble, report.done.rejected) == ((), 0)
    agents = {entry["data"]["id"]: agent for agent, entry in recorded(space) if entry["kind"] == "tool-call"}
    assert len({agents[call_id] for call_id in ("t1", "t2", "t3")}) == 3


def test_a_file_that_replaces_a_folder_is_committed(root: Path, space: clia.Space) -> None:
    hook(root, "SessionStart", source="startup")
    run_ingest(root)
    (agent,) = space.agents()
    space.commit(agent, "finding", changes={"place/inner.txt": b"another's\n"})
    (root / "place").write_text("a file\n")
    hook(root, "Stop")
    run_ingest(root)
    assert space.files(agent) == {"README.md": b"people\n", "place": b"a file\n"}


def test_the_stored_state_of_a_session_does_not_grow_with_its_turns(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", tool_name="Write", tool_use_id="t", tool_input={"file_path": str(root / "a.txt")})
    run_ingest(root)
    (captured,) = space.captures.sessions()
    assert captured.paths == ("a.txt",)
    hook(root, "Stop")
    run_ingest(root)
    (captured,) = space.captures.sessions()
    assert captured.paths == ()


def test_the_first_of_several_entries_with_one_key_counts(root: Path, space: clia.Space) -> None:
    """It comes from the hook, which has more details than the transcript."""
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    entries = [{"kind": "note", "text": text, "key": key} for text, key in (("one", "k"), ("two", "k"), ("other", "l"))]
    assert space.trace_once("scout", entries) == 2
    assert [entry["text"] for entry in space.trace_pending("scout")] == ["one", "other"]


def test_files_that_a_turn_does_not_commit_stay_changes_of_the_checkout(root: Path, space: clia.Space) -> None:
    """A file that a person changed is not work of the turn."""
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    directory = root.parent / "checkout"
    space.checkout("scout", directory)
    put(
        root, json.dumps({"session_id": "s", "hook_event_name": "SessionStart", "cwd": str(directory)}).encode(), cwd=str(directory)
    )
    run_ingest(root)
    (directory / "README.md").write_text("by hand\n")
    space.commit_dir("scout", "finding", directory)
    (directory / "README.md").write_text("people\n")
    (directory / "new.txt").write_text("new\n")
    put(root, json.dumps({"session_id": "s", "hook_event_name": "Stop", "cwd": str(directory)}).encode(), cwd=str(directory))
    run_ingest(root)
    assert space.files("scout") == {"README.md": b"by hand\n", "new.txt": b"new\n"}
    checkout = space.checkout_at(directory)
    assert checkout is not None
    assert checkout.base == space.head("scout")
    assert git("status", "--porcelain", cwd=directory) == " M README.md\n"
    space.commit_dir("scout", "finding", directory)
    assert space.files("scout")["README.md"] == b"people\n"


def test_a_checkout_is_updated_if_a_turn_is_committed_without_its_files(root: Path, space: clia.Space) -> None:
    """Its base is the agent's head, so a later manual commit succeeds."""
    directory = root.parent / "checkout"
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    space.checkout("scout", directory)

    def checkout_hook(name: str, **more: Any) -> None:
        body = {"session_id": "s", "hook_event_name": name, "cwd": str(directory), **more}
        put(root, json.dumps(body).encode(), cwd=str(directory))

    checkout_hook("SessionStart")
    run_ingest(root)
    (directory / "new.txt").write_text("new\n")
    checkout_hook("Stop", last_assistant_message="a")
    checkout_hook("PreToolUse", tool_name="Bash", tool_use_id="t")
    run_ingest(root)
    checkout_hook("Stop", last_assistant_message="b")
    run_ingest(root)
    assert set(space.files("scout")) == {"README.md", "new.txt"}
    (directory / "more.txt").write_text("more\n")
    space.commit_dir("scout", "finding", directory)


def test_files_that_a_session_finds_are_not_attributed_to_it(root: Path, space: clia.Space) -> None:
    (root / "README.md").write_text("a person's\n")
    hook(root, "SessionStart", source="startup")
    run_ingest(root)
    (root / "tools.txt").write_text("the tool's\n")
    hook(root, "Stop")
    run_ingest(root)
    (agent,) = space.agents()
    assert space.files(agent)["README.md"] == b"a person's\n"
    assert [line.agent for line in space.blame(agent, "README.md")] == [None]
    assert [line.agent for line in space.blame(agent, "tools.txt")] == [agent]
    assert space.verify().findings == ()


def send(root: Path, name: str, **more: Any) -> None:
    """Report an event, and ingest it."""
    hook(root, name, **more)
    run_ingest(root)


def turn(root: Path, name: str) -> None:
    """A turn that writes a file by a command."""
    send(root, "UserPromptSubmit", prompt=f"Write {name}.", prompt_id=name)
    (root / name).write_text(f"{name} of the tool\n")
    send(root, "Stop")


def authors(space: clia.Space, *paths: str) -> dict[str, str | None]:
    """The agent that the only line of each file is attributed to, on the agent's branch."""
    (agent,) = space.agents()
    return {path: line.agent for path in paths for line in space.blame(agent, path)}


def test_changes_of_people_between_two_turns_are_theirs(root: Path, space: clia.Space) -> None:
    """Committed, pulled and uncommitted ones."""
    clone = root.parent / "colleague"
    git("clone", "--quiet", str(root), str(clone), cwd=root)
    send(root, "SessionStart", source="startup")
    turn(root, "one.txt")
    for place, name in ((clone, "pulled.txt"), (root, "mine.txt")):
        (place / name).write_text(f"{name} of a person\n")
        git("add", name, cwd=place)
        git("commit", "--quiet", "--message=mine", cwd=place)
    git("pull", "--quiet", "--rebase", str(clone), "main", cwd=root)
    (root / "open.txt").write_text("not committed\n")
    turn(root, "two.txt")
    (agent,) = space.agents()
    people = dict.fromkeys(("mine.txt", "pulled.txt"))
    assert authors(space, *people, "one.txt", "two.txt") == people | {"one.txt": agent, "two.txt": agent}
    assert [file.path for file in space.changed(space.session_log(agent)[0].cid)] == ["two.txt"]
    assert "open.txt" not in space.files(agent), "git does not track it"
    git("add", "-A", cwd=root)
    git("commit", "--quiet", "--message=all", cwd=root)
    authors_in_main = [line.agent for path in (*people, "open.txt", "two.txt") for line in space.blame("main", path)]
    assert authors_in_main == [None, None, None, agent]
    assert space.verify().findings == ()


@pytest.mark.parametrize("end", ["Stop", "SessionEnd"])
def test_changes_of_people_before_a_session_is_resumed_are_theirs(root: Path, space: clia.Space, end: str) -> None:
    """A tool that is killed after a turn reports no end of the session."""
    send(root, "SessionStart", source="startup")
    turn(root, "one.txt")
    send(root, end)
    (root / "README.md").write_text("a person's\n")
    send(root, "SessionStart", source="resume")
    turn(root, "two.txt")
    (agent,) = space.agents()
    assert authors(space, "one.txt", "README.md", "two.txt") == {"one.txt": agent, "README.md": None, "two.txt": agent}


def test_changes_of_an_interrupted_turn_are_the_agents(root: Path, space: clia.Space) -> None:
    """An interrupted turn reports no end. A turn that a notification starts has no prompt, but calls."""
    send(root, "SessionStart", source="startup")
    send(root, "UserPromptSubmit", prompt="One.", prompt_id="1")
    (root / "one.txt").write_text("one\n")
    turn(root, "two.txt")
    send(root, "PreToolUse", tool_name="Bash", tool_use_id="t", tool_input={"command": "make"})
    (root / "three.txt").write_text("three\n")
    turn(root, "four.txt")
    assert None not in authors(space, "one.txt", "two.txt", "three.txt", "four.txt").values()


def test_an_interrupted_turn_is_committed_at_the_next_prompt(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Claude Code reports no end of it: its transcript says that it was interrupted."""
    common = {"sessionId": "abcdef12-9", "cwd": str(root)}

    def line(text: str, at: str, **more: str) -> str:
        return (
            json.dumps({**common, "type": "user", "message": {"content": text}, "timestamp": f"2026-11-16T17:0{at}Z", **more})
            + "\n"
        )

    transcript = tmp_path / "session.jsonl"
    path = {"transcript_path": str(transcript)}
    transcript.write_text(line("One.", "1:00", promptId="1"))
    send(root, "SessionStart", source="startup", **path)
    send(root, "UserPromptSubmit", prompt="One.", prompt_id="1", **path)
    (root / "one.txt").write_text("one\n")
    with transcript.open("a") as file:
        file.write(line("[Request interrupted by user]", "2:00") + line("Two.", "3:00", promptId="2"))
    send(root, "UserPromptSubmit", prompt="Two.", prompt_id="2", **path)
    (root / "two.txt").write_text("two\n")
    send(root, "Stop", **path)
    (agent,) = space.agents()
    commits = [(commit.message, {file.path for file in space.changed(commit.cid)}) for commit in space.session_log(agent)]
    assert commits[:2] == [("Two.", {"two.txt"}), ("interrupted turn: One.", {"one.txt"})]
    texts = [(str(entry["kind"]), str(entry["text"])) for _, entry in recorded(space) if entry["kind"] == "prompt"]
    assert sorted(texts) == [("prompt", "One."), ("prompt", "Two.")]


@pytest.mark.parametrize("name", ["PreToolUse", "Stop"])
def test_changes_before_a_prompt_that_is_ingested_too_late_are_the_turns(root: Path, space: clia.Space, name: str) -> None:
    """The turn may have made them."""
    send(root, "SessionStart", source="startup")
    hook(root, "UserPromptSubmit", prompt="Write.", prompt_id="1")
    hook(root, name, tool_name="Bash", tool_use_id="t", tool_input={"command": "make"})
    (root / "made.txt").write_text("made\n")
    run_ingest(root)
    send(root, "Stop")
    assert authors(space, "made.txt") == {"made.txt": space.agents()[0]}


def later_call(root: Path, ident: str, tool: str, **given: str) -> None:
    """A tool call that has ended when its prompt is ingested."""
    hook(root, "PreToolUse", tool_name=tool, tool_use_id=ident, tool_input=given)
    hook(root, "PostToolUse", tool_name=tool, tool_use_id=ident, tool_response="")


@pytest.mark.parametrize("name", ["SessionStart", "UserPromptSubmit"])
def test_the_files_that_late_calls_name_are_the_turns_and_the_others_are_as_found(root: Path, space: clia.Space, name: str) -> None:
    if name != "SessionStart":
        send(root, "SessionStart", source="startup")
    for path in ("README.md", "mine.txt", "both.txt"):
        (root / path).write_text("a person's\n")
    later_file_time(root)
    hook(root, name, prompt="Write.", prompt_id="1")
    (root / "made.txt").write_text("made\n")
    later_call(root, "r", "Read", file_path=str(root / "mine.txt"))
    later_call(root, "w", "Write", file_path=str(root / "made.txt"))
    later_call(root, "e", "Edit", file_path=str(root / "both.txt"))
    run_ingest(root)
    send(root, "Stop")
    (agent,) = space.agents()
    assert authors(space, "README.md", "made.txt", "both.txt") == {"README.md": None, "made.txt": agent, "both.txt": agent}
    assert "mine.txt" not in space.files(agent)
    assert space.verify().findings == ()


@pytest.mark.parametrize("tool", ["Bash", "Task", "result"])
def test_if_a_late_call_names_no_files_they_are_all_the_turns(root: Path, space: clia.Space, tool: str) -> None:
    """A command, a sub-agent, and the result of a call that was not reported may have changed any file."""
    send(root, "SessionStart", source="startup")
    hook(root, "UserPromptSubmit", prompt="Write.", prompt_id="1")
    for path in ("named.txt", "other.txt"):
        (root / path).write_text("made\n")
    later_call(root, "w", "Write", file_path=str(root / "named.txt"))
    if tool == "result":
        hook(root, "PostToolUse", tool_name="Bash", tool_use_id="missed", tool_response="")
    else:
        later_call(root, "b", tool, command="make")
    run_ingest(root)
    send(root, "Stop")
    assert None not in authors(space, "named.txt", "other.txt").values()


def test_a_session_with_only_its_end_creates_no_agent(root: Path, space: clia.Space, tmp_path: Path) -> None:
    (root / "mine.txt").write_text("a person's\n")
    hook(root, "SessionEnd", reason="other", transcript_path=str(tmp_path / "missing.jsonl"))
    report = run_ingest(root)
    assert (report.done.events, report.done.rejected, report.trouble) == (1, 0, ())
    assert space.agents() == []


def test_a_session_whose_hooks_came_late_is_captured_from_its_transcript(root: Path, space: clia.Space, tmp_path: Path) -> None:
    transcript = tmp_path / "abcdef12-9.jsonl"
    line = {
        "type": "user",
        "sessionId": "abcdef12-9",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "message": {"content": "Hello"},
    }
    transcript.write_text(json.dumps(line) + "\n")
    hook(root, "SessionEnd", reason="other", transcript_path=str(transcript))
    run_ingest(root)
    assert [entry["text"] for _, entry in recorded(space) if entry["kind"] == "prompt"] == ["Hello"]


def test_texts_that_the_tool_puts_into_the_conversation_are_not_prompts(root: Path, space: clia.Space) -> None:
    hook(root, "UserPromptSubmit", prompt="Write the notes.", prompt_id="1")
    hook(root, "UserPromptSubmit", prompt="<task-notification>\n<task-id>a7</task-id>", prompt_id="2")
    hook(root, "Stop")
    run_ingest(root)
    (agent,) = space.agents()
    assert space.show(agent).subject == "Write the notes."
    assert [entry["kind"] for _, entry in recorded(space) if "task-id" in entry["text"]] == ["note"]


def test_a_turn_that_ends_with_a_model_error_is_marked(root: Path, space: clia.Space) -> None:
    hook(root, "UserPromptSubmit", prompt="Write the notes.", prompt_id="1")
    hook(root, "StopFailure", error="overloaded_error")
    run_ingest(root)
    (agent,) = space.agents()
    assert space.show(agent).subject == "model error: Write the notes."


def test_the_named_files_of_a_killed_session_are_its_own_when_another_starts(root: Path, space: clia.Space) -> None:
    """The other session finds them in the directory; they are not what a person changed."""
    hook(root, "SessionStart", session="aaaaaaaa-1", source="startup")
    run_ingest(root)
    hook(root, "UserPromptSubmit", session="aaaaaaaa-1", prompt="Write half.")
    call = {"tool_name": "Write", "tool_use_id": "t1", "tool_input": {"file_path": str(root / "half.txt"), "content": "half\n"}}
    hook(root, "PreToolUse", session="aaaaaaaa-1", **call)
    (root / "half.txt").write_text("half\n")
    (root / "draft.txt").write_text("a person's\n")
    hook(root, "SessionStart", session="bbbbbbbb-2", source="startup")
    run_ingest(root)
    first, second = agent_of(space, "claude-code", "aaaaaaaa-1"), agent_of(space, "claude-code", "bbbbbbbb-2")
    commit = space.session_log(first)[0]
    assert (commit.message.splitlines()[0], {file.path for file in space.changed(commit.cid)}) == ("Write half.", {"half.txt"})
    assert "draft.txt" not in space.files(second)
    assert run_ingest(root).done.commits == 0
