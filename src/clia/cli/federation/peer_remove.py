"""``clia peer remove``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("peer", metavar="NAME", help="which peer goes, with its grants and all that is tracked of it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        space.remove_peer(args.peer)
    if args.json:
        emit_json({"peer": args.peer, "removed": True})
    else:
        write(f"{args.peer} is removed, with its grants and what was tracked of it; what was merged stays\n")
    return 0
