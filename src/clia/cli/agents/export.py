"""``clia agents export``."""

from __future__ import annotations

from clia.cli.arguments import add_lineage, lineage_of
from clia.cli.output import emit_json, plain, show_diagnostics

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.identities.export_plan import ExportPlan


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    from clia.identities.export_formats import (
        ALL_FORMATS,  # help and completion list them
        FORMATS,
    )

    parser.add_argument(
        "--to",
        action="append",
        required=True,
        choices=[*FORMATS, ALL_FORMATS],
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)} or {ALL_FORMATS}",
    )
    add_lineage(parser, slug)
    looking = parser.add_mutually_exclusive_group()
    looking.add_argument("--check", action="store_true", help="write nothing; exit 1 where a copy is stale or missing")
    looking.add_argument("--dry-run", action="store_true", help="write nothing; say what would be written")
    parser.add_argument("--force", action="store_true", help="overwrite clia's own files that were edited by hand")
    parser.add_argument("--output-root", metavar="DIR", help="write below this directory (default: the nearest repository root)")
    parser.add_argument("--url", metavar="URL", help="a2a-card: the agent's address")
    parser.add_argument("--tools", metavar="A,B", help="claude-agent: the tools it may use")
    parser.add_argument("--model", metavar="MODEL", help="claude-agent: the model it runs on")


def run(args: argparse.Namespace) -> int:
    """With --check exit 1 where any copy is not fresh; with --dry-run where writing would be refused."""
    from clia.identities.export_formats import ExportOptions
    from clia.identities.export_plan import export

    tools = () if args.tools is None else tuple(each.strip() for each in args.tools.split(","))
    wishes = ExportOptions(tuple(args.to), args.url, tools, args.model)
    lineage = lineage_of(args)
    write = not (args.check or args.dry_run)
    planned = export(lineage, wishes, output_root=args.output_root, write=write, force=args.force)
    found = [*lineage.profile().diagnostics, *planned.diagnostics]
    if args.json:
        emit_json({**planned.to_json(), "diagnostics": [each.to_json() for each in found], "written": write})
    else:
        _show(planned, write=write)
        show_diagnostics(found, as_json=False)
    if args.check:
        return 0 if planned.is_fresh() else 1
    return 1 if planned.blocked(force=args.force) else 0


def _show(planned: ExportPlan, *, write: bool) -> None:
    from clia.cli.agents.copies import show_files

    files = [(each.path, each.format, each.state, each.reason) for each in planned.outcomes]
    show_files(f"{planned.slug} in {plain(planned.root)}", files, written=write)
