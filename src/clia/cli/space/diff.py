"""``clia diff``.

Invariant: a terminal gets the patch coloured and harmless; a pipe or a file gets it as it is, so that ``git apply`` takes it.
"""

from __future__ import annotations

from clia.cli.output import console, emit_json, plain, write
from clia.cli.space.common import add_space, space_of
from clia.cli.space.show import file_table
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from rich.text import Text

_STYLES = {"+": "green", "-": "red", "@": "cyan", " ": "", "\\": "dim"}


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "one", metavar="A", help="an agent (all it did), a commit or PEER/AGENT (what it changed last), or where to start"
    )
    parser.add_argument("other", nargs="?", metavar="B", help="an agent or a commit: where to end")
    parser.add_argument("--stat", action="store_true", help="only which files, and by how much")
    parser.add_argument("--paths", nargs="+", action="extend", default=[], metavar="PATH", help="only these files and folders")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        patch = None if args.stat else space.diff(args.one, args.other, paths=args.paths)
        files = space.changed(args.one, args.other, paths=args.paths) if args.stat or args.json else []
    if args.json:
        emit_json({"patch": patch, "files": as_json(files)})
    elif patch is None:
        console().print(file_table(files))
    else:
        _show(patch)
    return 0


def _show(patch: str) -> None:
    terminal = console()
    if terminal.is_terminal:
        terminal.print(_coloured(patch), soft_wrap=True, end="")
    else:
        write(patch)


def _coloured(patch: str) -> Text:
    from rich.text import Text  # only people see it

    text = Text()
    in_hunk = False
    for line in patch.split("\n")[:-1]:
        if line.startswith("diff "):
            in_hunk = False
        elif line.startswith("@@"):
            in_hunk = True
        text.append(f"{plain(line)}\n", _STYLES.get(line[:1], "") if in_hunk else "bold")
    return text
