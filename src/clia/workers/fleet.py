"""The fleet: machines, processes, leases and the queue of a space.

Invariant: reading the fleet changes nothing. Liveness depends on heartbeats only, never on the clock of a machine: heartbeats
carry the time of the shared store, and a repeated reader checks whether the count increases. All times are the store's.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from clia.hub.refs import UNPUBLISHED
from clia.sessions.model import is_for_people
from clia.space.remotes import owner_of
from clia.store.postgres_store import time_of
from clia.verbs import VIEWER, verb
from clia.workers import due_requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from clia.facade.components import Components
    from clia.facade.space import Space
    from clia.sessions.model import Request
    from clia.space.core import Core
    from clia.store.interface import Store, Task, Waiting
    from clia.verbs import Count

FLEET = "fleet/"
WORKER, FORGE = "worker", "forge"
ALIVE, SILENT, NO_PROCESS = "alive", "silent", "no-process"
MISSED_BEATS = 3
"""A process is silent after this many missed heartbeats."""
SHOWN_SECONDS = 3600.0
"""How long a silent process is shown."""
CLOCK_TOLERANCE = 5.0
"""A clock that differs by more seconds than this is reported."""


class Underway(NamedTuple):
    """An attempt that a worker is running."""

    agent: str  # the agent
    request: str  # request id
    kind: str  # kind of request
    attempt: Count  # from 1
    since: float  # time of the first heartbeat that reported it


class HubStanding(NamedTuple):
    """The hub status of a machine."""

    owed: tuple[str, ...]  # agents (by name) and shared refs with unpublished work on this machine
    away_since: float | None  # when the hub became unreachable
    forks: tuple[str, ...]  # agents whose history diverged from the hub


class Process(NamedTuple):
    """A worker or forge with a heartbeat."""

    kind: str  # worker or forge
    name: str  # its name
    machine: str  # host name
    clone: str  # id of the clone
    pid: Count  # process id
    version: str  # version of clia
    started_at: float  # seconds since the epoch
    seen_at: float  # time of the last heartbeat, in seconds since the epoch
    age: float  # seconds since the last heartbeat
    state: str  # alive, silent
    clock_off: float  # seconds its machine's clock is ahead
    kinds: tuple[str, ...]  # request kinds it handles
    concurrency: Count  # maximum attempts at once
    answered: Count  # attempts that succeeded
    retried: Count  # attempts that failed and were retried
    given_up: Count  # requests that were given up
    running: tuple[Underway, ...]  # attempts that it is running
    trouble: str | None  # why it is stuck now


class Machine(NamedTuple):
    """A clone of the repository. ``machine`` is "" if none of its workers or forges sent a heartbeat lately."""

    machine: str  # host name; empty if none of its workers or forges sent a heartbeat lately
    clone: str  # id of the clone
    state: str  # alive, silent, no-process (only commands run there, as far as is known)
    workers: Count  # alive
    forges: Count  # alive
    running: Count  # attempts
    clock_off: float  # seconds its clock is ahead
    hub: HubStanding | None  # its hub status; null: unknown


class Lease(NamedTuple):
    """A request held by a worker. If the worker is silent, another one takes it when the lease expires."""

    agent: str  # the agent
    request: str  # request id
    kind: str  # kind of request
    attempt: Count  # from 1
    worker: str  # its name
    holder: str  # alive, silent, unknown
    until: float  # seconds since the epoch
    left: float  # seconds; negative if expired


class Depth(NamedTuple):
    """The number of waiting requests of one kind."""

    kind: str  # kind of request
    due: Count  # free, can be attempted now
    held: Count  # held by a worker
    later: Count  # not due yet: timers, retries, live sessions they wait for
    elsewhere: Count  # left to the machine that has the agent's unpublished work
    workers: Count  # live workers that handle the kind


class Oldest(NamedTuple):
    """The request that has waited longest of its sort."""

    agent: str  # the agent
    request: str  # request id
    kind: str  # kind of request
    since: float  # seconds since the epoch
    age: float  # seconds that it has waited
    elsewhere: bool = False  # left to the machine that has the agent's unpublished work


class Fleet(NamedTuple):
    """A snapshot of who works on a space, and on what."""

    at: float  # time of the snapshot, in seconds since the epoch
    machines: tuple[Machine, ...]  # clones of the repository
    workers: tuple[Process, ...]  # workers with a heartbeat
    forges: tuple[Process, ...]  # forges with a heartbeat
    leases: tuple[Lease, ...]  # requests held by workers
    queue: tuple[Depth, ...]  # waiting requests, by kind
    questions: Count  # requests to people
    people: Oldest | None  # the oldest of them
    work: Oldest | None  # the oldest that a worker can handle


class Heartbeat(NamedTuple):
    """The stored heartbeat of a process."""

    id: str  # unique per process
    kind: str
    name: str
    machine: str
    clone: str
    pid: int
    version: str
    started_at: float
    seen_at: float  # by the store's clock
    clock: float  # by its own clock, at the same moment
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
    forks: Sequence[str] | None = None  # None: no hub

    @property
    def timeout(self) -> float:
        """Seconds without a heartbeat after which the process is silent."""
        return MISSED_BEATS * self.every

    def is_expired(self, now: float) -> bool:
        """Whether the process was silent for too long to be shown, or its time is from a wrong clock."""
        return abs(now - self.seen_at) > SHOWN_SECONDS


def parse_heartbeat(value: Any) -> Heartbeat | None:
    """Parse a stored heartbeat; None if it is damaged or from an incompatible version."""
    fields = {name: value[name] for name in Heartbeat._fields if name in value} if isinstance(value, dict) else {}
    try:
        row = Heartbeat(**fields)
        running = [
            Underway(str(agent), str(request), str(kind), int(attempt), float(since))
            for agent, request, kind, attempt, since in row.running
        ]
        lists = [*row.kinds, *(row.forks or ())]
    except (TypeError, ValueError):
        return None
    numbers = (row.started_at, row.seen_at, row.clock, row.every)
    counts = (row.pid, row.beats, row.concurrency, row.answered, row.retried, row.given_up)
    texts = (row.id, row.kind, row.name, row.machine, row.clone, row.version, *lists, row.trouble or "")
    valid = (
        all(type(number) in (int, float) for number in numbers)
        and all(type(count) is int and count >= 0 for count in counts)
        and all(isinstance(text, str) for text in texts)
        and type(row.away_since) in (int, float, type(None))
        and row.kind in (WORKER, FORGE)
        and row.every > 0
    )
    return row._replace(running=running) if valid else None


class _HeartbeatObservation(NamedTuple):
    """A reader's observations of a process, by the reader's monotonic clock."""

    beats: int
    before: float | None  # when a different count was last observed
    first: float  # when this count was first observed
    last: float


class LivenessMonitor:
    """Remembers the last reading, so that the next one can tell whether heartbeats continue."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._observed: Mapping[str, _HeartbeatObservation] = {}

    def assess(self, heartbeats: Iterable[Heartbeat], now: float) -> list[tuple[Heartbeat, str, float]]:
        """Return each heartbeat with its state and age in seconds. ``now`` is by the store's clock."""
        at, before = self._monotonic(), self._observed
        observed = [(row, _observe(row, before.get(row.id), at)) for row in heartbeats]
        self._observed = {row.id: observation for row, observation in observed}  # concurrent readers: the last one wins
        return [(row, *_state(row, observation, at, now)) for row, observation in observed]


