"""What ``profile``, ``plan`` and ``agency`` have in common: one merged document, printed."""

from __future__ import annotations

from clia.cli.arguments import add_lineage, lineage_of
from clia.cli.output import emit_json, show_diagnostics
from clia.identities.diagnostics import has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    add_lineage(parser, slug)
    parser.add_argument("--root-chain", action="store_true", help="add the contexts it was merged from")
    parser.add_argument("--show-origin", action="store_true", help="add the origin of every value")


def run(args: argparse.Namespace, kind: str) -> int:
    """Exit 2 where a document could not be used; what could be merged is printed all the same."""
    merged = lineage_of(args).merged(kind)
    if args.json:
        emit_json(merged.to_json(root_chain=args.root_chain, show_origin=args.show_origin))
    else:
        from clia.cli.cards import show_merged

        show_merged(merged, root_chain=args.root_chain, show_origin=args.show_origin)
    show_diagnostics(merged.diagnostics, as_json=args.json)
    return 2 if has_errors(merged.diagnostics) else 0
