"""``clia types``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, write
from clia.cli.space.common import add_space, only_ascii, space_of
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--add", metavar="NAME", help="register a type; it stays for good")
    parser.add_argument("--parent", metavar="TYPE", help="what the new type is a kind of; of commits: agent-commit")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if (args.add is None) != (args.parent is None):
        raise InvalidInput(
            "--add and --parent go together", code="invalid-option", hints=["clia types --add review --parent agent-commit"]
        )
    with space_of(args) as space:
        if args.add is not None:
            space.register_type(args.add, args.parent)
        found = space.types()
    if args.json:
        emit_json(found)
    elif args.add is not None:
        write(f"registered: {args.add}, a kind of {args.parent}\n")
    else:
        _show(found)
    return 0


def _show(found: Mapping[str, str | None]) -> None:
    from clia.cli.drawing import tree_lines  # loads rich, and only people see it

    children: dict[str, list[str]] = {}
    for name, parent in found.items():
        if parent is not None:
            children.setdefault(parent, []).append(name)
    out = console()
    for line in tree_lines(found, children, ascii=only_ascii()):
        out.print(line, soft_wrap=True)
