"""What the verbs of behaviours answer with: plain records."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.verbs import Count

CURRENT, TRIAL, FORMER, PROPOSED, RETIRED, FOREIGN = "current", "trial", "former", "proposed", "retired", "foreign"
"""How a version stands: it is what the name means; people let it run by its id; it was what the name meant; nobody has let it run
yet; it shall run no more; no chain here has it."""
MAY_RUN = (CURRENT, TRIAL, FORMER)

ADOPT, KEEP, RETIRE, NOT_ENOUGH = "adopt", "keep", "retire", "not-enough-data"
"""What can be suggested."""


class BehaviourVersion(NamedTuple):
    """One version of a behaviour, and how it came to be one here."""

    name: str
    cid: str
    kind: str  # session-flow or prompt
    state: str
    body: str
    parent: str | None = None
    notes: str = ""
    by: str = ""  # who brought it here first
    at: int = 0  # seconds since the epoch
    why: str = ""
    evidence: tuple[str, ...] = ()  # the commits that it was proposed, tried or adopted on
    origin: str | None = None  # the peer whose version it is


class BehaviourEvent(NamedTuple):
    """One thing that happened to a behaviour: a commit on its chain."""

    commit: str
    event: str  # define, propose, trial, adopt or retire
    cid: str
    by: str
    at: int
    why: str
    evidence: tuple[str, ...] = ()
    measure: str | None = None


class KnownBehaviour(NamedTuple):
    """A behaviour as it is now."""

    name: str
    kind: str
    current: str | None  # None: it was retired, or nothing was adopted yet
    versions: tuple[BehaviourVersion, ...]  # oldest first
    history: tuple[BehaviourEvent, ...]  # newest first


class Rate(NamedTuple):
    """How often something went well. ``rate`` is None where nothing was observed; low and high are the interval."""

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
    """What was observed of one version."""

    cid: str
    name: str | None  # None where no chain here has it
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
    tokens: Mapping[str, Count]  # input, output; where traces name them
    first: str | None  # the day of the first observation
    last: str | None
    rates: tuple[Rate, ...]
    series: tuple[Period, ...] = ()


class Compared(NamedTuple):
    """One measure of two versions."""

    measure: str
    before: Rate
    after: Rate
    better: float | None  # the probability that the later one has the higher rate; None where one was never observed
    low: float  # what the later one's rate has over the other's: the interval
    high: float
    proven: int  # 1 the later is shown to be better, -1 the earlier, 0 neither


class Comparison(NamedTuple):
    """Two versions, side by side."""

    before: BehaviourStats
    after: BehaviourStats
    measures: tuple[Compared, ...]


class Candidate(NamedTuple):
    """What a suggestion knows of one version that might take the current one's place."""

    cid: str
    state: str
    compared: Compared
    needed: Count | None  # about how many more observations of each would show a difference as it looks now


class Suggestion(NamedTuple):
    """What the record says should be done with a behaviour, and the commits that say so."""

    name: str
    action: str  # adopt, keep, retire or not-enough-data
    cid: str | None  # the version that it is about
    measure: str
    current: Rate
    candidates: tuple[Candidate, ...]
    why: str
    evidence: tuple[str, ...]
    least: Count  # observations of each that a suggestion takes
    error: float  # how often one may be made of versions that are equally good
    expect: str | None  # what was current when it was made: an adoption can insist on it


class ReplayStep(NamedTuple):
    """One request of the other version, and the recorded answer that it got."""

    kind: str
    tag: str | None
    payload: Any
    line: int
    answered: bool
    recorded: Count | None = None  # which of the recorded requests it is, from 1
    value: Any = None
    error: str | None = None


class Replayed(NamedTuple):
    """How a past session would have gone under another version; nothing of it was written."""

    agent: str
    session: str
    flow: str  # the version that ran
    with_: str  # the version that it was tried with
    same: bool  # the same requests in the same order, to the same end
    steps: tuple[ReplayStep, ...]  # what the other version asked for, in order
    departs_at: Count | None  # the first request, from 1, that differs from the recorded one there; None where none does
    recorded: tuple[ReplayStep, ...]  # what the session asked for, in order
    unasked: tuple[Count, ...]  # the recorded requests that the other version never made
    ended: bool  # False: it waits for what nobody has answered
    result: Any
    failure: Mapping[str, Any] | None
    recorded_status: str
    recorded_result: Any
    recorded_failure: Mapping[str, Any] | None
    printed: str
    in_part: bool = False  # the store has lost the session, and git has not all of its answers
