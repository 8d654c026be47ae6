"""The fleet: which machines work on a space, what each of their processes does, who has what until when, and what waits.

Invariant: looking changes nothing. Whether a process lives is told by its beats alone, and never by the clock of its machine: a
beat is dated by the one clock of the store that all share, and who looks again and again goes by whether the beats go on. Every
moment in an answer is by the store's clock.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.hub.ledger import OWED
from clia.sessions import handover as hand_over
from clia.sessions.model import is_for_people
from clia.space.adoption import owner_of
from clia.store.clock import time_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from clia.sessions.model import Request
    from clia.space.core import Core
    from clia.store.interface import Store
    from clia.store.queue_interface import Task, Waiting

FLEET = "fleet/"
WORKER, FORGE = "worker", "forge"
ALIVE, SILENT, NO_PROCESS = "alive", "silent", "no-process"
EVERY = 5.0
"""Seconds between two beats of a process."""
MISSED = 3
"""After so many beats that did not come a process counts as silent."""
KEPT = 3600.0
"""Seconds for which one that is silent is still shown."""
OFF = 5.0
"""A machine whose clock differs by more seconds than this is shown as such."""


class Underway(NamedTuple):
    """One attempt that a worker is at."""

    agent: str
    request: str
    kind: str
    attempt: int
    since: float  # when a beat first told of it


class HubStanding(NamedTuple):
    """How a machine stands with the hub."""

    owed: tuple[str, ...]  # what has its last work on this machine alone: agents by name, what all share by its ref
    away_since: float | None  # since when it has not reached the hub
    forks: tuple[str, ...]  # agents whose line here and at the hub went apart


class Process(NamedTuple):
    """A worker or a forge that has said that it lives."""

    kind: str
    name: str
    machine: str
    clone: str
    pid: int
    version: str
    started_at: float
    seen_at: float
    age: float  # seconds since its last beat
    state: str  # alive, silent
    clock_off: float  # by how many seconds the clock of its machine is ahead
    kinds: tuple[str, ...]  # what it answers
    concurrency: int
    answered: int
    retried: int
    given_up: int
    running: tuple[Underway, ...]
    trouble: str | None


class Machine(NamedTuple):
    """A clone of the repository on some machine. ``machine`` is "" where no worker or forge of it was heard of lately."""

    machine: str
    clone: str
    state: str  # alive, silent, no-process: only commands are run there, as far as is known
    workers: int  # that live
    forges: int
    running: int  # attempts
    clock_off: float
    hub: HubStanding | None


class Lease(NamedTuple):
    """A request that some worker has; where that is not heard of any more, another takes it when the lease has run out."""

    agent: str
    request: str
    kind: str
    attempt: int
    worker: str
    holder: str  # alive, silent, unknown
    until: float
    left: float  # seconds; below zero where it ran out


class Depth(NamedTuple):
    """The requests of one kind that a worker could answer."""

    kind: str
    due: int  # nobody has them, and they can be tried now
    held: int  # a worker has them
    later: int  # their time has not come: timers, attempts that failed, sessions that are waited for
    elsewhere: int  # left to the machine that has their agent's last work, and has not published it
    workers: int  # that live and answer the kind


class Oldest(NamedTuple):
    """The request that has waited longest."""

    agent: str
    request: str
    kind: str
    since: float
    age: float
    elsewhere: bool = False  # it is left to another machine, which has its agent's last work


class Fleet(NamedTuple):
    """Who works on a space, and on what, at one moment."""

    at: float
    machines: tuple[Machine, ...]
    workers: tuple[Process, ...]
    forges: tuple[Process, ...]
    leases: tuple[Lease, ...]
    queue: tuple[Depth, ...]
    questions: int  # requests that wait for people
    people: Oldest | None  # the oldest of those
    work: Oldest | None  # the oldest that a worker could answer


class Beat(NamedTuple):
    """What a process says of itself, as it is kept."""

    id: str  # another one for each process
    kind: str
    name: str
    machine: str
    clone: str
    pid: int
    version: str
    started_at: float
    seen_at: float  # by the clock of the store
    clock: float  # by its own, at that moment
    every: float
    beats: int
    kinds: Sequence[str] = ()
    concurrency: int = 0
    answered: int = 0
    retried: int = 0
    given_up: int = 0
    running: Sequence[Underway] = ()
    trouble: str | None = None
    away_since: float | None = None
    forks: Sequence[str] | None = None  # None: it has no hub

    @property
    def patience(self) -> float:
        return MISSED * self.every

    def is_over(self, now: float) -> bool:
        """Whether it was silent for so long that nobody needs to be told any more, or dates from a clock that was wrong."""
        return abs(now - self.seen_at) > KEPT


def as_beat(value: Any) -> Beat | None:
    """What is kept of a process; None for what is damaged, or what another version keeps otherwise."""
    known = {name: value[name] for name in Beat._fields if name in value} if isinstance(value, dict) else {}
    try:
        made = Beat(**known)
        numbers = [getattr(made, name) for name in ("started_at", "seen_at", "clock", "every")]
        counts = [getattr(made, name) for name in ("pid", "beats", "concurrency", "answered", "retried", "given_up")]
        texts = [getattr(made, name) for name in ("id", "kind", "name", "machine", "clone", "version")]
        lists = [*made.kinds, *(made.forks or ())]
        running = [_underway(*each) for each in made.running]
    except (TypeError, ValueError):
        return None
    sound = all(type(each) in (int, float) for each in numbers) and all(type(each) is int and each >= 0 for each in counts)
    sound = sound and all(isinstance(each, str) for each in (*texts, *lists, made.trouble or ""))
    sound = sound and type(made.away_since) in (int, float, type(None)) and made.kind in (WORKER, FORGE) and made.every > 0
    return made._replace(running=running) if sound else None


def _underway(agent: object, request: object, kind: object, attempt: Any, since: Any) -> Underway:
    return Underway(str(agent), str(request), str(kind), int(attempt), float(since))


class _Seen(NamedTuple):
    """What one who looks has seen of a process, by a clock that nobody sets."""

    beats: int
    before: float | None  # when another number of beats was last seen
    first: float  # when this number was first seen
    last: float


class Watch:
    """Remembers what was seen at the last look, so that the next can tell whether beats go on."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: Mapping[str, _Seen] = {}

    def judged(self, beats: Iterable[Beat], now: float) -> list[tuple[Beat, str, float]]:
        """Each with whether it lives, and the seconds since its last beat; ``now`` is by the store's clock."""
        at, before = self._monotonic(), self._seen
        found = [(each, _looked(each, before.get(each.id), at)) for each in beats]
        self._seen = {each.id: seen for each, seen in found}  # of two threads that look at once, one is remembered
        return [(each, *_judged(each, seen, at, now)) for each, seen in found]


