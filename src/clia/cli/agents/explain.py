"""``clia agents explain``."""

from __future__ import annotations

from clia.cli.arguments import add_lineage, lineage_of
from clia.cli.output import emit_json, show_diagnostics
from clia.identities.contexts import AGENT, KINDS
from clia.identities.diagnostics import has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    parser.add_argument("pointer", help="JSON pointer into the merged document: /title, /guardrails/0")
    parser.add_argument("--document", choices=KINDS, default=AGENT, help="which merged document (default: agent)")
    add_lineage(parser, slug)


def run(args: argparse.Namespace) -> int:
    lineage = lineage_of(args)
    explanation = lineage.explain(args.pointer, args.document)
    found = lineage.merged(args.document).diagnostics
    if args.json:
        emit_json(explanation.to_json())
    else:
        from clia.cli.cards import show_explanation

        show_explanation(explanation)
    show_diagnostics(found, as_json=args.json)
    return 2 if has_errors(found) else 0
