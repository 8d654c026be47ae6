"""``clia agents consolidate``."""

from __future__ import annotations

from clia.cli.arguments import add_json, add_target, where
from clia.cli.output import console, emit_json, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug  # the agent that goes is always named
    parser.add_argument("slug", help="the agent that is archived and removed")
    parser.add_argument("--into", required=True, metavar="SLUG", help="the agent that keeps the archive")
    parser.add_argument("--apply", action="store_true", help="do it; without this, only say what would be done")
    add_target(parser, agents_dir=False)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.identities.writing import consolidate

    planned = consolidate(args.slug, args.into, where(args), apply=args.apply)
    if args.json:
        emit_json({**planned.to_json(), "applied": args.apply})
        return 0
    out = console()
    out.print(plain(f"{planned.home}\n  -> {planned.archive}"), soft_wrap=True)
    for name in planned.files:
        out.print(plain(f"  {name}"), soft_wrap=True)
    out.print("archived and removed" if args.apply else "nothing was written; add --apply to do it")
    return 0
