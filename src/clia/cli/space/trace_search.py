"""``clia trace search``."""

from __future__ import annotations

import re

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, require_agent, short, show_table, space_of, working
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.space.model import TraceHit


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("text", metavar="TEXT", help="what to look for; upper and lower case are the same")
    parser.add_argument("--agent", metavar="AGENT", help="only traces of this agent")
    parser.add_argument("--regex", action="store_true", help="TEXT is a regular expression; case counts")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, working(args, "Searching traces"):
        if args.agent is not None:
            require_agent(space, args.agent)
        found = space.trace_search(args.text, agent=args.agent, regex=args.regex)
    if args.json:
        emit_json(as_json(found))
    elif found:
        pattern = re.compile(args.text if args.regex else re.escape(args.text), 0 if args.regex else re.IGNORECASE)
        rows = ((each.agent, short(each.commit) or "pending", each.position, _line(each, pattern)) for each in found)
        show_table(("agent", "commit", "entry", "line"), rows)
    else:
        write("nothing found\n")
    return 0


def _line(hit: TraceHit, pattern: re.Pattern[str]) -> str:
    """The first line that matches; where the match spans lines or is in the data, the first line of the entry."""
    lines = str(hit.entry.get("text", "")).splitlines() or [""]
    return next((line for line in lines if pattern.search(line)), lines[0])
