"""``clia session resume``: answer a request that is no question to people."""

from __future__ import annotations

from clia.cli.output import emit_json
from clia.cli.sessions.common import add_value, given_text, show_session
from clia.cli.sessions.requests import json_or_text
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose session goes on")
    add_value(parser, "the answer: JSON, or else text ('-': standard input)")
    parser.add_argument("--error", metavar="REASON", help="instead of a value: the request fails in the flow, with this reason")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if (args.value is None) == (args.error is None):
        raise InvalidInput(
            "give a VALUE, or --error REASON", code="usage", hints=["clia session resume --help"], fields={"field": "value"}
        )
    with space_of(args) as space:
        if args.error is not None:
            session = space.give_up(args.agent, args.error, args.request)
        else:
            text = given_text(args.value, "value")
            session = space.resume(args.agent, text if args.text else json_or_text(text), args.request)
        emit_json(session.to_json()) if args.json else show_session(session)
    return 0
