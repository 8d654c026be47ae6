"""``clia trace pending``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, show_entries, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose trace it is")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.trace_pending(args.agent)
    if args.json:
        emit_json(found)
    elif found:
        show_entries(found)
    else:
        write(f"nothing was traced for {args.agent} since its last commit with trace\n")
    return 0