def _looked(beat: Beat, seen: _Seen | None, at: float) -> _Seen:
    if seen is None:
        return _Seen(beat.beats, None, at, at)
    return seen._replace(last=at) if seen.beats == beat.beats else _Seen(beat.beats, seen.last, at, at)


def _judged(beat: Beat, seen: _Seen, at: float, now: float) -> tuple[str, float]:
    """What was seen of it bounds the age of its last beat on both sides; what lies between, the store's clock decides.

    A beat out of the future of that clock, which was set back then, is as good as none: one that lives comes again at once.
    """
    least, by_clock = at - seen.first, abs(now - beat.seen_at)
    most = None if seen.before is None else at - seen.before
    if least > beat.patience:
        return SILENT, max(least, by_clock)
    if most is not None and most <= beat.patience:
        return ALIVE, least
    return (ALIVE if by_clock <= beat.patience else SILENT), max(least, by_clock)


class Work(NamedTuple):
    """What waits, as those tell it who know."""

    requests: Sequence[Request]
    tried: Sequence[Waiting] = ()  # what workers have or had of them
    elsewhere: frozenset[str] = frozenset()  # agents that are left to another machine


def look(core: Core, watch: Watch, work: Work) -> Fleet:
    """The fleet as it is now."""
    now = time_of(core.store, core.clock)
    kept = [beat for _, value in core.store.scan(FLEET) if (beat := as_beat(value)) is not None and not beat.is_over(now)]
    processes = sorted(_process(*each) for each in watch.judged(kept, now))
    return _fleet(now, processes, _machines(processes, kept, owed_by_clone(core.store)), work)


def _process(beat: Beat, state: str, age: float) -> Process:
    names = ("kind", "name", "machine", "clone", "pid", "version", "started_at", "seen_at")
    made = {name: getattr(beat, name) for name in (*names, "concurrency", "answered", "retried", "given_up", "trouble")}
    off = round(beat.clock - beat.seen_at, 3)
    return Process(**made, age=round(age, 3), state=state, clock_off=off, kinds=tuple(beat.kinds), running=tuple(beat.running))


