"""Checking attestations: who signed one, and whether the record still shows what it says.

Invariant: an attestation is checked against this clone. A statement about a commit that is not here is a problem, not a success.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clia.approvals.evidence import answer_of
from clia.errors import BadSignature, InvalidInput
from clia.provenance.attesting import COMMIT_PREDICATE, SUMMARY_PREDICATE, TRACE_PREDICATE
from clia.provenance.dsse import DOCUMENT_MAX, read_envelope, read_statement
from clia.provenance.model import DECISION, VERIFIED
from clia.trust.key_chain import MACHINE_KEY
from clia.trust.ssh_format import read_public_key
from clia.trust.statements import PASSKEY_KEY
from clia.values.refs import is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.provenance.attesting import Attestations
    from clia.provenance.dsse import DsseEnvelope
    from clia.trust.ssh_format import PublicKey

FORMATS = {COMMIT_PREDICATE: "in-toto", SUMMARY_PREDICATE: "slsa-source", TRACE_PREDICATE: "agent-trace"}
ENROLLED, GIVEN = "enrolled", "given"
_STABLE = ("space", "commit", "trace")
"""The fields of our predicate that never change: the others may get more approvals."""


class CheckedAttestation(NamedTuple):
    """One attestation, and what its check found."""

    commits: tuple[str, ...]  # the commits that it is about
    format: str  # in-toto, slsa-source, agent-trace, or another type of predicate
    signer: str | None  # the owner of the key that signed it; null: the signature was not checked
    key: str | None  # the fingerprint of the key
    trusted: str | None  # why the key counts: enrolled in this space, or given by the caller
    problems: tuple[str, ...]  # what is wrong

    @property
    def holds(self) -> bool:
        return not self.problems


class _Signer(NamedTuple):
    key: PublicKey
    owner: str
    trusted: str
    problem: str | None = None


def check_document(text: str, attestations: Attestations, given: PublicKey | None = None) -> list[CheckedAttestation]:
    """Check each envelope of a document: one JSON object, or JSON Lines. ``given``: the only key that counts, enrolled or not."""
    if len(text) > DOCUMENT_MAX:
        raise InvalidInput(f"the attestation is longer than {DOCUMENT_MAX} characters", code="invalid-attestation")
    checker = _AttestationChecker(attestations, given)
    return [checker.check(value, where) for where, value in _documents(text)]


def _documents(text: str) -> Iterator[tuple[str, Any]]:
    try:
        yield "attestation", json.loads(text)
        return
    except (ValueError, RecursionError):
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InvalidInput("the file is empty", code="invalid-attestation", fields={"field": "line 1"})
    for number, line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            message = f"line {number} is not JSON"
            raise InvalidInput(message, code="invalid-attestation", fields={"field": f"line {number}"}) from None
        yield f"line {number}", value


class _AttestationChecker:
    def __init__(self, attestations: Attestations, given: PublicKey | None) -> None:
        self._attestations = attestations
        self._checks = attestations.stories.checks
        self._given = given

    def check(self, value: Any, where: str) -> CheckedAttestation:
        """Check one envelope."""
        envelope = read_envelope(value, where)
        statement = read_statement(envelope, where)
        problems: list[str] = []
        signer = self._signer(envelope, problems)
        commits = _subjects(statement, where)
        kind = statement["predicateType"]
        for commit in commits:
            problems += self._about(commit, kind, statement["predicate"])
        checked = CheckedAttestation(tuple(commits), FORMATS.get(kind, kind), None, None, None, tuple(dict.fromkeys(problems)))
        return (
            checked if signer is None else checked._replace(signer=signer.owner, key=signer.key.fingerprint, trusted=signer.trusted)
        )

    def _signer(self, envelope: DsseEnvelope, problems: list[str]) -> _Signer | None:
        """The first signer that counts; every problem of a key that is known here is reported."""
        reasons: list[str] = []
        for signature in envelope.signatures:
            signer = self._known(signature.key)
            if signer is None:
                reasons.append(f"the key {signature.key} is not enrolled in this space")
                continue
            try:
                envelope.verify(signer.key)
            except BadSignature as err:
                reasons.append(err.message)
                continue
            if signer.problem is not None:
                problems.append(signer.problem)
            return signer
        problems += reasons
        return None

    def _known(self, fingerprint: str) -> _Signer | None:
        if self._given is not None:
            return _Signer(self._given, "the given key", GIVEN) if self._given.fingerprint == fingerprint else None
        enrolment = self._checks.chain.enrolment_of(fingerprint)
        if enrolment is None or enrolment.key.kind == PASSKEY_KEY:
            return None
        key, owner = enrolment.key, enrolment.key.owner
        revoked = f"the key {fingerprint} of {owner} was revoked or replaced" if enrolment.until is not None else None
        wrong = None if key.kind == MACHINE_KEY else f"the key {fingerprint} is of {owner}, not of a machine that records"
        return _Signer(read_public_key(key.public), owner, ENROLLED, revoked or wrong)

    def _about(self, cid: str, kind: str, predicate: dict[str, Any]) -> Iterator[str]:
        """What is wrong with a statement about a commit."""
        check = self._checks.commit(cid, quiet=True)
        if check is None:
            yield f"the commit {cid} is not in this clone"
            return
        verdict = self._attestations.verdict(cid)
        if verdict.result != VERIFIED:
            reasons = "; ".join(message for _, message in verdict.findings) or "it is not signed"
            yield f"the commit {cid[:10]} does not verify here: {reasons}"
        if kind == SUMMARY_PREDICATE and predicate.get("verificationResult") != "PASSED":
            yield f"the verification summary of {cid[:10]} says {predicate.get('verificationResult')!r}"
        if kind == COMMIT_PREDICATE:
            yield from self._differences(cid, predicate)

    def _differences(self, cid: str, predicate: dict[str, Any]) -> Iterator[str]:
        current = self._attestations.in_toto(cid, self._attestations.verdict(cid), "")["predicate"]
        for field in _STABLE:
            if predicate.get(field) != current.get(field):
                yield f"the attestation states another {field} of {cid[:10]} than the record"
        for field in ("signer", "key"):
            if _of(predicate, "signature", field) != _of(current, "signature", field):
                yield f"the attestation names another {field} of {cid[:10]} than the record"
        if _of(predicate, "verification", "result") != VERIFIED:
            yield f"the attestation says that {cid[:10]} was not verified"
        listed = predicate.get("approvals")
        for approval in listed if isinstance(listed, list) else [None]:
            yield from self._approval_problems(approval)

    def _approval_problems(self, approval: Any) -> Iterator[str]:
        """Later approvals are no problem, so each listed one is checked on its own."""
        if not isinstance(approval, dict):
            yield "the list of approvals cannot be read"
            return
        cid = _of(approval, "commit", "gitCommit")
        if cid is None:
            return  # a review by an agent
        if not is_id(cid) or self._checks.commit(cid, quiet=True) is None:
            yield f"the {approval.get('kind')} {cid} is not in this clone"
            return
        check, decision = self._attestations.stories.check(cid), self._attestations.decision_of(cid)
        problems = [finding.message for finding in check.findings]
        if approval.get("kind") == DECISION:
            expected = (check.strength, decision.by, answer_of(decision))
            if (approval.get("strength"), approval.get("by"), approval.get("answer")) != expected:
                problems.append("it is by another person, has another answer or another proof than the attestation says")
        if problems:
            yield f"the {approval.get('kind')} {cid[:10]} does not verify: {'; '.join(problems)}"


def _subjects(statement: dict[str, Any], where: str) -> list[str]:
    listed = statement.get("subject")
    subjects: Sequence[Any] = listed if isinstance(listed, list) else ()
    digests = [subject.get("digest") if isinstance(subject, dict) else None for subject in subjects]
    commits = [digest.get("gitCommit") if isinstance(digest, dict) else None for digest in digests]
    if not commits or not all(isinstance(commit, str) and is_id(commit) for commit in commits):
        message = f"{where}.subject: must list commits by their gitCommit"
        raise InvalidInput(message, code="invalid-attestation", fields={"field": f"{where}.subject"})
    return [str(commit) for commit in commits]


def _of(body: dict[str, Any], name: str, field: str) -> Any:
    part = body.get(name)
    return part.get(field) if isinstance(part, dict) else None
