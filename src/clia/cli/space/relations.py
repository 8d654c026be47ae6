"""``clia relations``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, require_agent, short, show_table, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="only relations of this agent")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.relations(args.agent)
        if args.agent is not None and not found:
            require_agent(space, args.agent)
    if args.json:
        emit_json(as_json(found))
    elif found:
        rows = ((each.src, each.kind, each.dst, short(each.origin)) for each in found)
        show_table(("src", "kind", "dst", "stated by"), rows)
    else:
        write("no relations; state one: clia relate SRC reviews DST\n")
    return 0
