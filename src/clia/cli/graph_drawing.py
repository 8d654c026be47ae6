"""A commit graph and a tree of agents, drawn in a terminal.

Invariant: the drawing is unambiguous. On a commit's line, a horizontal line leaves that commit and ends in the lanes of its
parents; on a line without a commit it moves one lane into another. A lane that is crossed stays unbroken (``─│─``), a lane that is
joined has a joint (``┤ ├ ┼``). A commit is directly below another one only if the two are connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from clia.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from clia.values.graph_lanes import GraphNode, GraphRow

    Label = str | Text  # a str may come from a repository and is escaped; a Text has only safe parts

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
    ascii: bool = False,  # noqa: A002  # the name of the option
) -> Iterator[Text]:
    """Yield the lines of the graph, each commit with its label; further lines of a label are beside the lanes below it.

    If lanes continue after the last row, a final line shows that. ``ascii`` avoids box-drawing characters.
    """
    glyphs = _ASCII if ascii else {}
    before: GraphRow | None = None
    for row in rows:
        if before is not None and before.ends and before.lane == row.lane:
            yield _line(_rails(row.above), Text(), glyphs)  # otherwise the two would look connected
        first, *others = _label_lines(label(row.node))
        yield _line(_commit_line(row), first, glyphs)
        if row.bend is not None:
            yield _line(_bend_line(row, row.bend), Text(), glyphs)
        for text in others:
            yield _line(_rails(row.below, width=row.width), text, glyphs)
        before = row
    if before is not None and before.below:
        yield _line(_rails(before.below, "┆"), Text(), glyphs)


def _label_lines(label: Label) -> Sequence[Text]:
    return [Text(one_line(label))] if isinstance(label, str) else list(label.split("\n", allow_blank=True))


def _rails(lanes: Collection[int], char: str = "│", width: int = 0) -> list[_Cell]:
    """Lanes that go straight down; each has two columns, the second one for horizontal lines."""
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
    """Draw a horizontal line from the lane ``start`` to ``targets``, nearest first, in the colour of the next target."""
    for target in targets:
        _draw_horizontal(cells, start, target)
        shapes = "├┤┼" if target in above else "╭╮┬"  # ends here from the right, from the left, continues
        char = shapes[target > start] if target == targets[-1] else shapes[2]
        cells[2 * target] = _Cell(char, target)


def _bend_line(row: GraphRow, bend: int) -> list[_Cell]:
    cells = _rails(row.below, width=max(row.lane, bend) + 1)
    _draw_horizontal(cells, bend, row.lane)
    cells[2 * bend] = _Cell("╯" if row.lane < bend else "╰", bend)
    cells[2 * row.lane] = _Cell("├" if row.lane < bend else "┤", row.lane)
    return cells


def _draw_horizontal(cells: list[_Cell], start: int, target: int) -> None:
    """Draw a horizontal line between two lanes; lanes in between stay in front of it."""
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
    ascii: bool = False,  # noqa: A002  # the name of the option
) -> Iterator[Text]:
    """Yield the lines of the tree of ``agents``: roots first, each above its children; a cycle starts at its first agent.

    An agent that occurs again, under a second parent or in a cycle, is marked, and its children are not repeated.
    """
    names = list(dict.fromkeys(agents))
    below = {child for name in names for child in children.get(name, ())}
    guides = ("|-- ", "`-- ", "|   ", " (*)") if ascii else ("├── ", "└── ", "│   ", " ↻")
    drawn: set[str] = set()
    for root in [*(name for name in names if name not in below), *names]:
        if root not in drawn:
            yield from _branch(root, children, label, drawn, guides)


def _branch(
    root: str,
    children: Mapping[str, Sequence[str]],
    label: Callable[[str], Label],
    seen: set[str],
    guides: tuple[str, str, str, str],
) -> Iterator[Text]:
    fork, corner, rail, again = guides
    stack = [("", "", root)]  # a stack, because agents may be nested deeper than Python's recursion limit
    while stack:
        before, indent, name = stack.pop()
        line = Text.assemble((before, "dim"), *_label_lines(label(name))[:1], no_wrap=True)
        if name in seen:
            line.append(again, style="yellow")
            yield line
            continue
        seen.add(name)
        yield line
        below = list(dict.fromkeys(children.get(name, ())))
        for child in reversed(below):
            last = child == below[-1]
            stack.append((indent + (corner if last else fork), indent + ("    " if last else rail), child))
