"""Forked and compacted sessions, and turns that a model error or the end of the session cut short."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.captured import agent_of, hook, put, recorded, run_ingest, texts_of_kind

if TYPE_CHECKING:
    from pathlib import Path

    import clia

ORIGIN, FORK = "11111111-a", "22222222-b"


def line(kind: str, text: str, second: int, session: str, root: Path, **more: Any) -> str:
    fields = {"type": kind, "uuid": f"uuid-{second}", "timestamp": f"2026-05-01T09:00:{second:02d}.000Z", "sessionId": session}
    content = text if kind == "user" else [{"type": "text", "text": text}]
    return json.dumps({**fields, "cwd": str(root), "message": {"role": kind, "content": content}, **more}) + "\n"


def queued(second: int, session: str) -> str:
    """The line that Claude Code writes first; it has no uuid."""
    return json.dumps({"type": "queue-operation", "timestamp": f"2026-05-01T09:00:{second:02d}.000Z", "sessionId": session}) + "\n"


def conversation(session: str, root: Path, *turns: tuple[int, str, str]) -> str:
    lines = [line("user", prompt, at, session, root, promptId=f"{session}-{at}") for at, prompt, _ in turns]
    answers = [line("assistant", answer, at + 1, session, root) for at, _, answer in turns]
    return "".join(part for pair in zip(lines, answers, strict=True) for part in pair)


def test_a_forked_session_is_related_to_its_origin_and_repeats_nothing(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """`--fork-session` copies lines with their time and uuid, but with the new session and prompt ids."""
    origin, fork = tmp_path / f"{ORIGIN}.jsonl", tmp_path / f"{FORK}.jsonl"
    origin.write_text(queued(1, ORIGIN) + conversation(ORIGIN, root, (2, "Begin.", "Begun.")))
    hook(root, "SessionStart", ORIGIN, source="startup", transcript_path=str(origin))
    hook(root, "Stop", ORIGIN, transcript_path=str(origin))
    run_ingest(root)
    hook(root, "SessionStart", FORK, source="resume", transcript_path=str(fork))  # its transcript does not exist yet
    run_ingest(root)
    fork.write_text(queued(10, FORK) + conversation(FORK, root, (2, "Begin.", "Begun."), (11, "Fork.", "Forked.")))
    hook(root, "Stop", FORK, transcript_path=str(fork), last_assistant_message="Forked.")
    run_ingest(root)
    first, second = (agent_of(space, "claude-code", session) for session in (ORIGIN, FORK))
    assert [(edge.src, edge.dst) for edge in space.relations(second) if edge.kind == "forked-from"] == [(second, first)]
    texts = [(agent, entry["text"]) for agent, entry in recorded(space) if entry["kind"] in ("prompt", "said")]
    assert sorted(texts) == [(first, "Begin."), (first, "Begun."), (second, "Fork."), (second, "Forked.")]


def test_a_fork_that_is_ingested_while_its_transcript_is_written_repeats_nothing(
    root: Path, space: clia.Space, tmp_path: Path
) -> None:
    """The first lines of a fork are its own; the copied ones follow, with the id of its first prompt."""
    origin, fork = tmp_path / f"{ORIGIN}.jsonl", tmp_path / f"{FORK}.jsonl"
    origin.write_text(queued(1, ORIGIN) + conversation(ORIGIN, root, (2, "Begin.", "Begun.")))
    hook(root, "SessionStart", ORIGIN, source="startup", transcript_path=str(origin))
    hook(root, "Stop", ORIGIN, transcript_path=str(origin))
    run_ingest(root)
    fork.write_text(queued(10, FORK))
    hook(root, "SessionStart", FORK, source="resume", transcript_path=str(fork))
    hook(root, "UserPromptSubmit", FORK, prompt="Fork.", prompt_id="p-1", transcript_path=str(fork))
    run_ingest(root)
    copied = line("user", "Begin.", 2, FORK, root, promptId="p-1") + line("assistant", "Begun.", 3, FORK, root)
    own = line("user", "Fork.", 11, FORK, root, promptId="p-1") + line("assistant", "Forked.", 12, FORK, root)
    with fork.open("a") as file:
        file.write(copied + own)
    hook(root, "Stop", FORK, transcript_path=str(fork), last_assistant_message="Forked.")
    run_ingest(root)
    first, second = (agent_of(space, "claude-code", session) for session in (ORIGIN, FORK))
    texts = [(agent, entry["text"]) for agent, entry in recorded(space) if entry["kind"] in ("prompt", "said")]
    assert sorted(texts) == [(first, "Begin."), (first, "Begun."), (second, "Fork."), (second, "Forked.")]
    assert [(edge.src, edge.dst) for edge in space.relations(second) if edge.kind == "forked-from"] == [(second, first)]


def test_a_fork_whose_transcript_exists_at_the_start_begins_with_the_files_of_its_origin(
    root: Path, space: clia.Space, tmp_path: Path
) -> None:
    origin, fork = tmp_path / f"{ORIGIN}.jsonl", tmp_path / f"{FORK}.jsonl"
    origin.write_text(queued(1, ORIGIN) + conversation(ORIGIN, root, (2, "Begin.", "Begun.")))
    hook(root, "SessionStart", ORIGIN, source="startup", transcript_path=str(origin))
    (root / "made.txt").write_text("made\n")
    hook(root, "Stop", ORIGIN, transcript_path=str(origin))
    run_ingest(root)
    fork.write_text(queued(10, FORK) + conversation(FORK, root, (2, "Begin.", "Begun.")))
    hook(root, "SessionStart", FORK, source="resume", transcript_path=str(fork))
    run_ingest(root)
    second = agent_of(space, "claude-code", FORK)
    assert space.files(second)["made.txt"] == b"made\n"
    assert texts_of_kind(space, "prompt") == ["Begin."]


def test_prompts_whose_ids_hooks_do_not_report_are_traced_once(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Claude Code 2.1.79 writes the id of a prompt into its transcript only; a later version also reports it."""
    file = tmp_path / f"{ORIGIN}.jsonl"
    hook(root, "SessionStart", ORIGIN, source="startup", transcript_path=str(file))
    for second, ids in ((2, {}), (4, {}), (6, {"prompt_id": f"{ORIGIN}-6"})):
        hook(root, "UserPromptSubmit", ORIGIN, prompt="Go on.", transcript_path=str(file), **ids)
        run_ingest(root)
        with file.open("a") as lines:
            lines.write(conversation(ORIGIN, root, (second, "Go on.", f"Done at {second}.")))
        hook(root, "Stop", ORIGIN, transcript_path=str(file))
        run_ingest(root)
    file.write_text(file.read_text() + conversation(ORIGIN, root, (8, "Read first.", "Done at 8.")))
    run_ingest(root)
    hook(root, "UserPromptSubmit", ORIGIN, prompt="Read first.", transcript_path=str(file))
    run_ingest(root)
    assert texts_of_kind(space, "prompt") == [*["Go on."] * 3, "Read first."]


