"""The plot of a run as SVG: ours, the floor and each peer, one line per row, on a logarithmic scale.

It shows only what the table shows. Each series has its own mark, so colour is not needed to tell them apart. It has its own
background, because an image gets no style from its page. All text is escaped.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.works import COST, FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.results import Result

OURS, THE_FLOOR = "clia", "floor"
_WIDTH, _MARGIN, _ROW, _TOP, _BOTTOM = 860, 30, 40, 78, 40
_INK, _PALE = "#1b1f24", "#d0d7de"


class PlotSeries(NamedTuple):
    name: str
    colour: str
    mark: str  # a path around its centre


SERIES = (
    PlotSeries(OURS, "#0550ae", "m-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z"),
    PlotSeries(THE_FLOOR, "#57606a", "m-1.5-7h3v14h-3z"),
    PlotSeries("git", "#bc4c00", "m-4-4h8v8h-8z"),
    PlotSeries("libgit2", "#7d4e00", "m-4-2h2.5v-2.5h3v2.5h2.5v4h-2.5v2.5h-3v-2.5h-2.5z"),
    PlotSeries("LangGraph", "#116329", "m0-5.5l5 9h-10z"),
    PlotSeries("DBOS", "#8250df", "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"),
    PlotSeries("Absurd", "#a40e26", "m0 5.5l5-9h-10z"),
)


class Scale(NamedTuple):
    low: int  # powers of ten
    high: int

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * min(1.0, max(0.0, share))


def plot(results: Iterable[Result]) -> str:
    """Every row in milliseconds; skipped rows are marked."""
    shown = [result for result in results if result.work.unit == "ms"]
    values = [value for result in shown for _, value in points(result)]
    scale = Scale(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 0.01)) if values else Scale(-1, 1)
    height = _TOP + _ROW * len(shown) + _BOTTOM
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="sans-serif" font-size="12">',
        "<title>Benchmarks of clia: ours, the floor and peers</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(_MARGIN, 22, "milliseconds, logarithmic; less is better", weight="bold"),
        *_legend(),
        *_grid(scale, height),
    ]
    for number, result in enumerate(shown):
        parts += _row(result, _TOP + _ROW * number, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def points(result: Result) -> list[tuple[PlotSeries, float]]:
    """The marks of a row, ours last, so that it is on top. A cost of zero cannot be shown on a logarithmic scale."""
    marks = [(_series(name), cost) for name, cost in result.peers.items() if not isinstance(cost, str)]
    marks += [(series, cost) for series, cost in zip(SERIES[1::-1], (result.floor, result.ours), strict=True) if cost is not None]
    return [(series, cost) for series, cost in marks if cost > 0]


def _series(peer: str) -> PlotSeries:
    """The series of a peer, whose name is part of the label of its row."""
    words = peer.lower().replace(",", " ").split()
    return next(series for series in SERIES[2:] if series.name.lower() in words)


def limit(result: Result) -> float | None:
    """The largest cost that every bar of the row allows, if known."""
    against = {COST: 1.0, FLOOR: result.floor, **result.peers}
    limits = [bar.most * basis for bar in result.work.bars if isinstance(basis := against.get(bar.against), (int, float))]
    return min(limits) if limits and result.ours is not None else None


def _legend() -> list[str]:
    parts = []
    for number, series in enumerate(SERIES):
        x = _MARGIN + 6 + 96 * number
        parts += [_mark(series, x, 40, series.name), _text(x + 11, 44, series.name)]
    x = _MARGIN + 6 + 96 * len(SERIES)
    return [*parts, f'<path d="M{x} 33v14" stroke="#cf222e" stroke-width="2" stroke-dasharray="3 2"/>', _text(x + 8, 44, "the bar")]


def _grid(scale: Scale, height: int) -> list[str]:
    parts = []
    for power in range(scale.low, scale.high + 1):
        x = _n(scale.x(10.0**power))
        parts.append(f'<path d="M{x} {_TOP - 12}V{height - _BOTTOM}" stroke="{_PALE}"/>')
        for y in (_TOP - 16, height - _BOTTOM + 16):
            parts.append(_text(float(x), y, _power(power), anchor="middle"))
    return parts


def _power(power: int) -> str:
    return f"{10.0**power:g} ms" if power < 3 else f"{10 ** (power - 3):,} s"


def _row(result: Result, top: int, scale: Scale) -> list[str]:
    y = top + 27
    drawn = points(result)
    label = f"{result.ours:,.2f} ms, {result.status}" if result.ours is not None else result.status
    parts = [
        _text(_MARGIN, top + 12, result.work.title),
        _text(_WIDTH - _MARGIN, top + 12, label, anchor="end"),
        f'<path d="M{_MARGIN} {y}H{_WIDTH - _MARGIN}" stroke="{_PALE}"/>',
    ]
    most = limit(result)
    if most:
        parts.append(f'<path d="M{_n(scale.x(most))} {y - 9}v18" stroke="#cf222e" stroke-width="2" stroke-dasharray="3 2"/>')
    parts += [_mark(series, scale.x(cost), y, f"{series.name}: {cost:,.2f} ms") for series, cost in drawn]
    return parts


def _mark(series: PlotSeries, x: float, y: float, label: str) -> str:
    return (
        f'<path d="M{_n(x)} {_n(y)}{series.mark}" fill="{series.colour}" fill-opacity="0.85"><title>{_safe(label)}</title></path>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" font-weight="{weight}" fill="{_INK}">{_safe(text)}</text>'


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _safe(text: str) -> str:
    return escape(text, quote=True)