def owed_by_clone(store: Store) -> dict[str, tuple[str, ...]]:
    """What each clone has yet to publish, as the ledger of the hub says."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in store.scan(OWED):
        clone = str(value.get("clone", "")) if isinstance(value, dict) else ""
        found[clone] = (*found.get(clone, ()), owner_of(key.removeprefix(OWED)))
    return found


def _machines(processes: Sequence[Process], beats: Sequence[Beat], owed: Mapping[str, tuple[str, ...]]) -> list[Machine]:
    """Those that were heard of, and those of which none was that owe the hub something."""
    places = sorted({(each.machine, each.clone) for each in processes})
    unheard = sorted(set(owed) - {clone for _, clone in places})
    made = []
    for machine, clone in [*places, *(("", clone) for clone in unheard)]:
        mine = [each for each in processes if (each.machine, each.clone) == (machine, clone)]
        alive = [each for each in mine if each.state == ALIVE]
        latest = max(mine, key=lambda each: (each.state == ALIVE, each.seen_at), default=None)
        made.append(
            Machine(
                machine,
                clone,
                ALIVE if alive else SILENT if mine else NO_PROCESS,
                sum(each.kind == WORKER for each in alive),
                sum(each.kind == FORGE for each in alive),
                sum(len(each.running) for each in alive),
                latest.clock_off if latest is not None else 0.0,
                _hub([each for each in beats if (each.machine, each.clone) == (machine, clone)], owed.get(clone)),
            )
        )
    return made


def _hub(beats: Sequence[Beat], owed: tuple[str, ...] | None) -> HubStanding | None:
    """As its last beat says; what it owes is known without it."""
    latest = max((each for each in beats if each.forks is not None), key=lambda each: each.seen_at, default=None)
    if latest is None:
        return None if owed is None else HubStanding(owed, None, ())
    return HubStanding(owed or (), latest.away_since, tuple(latest.forks or ()))


def _fleet(now: float, processes: Sequence[Process], machines: Sequence[Machine], work: Work) -> Fleet:
    workers = [each for each in processes if each.kind == WORKER]
    people = [each for each in work.requests if is_for_people(each)]
    tasks = {(each.agent, each.request): each for each in _tasks(work.requests, now)}
    held = [each for each in work.tried if each.worker is not None and each.until is not None]
    ready = [each for each in tasks.values() if each.not_before <= now]
    first = min(ready, key=lambda each: each.not_before, default=None)
    return Fleet(
        now,
        tuple(machines),
        tuple(workers),
        tuple(each for each in processes if each.kind == FORGE),
        tuple(sorted((_lease(each, workers, now) for each in held), key=lambda each: each.until)),
        tuple(_depths(work, tasks, workers, now)),
        len(people),
        _oldest(people[0], hand_over.due(people[0], now), now) if people else None,
        None
        if first is None
        else Oldest(
            *(first.agent, first.request, first.kind, first.not_before),
            round(now - first.not_before, 3),
            first.agent in work.elsewhere,
        ),
    )


def _oldest(request: Request, since: float, now: float) -> Oldest:
    return Oldest(request.agent, request.id, request.kind, since, round(now - since, 3))


def _tasks(requests: Sequence[Request], now: float) -> list[Task]:
    """What workers could answer, whatever kinds there are workers for."""
    kinds = {each.kind for each in requests if not is_for_people(each)}
    live = {each.agent for each in requests if not each.session.startswith("ask-")}
    return hand_over.tasks(requests, kinds, live.__contains__, now)


def _lease(tried: Waiting, workers: Iterable[Process], now: float) -> Lease:
    until, worker = tried.until or 0.0, tried.worker or ""
    states = [each.state for each in workers if each.name == worker]
    holder = ALIVE if ALIVE in states else SILENT if states else "unknown"
    task = tried.task
    return Lease(task.agent, task.request, task.kind, tried.attempts, worker, holder, until, round(until - now, 3))


def _depths(work: Work, tasks: Mapping[tuple[str, str], Task], workers: Iterable[Process], now: float) -> list[Depth]:
    known = {(each.task.agent, each.task.request): each for each in work.tried}
    found: dict[str, Depth] = {}
    for each in work.requests:
        if is_for_people(each):
            continue
        place = (each.agent, each.id)
        had, task, tried = found.get(each.kind, Depth(each.kind, 0, 0, 0, 0, 0)), tasks.get(place), known.get(place)
        if tried is not None and tried.worker is not None and (tried.until or 0.0) > now:
            had = had._replace(held=had.held + 1)
        elif each.agent in work.elsewhere:
            had = had._replace(elsewhere=had.elsewhere + 1)
        elif task is not None and max(task.not_before, (tried.next_at if tried is not None else None) or 0.0) <= now:
            had = had._replace(due=had.due + 1)
        else:
            had = had._replace(later=had.later + 1)
        found[each.kind] = had
    alive = [each.kinds for each in workers if each.state == ALIVE]
    return [found[kind]._replace(workers=sum(kind in kinds for kinds in alive)) for kind in sorted(found)]
