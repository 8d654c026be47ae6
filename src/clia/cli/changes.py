"""The command that shows agents' work as changes to a branch, with what landing it would do."""

from __future__ import annotations

from typing import NamedTuple

from clia.cli.command import Answer, arg, command, opt
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import short, show_line, show_lines, show_rows, styled
from clia.space.changes import CONFLICTS, LANDS, REFUSED, UP_TO_DATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.facade.space import Space
    from clia.git.records import FileChange
    from clia.space.changes import AgentChange, ChangeSummary, Clash

_STYLES = {LANDS: "green", CONFLICTS: "red", REFUSED: "yellow", UP_TO_DATE: "dim"}
_PATHS = 3


class OpenChanges(NamedTuple):
    """The work of agents that a branch does not have yet."""

    onto: str  # the branch
    changes: list[ChangeSummary]  # the newest first
    clashes: list[Clash]  # pairs of agents whose work has conflicts with each other


@command("changes")
def changes(
    space: Space,
    agent: str | None = arg("AGENT", "show one agent's change (default: list all)", nargs="?"),
    onto: str | None = opt("BRANCH", "branch that would receive the work (default: the one that is checked out, else main)"),
) -> Answer[OpenChanges | AgentChange]:
    """Show work that has not landed, and whether it would land.

    Nothing is changed and nobody is asked.
    """
    branch = onto or space.local.default_branch()
    if agent is not None:
        change = space.changes.get(agent, branch)
        return Answer(change, lambda: _show_change(change))
    listed = OpenChanges(branch, space.changes(branch), space.changes.clashes(branch))
    return Answer(listed, lambda: _show_list(listed))


def _show_list(listed: OpenChanges) -> None:
    if not listed.changes:
        show_line(f"all work has landed on {one_line(listed.onto)}")
        return
    rows = [
        (change.agent, change.commits, change.files, *_lines(change), _outcome(change), change.title) for change in listed.changes
    ]
    headings = ("agent", "commits", "files", "added", "removed", f"on {one_line(listed.onto)}", "work")
    show_rows(headings, rows, cut=("work",), right=("commits", "files", "added", "removed"))
    for clash in listed.clashes:
        show_line((f"{clash.first} and {clash.second} conflict: {_listed(clash.paths)}", "yellow"))


def _lines(change: ChangeSummary) -> tuple[str, str]:
    return ("?", "?") if change.problem else (f"+{change.added}", f"-{change.removed}")


def _outcome(change: ChangeSummary) -> object:
    if change.problem:
        return styled(f"unreadable: {one_line(change.problem)}", "red")
    more = f": {_listed(change.conflicts)}" if change.conflicts else ""
    return styled(f"{change.outcome}{more}", _STYLES[change.outcome])


def _listed(paths: Sequence[str]) -> str:
    rest = f" and {len(paths) - _PATHS} more" if len(paths) > _PATHS else ""
    return one_line(", ".join(paths[:_PATHS])) + rest


def _show_change(change: AgentChange) -> None:
    show_line((one_line(change.agent), "bold"), f" on {one_line(change.onto)}: {one_line(change.title)}")
    if not change.commits:
        write(f"{one_line(change.onto)} has all of its work\n")
        return
    added = sum(file.added or 0 for file in change.files)
    removed = sum(file.removed or 0 for file in change.files)
    size = f"{counted(len(change.commits), 'commit')}, {counted(len(change.files), 'file')}, +{added} -{removed}"
    show_line((size, "dim"))
    commits = [(short(commit.cid), commit.kind or "", commit.subject) for commit in change.commits]
    show_rows(("commit", "kind", "subject"), commits, cut=("subject",))
    show_rows(("", "file", "lines"), [(file.status, file.path, _size(file)) for file in change.files], cut=("file",))
    _show_forecast(change)


def _size(file: FileChange) -> str:
    return "binary" if file.added is None else f"+{file.added} -{file.removed}"


def _show_forecast(change: AgentChange) -> None:
    forecast = change.forecast
    style = _STYLES[forecast.outcome]
    if forecast.outcome == LANDS:
        how = " as a fast-forward or a new commit" if forecast.fast_forward else ""
        show_line((f"lands cleanly{how}: clia land {change.agent} --onto {one_line(change.onto)}", style))
    elif forecast.outcome == CONFLICTS:
        show_line((f"conflicts with {one_line(change.onto)}:", style))
        show_lines(f"  {one_line(path)}" for path in forecast.conflicts)
    elif forecast.outcome == REFUSED:
        show_line(("does not land yet:", style))
        show_lines(f"  {one_line(reason)}" for reason in forecast.reasons)
