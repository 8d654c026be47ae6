"""``clia agents lint``."""

from __future__ import annotations

import os

from clia.cli.arguments import add_json, add_path
from clia.cli.findings import FORMATS, count, emit, progress, show
from clia.cli.output import emit_json, write
from clia.identities.diagnostics import ERROR, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    add_path(parser)
    parser.add_argument(
        "--slug", dest="slugs", action="append", default=[slug] if slug else [], metavar="SLUG", help="only this agent (repeatable)"
    )
    parser.add_argument("--strict", action="store_true", help="fail on warnings too")
    parser.add_argument("--format", choices=FORMATS, help="how to print the findings (default: text)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 on errors, and with --strict on warnings."""
    from clia.identities.checks import lint

    form = args.format or ("json" if args.json else "text")
    with progress("Checking agents", wanted=form == "text") as watch:
        report = lint(args.path, environment=os.environ, slugs=args.slugs, ceiling=args.ceiling, watch=watch)
    if form == "json":
        emit_json(report.to_json())
    elif form == "text":
        show(report.findings, report.path)
        inactive = sum(not each.active for each in report.agents)
        left_alone = f", {inactive} inactive left alone" if inactive else ""
        write(f"{len(report.agents) - inactive} checked{left_alone}: {count(report.findings)}\n")
    else:
        base = report.path if form == "sarif" else _workspace(report.path)
        emit(report.findings, form, base)
    severities = (ERROR, WARNING) if args.strict else (ERROR,)
    return 1 if any(each.severity in severities for each in report.findings) else 0


def _workspace(path: str) -> str:
    """GitHub shows a finding beside a file that it knows by its path in the checkout."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    real = os.path.realpath(workspace) if workspace else path
    return real if f"{path}/".startswith(f"{real}/") else path
