"""``clia agents mirrors``."""

from __future__ import annotations

from clia.cli.arguments import add_json, add_slug
from clia.cli.output import emit_json, plain, show_diagnostics

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    add_slug(parser, slug, required=False)
    parser.add_argument("--path", default=".", metavar="DIR", help="working path (default: the current directory)")
    parser.add_argument("--merged", action="store_true", help="mirror the merged documents as well")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a mirror is stale or missing")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.identities.mirrors import mirrors

    planned = mirrors(args.path, args.slug, merged=args.merged, write=not args.check)
    if args.json:
        emit_json({**planned.to_json(), "written": not args.check})
    else:
        from clia.cli.agents.copies import show_files

        files = [(each.path.removeprefix(f"{planned.root}/"), each.slug, each.state, each.reason) for each in planned.mirrors]
        show_files(plain(planned.root), files, written=not args.check)
        show_diagnostics(planned.diagnostics, as_json=False)
    return 1 if args.check and not planned.is_fresh() else 0
