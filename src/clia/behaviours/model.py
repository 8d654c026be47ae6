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

    name: str  # the behaviour
    cid: str  # version id
    kind: str  # session-flow, prompt or identity-document
    state: str  # current, trial, former, proposed, retired or foreign
    body: str  # flow source, or the text of the prompt or document
    parent: str | None = None  # the version that it derives from
    notes: str = ""  # purpose and when to use it
    by: str = ""  # who added it first
    at: int = 0  # seconds since the epoch
    why: str = ""  # reason that was given
    evidence: tuple[str, ...] = ()  # commits that supported its proposal, trial or adoption
    origin: str | None = None  # the peer that it came from
    document: str | None = None  # path of the identity's document that it is a text of


class BehaviourEvent(NamedTuple):
    """An event of a behaviour: a commit on its chain."""

    commit: str  # the commit on its chain
    event: str  # define, propose, trial, adopt or retire
    cid: str  # the version
    by: str  # who did it
    at: int  # seconds since the epoch
    why: str  # reason that was given
    evidence: tuple[str, ...] = ()  # commits that were named as the reason
    measure: str | None = None  # the measure that decided, if any


class KnownBehaviour(NamedTuple):
    """A behaviour with its versions and history."""

    name: str  # its name
    kind: str  # session-flow, prompt or identity-document
    current: str | None  # the current version; null: retired, or not adopted yet
    versions: tuple[BehaviourVersion, ...]  # oldest first
    history: tuple[BehaviourEvent, ...]  # newest first


class Rate(NamedTuple):
    """A success rate with its interval; ``rate`` is None if nothing was observed."""

    measure: str  # what is measured
    good: Count  # successes
    n: Count  # observations
    rate: float | None  # share of successes; null: nothing was observed
    low: float  # lower end of the 95 % interval
    high: float  # upper end of the 95 % interval


class Period(NamedTuple):
    """The rates of one day, week or month."""

    start: str  # its first day
    rates: tuple[Rate, ...]  # every measure with observations


class BehaviourStats(NamedTuple):
    """The statistics of one version."""

    cid: str  # version id
    name: str | None  # None if it is on no chain here
    state: str | None  # current, trial, former, proposed, retired, foreign, or profile of an identity
    commits: Mapping[str, Count]  # by kind
    sessions: Mapping[str, Count]  # by how they ended
    decisions: Mapping[str, Count]  # approved, rejected, other
    merges: Mapping[str, Count]  # merged, refused
    outcomes: Mapping[str, Count]  # passed, failed
    landed: Count  # landings
    reverted: Count  # landings that were reverted
    merge_seconds: Mapping[str, Count]  # n, median and p90 of the time from the oldest commit to the merge
    land_seconds: Mapping[str, Count]  # the same, to the landing
    trace: Mapping[str, Count]  # entries, bytes
    tokens: Mapping[str, Count]  # input and output, if traces name them
    first: str | None  # the day of the first observation
    last: str | None  # the day of the last one
    rates: tuple[Rate, ...]  # every measure with observations
    series: tuple[Period, ...] = ()  # rates over time, if asked for


class Compared(NamedTuple):
    """One measure of two versions."""

    measure: str  # what is measured
    before: Rate  # rate of the earlier version
    after: Rate  # rate of the later version
    better: float | None  # probability that the later one is better; None if one was never observed
    low: float  # lower end of the interval of the difference between the rates
    high: float  # upper end of that interval
    proven: int  # 1: the later one is proven better, -1: the earlier, 0: neither


class Comparison(NamedTuple):
    """Two versions, side by side."""

    before: BehaviourStats  # the earlier version
    after: BehaviourStats  # the later version
    measures: tuple[Compared, ...]  # measures with observations


class Candidate(NamedTuple):
    """A version that could replace the current one."""

    cid: str  # version id
    state: str  # as in BehaviourVersion
    compared: Compared  # compared with the current version
    needed: Count | None  # estimated number of further observations that would prove the difference


class Suggestion(NamedTuple):
    """A suggested action for a behaviour, with its evidence."""

    name: str  # of the behaviour
    action: str  # adopt, keep, retire or not-enough-data
    cid: str | None  # the version it refers to
    measure: str  # what was judged by
    current: Rate  # rate of the current version
    candidates: tuple[Candidate, ...]  # versions that could replace the current one
    why: str  # in words
    evidence: tuple[str, ...]  # the newest commits that support it
    least: Count  # required observations of each version
    error: float  # accepted probability of a wrong suggestion
    expect: str | None  # the current version at that time; an adoption can require it


class ReplayStep(NamedTuple):
    """One request, and the recorded answer it got."""

    kind: str  # kind of request
    tag: str | None  # the label that the flow gave it
    payload: Any  # what is asked
    line: int  # in the flow's source
    answered: bool  # whether a recorded answer matched
    recorded: Count | None = None  # index of the matching recorded request, from 1
    value: Any = None  # the answer
    error: str | None = None  # if it was given up: the reason


class Replayed(NamedTuple):
    """A past session replayed with another version; nothing is written."""

    agent: str  # the agent
    session: str  # the session
    flow: str  # the version that ran
    with_: str  # the version that was tried
    same: bool  # the same requests in the same order, to the same end
    steps: tuple[ReplayStep, ...]  # requests of the tried version, in order
    departs_at: Count | None  # the first request, from 1, that differs; None if none does
    recorded: tuple[ReplayStep, ...]  # requests of the session, in order
    unasked: tuple[Count, ...]  # recorded requests that the tried version did not make
    ended: bool  # False: it waits for an answer
    result: Any  # what the flow returned
    failure: Mapping[str, Any] | None  # the error that ended it
    recorded_status: str  # status of the session
    recorded_result: Any  # what the session returned
    recorded_failure: Mapping[str, Any] | None  # the error that ended the session
    printed: str  # what the flow printed
    in_part: bool = False  # the store lost the session, and git has only some answers
