"""A commit graph and a tree of agents, drawn in a terminal.

Invariant: a picture can be read back. On a commit's line, what goes sideways leaves that commit and ends in the lanes of its
parents; on a line without a commit it moves one lane over into another. A lane crossed but not met is drawn unbroken
(``─│─``), one that is met has a joint (``┤ ├ ┼``). Two commits stand directly below each other only if they are connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from clia.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from clia.values.graph_lanes import GraphNode, GraphRow

    Label = str | Text  # a str may come from a repository and is made harmless; a Text is styled by us, from harmless parts

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow", "bright_magenta")
_ASCII = str.maketrans("●│─├┤┼╭╮┬╰╯┆", "*|-+++...'':")


class _Cell(NamedTuple):
    """One character of the graph and the lane whose colour it has."""

    char: str
    lane: int


_BLANK = _Cell(" ", -1)


def graph_lines(
    rows: Iterable[GraphRow],
    label: Callable[[GraphNode], Label],
    *,
    ascii: bool = False,  # noqa: A002  # the word callers look for; the builtin is of no use here
) -> Iterator[Text]:
    """The graph line by line, each commit with its label; further lines of a label stand beside the lanes below it.

    Where rows end and lanes go on, a last line shows that; ``ascii`` is for streams that cannot write box characters.
    """
    glyphs = _ASCII if ascii else {}
    for cells, text in _graph(rows, label):
        yield _line(cells, text, glyphs)


def _graph(rows: Iterable[GraphRow], label: Callable[[GraphNode], Label]) -> Iterator[tuple[list[_Cell], Text]]:
    before: GraphRow | None = None
    for row in rows:
        if before is not None and before.ends and before.lane == row.lane:
            yield _rails(row.above), Text()  # else the two would look connected
        first, *others = _label_lines(label(row.node))
        yield _commit_line(row), first
        if row.bend is not None:
            yield _bend_line(row, row.bend), Text()
        for each in others:
            yield _rails(row.below, width=row.width), each
        before = row
    if before is not None and before.below:
        yield _rails(before.below, "┆"), Text()


def _label_lines(label: Label) -> Sequence[Text]:
    return [Text(one_line(label))] if isinstance(label, str) else list(label.split("\n", allow_blank=True))


def _rails(lanes: Collection[int], char: str = "│", width: int = 0) -> list[_Cell]:
    """The given lanes, going straight down: two columns a lane, the second one for what goes sideways."""
    cells = [_BLANK] * (2 * max(width, *(lane + 1 for lane in lanes), 0))
    for lane in lanes:
        cells[2 * lane] = _Cell(char, lane)
    return cells


def _commit_line(row: GraphRow) -> list[_Cell]:
    cells = _rails(row.above, width=row.width)
    met = set(row.edges) - {row.lane}
    _reach(cells, row.lane, sorted((lane for lane in met if lane < row.lane), reverse=True), row.above)
    _reach(cells, row.lane, sorted(lane for lane in met if lane > row.lane), row.above)
    cells[2 * row.lane] = _Cell("●", row.lane)
    return cells


def _reach(cells: list[_Cell], start: int, targets: Sequence[int], above: Collection[int]) -> None:
    """A line sideways from the lane ``start`` over ``targets``, nearest first, in the colour of the next of them."""
    for target in targets:
        _go_sideways(cells, start, target)
        shapes = "├┤┼" if target in above else "╭╮┬"  # ends here from the right, from the left, goes on
        char = shapes[target > start] if target == targets[-1] else shapes[2]
        cells[2 * target] = _Cell(char, target)


def _bend_line(row: GraphRow, bend: int) -> list[_Cell]:
    cells = _rails(row.below, width=max(row.lane, bend) + 1)
    _go_sideways(cells, bend, row.lane)
    cells[2 * bend] = _Cell("╯" if row.lane < bend else "╰", bend)
    cells[2 * row.lane] = _Cell("├" if row.lane < bend else "┤", row.lane)
    return cells


def _go_sideways(cells: list[_Cell], start: int, target: int) -> None:
    """A line between two lanes; lanes on its way stay in front of it."""
    for column in range(2 * min(start, target) + 1, 2 * max(start, target)):
        if cells[column] == _BLANK:
            cells[column] = _Cell("─", target)


def _line(cells: list[_Cell], label: Text, glyphs: dict[int, int]) -> Text:
    line = Text("".join(cell.char for cell in cells).translate(glyphs), no_wrap=True)
    start = 0
    for column in range(1, len(cells) + 1):
        if column == len(cells) or cells[column].lane != cells[start].lane:
            if cells[start] != _BLANK:
                line.stylize(_COLOURS[cells[start].lane % len(_COLOURS)], start, column)
            start = column
    line.append_text(label)
    line.rstrip()
    return line


def tree_lines(
    agents: Iterable[str],
    children: Mapping[str, Sequence[str]],
    label: Callable[[str], Label] = str,
    *,
    ascii: bool = False,  # noqa: A002  # the word callers look for; the builtin is of no use here
) -> Iterator[Text]:
    """The tree of ``agents``: roots first, each above its sub-agents; a circle starts at the first of its agents.

    An agent met again, as the child of a second parent or in a circle, is marked and its sub-agents are not repeated.
    """
    names = list(dict.fromkeys(agents))
    below = {child for name in names for child in children.get(name, ())}
    guides = ("|-- ", "`-- ", "|   ", " (*)") if ascii else ("├── ", "└── ", "│   ", " ↻")
    seen: set[str] = set()
    for root in [*(name for name in names if name not in below), *names]:
        if root not in seen:
            yield from _branch(root, children, label, seen, guides)


def _branch(
    root: str,
    children: Mapping[str, Sequence[str]],
    label: Callable[[str], Label],
    seen: set[str],
    guides: tuple[str, str, str, str],
) -> Iterator[Text]:
    fork, corner, rail, again = guides
    waiting = [("", "", root)]  # a stack and no recursion: agents may be nested deeper than Python is
    while waiting:
        before, indent, name = waiting.pop()
        line = Text.assemble((before, "dim"), *_label_lines(label(name))[:1], no_wrap=True)
        if name in seen:
            line.append(again, style="yellow")
            yield line
            continue
        seen.add(name)
        yield line
        found = list(dict.fromkeys(children.get(name, ())))
        for child in reversed(found):
            last = child == found[-1]
            waiting.append((indent + (corner if last else fork), indent + ("    " if last else rail), child))
