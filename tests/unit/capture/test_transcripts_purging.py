"""The store has no raw text of transcripts, and a purge covers everything that capture stores."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import clia
from clia.capture import purging
from clia.capture.purging import purge_captures
from clia.capture.spool_reader import REJECTED, rejected
from clia.capture.tools import claude_code
from clia.capture.transcripts import TranscriptCursor, read_events, with_texts
from support.captured import common_dir, hook, put, rehearse, run_ingest, waiting
from support.fake_secrets import FAKES

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LEAK = 'blue "harbour" Österreich'
SESSION = "abcdef12-9"


def message(text: str) -> str:
    """A line of a transcript; all lines belong to one message."""
    content = {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": text}]}
    return (
        json.dumps({"type": "assistant", "timestamp": "2026-11-15T10:00:00.000Z", "sessionId": SESSION, "message": content}) + "\n"
    )


def rows(space: clia.Space) -> str:
    return json.dumps(space.local.store.scan("captured/"), ensure_ascii=False)


def files_with(root: Path, text: str) -> list[str]:
    """The files of the space, apart from git objects, that hold a text in any JSON spelling."""
    spellings = {spelling.encode() for spelling in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])}
    spellings.add("".join(f"\\u{ord(character):04x}" for character in text).encode())
    files = (path for path in (root / ".git").rglob("*") if path.is_file() and "objects" not in path.parts)
    return sorted(str(path.relative_to(root)) for path in files if any(form in path.read_bytes() for form in spellings))


def test_a_cursor_saves_no_text_and_reads_it_again(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_text(message("One.") + message("Two."))
    cursor = read_events(path.read_bytes(), TranscriptCursor(), claude_code.from_line).cursor
    saved = json.loads(json.dumps(cursor.to_json()))
    assert "One." not in json.dumps(saved)
    assert with_texts(TranscriptCursor.from_json(saved), str(path), claude_code.from_line) == cursor


def test_a_cursor_of_an_older_version_loses_its_raw_texts() -> None:
    saved = {"offset": 7, "counts": {}, "message": "msg_1", "parts": ["One."], "calls": {}, "first": "ab"}
    assert TranscriptCursor.from_json(saved) == TranscriptCursor(7, first="ab")


def test_the_store_keeps_no_raw_text_of_a_transcript(root: Path, space: clia.Space, tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    secret = FAKES[0]
    for text in ("First words.", secret.text):
        with path.open("a") as file:
            file.write(message(text))
        hook(root, "PreToolUse", transcript_path=str(path), tool_name="Read", tool_use_id=f"t{len(text)}", tool_input={})
        run_ingest(root)
        assert text not in rows(space)
    joined = (
        f"First words.\n\n{secret.text}"  # a hook reports both texts as one, which matches them although they were read separately
    )
    hook(root, "Stop", transcript_path=str(path), last_assistant_message=joined)
    run_ingest(root)
    agent = f"claude-{SESSION[:8]}"
    assert [hit.entry["kind"] for hit in space.traces.search("First words", agent=agent)] == ["said"]
    assert secret.secret not in rows(space)
    assert [name for name in files_with(root, secret.secret) if not name.endswith("transcript.jsonl")] == []


def test_no_file_or_table_contains_the_text_after_a_purge(root: Path, space: clia.Space) -> None:
    prompt, answer = {"prompt": f"Say {LEAK}."}, {"say": f"I say {LEAK}."}
    script: list[dict[str, Any]] = [prompt, answer, {"write": "a.txt", "text": "a\n"}, {"stop": True}]
    report = rehearse(root, script, home=str(root.parent / "home"), after=lambda: run_ingest(root))
    run_ingest(root)
    agent = f"claude-{report['session'][:8]}"
    spool = os.path.join(common_dir(root), "clia", "spool")
    put(root, json.dumps({"session_id": "", "prompt": LEAK}).encode())  # rejected: it names no session
    run_ingest(root)
    assert len(rejected(spool)) == 1
    hook(root, "UserPromptSubmit", prompt=f"Again: {LEAK}")
    escaped = "".join(f"\\u{ord(character):04x}" for character in LEAK)
    put(root, f'{{"session_id": "x-1", "hook_event_name": "UserPromptSubmit", "prompt": "{escaped}"}}'.encode())
    assert LEAK in json.loads(json.dumps(space.local.store.scan("captured/")[0][1]["prompt"]))
    assert len(files_with(root, LEAK)) >= 4
    remaining = space.traces.purge(agent, LEAK).remaining
    assert files_with(root, LEAK) == []
    assert any(line.startswith("transcript ") for line in remaining)
    assert len(waiting(root)) == 2
    run_ingest(root)
    assert files_with(root, LEAK) == []
    assert len(os.listdir(os.path.join(spool, REJECTED))) == 2
    assert space.traces.search(LEAK) == []


def test_a_purge_covers_events_that_are_ingested_while_it_runs(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def purge_after_ingest(*arguments: Any) -> list[str]:
        run_ingest(root)
        return purge_captures(*arguments)

    hook(root, "UserPromptSubmit", prompt="innocent")
    run_ingest(root)
    hook(root, "UserPromptSubmit", prompt=f"Again: {LEAK}")
    monkeypatch.setattr(purging, "purge_captures", purge_after_ingest)
    purged = space.traces.purge(f"claude-{SESSION[:8]}", LEAK)
    assert purged.pending == 1
    assert space.traces.search("Again") != []
    assert space.traces.search(LEAK) == []
    assert files_with(root, LEAK) == []


def test_a_purge_lists_files_that_a_hook_is_still_writing(root: Path, space: clia.Space) -> None:
    hook(root, "UserPromptSubmit", prompt="innocent")
    run_ingest(root)
    draft = root / ".git/clia/spool/tmp/00000000000000000001-1-00000000"
    draft.write_text(LEAK)
    remaining = space.traces.purge(f"claude-{SESSION[:8]}", LEAK).remaining
    assert f"spool file {draft}: a hook was writing it; purge again" in remaining


def test_a_purge_lists_sessions_whose_journal_has_the_text(space: clia.Space) -> None:
    space.spawn("scout", clia.Briefing(title="Look"))
    space.ask("scout", {"question": LEAK})
    assert "session ask-1: its journal holds the text, and a replay needs it" in space.traces.purge("scout", LEAK).remaining