def _observe(row: Heartbeat, before: _HeartbeatObservation | None, at: float) -> _HeartbeatObservation:
    if before is None:
        return _HeartbeatObservation(row.beats, None, at, at)
    return before._replace(last=at) if before.beats == row.beats else _HeartbeatObservation(row.beats, before.last, at, at)


def _state(row: Heartbeat, observation: _HeartbeatObservation, at: float, now: float) -> tuple[str, float]:
    """Return state and age. Observations bound the age; between the bounds the store's clock decides.

    A heartbeat from the future (the store's clock was set back) does not count; a live process sends a new one soon.
    """
    least, by_clock = at - observation.first, abs(now - row.seen_at)
    most = None if observation.before is None else at - observation.before
    if least > row.timeout:
        return SILENT, max(least, by_clock)
    if most is not None and most <= row.timeout:
        return ALIVE, least
    return (ALIVE if by_clock <= row.timeout else SILENT), max(least, by_clock)


class Workload(NamedTuple):
    """The requests that wait."""

    requests: Sequence[Request]
    attempted: Sequence[Waiting] = ()
    elsewhere: frozenset[str] = frozenset()  # agents left to another machine


def read_fleet(core: Core, monitor: LivenessMonitor, work: Workload) -> Fleet:
    """Return the current fleet."""
    now = time_of(core.store, core.clock)
    rows = [row for _, value in core.store.scan(FLEET) if (row := parse_heartbeat(value)) is not None and not row.is_expired(now)]
    processes = sorted(_process(*assessed) for assessed in monitor.assess(rows, now))
    return _fleet(now, processes, _machines(processes, rows, unpublished_by_clone(core.store)), work)


