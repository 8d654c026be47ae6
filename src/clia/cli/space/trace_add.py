"""``clia trace add``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_redaction, add_space, read_text, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose trace it is")
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", default="-", help="what was said or seen (default, or '-': standard input)"
    )
    parser.add_argument("--kind", default="console", metavar="KIND", help="console (default), tool-call, or any other word")
    add_redaction(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        space.head(args.agent)  # before standard input is read: a person would type for nothing
        text = read_text("-") if args.text == "-" else args.text
        position = space.trace(args.agent, args.kind, text)
    if args.json:
        emit_json({"agent": args.agent, "kind": args.kind, "position": position})
    else:
        write(f"traced for {args.agent}: entry {position}\n")
    return 0
