"""Output for people: ids, times, tables, blocks of text and progress.

Invariant: text from a repository, a flow or a peer is harmless and stays in its cell or indented, so that it cannot pass for
a line that clia prints.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import Protocol

from clia.cli.output import console, one_line, plain, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TextIO

    from rich.console import RenderableType
    from rich.text import Text

MAX_ROWS = 20
_PATCH_STYLES = {"+": "green", "-": "red", "@": "cyan", " ": "", "\\": "dim"}


def short(cid: str | None) -> str:
    """An abbreviated id."""
    return "" if cid is None else cid[:10]


def moment(seconds: int) -> str:
    """A time in UTC, for people."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a commit may claim any time
        return str(seconds)


def minute(timestamp: str | None) -> str:
    """A recorded ISO timestamp, to the minute."""
    return "" if timestamp is None else timestamp[:16].replace("T", " ")


def largest_unit(seconds: float) -> tuple[int, str]:
    """The size and name of the largest unit that a duration fills."""
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    return next((unit for unit in units if seconds >= unit[0]), (1, "s"))


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def only_ascii() -> bool:
    """Whether the terminal's locale lacks box-drawing characters, as with ``LC_ALL=C``."""
    import locale

    try:
        "●│─├╭↻".encode(locale.getencoding())
    except (UnicodeError, LookupError):
        return True
    return False


def is_wide() -> bool:
    """Whether the terminal has room for optional columns."""
    return console().width >= 110


def styled(text: object, style: str = "") -> Text:
    """Text on one line, in a style."""
    from rich.text import Text

    return Text(one_line(text), style=style)


def line_of(*parts: Text | str | tuple[str, str]) -> Text:
    """A line of parts; a pair is a text and its style."""
    from rich.text import Text

    return Text.assemble(*parts)


def show_line(*parts: Text | str | tuple[str, str], stderr: bool = False) -> None:
    """Print one line without wrapping it."""
    console(stderr=stderr).print(line_of(*parts), soft_wrap=True)


def show_lines(lines: Iterable[Text | str]) -> None:
    out = console()
    for line in lines:
        if out.is_terminal or isinstance(line, str):
            out.print(line, soft_wrap=True)
        else:  # rich takes 60 µs a line
            sys.stdout.write(f"{line.plain}\n")
    sys.stdout.flush()


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print a table whose cells wrap; a cell may be a styled ``Text``."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold", justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in row))
    console().print(table)


def show_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    cut: Sequence[str] = (),
    wrapped: Sequence[str] = (),
    right: Sequence[str] = (),
    indent: int = 0,
    limit: int | None = None,
) -> None:
    """Print a table whose cells stay on one line so that ids can be copied; with a ``limit``, only the first rows.

    Only the columns of the headings in ``cut`` and ``wrapped`` give way; if that is not enough, lines run over the edge.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        whole = heading not in (*cut, *wrapped)
        table.add_column(heading, no_wrap=whole, overflow="fold", justify="right" if heading in right else "left")
    needed = [len(heading) for heading in headings]
    for row in rows[:limit]:
        cells = [value if isinstance(value, Text) else Text(one_line(value)) for value in row]
        for heading, cell in zip(headings, cells, strict=True):
            if heading in cut:
                cell.no_wrap, cell.overflow = True, "ellipsis"
        table.add_row(*cells)
        needed = [max(width, cell.cell_len) for width, cell in zip(needed, cells, strict=True)]
    narrow = [min(width, 12) if name in (*cut, *wrapped) else width for name, width in zip(headings, needed, strict=True)]
    out = console()
    out.width = max(out.width, indent + sum(narrow) + 2 * (len(headings) - 1))
    out.print(Padding(table, (0, 0, 0, indent), expand=False) if indent else table)
    if limit is not None and len(rows) > limit:
        write(f"and {len(rows) - limit} more\n")


def facts_table(facts: Iterable[tuple[str, object]], indent: int = 2) -> RenderableType:
    """Names and values, one per line; None and empty values are left out. Text of several lines keeps them."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if isinstance(value, Text):
            table.add_row(Text(" " * indent + name, style="dim"), value)
        elif value not in (None, ""):
            table.add_row(Text(" " * indent + one_line(name), style="dim"), Text(plain(value)))
    return table


def show_block(text: str, style: str = "", indent: int = 4) -> None:
    """Print text of several lines, indented."""
    from rich.padding import Padding
    from rich.text import Text

    if text.strip():
        console().print(Padding(Text(plain(text).strip("\n"), style=style), (0, 0, 0, indent), expand=False))


def show_source(text: str) -> None:
    """Print a source or a prompt with line numbers."""
    lines = text.rstrip("\n").split("\n")
    width = len(str(len(lines)))
    out = console()
    for number, line in enumerate(lines, 1):
        out.print(line_of((f"  {number:>{width}} │ ", "dim"), one_line(line)), soft_wrap=True)


def show_patch(patch: str) -> None:
    """Print a patch, with colours on a terminal and unchanged elsewhere."""
    from rich.text import Text

    terminal = console()
    if not terminal.is_terminal:
        write(patch)
        return
    text = Text()
    in_hunk = False
    for line in patch.split("\n")[:-1]:
        if line.startswith("diff "):
            in_hunk = False
        elif line.startswith("@@"):
            in_hunk = True
        text.append(f"{plain(line)}\n", _PATCH_STYLES.get(line[:1], "") if in_hunk else "bold")
    terminal.print(text, soft_wrap=True, end="")


def show_hints(hints: Sequence[str], stream: TextIO | None = None) -> None:
    """Print hints, to standard output unless another stream is given."""
    write("".join(one_line(f"  hint: {hint}") + "\n" for hint in hints), stream)


def show_entries(entries: Iterable[Any]) -> None:
    """Print trace entries: time and kind, what was redacted or cut, then the text."""
    from rich.text import Text

    out = console()
    for item in entries:
        entry = item if isinstance(item, dict) else {"text": item}
        head = Text.assemble((one_line(entry.get("at", "")), "dim"), "  ", (one_line(entry.get("kind", "")), "cyan"))
        if entry.get("redacted"):
            head.append(f"  redacted: {one_line(entry['redacted'])}", style="yellow")
        if entry.get("cut"):
            head.append(f"  cut: it had {one_line(entry['cut'])} characters", style="yellow")
        out.print(head, soft_wrap=True)
        text = plain(str(entry.get("text", "")).replace("\r\n", "\n")).rstrip("\n")
        out.print(Text("  " + text.replace("\n", "\n  ")), soft_wrap=True)
        if entry.get("data"):
            out.print(Text("  " + one_line(json_text(entry["data"])), style="dim"), soft_wrap=True)


class ProgressUpdate(Protocol):
    """The type of one function: ``Callable`` cannot state an optional parameter."""

    def __call__(self, done: int, total: int, item: str = "", /) -> None: ...


@contextmanager
def progress_bar(label: str, *, hidden: bool) -> Iterator[ProgressUpdate | None]:
    """Show a progress bar on standard error; yield None if it is hidden or standard error is not a terminal."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # One item may take long: the clock shows that work continues.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[item]}"), console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, item="")

        def update(done: int, total: int, item: str = "", /) -> None:
            bar.update(task, completed=done, total=total, item=plain(item))

        yield update


@contextmanager
def spinner(label: str, *, hidden: bool) -> Iterator[Callable[[str], None] | None]:
    """Show a spinner on standard error; the function that is yielded changes its text."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    with console(stderr=True).status(label) as status:
        yield lambda text: status.update(one_line(f"{label}: {text}"))
