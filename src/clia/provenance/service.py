"""Why a line is there, and attestations about commits.

Invariant: this module contains no rules, and nothing here changes the space.
"""

from __future__ import annotations

from clia.errors import Conflict
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.facade.components import Components
    from clia.provenance.attesting import Attestations
    from clia.provenance.model import ExplainedLines
    from clia.provenance.stories import CommitStories
    from clia.provenance.why import LineExplanations
    from clia.space.attribution.running_turns import RunningTurn
    from clia.trust.ssh_signatures import SshSigner


class ProvenanceService:
    """Why lines are there, and attestations for other tools."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def why(self, path: str, line: int, commit: str = "HEAD", *, end: int | None = None) -> ExplainedLines:
        """Explain lines of a file in a commit."""
        return self._explanations().of_commit(check_text(commit, "commit"), path, line, end)

    def why_here(self, path: str, line: int, end: int | None = None, running: Sequence[RunningTurn] = ()) -> ExplainedLines:
        """Explain lines of a file in the worktree."""
        return self._explanations().of_worktree(path, line, end, running)

    @property
    def attestations(self) -> Attestations:
        """Attestations about commits, for commands: they are signed with the key of this clone."""
        from clia.provenance.attesting import Attestations

        components = self._components
        return Attestations(components.core, components.history, components.traces, self.stories(), components.git.setting)

    def signer(self, key: str | None = None) -> SshSigner:
        """What signs attestations: the key of this clone, which must be enrolled, or the private key in a file."""
        from clia.trust.machine_keys import read_key

        trust = self._components.trust_keys
        if key is not None:
            return read_key(key)
        signer, chain = trust.machine.signer(), trust.chain()
        own = signer.public.fingerprint
        if chain.key_at(own, chain.position) is None:
            message = f"the key of this clone, {own}, is not enrolled, so nobody would accept its attestations"
            hints = ["enrol it where an owner is: clia key enrol NAME --machine KEY", "or sign with another key: --key FILE"]
            raise Conflict(message, code="key-not-enrolled", hints=hints, fields={"key": own})
        return signer

    def stories(self) -> CommitStories:
        """What the record shows about commits."""
        from clia.provenance.stories import CommitStories
        from clia.space.relations import REVIEWS
        from clia.trust.commit_checks import CommitChecks

        components = self._components

        def reviewers(agent: str) -> Sequence[str]:
            return components.relations.sources(agent, REVIEWS)

        return CommitStories(components.core, CommitChecks(components.git), reviewers)

    def _explanations(self) -> LineExplanations:
        from clia.provenance.why import LineExplanations

        components = self._components
        return LineExplanations(components.core, components.history, components.traces, components.git.porcelain, self.stories())
