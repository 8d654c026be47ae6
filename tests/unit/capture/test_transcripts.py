"""Transcripts: each message is recorded once, however files grow and move."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from clia.capture.transcripts import read_bytes
from clia.errors import BackendError
from support.captured import hook, put, run_ingest, texts_of_kind

if TYPE_CHECKING:
    from pathlib import Path

    import clia


def test_a_prompt_reported_before_the_transcript_is_known_counts_once(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """Codex may not have created its file at the first prompt."""
    file = tmp_path / "rollout.jsonl"
    body = {"session_id": "s1", "cwd": str(root), "turn_id": "t"}
    put(
        root,
        json.dumps({**body, "hook_event_name": "UserPromptSubmit", "prompt": "Go.", "transcript_path": None}).encode(),
        "codex",
    )
    run_ingest(root)
    at = "2026-11-15T10:00:00.000Z"
    meta = {"timestamp": at, "type": "session_meta", "payload": {"id": "s1", "cwd": str(root)}}
    line = {"timestamp": at, "type": "event_msg", "payload": {"type": "user_message", "message": "Go."}}
    file.write_text(f"{json.dumps(meta)}\n{json.dumps(line)}\n")
    put(root, json.dumps({**body, "hook_event_name": "Stop", "transcript_path": str(file)}).encode(), "codex")
    run_ingest(root)
    assert texts_of_kind(space, "prompt") == ["Go."]


def message_line(text: str, second: int) -> str:
    content = [{"type": "text", "text": text}]
    return (
        json.dumps(
            {
                "type": "assistant",
                "timestamp": f"2026-11-15T10:00:{second:02d}.000Z",
                "sessionId": "abcdef12-9",
                "message": {"content": content},
            }
        )
        + "\n"
    )


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "another"])
def test_a_transcript_that_continues_in_another_file_loses_and_duplicates_nothing(
    root: Path, space: clia.Space, tmp_path: Path, copied: bool
) -> None:
    """A copy repeats earlier messages; another file has new ones, perhaps with the same text."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text(message_line("Done.", 1))
    hook(root, "Stop", transcript_path=str(first))
    run_ingest(root)
    second.write_text((first.read_text() if copied else "") + message_line("Done.", 2))
    hook(root, "Stop", transcript_path=str(second))
    run_ingest(root)
    assert texts_of_kind(space, "said") == ["Done.", "Done."]


def test_a_last_message_too_long_for_an_entry_counts_once(root: Path, space: clia.Space, tmp_path: Path) -> None:
    file, text = tmp_path / "a.jsonl", "word " * 20_000
    file.write_text(message_line(text, 1))
    hook(root, "Stop", transcript_path=str(file), last_assistant_message=text)
    run_ingest(root)
    assert len(texts_of_kind(space, "said")) == 1


def test_repeated_messages_count_again_without_a_transcript(root: Path, space: clia.Space) -> None:
    """Even in a later ingest."""
    for _ in range(2):
        hook(root, "UserPromptSubmit", prompt="Go on.")
        run_ingest(root)
        hook(root, "Stop", last_assistant_message="Done.")
        run_ingest(root)
    assert (texts_of_kind(space, "prompt"), texts_of_kind(space, "said")) == (["Go on."] * 2, ["Done."] * 2)


def test_a_line_longer_than_a_chunk_is_read_and_an_oversized_one_is_skipped(
    root: Path, space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later lines are read."""
    reads = Counter[int]()

    def bounded(path: str, offset: int, limit: int) -> bytes | None:
        reads[offset] += 1
        assert reads[offset] < 100, "it reads the same bytes repeatedly"
        return read_bytes(path, offset, limit)

    monkeypatch.setattr("clia.capture.transcripts.read_bytes", bounded)
    monkeypatch.setattr("clia.capture.transcripts.PIECE", 256)
    monkeypatch.setattr("clia.capture.transcripts.READ_MAX", 4096)
    texts = ["first", "long " * 400, "too long " * 1000, "last"]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(message_line(text, number) for number, text in enumerate(texts)))
    hook(root, "Stop", transcript_path=str(file))
    report = run_ingest(root)
    assert not report.trouble
    assert report.done.unreadable > 0
    assert texts_of_kind(space, "said") == [texts[0], texts[1], texts[3]]


@pytest.mark.parametrize("step", ["entries-made", "entries-recorded", "turn-recorded", "event-recorded"])
def test_a_failure_at_the_end_of_a_turn_duplicates_nothing_without_a_transcript(root: Path, space: clia.Space, step: str) -> None:
    reached: list[str] = []

    def fail_once(name: str) -> None:
        reached.append(name)
        if name == step and reached.count(name) == 1:
            raise BackendError("the disk is full", code="disk-full")

    hook(root, "UserPromptSubmit", prompt="Go.")
    hook(root, "Stop", last_assistant_message="one")
    run_ingest(root, fail_once)
    run_ingest(root)
    assert texts_of_kind(space, "prompt") + texts_of_kind(space, "said") == ["Go.", "one"]