def _process(row: Heartbeat, state: str, age: float) -> Process:
    names = ("kind", "name", "machine", "clone", "pid", "version", "started_at", "seen_at")
    fields = {name: getattr(row, name) for name in (*names, "concurrency", "answered", "retried", "given_up", "trouble")}
    off = round(row.clock - row.seen_at, 3)
    return Process(**fields, age=round(age, 3), state=state, clock_off=off, kinds=tuple(row.kinds), running=tuple(row.running))


def unpublished_by_clone(store: Store) -> dict[str, tuple[str, ...]]:
    """Return what each clone has not published to the hub yet."""
    owners: dict[str, tuple[str, ...]] = {}
    for key, value in store.scan(UNPUBLISHED):
        clone = str(value.get("clone", "")) if isinstance(value, dict) else ""
        owners[clone] = (*owners.get(clone, ()), owner_of(key.removeprefix(UNPUBLISHED)))
    return owners


def standing_of(space: Space, fleet: Fleet) -> HubStanding | None:
    """Return the hub status of this clone; forks as of the last heartbeat."""
    hub_sync = space.hub.exchange
    if hub_sync is None:
        return None
    clone, away = hub_sync.unpublished.clone, hub_sync.hub.outage()
    unpublished = unpublished_by_clone(space.local.store).get(clone, ())
    hubs = [machine.hub for machine in fleet.machines if machine.clone == clone and machine.hub is not None]
    forks = {name for hub in hubs for name in hub.forks}
    return HubStanding(unpublished, None if away is None else away.since, tuple(sorted(forks)))


def _machines(processes: Sequence[Process], rows: Sequence[Heartbeat], unpublished: Mapping[str, tuple[str, ...]]) -> list[Machine]:
    """Return the machines with heartbeats, and those without that have unpublished work."""
    clones = sorted({(process.machine, process.clone) for process in processes})
    unheard = sorted(set(unpublished) - {clone for _, clone in clones})
    machines = []
    for machine, clone in [*clones, *(("", clone) for clone in unheard)]:
        own = [process for process in processes if (process.machine, process.clone) == (machine, clone)]
        alive = [process for process in own if process.state == ALIVE]
        latest = max(own, key=lambda process: (process.state == ALIVE, process.seen_at), default=None)
        machines.append(
            Machine(
                machine,
                clone,
                ALIVE if alive else SILENT if own else NO_PROCESS,
                sum(process.kind == WORKER for process in alive),
                sum(process.kind == FORGE for process in alive),
                sum(len(process.running) for process in alive),
                latest.clock_off if latest is not None else 0.0,
                _hub([row for row in rows if (row.machine, row.clone) == (machine, clone)], unpublished.get(clone)),
            )
        )
    return machines


