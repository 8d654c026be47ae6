"""``clia blame``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_space, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from clia.space.model import BlamedLine


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("what", metavar="AGENT|COMMIT", help="at which commit")
    parser.add_argument("file", metavar="PATH", help="a file, from the top of the repository")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.blame(args.what, args.file)
    if args.json:
        emit_json(as_json(found))
    else:
        terminal = console()
        for line in _lines(found):
            terminal.print(line, soft_wrap=True)
    return 0


def _lines(found: Sequence[BlamedLine]) -> Iterator[Text]:
    """Number, agent, kind and commit in columns; ``*`` where a trace tells how the line came about."""
    from rich.text import Text  # only people see it

    shown = [(str(each.number), one_line(each.agent or "-"), one_line(each.kind or "")) for each in found]
    first, second, third = ([len(cell) for cell in column] for column in zip(*shown, strict=True)) if shown else ([], [], [])
    for each, (number, agent, kind) in zip(found, shown, strict=True):
        yield Text.assemble(
            (number.rjust(max(first)), "dim"),
            "  ",
            (agent.ljust(max(second)), "bold" if each.agent else "dim"),
            "  ",
            (kind.ljust(max(third)), "cyan"),
            "  ",
            (short(each.commit), "yellow"),
            ("*" if each.trace else " ", "green"),
            "  ",
            one_line(each.text),
        )
