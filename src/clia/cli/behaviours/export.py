"""``clia behaviour export``."""

from __future__ import annotations

from clia.cli.output import emit_json, plain, show_diagnostics
from clia.cli.space.common import add_space, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.behaviours.model import BehaviourVersion
    from clia.identities.export_plan import ExportPlan


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("behaviour", metavar="NAME|CID", help="a prompt: its current version, or one that people let run")
    parser.add_argument("--to", required=True, choices=["skill"], metavar="FORMAT", help="skill: .claude/skills/NAME/SKILL.md")
    looking = parser.add_mutually_exclusive_group()
    looking.add_argument("--check", action="store_true", help="write nothing; exit 1 where the copy is stale or missing")
    looking.add_argument("--dry-run", action="store_true", help="write nothing; say what would be written")
    parser.add_argument("--force", action="store_true", help="overwrite clia's own file that was edited by hand")
    parser.add_argument("--output-root", metavar="DIR", help="write below this directory (default: the nearest repository root)")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """With --check exit 1 where the copy is not fresh; with --dry-run where writing would be refused."""
    from clia.behaviours.export import export_prompt

    write = not (args.check or args.dry_run)
    with space_of(args) as space:
        version, planned = export_prompt(
            space, args.behaviour, args.path, output_root=args.output_root, write=write, force=args.force
        )
    if args.json:
        emit_json(_json(version, planned, written=write))
    else:
        _show(version, planned, written=write)
        show_diagnostics(planned.diagnostics, as_json=False)
    if args.check:
        return 0 if planned.is_fresh() else 1
    return 1 if planned.blocked(force=args.force) else 0


def _json(version: BehaviourVersion, planned: ExportPlan, *, written: bool) -> dict[str, object]:
    made = {key: value for key, value in planned.to_json().items() if key != "slug"}
    return {"behaviour": version.name, "cid": version.cid, **made, "written": written}


def _show(version: BehaviourVersion, planned: ExportPlan, *, written: bool) -> None:
    from clia.cli.agents.copies import show_files

    files = [(each.path, each.format, each.state, each.reason) for each in planned.outcomes]
    show_files(f"{version.name} {short(version.cid)} in {plain(planned.root)}", files, written=written)
