"""``clia archive``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="the agent")
    parser.add_argument("--restore", action="store_true", help="bring it back")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        (space.restore if args.restore else space.archive)(args.agent)
    if args.json:
        emit_json({"agent": args.agent, "archived": not args.restore})
    elif args.restore:
        write(f"{args.agent} is back, at agents/{args.agent}\n")
    else:
        write(f"{args.agent} is archived; bring it back: clia archive --restore {args.agent}\n")
    return 0
