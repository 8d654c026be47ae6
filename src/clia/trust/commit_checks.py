"""Checking single commits: who signed one, whether it is logged, and whether its trace and its decision hold.

The rules are those of ``clia verify``, which checks everything. Here only the chain of keys and the entries of the logs are read in
addition to the commit.

Invariant: nothing is changed, and what is missing is a finding.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import BadSignature, CliaError
from clia.trust.acts import ActChecks
from clia.trust.key_chain import signer_fingerprint
from clia.trust.log_checks import LogChecks, number_that_counts
from clia.trust.machine_keys import machine_name
from clia.trust.raw_commits import is_of_clia
from clia.trust.ssh_format import read_public_key
from clia.trust.ssh_signatures import GIT, verify_signature
from clia.trust.statements import UNSIGNED
from clia.trust.verification import TrustChecks, TrustFinding
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.git.repository import Git
    from clia.trust.key_chain import KeyChain
    from clia.trust.machine_log import LogEntry
    from clia.trust.raw_commits import RawCommit
    from clia.trust.statements import EnrolledKey

SIGNED, UNSIGNED_COMMIT, OLDER, PERSONS, NO_KEYS = "signed", "unsigned", "older", "person", "no-keys"
"""How a commit is signed: by a key of the space; not at all; before the space was signed; by a person who works with plain git;
and, in a space or clone without keys, unknown."""


class CommitCheck(NamedTuple):
    """What a clone shows about one commit."""

    commit: str  # the commit
    state: str  # signed; unsigned; older (than the chain of keys); person (plain git); no-keys (nothing to check with)
    signer: str | None = None  # the machine, agent or person that signed it
    key: str | None = None  # the fingerprint of the key
    strength: str | None = None  # how strongly the decision or landing is proved; null: it is neither
    findings: tuple[TrustFinding, ...] = ()  # problems

    @property
    def holds(self) -> bool:
        """Whether it is signed by a key of the space and nothing is wrong."""
        return self.state == SIGNED and not self.findings


class CommitChecks(TrustChecks):
    """Checks commits of one clone."""

    def __init__(self, git: Git) -> None:
        super().__init__(git)
        self.space_id = self._space()
        self.findings.clear()  # without a space there is nothing to check with
        self.chain: KeyChain = self._chain(self.space_id)
        self.chain_findings = tuple(self.findings)
        history = self._history(self.chain)
        self._entries = _LoggedEntries(self, self.chain, history, git)
        self._older = tuple(history.values())

    @property
    def root(self) -> str | None:
        """The fingerprint of the first key; None: the space is not signed, or its keys are not in this clone."""
        return None if self.chain.root is None else self.chain.root.fingerprint

    def check(self, cid: str) -> CommitCheck:
        """Check one commit."""
        self.findings = []
        commit = self.commit(cid)
        if commit is None:
            return CommitCheck(cid, UNSIGNED_COMMIT, findings=tuple(self.findings))
        if not is_of_clia(commit):
            return self._of_person(commit)
        if self.chain.root is None:
            strength = UNSIGNED if commit.trailer("Clia-Type") == "decision" else None
            return CommitCheck(cid, NO_KEYS, strength=strength, findings=self.chain_findings)
        if commit.signature is None and any(self._git.graph.descends(tip, cid) for tip in self._older if self._has(tip)):
            return CommitCheck(cid, OLDER)
        acts = ActChecks(self, self.chain, self._entries, strict=False)
        self._check(commit, names.HEADS, self.chain, self._entries, acts, set())
        acts.check_decisions()
        findings = tuple(self.findings) + self.chain_findings
        owner, key = self._signer(commit)
        state = UNSIGNED_COMMIT if commit.signature is None else SIGNED
        return CommitCheck(cid, state, owner, key, next(iter(acts.strengths), None), findings)

    def strength_of_act(self, cid: str, verb: str) -> str:
        """How strongly an act that an event records is proved: a landing, for example."""
        commit = self.commit(cid, quiet=True)
        if commit is None or commit.signature is None or self.chain.root is None:
            return UNSIGNED
        try:
            entry = self._entry_for(commit)
            position = self.chain.position if entry is None else self._entries.position_of(entry)
            return self.chain.proved(commit, position, verb).strength
        except BadSignature:
            return UNSIGNED

    def _entry_for(self, commit: RawCommit) -> LogEntry | None:
        enrolment = self.chain.enrolment_of(signer_fingerprint(commit))
        return None if enrolment is None else self._entries.entry_of(enrolment.key, commit.cid)

    def _of_person(self, commit: RawCommit) -> CommitCheck:
        """A commit by plain git; it may be signed with the SSH key of an enrolled person."""
        if commit.signature is not None:
            try:
                key = verify_signature(commit.signature, commit.signed, GIT).key.fingerprint
            except BadSignature:
                return CommitCheck(commit.cid, PERSONS)
            enrolment = self.chain.enrolment_of(key)
            return CommitCheck(commit.cid, PERSONS, None if enrolment is None else enrolment.key.owner, key)
        return CommitCheck(commit.cid, PERSONS)

    def _signer(self, commit: RawCommit) -> tuple[str | None, str | None]:
        if commit.signature is None:
            return None, None
        try:
            signature = verify_signature(commit.signature, commit.signed, GIT)
        except BadSignature:
            return None, None
        certificate = signature.certificate
        if certificate is not None:
            return ", ".join(certificate.principals), signature.key.fingerprint
        enrolment = self.chain.enrolment_of(signature.key.fingerprint)
        return None if enrolment is None else enrolment.key.owner, signature.key.fingerprint

    def _has(self, cid: str) -> bool:
        return self._git.objects.kind(cid) == "commit"


class _LoggedEntries(LogChecks):
    """Finds the entry with which a machine logged a commit. Reads each log once, without the commits that it names."""

    def __init__(self, checks: TrustChecks, chain: KeyChain, history: Mapping[str, str], git: Git) -> None:
        super().__init__(checks, chain, history)
        self._git = git
        self._logs: dict[str, list[LogEntry]] = {}

    def entry_of(self, key: EnrolledKey, cid: str) -> LogEntry | None:
        """The first entry with a move to the commit, or to one that descends from it."""
        entries = self.entries(key)
        exact = next((entry for entry in entries if cid == entry.commit or any(move.new == cid for move in entry.moves)), None)
        return exact or next((entry for entry in entries if self._covers(entry, cid)), None)

    def _covers(self, entry: LogEntry, cid: str) -> bool:
        ends = [move.new for move in entry.moves if move.new is not None and self._git.objects.kind(move.new) == "commit"]
        try:
            return any(self._git.graph.descends(end, cid) for end in ends)
        except CliaError:  # a part of the history is missing
            return False

    def entries(self, key: EnrolledKey) -> list[LogEntry]:
        """The entries of a machine that count, oldest first: those before the key was revoked."""
        if key.fingerprint not in self._logs:
            self._logs[key.fingerprint] = self._entries(key)
        return self._logs[key.fingerprint]

    def _entries(self, key: EnrolledKey) -> list[LogEntry]:
        enrolment = self._chain.enrolment_of(key.fingerprint)
        ref = names.log(machine_name(read_public_key(key.public)))
        tip = self._checks.refs.get(ref)
        if enrolment is None or tip is None:
            return []
        before = list(self._checks.findings)
        log = self._signed_log(ref, tip, enrolment)
        self._checks.findings = before  # what is wrong with the log concerns more than one commit
        return log.entries[: number_that_counts(enrolment, log)]
