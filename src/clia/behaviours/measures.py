"""Sums of observations, and the measures and statistics of a behaviour.

Invariant: sums are only added, and the order does not matter; anything that must be taken back is read again. A measure
counts things that went well or not; what is neither, such as a cancelled session, is reported separately.
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
Seen = dict[str, list[list[Any]]]  # key -> [time, commit] of the newest


class ObservationSum(NamedTuple):
    """The observations of one behaviour."""

    days: Days
    seen: Seen

    def to_json(self) -> dict[str, Any]:
        return {"days": self.days, "seen": self.seen}


def sum_from_json(made: Mapping[str, Any] | None) -> ObservationSum:
    return ObservationSum({}, {}) if made is None else ObservationSum(made["days"], made["seen"])


def sum_observations(observations: Iterable[Observation]) -> dict[str, ObservationSum]:
    """Observations by behaviour."""
    sums: dict[str, ObservationSum] = {}
    for observation in observations:
        made = sums.setdefault(observation.behaviour, ObservationSum({}, {}))
        day = made.days.setdefault(day_of(observation.at), {})
        day[observation.key] = day.get(observation.key, 0) + observation.times
        if not observation.key.startswith(_WITHOUT_EVIDENCE):
            made.seen.setdefault(observation.key, []).append([observation.at, observation.origin])
    for made in sums.values():
        for key, seen in made.seen.items():
            made.seen[key] = newest_commits(seen)
    return sums


def add_sum(into: ObservationSum, more: ObservationSum, sign: int = 1) -> None:
    """Add one sum to another; ``sign`` -1 subtracts its counts, but not its commits."""
    for day, counts in more.days.items():
        there = into.days.setdefault(day, {})
        for key, count in counts.items():
            there[key] = there.get(key, 0) + sign * count
            if not there[key]:
                del there[key]
        if not there:
            del into.days[day]
    if sign > 0:
        for key, seen in more.seen.items():
            into.seen[key] = newest_commits([*into.seen.get(key, ()), *seen])


def newest_commits(seen: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """The newest commits, each once."""
    return [list(each) for each in sorted({(at, origin) for at, origin in seen}, reverse=True)[:COMMITS_KEPT]]


def contains_commits(some: Seen, others: Seen) -> bool:
    """Whether all commits of ``some`` are among ``others``."""
    return all(set(map(tuple, seen)) <= set(map(tuple, others.get(key, ()))) for key, seen in some.items())


def totals(days: Days) -> dict[str, int]:
    """The counts of all days together."""
    found: dict[str, int] = {}
    for counts in days.values():
        for key, count in counts.items():
            found[key] = found.get(key, 0) + count
    return found


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
        hints=[f"{name}: {each.says}" for name, each in MEASURES.items()],
        fields={"field": "measure", "measure": text},
    )


def check_span(over: str) -> None:
    if over not in SPANS:
        raise InvalidInput(f"unknown period {over!r}; use {', '.join(SPANS)}", code="no-such-span", fields={"field": "over"})


def usual_measure(kind: str) -> str:
    """The default measure: finished for a flow, merged for a prompt."""
    return "finished" if kind == SESSION_FLOW else "merged"


def count_of(seen: Mapping[str, int], measure: str) -> Count:
    if measure == "kept":
        reverted = min(seen.get(REVERTED, 0), seen.get(LANDED, 0))
        return Count(seen.get(LANDED, 0) - reverted, reverted)
    each = MEASURES[measure]
    return Count(sum(seen.get(key, 0) for key in each.good), sum(seen.get(key, 0) for key in each.bad))


def rate_of(measure: str, count: Count, level: float = LEVEL) -> Rate:
    return Rate(measure, count.good, count.n, count.rate, *interval(count, level))


def rates_of(seen: Mapping[str, int]) -> tuple[Rate, ...]:
    """The rates of every measure with observations."""
    return tuple(rate_of(name, count) for name in MEASURES if (count := count_of(seen, name)).n)


def stats_of(cid: str, name: str | None, state: str | None, found: ObservationSum, over: str | None = None) -> BehaviourStats:
    seen = totals(found.days)
    days = sorted(found.days)
    return BehaviourStats(
        cid=cid,
        name=name,
        state=state,
        commits=_below(seen, KIND),
        sessions=_below(seen, SESSION),
        decisions=_below(seen, VERDICT),
        merges=_below(seen, MERGE),
        outcomes=_below(seen, OUTCOME),
        landed=seen.get(LANDED, 0),
        reverted=seen.get(REVERTED, 0),
        merge_seconds=_durations(seen, MERGED_AFTER),
        land_seconds=_durations(seen, LANDED_AFTER),
        trace=_below(seen, TRACE),
        tokens=_below(seen, TOKENS),
        first=days[0] if days else None,
        last=days[-1] if days else None,
        rates=rates_of(seen),
        series=series(found.days, over) if over else (),
    )


def series(days: Days, over: str) -> tuple[Period, ...]:
    """The rates of each day, week or month in which something was observed, oldest first."""
    check_span(over)
    periods: dict[str, Days] = {}
    for day, counts in days.items():
        periods.setdefault(_start(day, over), {})[day] = counts
    made = (Period(start, rates_of(totals(inside))) for start, inside in sorted(periods.items()))
    return tuple(each for each in made if each.rates)


def _start(day: str, over: str) -> str:
    if over == DAY:
        return day
    if over == MONTH:
        return f"{day[:7]}-01"
    made = date.fromisoformat(day)
    return date.fromordinal(max(1, made.toordinal() - made.weekday())).isoformat()


def _below(seen: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): count for key, count in sorted(seen.items()) if key.startswith(prefix)}


def _durations(seen: Mapping[str, int], prefix: str) -> dict[str, int]:
    """How long something took: how often, and the seconds that half and nine tenths of all stayed below."""
    counted = {int(key): count for key, count in _below(seen, prefix).items()}
    median, most = quantile(counted, 0.5), quantile(counted, 0.9)
    return {} if median is None or most is None else {"n": sum(counted.values()), "median": median, "p90": most}


def compared(
    before: ObservationSum, after: ObservationSum, error: float = ERROR, measures: Sequence[str] = tuple(MEASURES)
) -> tuple[Compared, ...]:
    """Two versions by each measure of which either has something."""
    seen = totals(before.days), totals(after.days)
    made = ((name, count_of(seen[0], name), count_of(seen[1], name)) for name in measures)
    return tuple(compare(*each, error) for each in made if each[1].n or each[2].n)


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
