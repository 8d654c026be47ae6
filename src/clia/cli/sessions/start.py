"""``clia session start``."""

from __future__ import annotations

from clia.cli.output import emit_json
from clia.cli.sessions.common import show_session, source_text
from clia.cli.sessions.requests import json_of
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose session it is")
    parser.add_argument("flow", metavar="FLOW", help="a flow's name, or the id of one version")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--input", metavar="JSON", help="what main() is given (default: null)")
    given.add_argument("--input-file", metavar="FILE", help="a file with that JSON ('-': standard input)")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    value = _input(args)
    with space_of(args) as space:
        session = space.start(args.agent, args.flow, value)
        emit_json(session.to_json()) if args.json else show_session(session)
    return 0


def _input(args: argparse.Namespace) -> Any:
    if args.input_file is not None:
        return json_of(source_text(args.input_file, "input"), "--input-file")
    return None if args.input is None else json_of(args.input, "--input")
