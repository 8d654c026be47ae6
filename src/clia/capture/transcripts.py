"""Reading a transcript as it grows.

Invariant: where a reader stands says everything that it needs to go on: read on from there, it gives each event the same key
as if the whole had been read at once. A line that is not whole yet is left for later; one that cannot be read is passed over
and counted.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from clia.capture.events import CALL, FAILURE, PROMPT, RESULT, SAID, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.capture.events import Event

_JOINTS = ("", "\n", "\n\n")
_JOINED = "joined:"
_PARTS = 8


class Standing(NamedTuple):
    """Where a reader stands: how many bytes it has read, and how often each text came so far."""

    offset: int = 0
    counts: Mapping[str, int] = {}
    message: str = ""  # the message that was read last
    parts: tuple[str, ...] = ()  # the texts of it
    calls: Mapping[str, str] = {}  # the tool of each call that has no result yet
    first: str = ""  # the digest of the first line, by which a file is known again


class Reading(NamedTuple):
    """What was read: the events with their keys, where the reader stands now, and how many lines it could not read."""

    events: tuple[Event, ...]
    standing: Standing
    unreadable: int = 0


def read_on(
    data: bytes,
    standing: Standing,
    from_line: Callable[[Mapping[str, Any]], list[Event]],
    upto: str | None = None,
    since: str = "",
) -> Reading:
    """The events in ``data``, which starts where the reader stands; those after the time ``upto`` are left for later.

    Those before ``since`` are another session's: they are passed over, and do not count.
    """
    counts = dict(standing.counts)
    at, unreadable = standing.offset, 0
    message, parts, calls = standing.message, standing.parts, dict(standing.calls)
    events: list[Event] = []
    first = standing.first or _first_of(data)
    for line in data.split(b"\n")[:-1]:  # a carriage return ends no line: nothing would come after it
        made, readable = _parsed(line, from_line)
        if upto is not None and any(each.at is not None and each.at > upto for each in made):
            break
        at += len(line) + 1
        unreadable += not readable
        for each in made if not since else [each for each in made if (each.at or "") >= since]:
            events.append(_keyed(_named(each, calls), counts))
            if each.what == SAID:
                parts = (*parts, each.text)[-_PARTS:] if each.message and each.message == message else (each.text,)
                message = each.message
                _count_joined(parts, counts)
    return Reading(tuple(events), Standing(at, counts, message, parts, calls, first), unreadable)


def _first_of(data: bytes) -> str:
    line, end, _ = data.partition(b"\n")
    return hashlib.sha256(line).hexdigest()[:16] if end else ""


def restarted(standing: Standing, data: bytes) -> Standing:
    """Where to stand in a file that is read from its start.

    One that begins as the last one did is its copy, and says the same again; any other goes on where that one ended.
    """
    if standing.first and _first_of(data) == standing.first:
        return Standing()
    return standing._replace(offset=0, message="", parts=(), first="")


def _parsed(line: bytes, from_line: Callable[[Mapping[str, Any]], list[Event]]) -> tuple[list[Event], bool]:
    if not line.strip():
        return [], True
    try:
        found = json.loads(line)
        return (from_line(found), True) if isinstance(found, dict) else ([], False)
    except (ValueError, RecursionError):
        return [], False


def _keyed(event: Event, counts: dict[str, int]) -> Event:
    if event.counted is not None:
        counts[event.counted] = nth = counts.get(event.counted, 0) + 1
        return event._replace(key=f"{event.counted}:{nth}")
    if event.what == PROMPT and event.key is not None:
        # One prompt may stand in several lines: what a person typed, then what was put beside it.
        counts[event.key] = nth = counts.get(event.key, 0) + 1
        return event if nth == 1 else event._replace(key=f"{event.key}:{nth}")
    return event


def _named(event: Event, calls: dict[str, str]) -> Event:
    """A result with the name of its tool, which only the call says."""
    call = str(event.data.get("id", ""))
    if event.what == CALL and call:
        calls[call] = str(event.data.get("tool", ""))
    elif event.what in (RESULT, FAILURE) and call in calls:
        return event._replace(data={"tool": calls.pop(call), **event.data})
    return event


def _count_joined(parts: tuple[str, ...], counts: dict[str, int]) -> None:
    """A hook gives the texts of one message as one: known again under any way of joining them."""
    if len(parts) > 1:
        for joint in _JOINTS:
            counts[f"{_JOINED}say:{digest(joint.join(parts))}"] = 1


def hook_key(event: Event, counts: Mapping[str, int], record: str) -> str | None:
    """The key of an event that a hook told: the one that the transcript's reader gave it, or will give it.

    None where the transcript has it in parts.
    """
    if event.key is not None:
        return event.key
    if event.counted is None:
        return f"hook:{record}:{event.what}"
    if event.counted not in counts and _JOINED + event.counted in counts:
        return None
    return f"{event.counted}:{max(1, counts.get(event.counted, 0))}"
