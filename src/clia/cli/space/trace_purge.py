"""``clia trace purge``: the leaked text is never shown again, not even while it is being removed."""

from __future__ import annotations

import sys

from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_space, read_text, require_agent, space_of, working
from clia.errors import NotAllowed
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose traces")
    parser.add_argument("--text", metavar="TEXT", help="what leaked (default: standard input, which no shell remembers)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        require_agent(space, args.agent)
        text = _leak(args)
        if sys.stdin.isatty() and not args.yes:
            _confirm(args.agent)
        with working(args, "Purging traces"):
            done = space.trace_purge(args.agent, text)
    if args.json:
        emit_json(as_json(done))
        return 0
    changed = f"{counted(done.traces, 'trace', 'traces')} and {counted(done.pending, 'pending entry', 'pending entries')}"
    write(f"taken out of {changed} of {done.agent}; it may still be in:\n")
    write("".join(f"  {one_line(each)}\n" for each in done.remaining))
    return 0


def _leak(args: argparse.Namespace) -> str:
    if args.text is not None:
        return str(args.text)
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Text to take out (not shown): ", sys.stderr)
    return read_text("-").removesuffix("\n").removesuffix("\r")  # what echo and editors add


def _confirm(agent: str) -> None:
    write(f"Take this text out of the traces of {agent}, and rewrite their history? [y/N] ", sys.stderr)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise NotAllowed("nothing was changed", code="not-confirmed", hints=["answer y, or give --yes"])
