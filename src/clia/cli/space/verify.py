"""``clia verify``."""

from __future__ import annotations

from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_space, show_table, space_of, working
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.space.checks import Report


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where something is wrong."""
    with space_of(args) as space, working(args, "Checking") as say:
        report = space.verify(progress=say)
    if args.json:
        emit_json({"clean": report.clean, **as_json(report)})
    else:
        _show(report)
    return 0 if report.clean else 1


def _show(report: Report) -> None:
    if report.findings:
        show_table(("finding", "what", "ref"), ((each.code, each.message, each.ref or "") for each in report.findings))
    if report.unseen:
        write("not in this clone, so not checked:\n" + "".join(f"  {one_line(each)}\n" for each in report.unseen))
    seen = ", ".join(
        (
            counted(report.agents, "agent", "agents"),
            counted(report.commits, "commit", "commits"),
            counted(report.traces, "trace", "traces"),
            counted(report.edges, "relation", "relations"),
        )
    )
    write(f"{seen}: {counted(len(report.findings), 'finding', 'findings') if report.findings else 'nothing found'}\n")
