"""Signatures as evidence: commits that enrolled keys signed, and decisions that people proved with keys of their own.

Invariant: only keys of the chain of keys that are in force count. A machine's key signs what its clia recorded; a person's proof is
stronger, and is about one answer to one question on one tree.

Imports nothing but the rules of ``trust``, because a server's hook reads signatures, too.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError
from clia.trust.acts import check_statement, meta_of
from clia.trust.key_chain import signer_fingerprint
from clia.trust.raw_commits import raw_commit
from clia.trust.statements import ATTESTED, DECIDE, stated_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.trust.key_chain import KeyChain


class RecordedSignatures(NamedTuple):
    """The signatures of a repository."""

    read: Callable[[str], bytes]  # the bytes of a commit
    chain: KeyChain
    own_key: str | None = None  # fingerprint of the key that signs here, if any

    def problem(self, commit: str) -> str | None:
        """Why the signature of a commit does not count; None if an enrolled key made it."""
        try:
            return self._key_problem(signer_fingerprint(raw_commit(commit, self.read(commit))), f"{commit[:12]} is signed with")
        except (CliaError, ValueError) as err:
            message = err.message if isinstance(err, CliaError) else str(err)
            return message.replace(commit, commit[:12])

    def own_problem(self) -> str | None:
        """Why a commit that is made here would not count as signed."""
        if self.own_key is None:
            return "it needs a signature, and commits are not signed here"
        return self._key_problem(self.own_key, "it would be signed with")

    def _key_problem(self, fingerprint: str, what: str) -> str | None:
        if self.chain.root is None:
            return "no keys are enrolled"
        if self.chain.key_at(fingerprint, self.chain.position) is None:
            return f"{what} the key {fingerprint}, which is not enrolled"
        return None

    def is_proved(self, decision: str) -> bool:
        """Whether a person proved a decision with a key of their own."""
        try:
            commit = raw_commit(decision, self.read(decision))
            if self.problem(decision) is not None:
                return False
            proved = self.chain.proved(commit, self.chain.position, DECIDE)
            stated = stated_in(commit.trailers)
            if proved.strength == ATTESTED or stated is None or stated.statement is None:
                return False
            check_statement(stated.statement, proved, commit, commit.trailer("Clia-Agent") or "", meta_of(commit))
        except (CliaError, ValueError):
            return False
        return True
