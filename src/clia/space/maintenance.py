"""Maintenance: the state of agents, packing, and archiving finished agents.

Invariant: no ref is removed unless another ref that stays contains its head.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError
from clia.space.traces import stream
from clia.values import refs as names
from clia.values.commit_messages import check_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.git.workbench import GitWorkbench
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.landing import Landing
    from clia.verbs import Count

DAY = 24 * 60 * 60


class AgentState(NamedTuple):
    agent: str
    head: str
    kind: str | None
    subject: str
    at: int
    pending: Count
    landed: str | None  # the branch that contains all of its work


class Maintained(NamedTuple):
    archived: tuple[str, ...]
    before: Count  # bytes of objects on disk
    after: Count


class Upkeep:
    def __init__(self, core: Core, agents: Agents, landing: Landing, workbench: GitWorkbench) -> None:
        self._core = core
        self._agents = agents
        self._landing = landing
        self._workbench = workbench

    def states(self, *, after: str = "", limit: int | None = None) -> list[AgentState]:
        core = self._core
        names_here = self._agents.names(after=after, limit=limit)
        with core.store.reading() as view:
            # Most agents have nothing pending: read only the streams that exist.
            busy = {stream(name) for name in names_here} if limit is not None else set(view.streams.names(stream("")))
            waiting = {name: len(view.streams.read(stream(name))) for name in names_here if stream(name) in busy}
        found = []
        for name in names_here:
            head = core.head(name)
            if head is not None:  # archived in between
                commit = core.read(head)
                landed = self._landed(name, head)
                found.append(AgentState(name, head, commit.kind, commit.subject, commit.committer.at, waiting.get(name, 0), landed))
        return found

    def _landed(self, name: str, head: str) -> str | None:
        found = self._landing.landed_on(name, head)
        return None if found is None else found.removeprefix(names.BRANCHES)

    def maintain(self, *, archive_idle_days: int | None, dry_run: bool) -> Maintained:
        if archive_idle_days is not None:
            check_count(archive_idle_days, "days")
        before = self._workbench.size()
        done = [] if archive_idle_days is None else self._finished(archive_idle_days)
        if not dry_run:
            done = [name for name in done if self._put_away(name)]
            self._workbench.pack()
        return Maintained(tuple(done), before, before if dry_run else self._workbench.size())

    def _finished(self, days: int) -> list[str]:
        """Idle agents whose work another agent or a branch of people contains."""
        core = self._core
        idle = [each for each in self.states() if not each.pending and core.now() - each.at >= days * DAY]
        if not idle:
            return []
        # One walk over everything: a head that is another commit's parent is reachable from that commit.
        tips = [cid for _, cid in core.refs.under(names.BRANCHES)]
        held = {parent for commit in core.graph.walk(tips) for parent in commit.parents}
        return [each.agent for each in idle if (each.landed or each.head in held) and not self._agents.is_at_work(each.agent)]

    def _put_away(self, name: str) -> bool:
        try:
            self._agents.archive(name)
        except CliaError:
            return False  # it is at work again, or checked out
        return True
