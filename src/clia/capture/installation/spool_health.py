"""Checks whether hooks can write events, and whether events are recorded."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from clia.capture import spool_reader as spool
from clia.capture.installation.findings import ERROR, WARNING, HookFinding
from clia.capture.transcripts import list_folder
from clia.errors import CliaError
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

PATIENCE = timedelta(minutes=10)
"""How long events may wait: every end of a turn starts an ingest."""
_HEAD, _FREE_MIN = 1 << 16, 1 << 20


class SpoolHealth(NamedTuple):
    """The contents of a repository's spools."""

    waiting: int = 0  # events that wait for `clia ingest`
    oldest: str | None = None  # when the oldest of them arrived
    rejected: int = 0  # events that could not be parsed
    elsewhere: int = 0  # waiting in the account's own folder


def spool_health(
    common: str, environment: Mapping[str, str], now: datetime, *, installed: bool
) -> tuple[SpoolHealth, list[HookFinding]]:
    """The contents of a repository's spools, and what is wrong with them. ``installed``: whether hooks write to them."""
    findings: list[HookFinding] = []
    own, *others = spool.spools(common, environment)
    waiting = {directory: list_folder(os.path.join(directory, spool.NEW)) for directory in (own, *others)}
    every = sorted(name for names in waiting.values() for name in names)
    elsewhere = len(every) - len(waiting[own])
    oldest = spool.time_of(every[0]) if every else None
    late = oldest is not None and oldest < timestamp(now - PATIENCE, "milliseconds")
    if late:
        message = f"{_events(len(every))} in the spool, the oldest since {oldest}: no ingest is running"
        findings.append(HookFinding("events-wait", WARNING, None, message, "clia ingest, or a clia worker that runs all the time"))
    rejected: list[spool.RejectedEvent] = []
    for directory in waiting:
        with suppress(CliaError):
            rejected += spool.rejected(directory)
    if rejected:
        counts = Counter(event.code for event in rejected)
        reasons = ", ".join(f"{code}: {number}" for code, number in sorted(counts.items()))
        message = f"ingest rejected {_events(len(rejected))} ({reasons}); the newest: {rejected[-1].message}"
        hint = f"they are kept in {os.path.join(own, spool.REJECTED)}, each with its reason beside it"
        findings.append(HookFinding("events-rejected", WARNING, None, message, hint))
    if elsewhere:
        message = f"{_events(elsewhere)} had to be stored outside of the repository, in {others[0]}"
        findings.append(HookFinding("events-elsewhere", WARNING, None, message, f"make {own} writable; clia ingest reads both"))
    if every and spool.time_of(every[-1]) > timestamp(now + PATIENCE, "milliseconds"):
        message = f"an event in the spool is from {spool.time_of(every[-1])}, which is in the future"
        findings.append(
            HookFinding("clock-skew", WARNING, None, message, "set the clock; events are recorded in the order of their times")
        )
    findings += _ingest_error([own, *others], late=late)
    if installed and _free_bytes(own) < _FREE_MIN:
        message = f"the disk of {own} is full: events of hooks are lost"
        findings.append(HookFinding("disk-full", ERROR, None, message, "free some space; nothing else is needed"))
    if installed and not _writable(own):
        message = f"hooks cannot write to {own}"
        hint = "make it writable for the account that starts the tools; until then events go to that account's own folder"
        findings.append(HookFinding("spool-not-writable", ERROR, None, message, hint))
    return SpoolHealth(len(every), oldest, len(rejected), elsewhere), findings


def _ingest_error(directories: Sequence[str], *, late: bool) -> Iterator[HookFinding]:
    for directory in directories:
        try:
            error = json.loads(spool.content(os.path.join(directory, spool.LAST_ERROR), _HEAD))
            at, code, message = (str(error[key]) for key in ("at", "code", "message"))
        except (OSError, CliaError, ValueError, KeyError, TypeError):
            continue
        message = f"clia ingest failed at {at}: {code}: {message}"
        yield HookFinding("ingest-failed", ERROR if late else WARNING, None, message, "clia ingest tries again")


def _writable(directory: str) -> bool:
    """Whether hooks can write there; the first event creates a missing spool."""
    inside = os.path.join(directory, spool.NEW)
    while not os.path.lexists(inside):
        inside = os.path.dirname(inside)
    return os.path.isdir(inside) and os.access(inside, os.W_OK | os.X_OK)


def _free_bytes(directory: str) -> int:
    """The free space for hooks; the spool may not exist yet."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return _FREE_MIN


def _events(number: int) -> str:
    return "1 event" if number == 1 else f"{number} events"
