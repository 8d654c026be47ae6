"""What verbs of a space do with several of its components."""

from __future__ import annotations

from clia.errors import Conflict
from clia.space.model import Conflicts
from clia.values import refs as names
from clia.values.typed_objects import Briefing
from clia.values.types import DECISION, JOURNAL_ENTRY
from clia.verbs import actor, require_person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.behaviours.model import BehaviourVersion
    from clia.facade.components import Components
    from clia.space.model import Landed, UpToDate
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

    # Documents of identities

    def check_document_text(self, path: str, text: str) -> None:
        """``Conflict`` unless a document has this text on the branch that receives work."""
        branch = self._components.landing.default_branch()
        if self._text_on(branch, path) != text:
            raise Conflict(
                f"the text is not that of {path} on {branch}",
                code="document-differs",
                hints=["propose it: clia behaviour propose NAME --from FILE --document PATH"],
                fields={"document": path, "branch": branch},
            )

    def land_document(self, version: BehaviourVersion, why: str) -> None:
        """Bring the text of an identity's document to the branch that receives work, as the work of an agent.

        Landing asks a person if guardrails are lost. Repeating it after a refusal, or a crash, continues where it stopped.
        """
        parts, path = self._components, str(version.document)
        branch = parts.landing.default_branch()
        text, current = self._text_on(branch, path), parts.library.get(version.name).current
        if text == version.body:
            return
        if current is not None and text != parts.library.version(current, version.name).body:
            raise Conflict(
                f"{path} on {branch} has another text than the current version of {version.name!r}",
                code="document-differs",
                hints=[f"add the present text: clia behaviour add {version.name} {path}", "then propose the change to it again"],
                fields={"document": path, "branch": branch, "behaviour": version.name},
            )
        name = f"adopt-{version.cid[:12]}"
        if parts.core.head(name) is None:
            from clia.facade.local import new_origin

            briefing = Briefing(f"Adopt {version.name} {version.cid[:12]}", f"The new text of {path}.\n\n{why}".strip())
            origin, _ = new_origin(parts, name, None, None, None)
            parts.agents.spawn(name, briefing, at=parts.core.refs.get(names.branch(branch)), origin=origin)
        if self._text_on(names.head(name), path) != version.body:
            words = parts.words(f"adopt {version.name} {version.cid[:12]}", None)
            parts.commit(name, "finding", (None, {path: version.body.encode()}), words, None)
        self._check_adopter(name, branch, path, version.body)
        landed = self.land(name, branch, None, f"Adopt {version.name} {version.cid[:12]}", None)
        if isinstance(landed, Conflicts):
            raise Conflict(
                f"{path} was changed on {branch} since {name} was spawned",
                code="document-conflicts",
                hints=[f"resolve it: clia merge {name} {branch}", "or propose the version again, for the present text"],
                fields={"agent": name, "branch": branch, "document": path},
            )

    def _check_adopter(self, name: str, branch: str, path: str, text: str) -> None:
        """``Conflict`` if the agent that brings a document has other work, too. Its name is not reserved."""
        from clia.approvals.evidence import only_journals_differ
        from clia.approvals.history import CoreHistory

        core = self._components.core
        head, tip = core.require_head(name), core.refs.get(names.branch(branch))
        root = core.objects.commit(core.own_root(name, head))
        starts = [cid for cid in root.parents if tip is not None and core.contains(tip, cid)]
        is_clean = len(starts) == 1 == len(root.parents) and core.objects.commit(starts[0]).tree == root.tree
        expected = self._components.commits.worktree(name, None, {path: text.encode()})(root.tree)
        if not is_clean or not only_journals_differ(CoreHistory(core), expected, core.objects.commit(head).tree):
            raise Conflict(
                f"agent {name} has other work than the text of {path}",
                code="other-work",
                hints=[f"rename it, then adopt again: clia rename {name} NEW"],
                fields={"agent": name, "document": path},
            )

    def _text_on(self, branch: str, path: str) -> str | None:
        """The text of a file on a branch, or at a ref."""
        core = self._components.core
        tip = core.refs.get(branch if branch.startswith("refs/") else names.branch(branch))
        entry = None if tip is None else core.objects.entries(core.objects.commit(tip).tree).get(path)
        return None if entry is None else core.objects.blob(entry.cid).decode("utf-8", "replace")

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
