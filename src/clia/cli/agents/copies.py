"""What ``export`` and ``mirrors`` have in common: a table of files, and how each stands."""

from __future__ import annotations

from clia.cli.output import console, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLES = {"fresh": "green", "refused": "red"}


def show_files(title: str, files: Iterable[tuple[str, str, str, str]], *, written: bool) -> None:
    """(path, what it is, state, reason) of each file."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for path, what, state, reason in files:
        done = written and state != "fresh"
        told, why = ("written", "") if done else (state, reason)
        table.add_row(
            Text(told, style=_STYLES.get(state, "green" if written else "yellow")),
            Text(plain(path), style="cyan", overflow="fold"),
            Text(plain(what), style="dim", overflow="fold"),
            Text(plain(why), style="dim"),
        )
    out = console()
    out.print(Text(plain(title), style="bold"))
    out.print(table)
