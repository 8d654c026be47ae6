"""The results of a growth run: tables, and a plot with two logarithmic axes.

The plot shows nothing that the tables do not. Each series has its own mark, so colour is not needed to tell them apart. Only the
part of the page between the two markers is rewritten.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

BEGIN, END = "<!-- numbers: begin -->", "<!-- numbers: end -->"
_MARKS = (
    ("#0550ae", "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"),
    ("#bc4c00", "m-4-4h8v8h-8z"),
    ("#116329", "m0-5.5l5 9h-10z"),
    ("#8250df", "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"),
    ("#a40e26", "m0 5.5l5-9h-10z"),
    ("#57606a", "m-1.5-6h3v12h-3z"),
    ("#7d4e00", "m-4-2h2.5v-2.5h3v2.5h2.5v4h-2.5v2.5h-3v-2.5h-2.5z"),
    ("#0a7d8c", "m-6-1.5h12v3h-12z"),
    ("#b3008a", "m-5-5l5 3l5-3l-3 5l3 5l-5-3l-5 3l3-5z"),
    ("#1b1f24", "m-5 0h10l-5 5z"),
    ("#4d7300", "m-5 0h10l-5-5z"),
    ("#9a6700", "m-4.5-4.5l9 9m0-9l-9 9"),
)
_WIDTH, _HEIGHT, _LEFT, _TOP, _PLOT, _BOTTOM = 900, 520, 64, 44, 430, 470


def exponent_said(value: float) -> str:
    return f"n^{value:.2f}" if value >= 0.005 else "n^0"


def milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"


def size_said(value: float) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if value >= 10**power:
            return f"{value / 10**power:.1f} {unit}"
    return f"{value:.0f} B"


# Tables


def verbs(run: dict[str, Any]) -> list[list[str]]:
    heads = [f"{size:,} agents" for size in run["sizes"]]
    table = [["work", *heads, "growth", *(f"new process, {head}" for head in heads)]]
    for row in run["rows"]:
        cold = row.get("cold")
        costs = [*map(milliseconds, row["warm"]), exponent_said(row["exponent"])]
        table.append([row["said"], *costs, *(map(milliseconds, cold) if cold else [""] * len(heads))])
    return table


def upkeep(run: dict[str, Any]) -> list[list[str]]:
    results = run["results"]
    table = [["", *(f"{size:,} agents" for size in run["sizes"])]]

    def add(title: str, cells: Iterator[str]) -> None:
        table.append([title, *cells])

    add("commits of agents", (f"{result['commits']:,}" for result in results))
    add("objects after `maintain`", (size_said(result["disk"]["objects"]) for result in results))
    add(
        "a commit, with its trace and its part of the records",
        (size_said(result["disk"]["objects"] / result["commits"]) for result in results),
    )
    add("the store", (size_said(result["disk"]["store"]) for result in results))
    add("rebuilding the index", (seconds(result["index"]["seconds"]) for result in results))
    add("`maintain`, the first time", (seconds(result["maintain"]["seconds"]) for result in results))
    add("the first query after it", (milliseconds(result["maintain"]["first"]) for result in results))
    for number in range(max(len(result["rounds"]) for result in results)):
        title = f"1,000 more commits, round {number + 1}: size per commit before and after `maintain`"
        add(title, (_round(result["rounds"][number]) if number < len(result["rounds"]) else "" for result in results))
    add("`maintain` after them", (seconds(result["rounds"][-1]["maintain"]["seconds"]) for result in results))
    add(
        "the complete inbox if one agent in ten waits, per question",
        (
            f"{result['crowded']['milliseconds'] / result['crowded']['waiting'] * 1000:.1f} µs of {result['crowded']['waiting']:,}"
            for result in results
        ),
    )
    add("`clia verify`", (seconds(result["verify"]["seconds"]) for result in results))
    add("`git fsck` as part of it", (seconds(result["verify"]["fsck"]) for result in results))
    for key in results[0]["git"]:
        add(f"git: {key}", (seconds(result["git"][key]) for result in results))
    return table


def _round(measured: dict[str, Any]) -> str:
    return " / ".join(size_said((measured[when] - measured["before"]) / 1000) for when in ("worked", "after"))


def show(run: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    out = Console(width=170)
    for title, rows in (("growth of a space (medians)", verbs(run)), ("upkeep", upkeep(run))):
        table = Table(title=title, title_justify="left")
        for number, heading in enumerate(rows[0]):
            table.add_column(heading, justify="right" if number else "left")
        for row in rows[1:]:
            table.add_row(*row)
        out.print(table)


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], f"| --- |{' ---: |' * (len(rows[0]) - 1)}", *lines[1:]]


def write(run: dict[str, Any], docs: Path) -> None:
    (docs / "images" / "growth.svg").write_text(plot(run), encoding="utf-8")
    page = docs / "explanation" / "growth.md"
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    machine = ", ".join(
        f"{key} {value}" for key, value in run["machine"].items() if key in ("cores", "Python", "git", "libgit2", "SQLite")
    )
    lines = [
        BEGIN,
        "",
        *markdown(verbs(run)),
        "",
        *markdown(upkeep(run)),
        "",
        f"Measured with {machine}{run.get('note', '')}; medians.",
        "",
        END,
    ]
    page.write_text(before + "\n".join(lines) + after, encoding="utf-8")


# The plot


def plot(run: dict[str, Any]) -> str:
    rows = run["rows"]
    values = [value for row in rows for value in row["warm"]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    sizes = [math.log10(size) for size in run["sizes"]]

    def x(size: float) -> float:
        return _LEFT + 40 + (_PLOT - 80) * ((size - sizes[0]) / (sizes[-1] - sizes[0] or 1))

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (math.log10(value) - low) / (high - low)

    parts = [_head(run)]
    for power in range(low, high + 1):
        at = _BOTTOM - (_BOTTOM - _TOP) * (power - low) / (high - low)
        parts.append(f'<path d="M{_LEFT} {at:.1f}h{_PLOT}" stroke="#d0d7de"/>')
        parts.append(_text(_LEFT - 6, at + 4, f"{10**power:g} ms", "end"))
    for size, place in zip(run["sizes"], sizes, strict=True):
        parts.append(f'<path d="M{x(place):.1f} {_TOP}V{_BOTTOM}" stroke="#d0d7de"/>')
        parts.append(_text(x(place), _BOTTOM + 18, f"{size:,}", "middle"))
    parts.append(_text(_LEFT + _PLOT / 2, _BOTTOM + 38, "agents; ten commits and ten trace entries each", "middle"))
    for number, row in enumerate(sorted(rows, key=lambda row: -row["warm"][-1])):
        colour, mark = _MARKS[number % len(_MARKS)]
        places = [(x(place), y(value)) for place, value in zip(sizes, row["warm"], strict=True)]
        path = "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [_mark(colour, mark, *place) for place in places]
        line = _TOP + 10 + 32 * number
        parts.append(_mark(colour, mark, _LEFT + _PLOT + 30, line))
        parts.append(_text(_LEFT + _PLOT + 44, line + 4, f"{row['said']}", "start"))
        parts.append(
            _text(
                _LEFT + _PLOT + 44,
                line + 18,
                f"{milliseconds(row['warm'][-1])}, {exponent_said(row['exponent'])}",
                "start",
                "#57606a",
            )
        )
    return "\n".join([*parts, "</svg>", ""])


def _head(run: dict[str, Any]) -> str:
    last = run["sizes"][-1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12"><title>Cost of verbs as a space grows</title>'
        f"<desc>Milliseconds of each verb over the number of agents, to {last:,}; the tables have the same values.</desc>"
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>' + _text(_LEFT, 22, "Cost of verbs as a space grows", "start")
    )


def _mark(colour: str, mark: str, x: float, y: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}{mark}" fill="{colour}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#1b1f24") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
