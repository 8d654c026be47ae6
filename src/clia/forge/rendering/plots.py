"""Plots of rates with their intervals, as SVG that the server makes.

Invariant: a plot says nothing that a table beside it does not say as text. Whatever comes from outside becomes text or a number,
never an element, an attribute or a class. Nothing is styled inline: presentation attributes give a plain picture, classes let a
style sheet do more; each series has a mark of its own, so that colour is never needed to tell two apart.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup, escape

from clia.forge.rendering.texts import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SERIES = 6
"""So many series are told apart in one plot."""
PERIODS = 60
"""So many periods, the newest, are in one plot."""
_MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # circle
    "m-3.5-3.5h7v7h-7z",  # square
    "m0-4.8l4.6 8h-9.2z",  # triangle
    "m0-5l5 5l-5 5l-5-5z",  # diamond
    "m0 4.8l4.6-8h-9.2z",  # triangle that points down
    "m-4-2h2.7v-2.7h2.6v2.7h2.7v4h-2.7v2.7h-2.6v-2.7h-2.7z",  # cross
)
_TOP, _HEIGHT, _BOTTOM, _LEFT = 14, 200, 46, 52
_LEAST = 172  # the width of a plot over time without its margins; as wide as a phone shows whole
_ROW, _SCALE, _MARGIN, _EDGE = 38, 256, 22, 2  # rows have their words above them, so that a phone shows them whole too
_BAR = 26  # where in a row its bar lies
_LABEL = 76  # the width of a day under the axis
_SAID = 18  # characters of a name above a row
_LINES = (0, 25, 50, 75, 100)
_SPACE = "\u00a0"  # a number and its sign stay on one line


class Point(NamedTuple):
    """A rate with its interval, all from 0 to 1, and the observations behind it. ``at``: the period, or the row, it belongs to."""

    at: str
    rate: float
    low: float
    high: float
    n: int

    def told(self) -> str:
        return f"{percent(self.rate)} of {self.n} ({percent(self.low)} to {percent(self.high)})"


class Series(NamedTuple):
    """What is told of one thing over time."""

    name: str
    points: Sequence[Point]


def percent(share: float) -> str:
    """A share for people. What is not all is never said to be all, and what is not nothing never nothing."""
    if 0 < share < 0.001:
        return f"below 0.1{_SPACE}%"
    if 0.999 < share < 1:
        return f"over 99.9{_SPACE}%"
    return f"{_rounded(share)}{_SPACE}%"


def signed(difference: float) -> str:
    """What one share has over another, in points of a hundred, with its sign; no difference has none."""
    size = abs(difference)
    if 0 < size < 0.001:
        return f"{'-' if difference < 0 else '+'}below 0.1"
    sign = "-" if difference < 0 else "+" if difference else ""
    return f"{sign}over 99.9" if 0.999 < size < 1 else f"{sign}{_rounded(size)}"


def _rounded(share: float) -> str:
    """Of a hundred; with one place more where a round number would say nothing, or all."""
    is_near = 0 < share <= 0.005 or 0.995 <= share < 1
    return f"{share * 100:.{1 if is_near else 0}f}"


def periods_of(series: Sequence[Series]) -> list[str]:
    """The newest periods of which any series has something, oldest first."""
    return sorted({point.at for each in series for point in each.points})[-PERIODS:]


def mark(number: int) -> Markup:
    """The mark of a series, for a legend."""
    place = number % SERIES
    return _svg(
        f'<svg class="plot-mark s{place}" width="14" height="14" viewBox="0 0 14 14" aria-hidden="true" focusable="false">'
        f'<path class="mark" d="M7 7{_MARKS[place]}" fill="currentColor"/></svg>'
    )


def over_time(plot: str, series: Sequence[Series], measure: str, span: str) -> Markup:
    """Rates of each period, one series beside the other. ``plot`` is the start of ids in it, and ours."""
    shown = series[:SERIES]
    periods = periods_of(shown)
    step = max(26, 12 * len(shown) + 14)
    width, height = _LEFT + max(_LEAST, step * len(periods)) + _LABEL, _TOP + _HEIGHT + _BOTTOM
    if periods:
        said = f"{len(shown)} series over {len(periods)} periods, {periods[0]} to {periods[-1]}. The table below says the same."
    else:
        said = "Nothing was observed."
    parts = [_head(plot, width, height, f"{measure} by {span}: rates with their 95 % intervals", said, "over-time")]
    parts += [_level(value, width) for value in _LINES]
    parts.append(_text(_LEFT, height - 6, f"{span}s in which something was observed", "axis", anchor="start"))
    parts += _days(periods, step, span)
    places = {period: _LEFT + step * number + step / 2 for number, period in enumerate(periods)}
    for number, each in enumerate(shown):
        shift = 12 * (number - (len(shown) - 1) / 2)
        inside = [point for point in each.points if point.at in places]
        parts.append(_line(number, [(places[point.at] + shift, _y(point.rate)) for point in inside]))
        parts += [_upright(number, places[point.at] + shift, point, each.name) for point in inside]
    return _svg("".join([*parts, "</svg>"]))


def side_by_side(plot: str, points: Sequence[Point], measure: str) -> Markup:
    """Rates of one measure, a row each: ``at`` names it. A style sheet may make it narrower: the whole of it shrinks."""
    width, height = _SCALE + 2 * _MARGIN, _ROW * max(1, len(points)) + 44
    said = f"{len(points)} rows, each a rate and the interval that it lies in. The table of versions says the same."
    title = f"{measure}: rates side by side with their 95 % intervals"
    parts = [_head(plot, width, height, title, said if points else "Nothing was observed.", "beside")]
    end = height - 36
    rows = [_ROW * number + _BAR for number in range(max(1, len(points)))]  # between them are words, which no line crosses
    for value in _LINES:
        x = _MARGIN + _SCALE * value / 100
        way = "".join(f"M{_n(x)} {y - 8}v16" for y in rows)
        parts.append(f'<path class="level" d="{way}" stroke="currentColor" stroke-opacity="0.25"/>')
        parts.append(_text(x, end + 15, f"{value} %", "tick", anchor="middle"))
    parts.append(_text(_EDGE, height - 4, f"share of what was observed: {measure}", "axis", anchor="start"))
    parts += [_lying(number, point) for number, point in enumerate(points)]
    return _svg("".join([*parts, "</svg>"]))


def _head(plot: str, width: float, height: float, title: str, said: str, kind: str) -> str:
    ids = f"{plot}-title", f"{plot}-desc"
    return (
        f'<svg class="plot {kind}" role="img" aria-labelledby="{ids[0]} {ids[1]}" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" font-size="12">'
        f'<title id="{ids[0]}">{_safe(title)}</title><desc id="{ids[1]}">{_safe(said)}</desc>'
    )


def _level(value: int, width: float) -> str:
    y = _y(value / 100)
    line = f'<path class="level" d="M{_LEFT} {_n(y)}H{_n(width)}" stroke="currentColor" stroke-opacity="0.25"/>'
    return line + _text(_LEFT - 6, y + 4, f"{value} %", "tick", anchor="end")


def _days(periods: Sequence[str], step: float, span: str) -> list[str]:
    every = -(-_LABEL // int(step))
    cut = 7 if span == "month" else 10
    made = []
    for number in range(0, len(periods), every):
        x = _LEFT + step * number + step / 2
        made.append(f'<path class="level" d="M{_n(x)} {_TOP + _HEIGHT}v4" stroke="currentColor"/>')
        made.append(_text(x - 4, _TOP + _HEIGHT + 17, periods[number][:cut], "tick", anchor="start"))
    return made


def _line(number: int, places: Sequence[tuple[float, float]]) -> str:
    if len(places) < 2:
        return ""
    way = "L".join(f"{_n(x)} {_n(y)}" for x, y in places)
    return f'<path class="line s{number}" d="M{way}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'


def _upright(number: int, x: float, point: Point, name: str) -> str:
    low, high = _y(point.low), _y(point.high)
    bar = f"M{_n(x)} {_n(low)}V{_n(high)}m-3 0h6M{_n(x - 3)} {_n(low)}h6"
    return _drawn(number, f"{point.at}, {name}: {point.told()}", bar, (x, _y(point.rate)))


def _lying(number: int, point: Point) -> str:
    words, y = _ROW * number + _BAR - 12, _ROW * number + _BAR
    low, high = _MARGIN + _SCALE * point.low, _MARGIN + _SCALE * point.high
    bar = f"M{_n(low)} {_n(y)}H{_n(high)}m0-3v6M{_n(low)} {_n(y - 3)}v6"
    drawn = _drawn(number % SERIES, f"{point.at}: {point.told()}", bar, (_MARGIN + _SCALE * point.rate, y))
    name = point.at if len(point.at) <= _SAID else f"{point.at[: _SAID - 1]}…"
    count = _text(_SCALE + 2 * _MARGIN - _EDGE, words, f"{percent(point.rate)} of {point.n}", "tick", anchor="end")
    return _text(_EDGE, words, name, "name", anchor="start") + drawn + count


def _drawn(number: int, said: str, bar: str, at: tuple[float, float]) -> str:
    x, y = at
    return (
        f'<g class="point s{number}"><title>{_safe(said)}</title>'
        f'<path class="bar" d="{bar}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f'<path class="mark" d="M{_n(x)} {_n(y)}{_MARKS[number]}" fill="currentColor"/></g>'
    )


def _text(x: float, y: float, text: str, kind: str, *, anchor: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" fill="currentColor">{_safe(text)}</text>'


def _y(rate: float) -> float:
    return _TOP + _HEIGHT * (1 - rate)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _safe(text: str) -> str:
    return str(escape(one_line(text)))


def _svg(made: str) -> Markup:
    return Markup(made)  # noqa: S704 - every text in it went through _safe, and all else is numbers and words of ours
