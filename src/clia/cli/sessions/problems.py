"""Problems of a flow, in the flow's own lines.

Invariant: the caret stands below the very character that a problem names, however wide the characters before it are.
"""

from __future__ import annotations

from clia.cli.output import console, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from clia.engine.records import Problem

ERROR, WARNING = "error", "warning"
_STYLES = {ERROR: "bold red", WARNING: "yellow"}
_TAB = "    "


def show_problems(problems: Sequence[Problem], source: str, name: str, *, stderr: bool = False) -> None:
    from rich.text import Text  # only people see it

    out = console(stderr=stderr)
    lines = source.split("\n")
    for each in problems:
        place = f"{one_line(name)}:{each.line}:{each.column}: "
        severity = (each.severity, _STYLES.get(each.severity, ""))
        out.print(
            Text.assemble((place, "bold"), severity, f": {one_line(each.message)}", (f"  [{each.code}]", "dim")), soft_wrap=True
        )
        if 1 <= each.line <= len(lines):
            for line in excerpt(lines[each.line - 1].rstrip("\r"), each.line, each.column):
                out.print(line, soft_wrap=True)


def excerpt(line: str, number: int, column: int) -> list[Text]:
    """A line of the source and a caret below one of its columns, counted from 1."""
    from rich.cells import cell_len
    from rich.text import Text

    gutter = f"{number:>5} │ "
    before, after = line[: max(column - 1, 0)], line[max(column - 1, 0) :]
    shown = one_line(before.replace("\t", _TAB))
    caret = " " * cell_len(shown)
    return [
        Text.assemble((gutter, "dim"), shown, one_line(after.replace("\t", _TAB))),
        Text.assemble((" " * (len(gutter) - 2) + "│ ", "dim"), caret, ("^", "bold red")),
    ]


def count(problems: Sequence[Problem]) -> str:
    """How many there are, in words."""
    counts = [(sum(each.severity == severity for each in problems), severity) for severity in (ERROR, WARNING)]
    said = [f"{number} {severity}{'s' if number != 1 else ''}" for number, severity in counts if number]
    return ", ".join(said) or "nothing found"
