"""``clia session fork``."""

from __future__ import annotations

from clia.cli.output import emit_json
from clia.cli.sessions.common import show_session
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose session is copied")
    parser.add_argument("new", metavar="NEW", help="the new agent")
    parser.add_argument("--at", metavar="COMMIT", help="as it was at this commit of AGENT (default: as it is)")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        session = space.fork(args.agent, args.new, args.at)
        emit_json(session.to_json()) if args.json else show_session(session)
    return 0