def _hub(rows: Sequence[Heartbeat], unpublished: tuple[str, ...] | None) -> HubStanding | None:
    """Return the hub status of the last heartbeat; unpublished work is known without one."""
    latest = max((row for row in rows if row.forks is not None), key=lambda row: row.seen_at, default=None)
    if latest is None:
        return None if unpublished is None else HubStanding(unpublished, None, ())
    return HubStanding(unpublished or (), latest.away_since, tuple(latest.forks or ()))


def _fleet(now: float, processes: Sequence[Process], machines: Sequence[Machine], work: Workload) -> Fleet:
    workers = [process for process in processes if process.kind == WORKER]
    questions = [request for request in work.requests if is_for_people(request)]
    # What workers could handle, whether or not a worker for the kind runs.
    kinds = {request.kind for request in work.requests if not is_for_people(request)}
    live = {request.agent for request in work.requests if not request.session.startswith("ask-")}
    handled = due_requests.tasks(work.requests, kinds, live.__contains__, now)
    tasks = {(task.agent, task.request): task for task in handled}
    claimed = [state for state in work.attempted if state.worker is not None and state.until is not None]
    ready = [task for task in tasks.values() if task.not_before <= now]
    first = min(ready, key=lambda task: task.not_before, default=None)
    oldest_question = oldest_task = None
    if questions:
        question, since = questions[0], due_requests.due(questions[0], now)
        oldest_question = Oldest(question.agent, question.id, question.kind, since, round(now - since, 3))
    if first is not None:
        wait, elsewhere = round(now - first.not_before, 3), first.agent in work.elsewhere
        oldest_task = Oldest(first.agent, first.request, first.kind, first.not_before, wait, elsewhere)
    return Fleet(
        now,
        tuple(machines),
        tuple(workers),
        tuple(process for process in processes if process.kind == FORGE),
        tuple(sorted((_lease(state, workers, now) for state in claimed), key=lambda lease: lease.until)),
        tuple(_depths(work, tasks, workers, now)),
        len(questions),
        oldest_question,
        oldest_task,
    )


def _lease(state: Waiting, workers: Iterable[Process], now: float) -> Lease:
    until, worker = state.until or 0.0, state.worker or ""
    states = [process.state for process in workers if process.name == worker]
    holder = ALIVE if ALIVE in states else SILENT if states else "unknown"
    task = state.task
    return Lease(task.agent, task.request, task.kind, state.attempts, worker, holder, until, round(until - now, 3))


def _depths(work: Workload, tasks: Mapping[tuple[str, str], Task], workers: Iterable[Process], now: float) -> list[Depth]:
    attempted = {(state.task.agent, state.task.request): state for state in work.attempted}
    depths: dict[str, Depth] = {}
    for request in work.requests:
        if is_for_people(request):
            continue
        key = (request.agent, request.id)
        depth, task, state = depths.get(request.kind, Depth(request.kind, 0, 0, 0, 0, 0)), tasks.get(key), attempted.get(key)
        if state is not None and state.worker is not None and (state.until or 0.0) > now:
            depth = depth._replace(held=depth.held + 1)
        elif request.agent in work.elsewhere:
            depth = depth._replace(elsewhere=depth.elsewhere + 1)
        elif task is not None and max(task.not_before, (state.next_at if state is not None else None) or 0.0) <= now:
            depth = depth._replace(due=depth.due + 1)
        else:
            depth = depth._replace(later=depth.later + 1)
        depths[request.kind] = depth
    alive = [process.kinds for process in workers if process.state == ALIVE]
    return [depths[kind]._replace(workers=sum(kind in kinds for kinds in alive)) for kind in sorted(depths)]


class FleetService:
    """The machines, workers and forges of a space."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._monitor = LivenessMonitor(time.monotonic)

    @verb("GET", "/fleet", VIEWER, "upkeep", "fleet")
    def __call__(self) -> Fleet:
        """The machines and workers of the space, their leases, and what waits since when."""
        hub_sync, pending = self._components.hub_sync, self._components.lifecycle.pending(None)
        elsewhere = frozenset() if hub_sync is None else hub_sync.agents_elsewhere(request.agent for request in pending)
        return read_fleet(self._components.core, self._monitor, Workload(pending, self._components.queue.waiting(), elsewhere))
