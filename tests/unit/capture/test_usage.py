"""Tokens and cost in transcripts of tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clia.capture.usage import Usage, lines_usage, transcript_usage, usage_in

HOOKS = Path(__file__).parents[2] / "fixtures" / "hooks"


def test_a_message_counts_once_with_its_last_numbers() -> None:
    lines = [
        {"timestamp": "2026-05-01T09:00:00Z", "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"timestamp": "2026-05-01T09:00:01Z", "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 7}}},
        {"timestamp": "2026-05-01T09:00:02Z", "message": {"id": "m2", "usage": {"input_tokens": 1}}, "costUSD": 0.5},
        {"timestamp": "2026-04-30T09:00:00Z", "message": {"id": "m3", "usage": {"input_tokens": 100}}},
        {"timestamp": "2026-05-01T09:00:00Z", "type": "event_msg", "payload": {"type": "token_count", "info": None}},
        {
            "timestamp": "2026-05-01T09:00:00Z",
            "payload": {
                "type": "token_count",
                "info": {"last_token_usage": {"total_tokens": 30}, "total_token_usage": {"total_tokens": 99}},
            },
        },
        {"timestamp": "2026-05-01T09:00:00Z", "id": "g1", "tokens": {"total": 400}},
        {"timestamp": "2026-05-01T09:00:00Z", "id": "g1", "tokens": {"total": 400}},
    ]
    raw = [json.dumps(line).encode() for line in lines]
    assert lines_usage(raw, "2026-05-01T00:00:00Z") == Usage(12 + 1 + 30 + 400, 0.5)


def test_recorded_transcripts_are_counted() -> None:
    claude = transcript_usage(str(HOOKS / "claude-code-2.1.325" / "transcript-of-subagent.jsonl"), "")
    gemini = transcript_usage(str(HOOKS / "gemini-0.61.0" / "transcript.jsonl"), "")
    assert claude.tokens > 10_000
    assert gemini.tokens > 9_000


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'{"tokens": 5}', b'{"timestamp": 5, "tokens": {}}', b"\xff token", b'{"tokens":' * 999]
)
def test_damaged_lines_count_nothing(line: bytes) -> None:
    assert lines_usage([line], "") == Usage()
    assert transcript_usage("/nowhere", "") == Usage()


def test_numbers_that_make_no_sense_count_nothing() -> None:
    assert usage_in({"input_tokens": -5, "output_tokens": True, "cost": -1, "prompt_tokens": 2**60}) == Usage()
    assert usage_in({"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.25}) == Usage(7, 0.25)
