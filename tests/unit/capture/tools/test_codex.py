"""Rollouts of Codex from 0.150 on: texts and reasoning in completed items, exit codes, and the names of sub-agents."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture.tools import tool_of
from clia.capture.transcripts import TranscriptCursor, read_events
from clia.values.clock import timestamp
from support.captured import agent_of, put, recorded, run_ingest

if TYPE_CHECKING:
    import clia

FIXTURES = Path(__file__).parents[3] / "fixtures/hooks/codex-0.166"
SESSION, SUB = "019b0c11-0000-7000-8000-0000000000aa", "019b0c12-0000-7000-8000-0000000000bb"


def rollout(tmp_path: Path, root: Path, name: str) -> Path:
    """A rollout as Codex would write it about a repository."""
    file = tmp_path / name
    file.write_text((FIXTURES / name).read_text().replace("/home/tess/project", str(root)))
    return file


def send(root: Path, name: str, transcript: Path, **more: Any) -> None:
    body = {"session_id": SESSION, "hook_event_name": name, "cwd": str(root), "transcript_path": str(transcript), **more}
    put(root, json.dumps(body).encode(), "codex")


def test_texts_reasoning_and_commands_are_read_from_completed_items() -> None:
    """A call that is also a response item has the same key there."""
    data = (FIXTURES / "rollout.jsonl").read_bytes()
    entries = {event.key: event for event in reversed(read_events(data, TranscriptCursor(), tool_of("codex").from_line).events)}
    texts = [(event.what, event.text) for event in entries.values() if event.what in ("prompt", "said", "thinking")]
    assert sorted(texts) == [
        ("prompt", "Count the notes."),
        ("said", "I look first."),
        ("said", "There is one."),
        ("thinking", "First I look.\n\nThen I count."),
    ]
    results = {key: (event.what, event.data.get("exit")) for key, event in entries.items() if str(key).startswith("result:")}
    assert results == {
        "result:call_1": ("tool-failure", 1),
        "result:call_2": ("tool-result", None),
        "result:exec-1": ("tool-result", None),
        "result:exec-2": ("tool-result", 0),
    }
    assert entries["call:exec-1"].paths == ("/home/tess/project/notes.txt",)
    assert entries["call:exec-2"].text == "exec_command: wc -l notes.txt"


@pytest.mark.parametrize("late", [False, True])
def test_a_result_of_a_hook_gets_the_exit_code_of_the_rollout(root: Path, space: clia.Space, tmp_path: Path, late: bool) -> None:
    """``late``: the lines of the rollout are written after the hook of the result has run."""
    file = rollout(tmp_path, root, "rollout.jsonl")
    call = {"tool_name": "Bash", "tool_input": {"command": "cat missing"}, "tool_use_id": "call_1"}
    send(root, "PreToolUse", file, **call)
    send(root, "PostToolUse", file, **call, tool_response="cat: missing: No such file\n")
    if late:
        now = timestamp(datetime.now(UTC), "milliseconds")
        file.write_text(re.sub(r"2026-05-02T10:00:\d\d\.000Z", now, file.read_text()))
    send(root, "Stop", file, last_assistant_message="There is one.")
    run_ingest(root)
    entries = [entry for _, entry in recorded(space)]
    (failure,) = [entry for entry in entries if entry["kind"] == "tool-failure"]
    assert (failure["text"], failure["data"]["exit"]) == ("cat: missing: No such file\n", 1)
    assert [entry["text"] for entry in entries if entry["kind"] == "said"] == ["I look first.", "There is one."]
    assert len({entry["key"] for entry in entries}) == len(entries)


def test_a_sub_agent_is_named_by_its_path_in_the_tree_of_agents(root: Path, space: clia.Space, tmp_path: Path) -> None:
    file, own = rollout(tmp_path, root, "rollout.jsonl"), rollout(tmp_path, root, "rollout-of-subagent.jsonl")
    send(root, "SubagentStart", own, agent_id=SUB, agent_type="default")
    send(root, "SubagentStop", file, agent_id=SUB, agent_type="default", agent_transcript_path=str(own))
    run_ingest(root)
    name = agent_of(space, "codex", SESSION, SUB)
    assert "-review-notes-" in name
    assert [entry["text"] for agent, entry in recorded(space) if agent == name and entry["kind"] == "said"] == [
        "The notes are fine."
    ]


@pytest.mark.parametrize("late", [False, True])
def test_what_an_interrupted_turn_left_is_committed_at_the_next_prompt(
    root: Path, space: clia.Space, tmp_path: Path, late: bool
) -> None:
    """Hooks do not report an interruption, the rollout does; ``late``: nothing is ingested before the calls of the next turn."""
    rollout = tmp_path / "rollout.jsonl"

    def write(kind: str, **payload: Any) -> None:
        with rollout.open("a") as lines:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            lines.write(json.dumps({"timestamp": at, "type": kind, "payload": payload}) + "\n")

    def turn(prompt: str, path: str) -> None:
        send(root, "UserPromptSubmit", rollout, prompt=prompt)
        if not late:
            run_ingest(root)
        patch = {"command": f"*** Begin Patch\n*** Add File: {path}\n+text\n*** End Patch\n"}
        send(root, "PreToolUse", rollout, tool_name="apply_patch", tool_use_id=path, tool_input=patch)
        (root / path).write_text("text\n")
        send(root, "PostToolUse", rollout, tool_name="apply_patch", tool_use_id=path, tool_response="")

    write("session_meta", id=SESSION, cwd=str(root))
    send(root, "SessionStart", rollout, source="startup")
    turn("One.", "one.txt")
    write("event_msg", type="turn_aborted", reason="interrupted")
    turn("Two.", "two.txt")
    run_ingest(root)
    send(root, "Stop", rollout)
    run_ingest(root)
    commits = [
        (commit.subject, {file.path for file in space.changed(commit.cid)}) for commit in space.session_log(space.agents()[0])
    ]
    assert commits[:2] == [("Two.", {"two.txt"}), ("interrupted turn: One.", {"one.txt"})]


@pytest.mark.parametrize("tool", ["multi_agent_v1wait_agent", "collaborationwait_agent", "wait_agent"])
def test_a_sub_agent_that_the_session_waits_for_works_alone(root: Path, space: clia.Space, tmp_path: Path, tool: str) -> None:
    """So the files of its shell commands are its own, also if the session waits before the start is ingested."""
    file, own = rollout(tmp_path, root, "rollout.jsonl"), rollout(tmp_path, root, "rollout-of-subagent.jsonl")
    send(root, "SessionStart", file, source="startup")
    send(root, "SubagentStart", own, agent_id=SUB, agent_type="default")
    send(root, "PreToolUse", file, tool_name=tool, tool_use_id="w1", tool_input={})
    run_ingest(root)
    call = {"tool_name": "Bash", "tool_use_id": "s1", "agent_id": SUB, "agent_type": "default"}
    send(root, "PreToolUse", own, **call, tool_input={"command": "echo sub > sub.txt"})
    (root / "sub.txt").write_text("sub\n")
    send(root, "PostToolUse", own, **call, tool_response="")
    send(root, "SubagentStop", file, agent_id=SUB, agent_type="default", agent_transcript_path=str(own))
    send(root, "PostToolUse", file, tool_name=tool, tool_use_id="w1", tool_response="")
    send(root, "Stop", file)
    run_ingest(root)
    session = agent_of(space, "codex", SESSION)
    assert {line.agent for line in space.blame(session, "sub.txt")} == {agent_of(space, "codex", SESSION, SUB)}


def test_files_that_a_running_sub_agent_patches_are_left_to_it(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Codex does not list what still runs at the end of a turn, but it reports the end of each sub-agent."""
    file, own = rollout(tmp_path, root, "rollout.jsonl"), rollout(tmp_path, root, "rollout-of-subagent.jsonl")

    def patch(name: str, transcript: Path, **more: Any) -> None:
        command = f"*** Begin Patch\n*** Add File: {name}\n+text\n*** End Patch\n"
        send(root, "PreToolUse", transcript, tool_name="apply_patch", tool_use_id=name, tool_input={"command": command}, **more)
        (root / name).write_text("text\n")

    send(root, "SessionStart", file, source="startup")
    send(root, "SubagentStart", own, agent_id=SUB, agent_type="default")
    run_ingest(root)
    patch("theirs.txt", own, agent_id=SUB, agent_type="default")
    patch("ours.txt", file)
    send(root, "Stop", file)
    run_ingest(root)
    session = agent_of(space, "codex", SESSION)
    assert {"ours.txt"} == set(space.files(session)) - {"README.md"}
    send(root, "SubagentStop", file, agent_id=SUB, agent_type="default", agent_transcript_path=str(own))
    send(root, "Stop", file)
    run_ingest(root)
    authors = {path: {line.agent for line in space.blame(session, path)} for path in ("ours.txt", "theirs.txt")}
    assert authors == {"ours.txt": {session}, "theirs.txt": {agent_of(space, "codex", SESSION, SUB)}}
