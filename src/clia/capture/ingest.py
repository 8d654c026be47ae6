"""``ingest``: record the events that hooks left in the spool.

Invariant: one process at a time works on a repository's spool. An event is removed after it is recorded; one that can never be
recorded moves to ``rejected/`` with the reason. If an event cannot be recorded now, it and later events of its session stay, and
other sessions continue.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NamedTuple

from clia.capture import spool_reader as spool
from clia.capture.agents import IncomingEvent
from clia.capture.entries import IngestCounts
from clia.capture.events import CALL, PROMPT
from clia.capture.later_calls import LaterCall, later_call
from clia.capture.recording import Recorder
from clia.capture.tools import tool_of
from clia.errors import CliaError, InvalidInput
from clia.facade.settings import clock_of
from clia.store.private_files import FileLocks
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.values.clock import Clock

    Progress = Callable[[int, int], None]

_AT_ONCE = 500
_PASSES, _ROUNDS = 1000, 5
_TRIES, _INSTANT = 5, 0.01


class Ingested(NamedTuple):
    """The result of an ingest; ``busy``: another process was ingesting."""

    done: IngestCounts
    trouble: tuple[CliaError, ...] = ()
    busy: bool = False


def ingest(
    space: Space,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    wait: bool = True,
    progress: Progress | None = None,
) -> Ingested:
    """Record all waiting events. If another process is ingesting, wait for it or return."""
    spools = _spools(space, environment)
    counts, untried = IngestCounts(), set[str]()
    result = Ingested(counts, busy=True)
    if any(map(spool.waiting, spools)):
        space.local.check_identity()  # every event stays until git knows who is accountable
    for _ in range(_ROUNDS):
        with _alone(spools[0], wait=wait) as ours:
            if not ours:
                break
            work = _Ingest(space, clock_of(settings), spools, progress, untried)
            result = work.run()
            counts = IngestCounts(*(before + now for before, now in zip(counts, result.done, strict=True)))
        if not work.fresh():  # an event that arrived just before the lock was released started no ingest
            break
    if counts.events:
        _close_prompts(space)
    return result._replace(done=counts._replace(left=len(untried)))


def _close_prompts(space: Space) -> None:
    """Close the permission prompts of sessions that have ended. The next ingest repeats what fails."""
    if os.path.isdir(os.path.join(space.home, "prompts")):
        from clia.capture.permissions.prompts import close_abandoned  # few sessions have prompts

        with suppress(CliaError):
            close_abandoned(space)


@contextmanager
def drained(space: Space, environment: Mapping[str, str]) -> Iterator[None]:
    """Record all waiting events, and let no other process record any while the block runs.

    An event that cannot be recorded stays in the spool, as in every ingest.
    """
    spools = _spools(space, environment)
    with _alone(spools[0], wait=True):
        _Ingest(space, space.local.clock, spools, None, set()).run()
        yield


def has_events(space: Space, environment: Mapping[str, str]) -> bool:
    """Whether any event waits in the spool."""
    return any(spool.waiting(place) for place in _spools(space, environment))


def _spools(space: Space, environment: Mapping[str, str]) -> list[str]:
    return spool.spools(os.path.dirname(space.home), environment)


@contextmanager
def _alone(place: str, *, wait: bool) -> Iterator[bool]:
    locks = FileLocks(place)
    if wait:
        with locks.hold(spool.LOCK):
            yield True
    else:
        with ExitStack() as stack:
            free = False
            for _ in range(_TRIES):  # a hook holds the lock for an instant, to test it
                attempt = locks.attempt(spool.LOCK)
                free = attempt.__enter__()
                stack.push(attempt)
                if free:
                    break
                time.sleep(_INSTANT)
            yield free


class _WaitingEvent(NamedTuple):
    session: tuple[str, str]  # tool and id
    is_call: bool
    later: tuple[LaterCall, ...]  # what its events mean to an earlier event


class _Ingest:
    def __init__(self, space: Space, clock: Clock, places: Sequence[str], progress: Progress | None, left: set[str]) -> None:
        self._space = space
        self._clock = clock
        self._places = places
        self._progress = progress or (lambda *_: None)
        self._rejected = 0
        self._stuck: dict[tuple[str, str], CliaError] = {}  # sessions that are blocked by an error
        self._left = left
        self._waiting: dict[str, _WaitingEvent | None] = {}  # by the event's id; None: it cannot be parsed
        self._capturing = Recorder(space, spool.remove)

    def run(self) -> Ingested:
        now = self._clock().timestamp()
        spool.note_begin(self._places[0])
        for place in self._places:
            self._rejected += spool.clear_drafts(place, now)
        for _ in range(_PASSES):  # hooks may add events meanwhile
            names = self.fresh()
            if not names:
                break
            self._pass(names[:_AT_ONCE])
        for live in self._capturing.lives.unread():
            self._settle(partial(self._capturing.catch_up, live), (live.tool.name, live.captured.session))
        self._record_all()
        if self._capturing.done.commits:
            self._space.captures.attribute()
        errors = tuple(self._stuck.values())
        if errors:
            spool.note_error(self._places[0], timestamp(self._clock()), errors[0].code, str(errors[0]))
        else:
            spool.forget_error(self._places[0])
        return Ingested(self._capturing.done._replace(rejected=self._rejected, left=len(self._left)), errors)

    def fresh(self) -> list[tuple[str, str]]:
        """The waiting events that were not tried yet, oldest first, each with its spool."""
        return sorted((name, place) for place in self._places for name in spool.waiting(place) if name not in self._left)

    def _pass(self, names: Sequence[tuple[str, str]]) -> None:
        hooks = [hook for name, place in names if (hook := self._read(place, name)) is not None]
        for number, hook in enumerate(hooks):
            self._progress(number, len(hooks))
            if _session_of(hook) in self._stuck:
                self._left.add(hook.record.id)
                continue
            hook = hook._replace(later_calls=partial(self._later_calls, hook), is_past=partial(self._is_past, hook))  # noqa: PLW2901
            self._settle(partial(self._capturing.take, hook), _session_of(hook), hook)
        self._record_all()
        self._progress(len(hooks), len(hooks))

    def _record_all(self) -> None:
        for live in self._capturing.lives.unrecorded():
            self._settle(partial(self._capturing.flush, live, None), (live.tool.name, live.captured.session))

    def _later_calls(self, hook: IncomingEvent) -> list[LaterCall]:
        """The waiting calls of the same session after an event."""
        is_prompt = any(event.what == PROMPT for event in hook.report.events)
        return [call for event in self._later(hook) if event.is_call or is_prompt for call in event.later]

    def _is_past(self, hook: IncomingEvent) -> bool:
        return bool(self._later(hook))

    def _later(self, hook: IncomingEvent) -> list[_WaitingEvent]:
        """The waiting events of the same session after an event."""
        waiting = [self._event(place, name) for name, place in self.fresh() if name > hook.record.id]
        return [event for event in waiting if event is not None and event.session == _session_of(hook)]

    def _event(self, place: str, name: str) -> _WaitingEvent | None:
        if name not in self._waiting:
            self._waiting[name] = None
            with suppress(CliaError):
                hook = _parse(place, name)
                if hook is not None:
                    is_call = any(event.what == CALL for event in hook.report.events)
                    later = tuple(map(later_call, hook.report.events)) or (LaterCall(),)
                    self._waiting[name] = _WaitingEvent(_session_of(hook), is_call, later)
        return self._waiting[name]

    def _read(self, place: str, name: str) -> IncomingEvent | None:
        """Read an event; an invalid one is rejected."""
        try:
            return _parse(place, name)
        except InvalidInput as err:
            spool.reject(place, name, err.code, str(err))
            self._rejected += 1
        except CliaError as err:
            self._left.add(name)
            self._stuck[place, name] = err
        return None

    def _settle(self, act: Callable[[], None], whose: tuple[str, str], hook: IncomingEvent | None = None) -> None:
        """Run one step of a session. An event that can never be recorded is rejected; on other errors it waits."""
        try:
            act()
        except Exception as raised:  # noqa: BLE001  # an unexpected error in one session must not block the others
            err = raised if isinstance(raised, CliaError) else InvalidInput(f"a bug in clia: {raised!r}", code="bug")
            if hook is not None and isinstance(err, InvalidInput):
                spool.reject(hook.record.spool, hook.record.id, err.code, str(err))
                self._rejected += 1
                return
            self._stuck[whose] = err
            if hook is not None:
                self._left.add(hook.record.id)


def _session_of(hook: IncomingEvent) -> tuple[str, str]:
    return hook.tool.name, hook.report.session


def _parse(place: str, name: str) -> IncomingEvent | None:
    record = spool.read(place, name)
    if record is None:
        return None
    tool = tool_of(record.tool)
    try:
        payload = json.loads(record.payload)
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"the event is not JSON: {err}", code="invalid-event", fields={"field": ""}) from None
    return IncomingEvent(tool, tool.from_hook(payload), record._replace(payload=b""))  # the parsed events are shorter
