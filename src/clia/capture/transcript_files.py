"""Transcripts as files.

Invariant: what cannot be read now is nothing now; a transcript belongs to the tool, and is only ever read.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AT_ONCE = 64 * 1024 * 1024


def bytes_from(path: str, offset: int, limit: int = AT_ONCE) -> bytes | None:
    """What stands in a file from an offset on, up to a limit; None where the file is shorter."""
    if not os.path.isabs(path) or not os.path.isfile(path):
        return b""  # nor a pipe, which would be waited for
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < offset:
                return None
            file.seek(offset)
            return file.read(limit)
    except OSError:
        return b""


def first_lines(path: str, limit: int) -> list[dict[str, Any]]:
    """The first lines of a transcript that can be read."""
    found = []
    for line in (bytes_from(path, 0, limit) or b"").split(b"\n"):
        with suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict):
                found.append(said)
    return found


def names_in(folder: str) -> list[str]:
    """What lies in a folder, sorted; nothing where it cannot be asked."""
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


def has_grown(path: str, offset: int) -> bool:
    """Whether more stands in a transcript than was read of it."""
    try:
        return os.path.isabs(path) and os.stat(path).st_size > offset
    except (OSError, ValueError):
        return False


def sub_transcript(transcript: str, sub: str) -> str:
    """Where Claude Code keeps what a sub-agent said."""
    return (
        os.path.join(transcript.removesuffix(".jsonl"), "subagents", f"agent-{sub}.jsonl") if transcript.endswith(".jsonl") else ""
    )
