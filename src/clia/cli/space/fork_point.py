"""``clia fork-point``."""

from __future__ import annotations

import sys

from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("one", metavar="A", help="an agent, a commit or a branch")
    parser.add_argument("other", metavar="B", help="another one")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where the two share nothing."""
    with space_of(args) as space:
        found = space.fork_point(args.one, args.other)
    if args.json:
        emit_json({"fork_point": found})
    elif found is not None:
        write(f"{found}\n")
    else:
        write(f"{one_line(args.one)} and {one_line(args.other)} share no commit\n", sys.stderr)
    return 1 if found is None else 0
