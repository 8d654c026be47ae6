"""Tokens and cost that tools report in their transcripts.

Invariant: a message counts once, however many lines of the transcript repeat it. A transcript that cannot be read counts nothing.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BYTES_MAX = 256 * 1024 * 1024
_TOKEN_FIELDS = (
    *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("prompt_tokens", "completion_tokens"),
)


class Usage(NamedTuple):
    """Tokens, and what they cost as far as it is reported."""

    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Usage) -> Usage:
        return Usage(self.tokens + other.tokens, self.cost + other.cost)


def transcript_usage(path: str, since: str) -> Usage:
    """The usage of the messages of a transcript since a time (RFC 3339)."""
    try:
        with open(path, "rb") as file:
            lines = file.read(_BYTES_MAX).splitlines()
    except OSError:
        return Usage()
    return lines_usage(lines, since)


def lines_usage(lines: Iterable[bytes], since: str) -> Usage:
    """The usage in lines of a transcript."""
    messages: dict[str, Usage] = {}
    for number, text in enumerate(lines):
        if b"token" not in text:
            continue
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and isinstance(line.get("timestamp"), str) and line["timestamp"] >= since:
            name, usage = _message(line, number)
            messages[name] = usage  # a later line of a message has its final numbers
    total = Usage()
    for usage in messages.values():
        total = total.plus(usage)
    return total


def _message(line: Mapping[str, Any], number: int) -> tuple[str, Usage]:
    message, payload = line.get("message"), line.get("payload")
    if isinstance(message, dict):  # Claude Code
        usage = usage_in(message.get("usage"))
        cost = line.get("costUSD")
        return str(message.get("id") or number), usage._replace(cost=usage.cost or _number(cost))
    if isinstance(payload, dict) and payload.get("type") == "token_count":  # Codex
        info = payload.get("info")
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        return str(number), Usage(_count(last.get("total_tokens"))) if isinstance(last, dict) else Usage()
    tokens = line.get("tokens")
    if isinstance(tokens, dict):  # Gemini CLI
        return str(line.get("id") or number), Usage(_count(tokens.get("total")))
    return str(number), Usage()


def usage_in(usage: Any) -> Usage:
    """The usage that an answer of a model reports."""
    if not isinstance(usage, dict):
        return Usage()
    return Usage(sum(_count(usage.get(field)) for field in _TOKEN_FIELDS), _number(usage.get("cost")))


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**53 else 0


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) and 0 <= value < 1e12 else 0.0
