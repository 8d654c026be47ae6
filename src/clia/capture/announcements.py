"""Tool calls that a tool's hook has announced and that are still in the spool."""

from __future__ import annotations

import json
import os
from itertools import islice

from clia.capture import spool_reader
from clia.capture.spool import spool_of
from clia.errors import CliaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_EVENTS = ("PreToolUse", "BeforeTool")
_LOOK_BACK = 200


def announced_by_id(common_dir: str, call: str) -> tuple[str, str] | None:
    """The session and the sub-agent (empty for the session itself) that announced the call with an id."""
    for payload in _newest(common_dir, call):
        if payload.get("tool_use_id") == call:
            return _caller(payload)
    return None


def announced_by_content(common_dir: str, tool: str, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """The session whose newest event announces a call of an MCP tool with these arguments; None unless exactly one does."""
    newest: dict[str, Mapping[str, Any]] = {}
    for payload in _newest(common_dir):
        newest.setdefault(_caller(payload)[0], payload)
    callers = [
        _caller(payload)
        for payload in newest.values()
        if payload.get("hook_event_name") in _EVENTS
        and str(payload.get("tool_name")).endswith((f"_{tool}", f"-{tool}"))  # tools put the server's name before it
        and payload.get("tool_input") == arguments
    ]
    return callers[0] if len(callers) == 1 else None


def _caller(payload: Mapping[str, Any]) -> tuple[str, str]:
    session, sub = (payload.get(key) for key in ("session_id", "agent_id"))
    return session if isinstance(session, str) else "", sub if isinstance(sub, str) else ""


def _newest(common_dir: str, text: str = "") -> Iterator[Mapping[str, Any]]:
    """The waiting events that contain a text, newest first. Those that ingest would reject are skipped."""
    spool = os.fsdecode(spool_of(os.fsencode(common_dir)))
    for name in islice(reversed(spool_reader.waiting(spool)), _LOOK_BACK):
        try:
            record = spool_reader.read(spool, name)
            payload = json.loads(record.payload) if record is not None and text.encode() in record.payload else None
        except (CliaError, ValueError, RecursionError):
            continue
        if isinstance(payload, dict):
            yield payload
