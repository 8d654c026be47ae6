"""``clia checkout``."""

from __future__ import annotations

import os

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_space, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose files")
    parser.add_argument("directory", metavar="DIR", help="a new directory, or a checkout of the agent to bring up to its head")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        commit = space.checkout(args.agent, args.directory)
    directory = os.path.abspath(args.directory)
    if args.json:
        emit_json({"agent": args.agent, "directory": directory, "commit": commit})
    else:
        console().print(f"{one_line(directory)} has {args.agent} at {short(commit)}", soft_wrap=True)
    return 0
