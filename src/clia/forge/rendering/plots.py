"""Plots of rates with confidence intervals, as server-side SVG.

Invariant: a table on the page has the same numbers. Foreign values become text or numbers, never elements, attributes or classes.
Presentation attributes give a plain picture, CSS classes refine it. Each series has its own mark, so colour is not needed.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup, escape

from clia.forge.rendering.texts import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SERIES = 6
"""Maximum series in a plot."""
PERIODS = 60
"""Maximum periods in a plot; the newest are kept."""
_MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # circle
    "m-3.5-3.5h7v7h-7z",  # square
    "m0-4.8l4.6 8h-9.2z",  # triangle
    "m0-5l5 5l-5 5l-5-5z",  # diamond
    "m0 4.8l4.6-8h-9.2z",  # triangle that points down
    "m-4-2h2.7v-2.7h2.6v2.7h2.7v4h-2.7v2.7h-2.6v-2.7h-2.7z",  # cross
)
_TOP, _HEIGHT, _BOTTOM, _LEFT = 14, 200, 46, 52
_LEAST = 172  # minimum inner width of a time plot; fits on a phone
_ROW, _SCALE, _MARGIN, _EDGE = 38, 256, 22, 2  # labels are above the rows, to fit on a phone
_BAR = 26  # offset of the bar in a row
_LABEL = 76  # width of an axis label
_SAID = 18  # maximum characters of a row label
_LINES = (0, 25, 50, 75, 100)
_SPACE = "\u00a0"  # non-breaking


class Point(NamedTuple):
    """A rate with its interval, from 0 to 1, and its sample size. ``at``: the period or row."""

    at: str
    rate: float
    low: float
    high: float
    n: int

    def summary(self) -> str:
        return f"{percent(self.rate)} of {self.n} ({percent(self.low)} to {percent(self.high)})"


class Series(NamedTuple):
    """The points of one version over time."""

    name: str
    points: Sequence[Point]


def percent(share: float) -> str:
    """A percentage; only exact values are shown as 0 % or 100 %."""
    if 0 < share < 0.001:
        return f"below 0.1{_SPACE}%"
    if 0.999 < share < 1:
        return f"over 99.9{_SPACE}%"
    return f"{_rounded(share)}{_SPACE}%"


def signed(difference: float) -> str:
    """A difference in percentage points with its sign."""
    size = abs(difference)
    if 0 < size < 0.001:
        return f"{'-' if difference < 0 else '+'}below 0.1"
    sign = "-" if difference < 0 else "+" if difference else ""
    return f"{sign}over 99.9" if 0.999 < size < 1 else f"{sign}{_rounded(size)}"


def _rounded(share: float) -> str:
    """A percentage, with one decimal close to 0 and 100."""
    is_near = 0 < share <= 0.005 or 0.995 <= share < 1
    return f"{share * 100:.{1 if is_near else 0}f}"


def periods_of(series: Sequence[Series]) -> list[str]:
    """The newest periods with data, oldest first."""
    return sorted({point.at for line in series for point in line.points})[-PERIODS:]


def mark(number: int) -> Markup:
    """The mark of a series, for a legend."""
    place = number % SERIES
    return _svg(
        f'<svg class="plot-mark s{place}" width="14" height="14" viewBox="0 0 14 14" aria-hidden="true" focusable="false">'
        f'<path class="mark" d="M7 7{_MARKS[place]}" fill="currentColor"/></svg>'
    )


def over_time(plot: str, series: Sequence[Series], measure: str, span: str) -> Markup:
    """Rates per period, series side by side. ``plot`` is a trusted prefix for element ids."""
    shown = series[:SERIES]
    periods = periods_of(shown)
    step = max(26, 12 * len(shown) + 14)
    width, height = _LEFT + max(_LEAST, step * len(periods)) + _LABEL, _TOP + _HEIGHT + _BOTTOM
    if periods:
        description = (
            f"{len(shown)} series over {len(periods)} periods, {periods[0]} to {periods[-1]}. The table below has the same numbers."
        )
    else:
        description = "No observations."
    parts = [_head(plot, width, height, f"{measure} by {span}: rates with their 95 % intervals", description, "over-time")]
    parts += [_level(value, width) for value in _LINES]
    parts.append(_text(_LEFT, height - 6, f"{span}s with observations", "axis", anchor="start"))
    parts += _days(periods, step, span)
    places = {period: _LEFT + step * number + step / 2 for number, period in enumerate(periods)}
    for number, line in enumerate(shown):
        shift = 12 * (number - (len(shown) - 1) / 2)
        inside = [point for point in line.points if point.at in places]
        parts.append(_line(number, [(places[point.at] + shift, _y(point.rate)) for point in inside]))
        parts += [_upright(number, places[point.at] + shift, point, line.name) for point in inside]
    return _svg("".join([*parts, "</svg>"]))


def side_by_side(plot: str, points: Sequence[Point], measure: str) -> Markup:
    """Rates of one measure, one row per point, named by ``at``. The SVG scales down if a style sheet narrows it."""
    width, height = _SCALE + 2 * _MARGIN, _ROW * max(1, len(points)) + 44
    description = f"{len(points)} rows, each a rate with its interval. The table of versions has the same numbers."
    title = f"{measure}: rates side by side with their 95 % intervals"
    parts = [_head(plot, width, height, title, description if points else "No observations.", "beside")]
    end = height - 36
    rows = [_ROW * number + _BAR for number in range(max(1, len(points)))]  # grid lines do not cross the labels
    for value in _LINES:
        x = _MARGIN + _SCALE * value / 100
        path = "".join(f"M{_n(x)} {y - 8}v16" for y in rows)
        parts.append(f'<path class="level" d="{path}" stroke="currentColor" stroke-opacity="0.25"/>')
        parts.append(_text(x, end + 15, f"{value} %", "tick", anchor="middle"))
    parts.append(_text(_EDGE, height - 4, f"share of observations: {measure}", "axis", anchor="start"))
    parts += [_lying(number, point) for number, point in enumerate(points)]
    return _svg("".join([*parts, "</svg>"]))


def _head(plot: str, width: float, height: float, title: str, description: str, kind: str) -> str:
    ids = f"{plot}-title", f"{plot}-desc"
    return (
        f'<svg class="plot {kind}" role="img" aria-labelledby="{ids[0]} {ids[1]}" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" font-size="12">'
        f'<title id="{ids[0]}">{_safe(title)}</title><desc id="{ids[1]}">{_safe(description)}</desc>'
    )


def _level(value: int, width: float) -> str:
    y = _y(value / 100)
    line = f'<path class="level" d="M{_LEFT} {_n(y)}H{_n(width)}" stroke="currentColor" stroke-opacity="0.25"/>'
    return line + _text(_LEFT - 6, y + 4, f"{value} %", "tick", anchor="end")


def _days(periods: Sequence[str], step: float, span: str) -> list[str]:
    every = -(-_LABEL // int(step))
    cut = 7 if span == "month" else 10
    parts = []
    for number in range(0, len(periods), every):
        x = _LEFT + step * number + step / 2
        parts.append(f'<path class="level" d="M{_n(x)} {_TOP + _HEIGHT}v4" stroke="currentColor"/>')
        parts.append(_text(x - 4, _TOP + _HEIGHT + 17, periods[number][:cut], "tick", anchor="start"))
    return parts


def _line(number: int, places: Sequence[tuple[float, float]]) -> str:
    if len(places) < 2:
        return ""
    path = "L".join(f"{_n(x)} {_n(y)}" for x, y in places)
    return f'<path class="line s{number}" d="M{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'


def _upright(number: int, x: float, point: Point, name: str) -> str:
    low, high = _y(point.low), _y(point.high)
    bar = f"M{_n(x)} {_n(low)}V{_n(high)}m-3 0h6M{_n(x - 3)} {_n(low)}h6"
    return _drawn(number, f"{point.at}, {name}: {point.summary()}", bar, (x, _y(point.rate)))


def _lying(number: int, point: Point) -> str:
    words, y = _ROW * number + _BAR - 12, _ROW * number + _BAR
    low, high = _MARGIN + _SCALE * point.low, _MARGIN + _SCALE * point.high
    bar = f"M{_n(low)} {_n(y)}H{_n(high)}m0-3v6M{_n(low)} {_n(y - 3)}v6"
    drawn = _drawn(number % SERIES, f"{point.at}: {point.summary()}", bar, (_MARGIN + _SCALE * point.rate, y))
    name = point.at if len(point.at) <= _SAID else f"{point.at[: _SAID - 1]}…"
    count = _text(_SCALE + 2 * _MARGIN - _EDGE, words, f"{percent(point.rate)} of {point.n}", "tick", anchor="end")
    return _text(_EDGE, words, name, "name", anchor="start") + drawn + count


def _drawn(number: int, label: str, bar: str, at: tuple[float, float]) -> str:
    x, y = at
    return (
        f'<g class="point s{number}"><title>{_safe(label)}</title>'
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


def _svg(text: str) -> Markup:
    return Markup(text)  # noqa: S704 - all foreign text went through _safe
