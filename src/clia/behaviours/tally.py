"""Observations added up: by behaviour, by day and by what was seen, with the newest commits that say so.

Invariant: adding is all that is ever done, and in any order it comes to the same. Whatever would take something back is read anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.behaviours.observing import LANDED_AFTER, MERGED_AFTER, TOKENS, TRACE, day_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.behaviours.observing import Observation

KEPT = 20
"""So many of the newest commits are remembered for each thing that was seen."""
_UNNAMED = (TRACE, TOKENS, MERGED_AFTER, LANDED_AFTER)
"""What is measured rather than counted: no single commit is the evidence of it."""

Days = dict[str, dict[str, int]]  # day, what was seen, how often
Seen = dict[str, list[list[Any]]]  # what was seen, and of the newest: time and commit


class Sum(NamedTuple):
    """What is known of one behaviour."""

    days: Days
    seen: Seen

    def to_json(self) -> dict[str, Any]:
        return {"days": self.days, "seen": self.seen}


def sum_from(made: Mapping[str, Any] | None) -> Sum:
    return Sum({}, {}) if made is None else Sum(made["days"], made["seen"])


def added_up(observations: Iterable[Observation]) -> dict[str, Sum]:
    """Observations by behaviour."""
    found: dict[str, Sum] = {}
    for each in observations:
        made = found.setdefault(each.behaviour, Sum({}, {}))
        day = made.days.setdefault(day_of(each.at), {})
        day[each.key] = day.get(each.key, 0) + each.times
        if not each.key.startswith(_UNNAMED):
            made.seen.setdefault(each.key, []).append([each.at, each.origin])
    for made in found.values():
        for key, seen in made.seen.items():
            made.seen[key] = newest(seen)
    return found


def add(into: Sum, more: Sum, sign: int = 1) -> None:
    """Adds one sum to another; with ``sign`` -1, takes it away again, apart from the commits that were seen."""
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
            into.seen[key] = newest([*into.seen.get(key, ()), *seen])


def newest(seen: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """The newest, each once."""
    return [list(each) for each in sorted({(at, origin) for at, origin in seen}, reverse=True)[:KEPT]]


def is_within(some: Seen, others: Seen) -> bool:
    """Whether all commits that were seen are among others."""
    return all(set(map(tuple, seen)) <= set(map(tuple, others.get(key, ()))) for key, seen in some.items())


def totals(days: Days) -> dict[str, int]:
    """What was seen on all days together."""
    found: dict[str, int] = {}
    for counts in days.values():
        for key, count in counts.items():
            found[key] = found.get(key, 0) + count
    return found
