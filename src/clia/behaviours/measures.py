"""Sums of observations, and the measures and statistics of a behaviour.

Invariant: sums can be added in any order; a source whose observations changed is read again. A measure counts successes and
failures; anything else, such as a cancelled session, is reported separately.
"""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

from clia.behaviours.model import BehaviourStats, Compared, Period, Rate
from clia.behaviours.observing import (
    KIND,
    LANDED,
    LANDED_AFTER,
    MERGE,
    MERGED_AFTER,
    OUTCOME,
    REVERTED,
    SESSION,
    TOKENS,
    TRACE,
    VERDICT,
    day_of,
)
from clia.behaviours.statistics import ERROR, LEVEL, Count, better, difference, interval, proven, quantile
from clia.errors import InvalidInput
from clia.values.typed_objects import SESSION_FLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.behaviours.observing import Observation

COMMITS_KEPT = 20
"""Number of newest commits kept per observed key."""
_WITHOUT_EVIDENCE = (TRACE, TOKENS, MERGED_AFTER, LANDED_AFTER)
"""Quantities without a single commit as evidence."""

Days = dict[str, dict[str, int]]  # day -> key -> count
CommitsByKey = dict[str, list[list[Any]]]  # key -> [time, commit] of the newest


class ObservationSum(NamedTuple):
    """The observations of one behaviour."""

    days: Days
    commits: CommitsByKey

    def to_json(self) -> dict[str, Any]:
        return {"days": self.days, "seen": self.commits}


def sum_from_json(data: Mapping[str, Any] | None) -> ObservationSum:
    return ObservationSum({}, {}) if data is None else ObservationSum(data["days"], data["seen"])


def sum_observations(observations: Iterable[Observation]) -> dict[str, ObservationSum]:
    """Observations by behaviour."""
    sums: dict[str, ObservationSum] = {}
    for observation in observations:
        total = sums.setdefault(observation.subject, ObservationSum({}, {}))
        day = total.days.setdefault(day_of(observation.at), {})
        day[observation.key] = day.get(observation.key, 0) + observation.times
        if not observation.key.startswith(_WITHOUT_EVIDENCE):
            total.commits.setdefault(observation.key, []).append([observation.at, observation.origin])
    for total in sums.values():
        for key, commits in total.commits.items():
            total.commits[key] = newest_commits(commits)
    return sums


def add_sum(into: ObservationSum, addend: ObservationSum, sign: int = 1) -> None:
    """Add one sum to another; ``sign`` -1 subtracts its counts, but not its commits."""
    for day, counts in addend.days.items():
        day_counts = into.days.setdefault(day, {})
        for key, count in counts.items():
            day_counts[key] = day_counts.get(key, 0) + sign * count
            if not day_counts[key]:
                del day_counts[key]
        if not day_counts:
            del into.days[day]
    if sign > 0:
        for key, commits in addend.commits.items():
            into.commits[key] = newest_commits([*into.commits.get(key, ()), *commits])


