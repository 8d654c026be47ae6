"""Ingest reads only transcripts of the session and the repository of an event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture.installation.hook_health import captured_in
from support import git
from support.captured import hook, new_space, put, recorded, run_ingest
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import clia

SESSION, AT = "abcdef12-9", "2026-11-15T10:00:00.000Z"


def claude_line(text: str, cwd: Path, session: str = SESSION) -> str:
    message = {"role": "user", "content": text}
    return json.dumps({"type": "user", "timestamp": AT, "sessionId": session, "cwd": str(cwd), "message": message}) + "\n"


def prompts(space: clia.Space) -> list[str]:
    return [entry["text"] for _, entry in recorded(space) if entry["kind"] == "prompt"]


def refusals(space: clia.Space) -> list[str]:
    return [entry["text"] for _, entry in recorded(space) if "was not read" in entry["text"]]


def another_session(root: Path, file: Path) -> None:
    file.write_text(claude_line("Theirs.", root, session="fedcba98-1"))


def another_project(root: Path, file: Path) -> None:
    file.write_text(claude_line("Theirs.", new_space(root.parent / "other")))


def another_project_after_a_long_line(root: Path, file: Path) -> None:
    another_project(root, file)
    file.write_text(json.dumps({"type": "mode", "sessionId": SESSION, "text": "x" * 70_000}) + "\n" + file.read_text())


def a_link(root: Path, file: Path) -> None:
    target = file.with_name("target.jsonl")
    target.write_text(claude_line("Theirs.", root))
    file.symlink_to(target)


def no_transcript(root: Path, file: Path) -> None:
    del root
    file.write_text('{"type": "user", "message": {"role": "user", "content": "Theirs."}}\n')


@pytest.mark.parametrize("write", [another_session, another_project, another_project_after_a_long_line, a_link, no_transcript])
def test_a_transcript_of_another_is_not_read_and_noted_once(
    root: Path, space: clia.Space, tmp_path: Path, write: Callable[[Path, Path], None]
) -> None:
    file = tmp_path / "named.jsonl"
    write(root, file)
    hook(root, "UserPromptSubmit", prompt="Mine.", transcript_path=str(file))
    hook(root, "Stop", transcript_path=str(file), last_assistant_message="Done.")
    run_ingest(root)
    hook(root, "Stop", transcript_path=str(file), last_assistant_message="Done again.")
    run_ingest(root)
    assert prompts(space) == ["Mine."]
    assert len(refusals(space)) == 1
    (captured,) = captured_in(str(root), settings())
    assert captured.refused == str(file)


def test_a_transcript_of_a_sub_agent_of_another_session_is_not_read(root: Path, space: clia.Space, tmp_path: Path) -> None:
    file = tmp_path / "agent-s1.jsonl"
    another_session(root, file)
    hook(root, "SubagentStart", agent_id="s1", agent_type="maker")
    hook(root, "SubagentStop", agent_id="s1", agent_type="maker", agent_transcript_path=str(file))
    run_ingest(root)
    assert prompts(space) == []
    assert len(refusals(space)) == 1


@pytest.mark.parametrize("where", ["worktree", "submodule", "removed"])
def test_a_transcript_from_another_directory_of_the_repository_is_read(
    root: Path, space: clia.Space, tmp_path: Path, where: str
) -> None:
    place = tmp_path / "gone"
    if where == "worktree":
        place = root.parent / "linked"
        git("worktree", "add", "--quiet", "--detach", str(place), cwd=root)
    elif where == "submodule":
        library = new_space(root.parent / "library")
        git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library", cwd=root)
        place = root / "library"
    file = tmp_path / "own.jsonl"
    file.write_text(claude_line("Ours.", place))
    hook(root, "Stop", transcript_path=str(file))
    run_ingest(root)
    assert prompts(space) == ["Ours."]
    assert refusals(space) == []


def test_a_transcript_that_is_still_empty_is_read_later(root: Path, space: clia.Space, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.touch()
    hook(root, "SessionStart", source="startup", transcript_path=str(file))
    run_ingest(root)
    file.write_text(claude_line("Ours.", root))
    hook(root, "Stop")
    run_ingest(root)
    assert prompts(space) == ["Ours."]
    assert refusals(space) == []


def test_a_long_transcript_that_began_as_another_session_is_read(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Older versions copied the lines of a resumed session into the file of the new one."""
    file = tmp_path / "own.jsonl"
    note = {"type": "summary", "sessionId": "fedcba98-1", "text": "x" * 10_000}
    file.write_text(f"{json.dumps(note)}\n" * 120 + claude_line("Ours.", root))
    hook(root, "Stop", transcript_path=str(file))
    run_ingest(root)
    assert prompts(space) == ["Ours."]


@pytest.mark.parametrize("tool", ["codex", "gemini"])
def test_the_other_tools_read_only_their_own_transcripts(root: Path, space: clia.Space, tmp_path: Path, tool: str) -> None:
    thought: dict[str, Any] = {"id": "m1", "type": "gemini", "timestamp": AT, "thoughts": [{"description": "Theirs."}]}
    said = {"timestamp": AT, "type": "event_msg", "payload": {"type": "user_message", "message": "Theirs."}}
    for session in ("another", "s1"):
        meta: dict[str, Any] = {"type": "session_meta", "timestamp": AT, "payload": {"id": session, "cwd": str(root)}}
        first = meta if tool == "codex" else {"sessionId": session, "kind": "main"}
        file = tmp_path / f"{session}.jsonl"
        file.write_text(f"{json.dumps(first)}\n{json.dumps(said if tool == 'codex' else thought)}\n")
        end = "Stop" if tool == "codex" else "AfterAgent"
        body = {"session_id": "s1", "cwd": str(root), "hook_event_name": end, "transcript_path": str(file)}
        put(root, json.dumps(body).encode(), tool)
        run_ingest(root)
        texts = [entry["text"] for _, entry in recorded(space) if entry["kind"] in ("prompt", "thinking")]
        assert texts == ([] if session == "another" else ["Theirs."])
    assert len(refusals(space)) == 1
