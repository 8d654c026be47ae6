"""``clia relate``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("src", metavar="SRC", help="the agent that does it")
    parser.add_argument("kind", metavar="KIND", help="reviews, advises, or any other verb")
    parser.add_argument("dst", metavar="DST", help="the agent it is done to")
    parser.add_argument("--retract", action="store_true", help="take the relation back")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        said = (space.unrelate if args.retract else space.relate)(args.src, args.kind, args.dst)
    if args.json:
        emit_json({"src": args.src, "kind": args.kind, "dst": args.dst, "origin": said, "retracted": args.retract})
    else:
        verb = "retracted" if args.retract else "stated"
        write(f"{verb}: {args.src} {args.kind} {args.dst} ({short(said)})\n")
    return 0
