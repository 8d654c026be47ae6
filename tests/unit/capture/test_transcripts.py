from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.capture.transcripts import read_bytes
from clia.errors import BackendError
from support.captured import new_space, put, recorded, take_in
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


def told_by(space: clia.Space, kind: str) -> list[str]:
    return [entry["text"] for _, entry in recorded(space) if entry["kind"] == kind]


def hook(root: Path, name: str, session: str = "abcdef12-9", **more: Any) -> None:
    body = {"session_id": session, "hook_event_name": name, "cwd": str(root), **more}
    put(root, json.dumps(body).encode())


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

    monkeypatch.setattr("clia.capture.transcripts.read_bytes", bounded)
    monkeypatch.setattr("clia.capture.transcripts.PIECE", 256)
    monkeypatch.setattr("clia.capture.transcripts.READ_MAX", 4096)
    texts = ["first", "long " * 400, "too long " * 1000, "last"]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(said_line(text, number) for number, text in enumerate(texts)))
    hook(root, "Stop", transcript_path=str(file))
    made = take_in(root)
    assert not made.trouble
    assert made.done.unreadable > 0
    assert told_by(space, "said") == [texts[0], texts[1], texts[3]]


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
