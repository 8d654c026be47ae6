"""Tool calls that a tool's hook has announced and not ended.

They are in the spool, or in the trace if an ingest has recorded the announcement before the call itself arrives.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from itertools import islice
from typing import NamedTuple

from clia.capture import spool_reader
from clia.capture.events import CALL, END, FAILURE, PROMPT, RESULT, START, TURN_END, small
from clia.capture.spool import spool_of
from clia.capture.tools import tool_of
from clia.capture.transcripts import hook_key
from clia.errors import CliaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space

_LOOK_BACK = 200
_ENDING = (START, PROMPT, TURN_END, END)


class CallStep(NamedTuple):
    """A step of a session as its hooks report it: the announcement or the end of a call, or the start or end of a turn."""

    kind: str
    key: str  # the same in the spool and in the trace
    data: Mapping[str, Any]


def announced_by_id(common_dir: str, call: str) -> tuple[str, str] | None:
    """The session and the sub-agent (empty for the session itself) that announced the call with an id."""
    for caller, step in _waiting_steps(common_dir, call):
        if step.kind == CALL and step.data.get("id") == call:
            return caller
    return None


def announced_by_content(space: Space, tool: str, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """The session that announced a call of an MCP tool with these arguments, which has not ended; None unless exactly one did."""
    waiting: dict[tuple[str, str], list[CallStep]] = defaultdict(list)
    for caller, step in reversed(list(_waiting_steps(os.path.dirname(space.home)))):
        waiting[caller].append(step)
    recorded = {(row.session, row.sub): row.agent for row in space.captures.sessions() if row.open and row.turn}
    wanted = space.local.redacted(small(dict(arguments)))
    callers = []
    for caller in {**recorded, **waiting}:
        steps = {step.key: step for step in [*_recorded_steps(space, recorded.get(caller)), *waiting[caller]]}
        if _has_open_call(list(steps.values()), tool, wanted):
            callers.append(caller)
    return callers[0] if len(callers) == 1 else None


def _has_open_call(steps: Sequence[CallStep], tool: str, arguments: object) -> bool:
    """Whether a call is announced and not ended. A result without an id is that of the first open call of the same tool."""
    calls: list[CallStep] = []
    for step in steps:
        if step.kind in _ENDING:
            calls.clear()
        elif step.kind == CALL:
            calls.append(step)
        elif step.kind in (RESULT, FAILURE):
            field = "id" if step.data.get("id") else "tool"
            ended = next((call for call in calls if call.data.get(field) == step.data.get(field)), None)
            calls = [call for call in calls if call is not ended]
    names = (f"_{tool}", f"-{tool}")  # tools put the server's name before it
    return any(str(call.data.get("tool")).endswith(names) and call.data.get("input") == arguments for call in calls)


def _recorded_steps(space: Space, agent: str | None) -> Iterator[CallStep]:
    """The newest steps in the trace of an agent."""
    if agent is None or not space.views.has_agent(agent):
        return
    bound = space.traces.of(agent)
    for entry in (*(bound.entries if bound is not None else ()), *space.traces.pending(agent)):
        yield CallStep(str(entry["kind"]), str(entry.get("key", "")), entry.get("data") or {})


def _waiting_steps(common_dir: str, text: str = "") -> Iterator[tuple[tuple[str, str], CallStep]]:
    """The steps in waiting events that contain a text, newest first, each with its session and sub-agent.

    Events that ingest would reject are skipped.
    """
    spool = os.fsdecode(spool_of(os.fsencode(common_dir)))
    for name in islice(reversed(spool_reader.waiting(spool)), _LOOK_BACK):
        try:
            record = spool_reader.read(spool, name)
            if record is None or text.encode() not in record.payload:
                continue
            report = tool_of(record.tool).from_hook(json.loads(record.payload))
        except (CliaError, ValueError, RecursionError):
            continue
        for event in reversed(report.events):
            yield (report.session, event.sub), CallStep(event.what, hook_key(event, {}, name) or name, event.data)