def newest_commits(commits: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """The newest commits, each once."""
    return [list(row) for row in sorted({(at, origin) for at, origin in commits}, reverse=True)[:COMMITS_KEPT]]


def contains_commits(some: CommitsByKey, others: CommitsByKey) -> bool:
    """Whether ``others`` contains all commits of ``some``."""
    return all(set(map(tuple, commits)) <= set(map(tuple, others.get(key, ()))) for key, commits in some.items())


def totals(days: Days) -> dict[str, int]:
    """The counts of all days together."""
    sums: dict[str, int] = {}
    for counts in days.values():
        for key, count in counts.items():
            sums[key] = sums.get(key, 0) + count
    return sums


class Measure(NamedTuple):
    """The keys that count as good and bad."""

    good: tuple[str, ...]
    bad: tuple[str, ...]
    says: str


MEASURES: Mapping[str, Measure] = {
    "finished": Measure(
        (f"{SESSION}finished",),
        (f"{SESSION}failed", f"{SESSION}diverged"),
        "sessions that finished, of those that finished or failed",
    ),
    "approved": Measure(
        (f"{VERDICT}approved",), (f"{VERDICT}rejected",), "decisions that approved, of those that approved or rejected"
    ),
    "merged": Measure((f"{MERGE}merged",), (f"{MERGE}refused",), "merges that succeeded, of all attempts"),
    "passed": Measure((f"{OUTCOME}passed",), (f"{OUTCOME}failed",), "commits with outcome passed, of those with an outcome"),
    "kept": Measure((), (), "landings that were not reverted, of all"),
}
DAY, WEEK, MONTH = "day", "week", "month"
SPANS = (DAY, WEEK, MONTH)


def check_measure(text: str) -> str:
    if text in MEASURES:
        return text
    raise InvalidInput(
        f"unknown measure {text!r}",
        code="no-such-measure",
        hints=[f"{name}: {measure.says}" for name, measure in MEASURES.items()],
        fields={"field": "measure", "measure": text},
    )


def check_span(over: str) -> None:
    if over not in SPANS:
        raise InvalidInput(f"unknown period {over!r}; use {', '.join(SPANS)}", code="no-such-span", fields={"field": "over"})


def usual_measure(kind: str) -> str:
    """The default measure: finished for a flow, merged for a prompt."""
    return "finished" if kind == SESSION_FLOW else "merged"


def count_of(counts: Mapping[str, int], measure: str) -> Count:
    if measure == "kept":
        reverted = min(counts.get(REVERTED, 0), counts.get(LANDED, 0))
        return Count(counts.get(LANDED, 0) - reverted, reverted)
    definition = MEASURES[measure]
    return Count(sum(counts.get(key, 0) for key in definition.good), sum(counts.get(key, 0) for key in definition.bad))


def rate_of(measure: str, count: Count, level: float = LEVEL) -> Rate:
    return Rate(measure, count.good, count.n, count.rate, *interval(count, level))


def rates_of(counts: Mapping[str, int]) -> tuple[Rate, ...]:
    """The rates of every measure with observations."""
    return tuple(rate_of(name, count) for name in MEASURES if (count := count_of(counts, name)).n)


def stats_of(cid: str, name: str | None, state: str | None, observed: ObservationSum, over: str | None = None) -> BehaviourStats:
    counts = totals(observed.days)
    days = sorted(observed.days)
    return BehaviourStats(
        cid=cid,
        name=name,
        state=state,
        commits=_below(counts, KIND),
        sessions=_below(counts, SESSION),
        decisions=_below(counts, VERDICT),
        merges=_below(counts, MERGE),
        outcomes=_below(counts, OUTCOME),
        landed=counts.get(LANDED, 0),
        reverted=counts.get(REVERTED, 0),
        merge_seconds=_durations(counts, MERGED_AFTER),
        land_seconds=_durations(counts, LANDED_AFTER),
        trace=_below(counts, TRACE),
        tokens=_below(counts, TOKENS),
        first=days[0] if days else None,
        last=days[-1] if days else None,
        rates=rates_of(counts),
        series=series(observed.days, over) if over else (),
    )


def series(days: Days, over: str) -> tuple[Period, ...]:
    """The rates of each day, week or month in which something was observed, oldest first."""
    check_span(over)
    periods: dict[str, Days] = {}
    for day, counts in days.items():
        periods.setdefault(_start(day, over), {})[day] = counts
    rated = (Period(start, rates_of(totals(inside))) for start, inside in sorted(periods.items()))
    return tuple(period for period in rated if period.rates)


def _start(day: str, over: str) -> str:
    if over == DAY:
        return day
    if over == MONTH:
        return f"{day[:7]}-01"
    parsed = date.fromisoformat(day)
    return date.fromordinal(max(1, parsed.toordinal() - parsed.weekday())).isoformat()


def _below(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): count for key, count in sorted(counts.items()) if key.startswith(prefix)}


def _durations(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The number of durations, their median and their 90th percentile, in seconds."""
    counted = {int(key): count for key, count in _below(counts, prefix).items()}
    median, p90 = quantile(counted, 0.5), quantile(counted, 0.9)
    return {} if median is None or p90 is None else {"n": sum(counted.values()), "median": median, "p90": p90}


def compared(
    before: ObservationSum, after: ObservationSum, error: float = ERROR, measures: Sequence[str] = tuple(MEASURES)
) -> tuple[Compared, ...]:
    """Two versions by each measure with observations of either."""
    counts = totals(before.days), totals(after.days)
    rows = ((name, count_of(counts[0], name), count_of(counts[1], name)) for name in measures)
    return tuple(compare(*row, error) for row in rows if row[1].n or row[2].n)


def compare(measure: str, before: Count, after: Count, error: float = ERROR) -> Compared:
    both = bool(before.n and after.n)
    return Compared(
        measure,
        rate_of(measure, before),
        rate_of(measure, after),
        better(before, after) if both else None,
        *difference(before, after),
        proven(before, after, error).sign,
    )
