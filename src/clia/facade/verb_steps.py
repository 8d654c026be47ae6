"""What verbs of a space do with several of its components."""

from __future__ import annotations

from clia.values.types import DECISION, JOURNAL_ENTRY
from clia.verbs import actor, require_person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.components import Components
    from clia.space.model import Conflicts, Landed, UpToDate
    from clia.space.verification import Report


class VerbSteps:
    """The steps of verbs that need several components."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def prepare_maintenance(self, *, archives: bool) -> None:
        """Trim the feed and what is kept of peers. An agent archives no others."""
        from clia.space.feed import trim

        if archives:
            require_person(self._components.options.agent, "leave out archiving")
        trim(self._components.core.store)
        self._components.peers.sweep()

    def verify(self, progress: Callable[[str], None] | None) -> Report:
        """Check everything against git."""
        complete = (checks := self._components.checks).is_whole()
        report = checks.verify(self._components.registry.types(), progress, complete=complete)
        report = report.joined(self._components.agreement.findings(), ())
        return report.joined(*self._components.federation_checks.verify(progress, complete=complete))

    def rebuild(self, progress: Callable[[int, int], None] | None) -> int:
        """Rebuild the indexes from git; return the number of relations."""
        self._components.capabilities.forget_compiled()
        edges = self._components.relations.rebuild(progress)
        self._components.observations.rebuild(progress)
        return edges

    def land(self, name: str, onto: str | None, how: str | None, message: str, head: str | None) -> Landed | UpToDate | Conflicts:
        """Land an agent's work; what an agent lands, no person states."""
        branch, is_agent = self._log_landing(name, onto, head), actor(self._components.options.agent) is not None
        return self._components.landing.land(name, branch, how=how, message=message, head=head, by_agent=is_agent)

    def _log_landing(self, name: str, branch: str | None, seen: str | None) -> str:
        """Write approvals and, if the operator wants that, a landing to journals before the work lands; so the entries land, too.

        An attempt that is refused, and repeated after a decision, has one entry. Returns the branch, the default one for None.
        """
        onto = self._components.landing.default_branch() if branch is None else branch
        self._components.landing.check_seen(name, seen)
        self._components.approvals.record(name)
        if "landings" in self._components.config.journal.write and not self._components.landing.has_landed(name, onto):
            own = self._components.core.own_commits(name, self._components.core.own_head(name))
            work = next(commit.cid for commit in own if commit.kind not in (JOURNAL_ENTRY, DECISION))
            about = {"commit": work, "branch": onto}
            self._components.agent_journals.log(name, f"landing on {onto}", "log", f"landing {onto} {work}", about)
        return onto
