"""Versions and rates of behaviours, for people.

Invariant: a rate is always shown with its interval and the number of observations, and never as certain if it is not.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager

from clia.behaviours.model import CURRENT, FOREIGN, FORMER, PROPOSED, RETIRED, TRIAL
from clia.cli.command import opt
from clia.cli.output import one_line, write
from clia.cli.rendering import only_ascii, progress_bar, short
from clia.errors import NotFound
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from rich.text import Text

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour, Rate
    from clia.facade.space import Space

_STATE_STYLES = {CURRENT: "green", TRIAL: "cyan", FORMER: "cyan", PROPOSED: "yellow", RETIRED: "bright_black", FOREIGN: "magenta"}
GAPS = (
    "note: this clone has only part of the record, and the rest is not counted; "
    "fetch it (git fetch --unshallow, and the refs of all agents), then run this again\n"
)
_CERTAIN = ("0", "100")
CHART_WIDTH = 25
_BOX_CHARACTERS, _ASCII_CHARACTERS = ("├", "─", "┤", "●"), ("[", "-", "]", "*")


def measure_option(text: str) -> Any:
    return opt("M", f"{text}: finished, approved, merged, passed or kept")


def find_behaviour(space: Space, name: str) -> KnownBehaviour | None:
    try:
        return space.behaviours.get(name)
    except NotFound:
        return None


def version_json(version: BehaviourVersion) -> dict[str, Any]:
    """A version without its body."""
    fields: dict[str, Any] = as_json(version)
    del fields["body"]
    return fields


def behaviour_json(behaviour: KnownBehaviour) -> dict[str, Any]:
    """A behaviour without the bodies of its versions."""
    fields: dict[str, Any] = as_json(behaviour)
    return fields | {"versions": [version_json(version) for version in behaviour.versions]}


def version_line(version: BehaviourVersion, text: str) -> Text:
    from rich.text import Text

    return Text.assemble((one_line(version.name), "bold"), " ", (short(version.cid), "yellow"), f"  {one_line(text)}")


def state_text(state: str | None) -> Text:
    from rich.text import Text

    return Text(one_line(state or "unknown"), style=_STATE_STYLES.get(state or "", ""))


def person(by: str) -> str:
    """A name without the e-mail address."""
    return by.partition(" <")[0]


def chance(value: float | None) -> str:
    """A probability; observations never make it certain."""
    if value is None:
        return ""
    text = f"{100 * value:.0f}"
    return f"{text} %" if text not in _CERTAIN else ">99 %" if value > 0.5 else "<1 %"


def rate_text(rate: Rate | None) -> str:
    """``67 % (30 to 90), n=6``."""
    if rate is None or rate.rate is None:
        return "never observed"
    from clia.behaviours.suggesting import percentage

    return f"{percentage(rate.rate)} % ({percentage(rate.low)} to {percentage(rate.high)}), n={rate.n}"


def rate_by(rates: Sequence[Rate], measure: str) -> Rate | None:
    return next((rate for rate in rates if rate.measure == measure), None)


def some_ids(cids: Sequence[str], most: int = 3) -> str:
    """The first ids, and how many more there are."""
    rest = len(cids) - most
    return ", ".join(short(cid) for cid in cids[:most]) + (f" and {rest} more" if rest > 0 else "")


def count_text(counts: Mapping[str, int]) -> str:
    """``4 finished, 2 failed``, the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@contextmanager
def reading(*, hidden: bool) -> Iterator[Callable[[int, int], None] | None]:
    with progress_bar("Reading the record", hidden=hidden) as progress:
        yield progress


def note_gaps(gaps: int) -> None:
    if gaps:
        write(GAPS, sys.stderr)


def chart_axis() -> str:
    """The scale above interval lines: 0 to 100 %."""
    return "0" + "50".center(CHART_WIDTH - 4) + "100"


def interval_line(rate: Rate | None) -> str:
    """The interval of a rate as a line, with a dot at the rate; empty without observations."""
    if rate is None or rate.rate is None:
        return ""
    start, line, end, dot = _ASCII_CHARACTERS if only_ascii() else _BOX_CHARACTERS
    low, at, high = (round(min(max(value, 0.0), 1.0) * (CHART_WIDTH - 1)) for value in (rate.low, rate.rate, rate.high))
    cells = [" "] * low + [line] * (high - low + 1)
    cells[low], cells[high] = start, end
    cells[at] = dot
    return "".join(cells)
