"""Rates with their intervals, drawn in a line of a terminal.

Invariant: all lines of a chart have one scale, from 0 to 100 %. What is drawn is the interval, and the dot in it is the rate.
"""

from __future__ import annotations

from clia.cli.space.common import only_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.behaviours.model import Rate

WIDTH = 25
_BOXES, _PLAIN = ("├", "─", "┤", "●"), ("[", "-", "]", "*")


def axis() -> str:
    """What stands above the lines."""
    return "0" + "50".center(WIDTH - 4) + "100"


def interval_line(rate: Rate | None) -> str:
    """One rate; nothing where nothing was observed."""
    if rate is None or rate.rate is None:
        return ""
    start, line, end, dot = _PLAIN if only_ascii() else _BOXES
    low, at, high = (round(min(max(value, 0.0), 1.0) * (WIDTH - 1)) for value in (rate.low, rate.rate, rate.high))
    cells = [" "] * low + [line] * (high - low + 1)
    cells[low], cells[high] = start, end
    cells[at] = dot
    return "".join(cells)
