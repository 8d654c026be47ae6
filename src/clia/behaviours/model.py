"""Records that behaviour verbs return."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.verbs import Count

CURRENT, TRIAL, FORMER, PROPOSED, RETIRED, FOREIGN = "current", "trial", "former", "proposed", "retired", "foreign"
"""States of a version: current for its name; may run by its id; formerly current; not adopted yet; must not run; not on any
chain of this space."""
MAY_RUN = (CURRENT, TRIAL, FORMER)

ADOPT, KEEP, RETIRE, NOT_ENOUGH = "adopt", "keep", "retire", "not-enough-data"
"""Possible suggestions."""


class BehaviourVersion(NamedTuple):
    """One version of a behaviour, and its origin."""

    name: str
    cid: str
    kind: str  # session-flow or prompt
    state: str
    body: str
    parent: str | None = None
    notes: str = ""
    by: str = ""  # who added it first
    at: int = 0  # seconds since the epoch
    why: str = ""
    evidence: tuple[str, ...] = ()  # commits that supported its proposal, trial or adoption
    origin: str | None = None  # the peer that it came from


class BehaviourEvent(NamedTuple):
    """An event of a behaviour: a commit on its chain."""

    commit: str
    event: str  # define, propose, trial, adopt or retire
    cid: str
    by: str
    at: int
    why: str
    evidence: tuple[str, ...] = ()
    measure: str | None = None


class KnownBehaviour(NamedTuple):
    """A behaviour with its versions and history."""

    name: str
    kind: str
    current: str | None  # None: retired, or not adopted yet
    versions: tuple[BehaviourVersion, ...]  # oldest first
    history: tuple[BehaviourEvent, ...]  # newest first


class Rate(NamedTuple):
    """A success rate with its interval; ``rate`` is None if nothing was observed."""

    measure: str
    good: Count
    n: Count
    rate: float | None
    low: float
    high: float


class Period(NamedTuple):
    """The rates of one day, week or month."""

    start: str  # its first day
    rates: tuple[Rate, ...]


class BehaviourStats(NamedTuple):
    """The statistics of one version."""

    cid: str
    name: str | None  # None if it is on no chain here
    state: str | None
    commits: Mapping[str, Count]  # by kind
    sessions: Mapping[str, Count]  # by how they ended
    decisions: Mapping[str, Count]  # approved, rejected, other
    merges: Mapping[str, Count]  # merged, refused
    outcomes: Mapping[str, Count]  # passed, failed
    landed: Count
    reverted: Count
    merge_seconds: Mapping[str, Count]  # n, median and p90 of the time from the oldest commit to the merge
    land_seconds: Mapping[str, Count]
    trace: Mapping[str, Count]  # entries, bytes
    tokens: Mapping[str, Count]  # input and output, if traces name them
    first: str | None  # the day of the first observation
    last: str | None
    rates: tuple[Rate, ...]
    series: tuple[Period, ...] = ()


class Compared(NamedTuple):
    """One measure of two versions."""

    measure: str
    before: Rate
    after: Rate
    better: float | None  # probability that the later one is better; None if one was never observed
    low: float  # interval of the difference between the rates
    high: float
    proven: int  # 1: the later one is proven better, -1: the earlier, 0: neither


class Comparison(NamedTuple):
    """Two versions, side by side."""

    before: BehaviourStats
    after: BehaviourStats
    measures: tuple[Compared, ...]


class Candidate(NamedTuple):
    """A version that could replace the current one."""

    cid: str
    state: str
    compared: Compared
    needed: Count | None  # estimated number of further observations that would prove the difference


class Suggestion(NamedTuple):
    """A suggested action for a behaviour, with its evidence."""

    name: str
    action: str  # adopt, keep, retire or not-enough-data
    cid: str | None  # the version it refers to
    measure: str
    current: Rate
    candidates: tuple[Candidate, ...]
    why: str
    evidence: tuple[str, ...]
    least: Count  # required observations of each version
    error: float  # accepted probability of a wrong suggestion
    expect: str | None  # the current version at that time; an adoption can require it


class ReplayStep(NamedTuple):
    """One request, and the recorded answer it got."""

    kind: str
    tag: str | None
    payload: Any
    line: int
    answered: bool
    recorded: Count | None = None  # index of the matching recorded request, from 1
    value: Any = None
    error: str | None = None


class Replayed(NamedTuple):
    """A past session replayed with another version; nothing is written."""

    agent: str
    session: str
    flow: str  # the version that ran
    with_: str  # the version that was tried
    same: bool  # the same requests in the same order, to the same end
    steps: tuple[ReplayStep, ...]  # requests of the tried version, in order
    departs_at: Count | None  # the first request, from 1, that differs; None if none does
    recorded: tuple[ReplayStep, ...]  # requests of the session, in order
    unasked: tuple[Count, ...]  # recorded requests that the tried version did not make
    ended: bool  # False: it waits for an answer
    result: Any
    failure: Mapping[str, Any] | None
    recorded_status: str
    recorded_result: Any
    recorded_failure: Mapping[str, Any] | None
    printed: str
    in_part: bool = False  # the store lost the session, and git has only some answers
