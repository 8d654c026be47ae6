"""Tables of the commands about other spaces.

Invariant: a name, an id, a type or a trigger stands whole on one line, so that it can be copied. Only a column that says so is cut,
with an ellipsis, or goes on in the next line; where even that is too wide, lines run over the edge. Whatever a peer sent stands in
a cell, harmless, so that it cannot pass for a line of ours.
"""

from __future__ import annotations

from clia.cli.output import console, one_line, write
from clia.cli.space.common import short
from clia.federation.statements import is_shared_ref, tracked_ref, tracking_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.text import Text

    from clia.federation.model import Move, Refused

ROWS = 20
"""More of them than this nobody reads."""
_WIDE = 110
_LEAST = 12  # columns that are left to what can be cut or goes on in the next line


def is_wide() -> bool:
    """Whether there is room for columns that are good to know and no more."""
    return console().width >= _WIDE


def show_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    cut: Sequence[str] = (),
    wrapped: Sequence[str] = (),
    right: Sequence[str] = (),
    indent: int = 0,
) -> None:
    """A table; the columns of these headings are ``cut`` where there is no room, ``wrapped``, or stand to the ``right``."""
    from rich.padding import Padding  # only people see it
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        whole = heading not in (*cut, *wrapped)
        table.add_column(heading, no_wrap=whole, overflow="fold", justify="right" if heading in right else "left")
    needed = [len(heading) for heading in headings]
    for row in rows:
        cells = [_cell(value, cut=heading in cut) for heading, value in zip(headings, row, strict=True)]
        table.add_row(*cells)
        needed = [max(width, cell.cell_len) for width, cell in zip(needed, cells, strict=True)]
    narrow = [min(width, _LEAST) if name in (*cut, *wrapped) else width for name, width in zip(headings, needed, strict=True)]
    out = console()
    out.width = max(out.width, indent + sum(narrow) + 2 * (len(headings) - 1))
    out.print(Padding(table, (0, 0, 0, indent), expand=False) if indent else table)


def _cell(value: object, *, cut: bool) -> Text:
    from rich.text import Text

    made = value if isinstance(value, Text) else Text(one_line(value))
    if cut:
        made.no_wrap, made.overflow = True, "ellipsis"
    return made


def place(ref: str | None) -> str:
    """A peer's ref as it is called where it is tracked."""
    return tracking_path(ref) if ref is not None and is_shared_ref(ref) else ref or ""


def reason(message: str, place_or_ref: str | None) -> str:
    """Why something was refused, without the name of its ref: that stands beside it."""
    for ref in (place_or_ref, tracked_ref(place_or_ref or "")):
        message = message.removeprefix(f"{ref}: ") if ref else message
    return message


def show_moves(moves: Sequence[Move]) -> None:
    rows = [(each.place, short(each.old) or "-", short(each.new) or "no longer shared", each.type, each.trigger) for each in moves]
    show_rows(("what", "from", "to", "type", "trigger"), rows[:ROWS])
    show_rest(len(rows) - ROWS)


def show_refusals(refused: Sequence[Refused], when: Callable[[int], str] | None = None) -> None:
    """Why something was not taken; ``when``: with the time of each."""
    rows = [
        (each.code, place(each.ref), reason(each.message, each.ref), *((when(each.at),) if when else ())) for each in refused[:ROWS]
    ]
    show_rows(("refused", "what", "why", *(("when (UTC)",) if when else ())), rows, wrapped=("why",))
    show_rest(len(refused) - ROWS)


def show_rest(number: int) -> None:
    if number > 0:
        write(f"and {number} more\n")