def test_compacting_makes_no_sub_agent(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Claude Code reports the end of its internal summarizer, whose transcript may be missing; some versions write one."""
    file = tmp_path / "abcdef12-9.jsonl"
    file.write_text(queued(1, "abcdef12-9") + conversation("abcdef12-9", root, (2, "Begin.", "Begun.")))
    folder = tmp_path / "abcdef12-9" / "subagents"
    folder.mkdir(parents=True)
    internal = line("user", "Summarize.", 3, "abcdef12-9", root, agentId="acompact-0a1b2c3d", isSidechain=True)
    (folder / "agent-acompact-0a1b2c3d.jsonl").write_text(internal)
    hook(root, "SessionStart", source="startup", transcript_path=str(file))
    hook(root, "PreCompact", trigger="manual", transcript_path=str(file))
    for sub in ("a0123456789abcdef", "acompact-0a1b2c3d"):
        path = str(folder / f"agent-{sub}.jsonl")
        hook(root, "SubagentStop", agent_id=sub, agent_type="", agent_transcript_path=path, last_assistant_message="A summary.")
    hook(root, "SessionStart", source="compact", transcript_path=str(file))
    hook(root, "SessionEnd", reason="other", transcript_path=str(file))
    run_ingest(root)
    agent = agent_of(space, "claude-code", "abcdef12-9")
    assert space.relations.sub_agents(agent) == []
    assert "Summarize." not in [entry["text"] for _, entry in recorded(space)]


def test_a_turn_that_a_model_error_ended_is_marked(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Claude Code reports it with an event, Codex in its rollout, and older versions only in the transcript."""
    hook(root, "UserPromptSubmit", "s-event", prompt="One.")
    hook(root, "StopFailure", "s-event", error="overloaded")
    old = tmp_path / "s-line.jsonl"
    old.write_text(queued(1, "s-line") + line("assistant", "API Error: 400", 2, "s-line", root, isApiErrorMessage=True))
    hook(root, "UserPromptSubmit", "s-line", prompt="Two.")
    hook(root, "SessionEnd", "s-line", reason="other", transcript_path=str(old))
    rollout = tmp_path / "rollout.jsonl"
    meta: dict[str, Any] = {"type": "session_meta", "payload": {"id": "s-codex", "cwd": str(root)}}
    error = {"type": "event_msg", "payload": {"type": "error", "message": "stream disconnected"}}
    rollout.write_text("".join(json.dumps({"timestamp": "2026-05-01T09:00:01.000Z", **part}) + "\n" for part in (meta, error)))
    for name, more in (("UserPromptSubmit", {"prompt": "Three."}), ("SessionEnd", {"reason": "other"})):
        body = {"session_id": "s-codex", "hook_event_name": name, "cwd": str(root), "transcript_path": str(rollout), **more}
        put(root, json.dumps(body).encode(), "codex")
    for name, more in (("BeforeAgent", {"prompt": "Four."}), ("SessionEnd", {"reason": "exit"})):
        body = {"session_id": "s-gemini", "hook_event_name": name, "cwd": str(root), **more}
        put(root, json.dumps(body).encode(), "gemini")
    run_ingest(root)
    sessions = (("claude-code", "s-event"), ("claude-code", "s-line"), ("codex", "s-codex"), ("gemini", "s-gemini"))
    subjects = [next(iter(space.history.own(agent_of(space, *session)))).message.splitlines()[0] for session in sessions]
    assert subjects == ["model error: One.", "model error: Two.", "model error: Three.", "unfinished turn: Four."]
