"""``clia session cancel``."""

from __future__ import annotations

from clia.cli.output import emit_json
from clia.cli.sessions.common import add_why, show_session
from clia.cli.space.common import add_space, message_of, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose session ends")
    parser.add_argument("--session", metavar="ID", help="which one; also an open question, as ask-1 (default: the live one)")
    add_why(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        session = space.cancel(args.agent, message_of(args), session_id=args.session)
        emit_json(session.to_json()) if args.json else show_session(session)
    return 0
