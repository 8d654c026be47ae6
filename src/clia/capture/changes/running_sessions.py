"""Captured sessions whose turns are still running: what they changed, and no commit of their agents has yet."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from clia.capture.changes.late_changes import late_lines
from clia.capture.changes.tool_commits import ToolCommits
from clia.errors import CliaError
from clia.space.attribution.running_turns import RunningTurn, TurnCommit, no_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.capture.service import CapturedSession
    from clia.facade.components import Components


class RunningSessions:
    """The running sessions of a space."""

    def __init__(self, components: Components) -> None:
        self._captures = components.captures
        self._components = components

    def turns(self, path: str) -> list[RunningTurn]:
        """The agents in this worktree that may be writing a file: those whose calls named it, otherwise all sessions."""
        captures, porcelain = self._captures, self._components.porcelain
        place = porcelain.worktree
        checkout = None if place is None else porcelain.checkout_of(place)
        if checkout is not None and captures.is_running(checkout.agent):
            return [RunningTurn(checkout.agent, captures.tree_of(checkout.agent))]
        active = [row for row in captures.sessions() if row.open and row.place == place and (row.sub or row.turn)]
        writers = [row for row in active if path in row.paths] or [row for row in active if not row.sub]
        return [
            RunningTurn(row.agent, row.tree, captures.looks.lines_found(row, path), late_lines(row, path) or no_lines)
            for row in writers
        ]

    def commits(self, sessions: Iterable[CapturedSession]) -> dict[str, TurnCommit]:
        """The commits that the tools of some sessions made, and that no commit of an agent stands for yet."""
        commits: dict[str, TurnCommit] = {}
        for captured in sessions:
            if captured.open and self._captures.is_ours(captured.agent):
                turn = TurnCommit(captured.agent, captured.tree, partial(self._captures.looks.lines_found, captured))
                with suppress(CliaError):
                    commits |= dict.fromkeys(self._unrecorded(captured), turn)
        return commits

    def _unrecorded(self, captured: CapturedSession) -> list[str]:
        components = self._components
        return ToolCommits(components.core, components.porcelain, components.commits.snapshots, captured, None).unrecorded()
