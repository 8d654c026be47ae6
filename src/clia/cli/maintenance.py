"""Commands that check and maintain a space: verify, rebuild, relink, maintain."""

from __future__ import annotations

from typing import NamedTuple

from clia.cli.command import Answer, command, flag, opt
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import progress_bar, short, show_table, spinner
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.space import Space
    from clia.space.merging import Relinked
    from clia.space.model import Maintained
    from clia.space.verification import Report


@json_form(report=EMBED)
class Verified(NamedTuple):
    clean: bool  # whether nothing was found
    report: Report


@command("verify")
def verify(space: Space, json_output: bool) -> Answer[Verified]:
    """Check that all recorded objects exist and are consistent.

    Exit code 1 if something is wrong.
    """
    with spinner("Checking", hidden=json_output) as say:
        report = space.verify(progress=say)
    return Answer(Verified(report.clean, report), lambda: _show_report(report), exit_code=0 if report.clean else 1)


def _show_report(report: Report) -> None:
    if report.findings:
        show_table(("finding", "what", "ref"), [(finding.code, finding.message, finding.ref or "") for finding in report.findings])
    if report.unseen:
        write("not in this clone, so not checked:\n" + "".join(f"  {one_line(name)}\n" for name in report.unseen))
    counts = ((report.agents, "agent"), (report.commits, "commit"), (report.traces, "trace"), (report.edges, "relation"))
    result = counted(len(report.findings), "finding") if report.findings else "nothing found"
    write(f"{', '.join(counted(*count) for count in counts)}: {result}\n")


class Rebuilt(NamedTuple):
    edges: int  # relations


@command("rebuild")
def rebuild(space: Space, json_output: bool) -> Answer[Rebuilt]:
    """Rebuild the index from git."""
    with progress_bar("Reading git", hidden=json_output) as progress:
        edges = space.rebuild(progress=progress)
    behaviours = ", and the observations of behaviours" if not json_output and space.behaviours() else ""
    return Answer(Rebuilt(edges), f"rebuilt the index: {counted(edges, 'relation')}{behaviours}")


@command("relink")
def relink(
    space: Space, json_output: bool, onto: str | None = opt("BRANCH", "look only on this branch (default: all branches)")
) -> Answer[list[Relinked]]:
    """Attach traces to the commits that a squash or rebase created from traced ones."""
    with spinner("Comparing commits", hidden=json_output):
        links = space.traces.relink(onto=onto)
    if not links:
        return Answer([], "nothing to relink: no commit with a trace was squashed or rebased")
    rows = [(short(link.commit), link.agent, " ".join(map(short, link.sources)), link.by) for link in links]
    return Answer(links, lambda: show_table(("commit", "agent", "trace of", "same"), rows))


@json_form(report=EMBED)
class Maintenance(NamedTuple):
    report: Maintained
    dry_run: bool  # whether nothing was changed


@command("maintain")
def maintain(
    space: Space,
    json_output: bool,
    archive_idle: int | None = opt(
        "DAYS", "archive agents that were idle for this long and whose work was merged or landed", type=int
    ),
    dry_run: bool = flag("change nothing; show what would be done"),
) -> Answer[Maintenance]:
    """Pack the repository and archive finished agents."""
    with spinner("Packing", hidden=json_output):
        report = space.maintain(archive_idle_days=archive_idle, dry_run=dry_run)

    def show() -> None:
        from rich.filesize import decimal

        if archive_idle is not None:
            write(f"{'would archive' if dry_run else 'archived'}: {', '.join(report.archived) or 'no agent'}\n")
        if report.moved:
            write(f"moved {counted(len(report.moved), 'worktree')} out of the git directory\n")
        if report.left:
            write(f"not moved, a program may be using it: the worktree of {', '.join(report.left)}\n")
        if dry_run:
            write(f"objects take {decimal(report.before)}; nothing was changed\n")
        else:
            write(f"objects took {decimal(report.before)}, now {decimal(report.after)}\n")

    return Answer(Maintenance(report, dry_run), show)
