"""``clia agents context``."""

from __future__ import annotations

from clia.cli.arguments import add_lineage, lineage_of
from clia.cli.output import emit_json, show_diagnostics
from clia.identities.diagnostics import has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    add_lineage(parser, slug)
    parser.add_argument("--explain", action="store_true", help="say why each context is in or out")


def run(args: argparse.Namespace) -> int:
    report = lineage_of(args).context()
    if args.json:
        emit_json(report.to_json())
    else:
        from clia.cli.cards import show_context

        show_context(report, explain=args.explain)
        show_diagnostics(report.diagnostics, as_json=False)
    return 2 if has_errors(report.diagnostics) else 0
