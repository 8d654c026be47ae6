"""``clia relink``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, short, show_table, space_of, working
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--onto", metavar="BRANCH", help="look only on this branch (default: on all of them)")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, working(args, "Comparing commits"):
        found = space.relink(onto=args.onto)
    if args.json:
        emit_json(as_json(found))
    elif found:
        rows = ((short(each.commit), each.agent, " ".join(map(short, each.sources)), each.by) for each in found)
        show_table(("commit", "agent", "trace of", "same"), rows)
    else:
        write("nothing to relink: no commit was made anew from one with a trace\n")
    return 0
