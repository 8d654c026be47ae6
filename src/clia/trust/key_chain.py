"""The chain of keys: who is enrolled, with which role, until when, and which policy holds.

``refs/clia/keys`` is one chain of commits. An entry is a commit with the trailer ``Clia-Keys``, the entry as canonical JSON. The
commits of the same chain that federation writes (``Clia-Key``) are no entries. The first entry is the *root*: it enrols the key of
the machine that created the space, and is signed with it.

Invariant: each entry is judged by the keys and the policy that the entries before it established. It is signed by an enrolled
machine and, once people have enrolled keys, stated and proved by as many of them as the policy asks. An entry that does not meet
this ends the chain: what follows it counts for nothing.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from clia.errors import BadSignature, CliaError, InvalidInput
from clia.trust.machine_keys import ENTRY
from clia.trust.policy import OWNER, PolicyAct, TrustPolicy, may, read_policy
from clia.trust.ssh_format import read_public_key
from clia.trust.ssh_signatures import GIT, verify_signature
from clia.trust.statements import (
    ACCEPT,
    ATTESTED,
    ENDORSE,
    ENROL,
    PASSKEY_KEY,
    POLICY,
    REVOKE,
    ROTATE,
    SSH_KEY,
    STRENGTHS,
    EnrolledKey,
    is_weaker,
    stated_in,
    verify_proof,
)
from clia.values.canonical import canonical_bytes, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.trust.policy import ProofRequirement
    from clia.trust.raw_commits import RawCommit
    from clia.trust.statements import PersonalStatement

ROOT = "root"
MACHINE_KEY, WITNESS_KEY = "machine", "witness"
KINDS = (MACHINE_KEY, SSH_KEY, PASSKEY_KEY, WITNESS_KEY)
RECORD, ATTEST = "record", "attest"
MACHINE_ROLES = (ATTEST, RECORD)
"""What an enrolled machine may: record agents' work, and vouch for logins. The root may also enrol, until people do."""
ENTRY_MAX, CHAIN_MAX = 32 * 1024, 10_000
_ACTIONS = {ROOT: {"key"}, ENROL: {"key"}, REVOKE: {"key", "reason", "log"}, ROTATE: {"key", "new", "proof", "log"}}
_ACTIONS |= {POLICY: {"policy"}, ACCEPT: {"finding", "object", "reason"}, ENDORSE: {"until", "reason"}}


class ChainProblem(NamedTuple):
    """An entry that does not count, and why."""

    code: str
    message: str
    commit: str


class Enrolment(NamedTuple):
    """A key, and from which to which entry it is in force."""

    key: EnrolledKey
    since: int
    until: int | None = None
    log: str | None = None  # of a revoked machine: where its log ended; in earlier versions the last commit that counts
    at: int = 0

    def holds_at(self, position: int) -> bool:
        return self.since <= position and (self.until is None or position < self.until)


class Acceptance(NamedTuple):
    """A finding that a person accepts."""

    finding: str
    object: str  # the commit or ref that it is about
    by: str
    reason: str
    strength: str


class Endorsement(NamedTuple):
    """A person vouches for the history up to a checkpoint."""

    until: str  # the checkpoint
    by: str
    reason: str
    strength: str
    commit: str


class Proved(NamedTuple):
    """The people who proved a statement, and the weakest of their proofs."""

    people: tuple[str, ...]
    strength: str


class KeyChain:
    """The keys and policies of a space, as of each entry of its chain."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.enrolments: list[Enrolment] = []
        self.commits: list[str] = []  # of the entries that count, oldest first
        self.positions: dict[str, int] = {}  # of each commit of the chain, also of federation's
        self.policies: list[tuple[int, TrustPolicy]] = []
        self.accepted: list[Acceptance] = []
        self.endorsements: list[Endorsement] = []
        self.problem: ChainProblem | None = None
        self.root_tree = ""

    @property
    def root(self) -> EnrolledKey | None:
        return self.enrolments[0].key if self.enrolments else None

    @property
    def position(self) -> int:
        """The position of the newest entry."""
        return len(self.commits) - 1

    def counts(self, commit: str) -> bool:
        """Whether a commit is an entry that counts."""
        position = self.positions.get(commit)
        return position is not None and 0 <= position < len(self.commits) and self.commits[position] == commit

    def key_at(self, fingerprint: str, position: int) -> Enrolment | None:
        """The enrolment of a key that is in force at an entry."""
        return next((entry for entry in self.enrolments if entry.key.fingerprint == fingerprint and entry.holds_at(position)), None)

    def enrolment_of(self, fingerprint: str) -> Enrolment | None:
        """The last enrolment of a key, whether it is in force or not."""
        return next((entry for entry in reversed(self.enrolments) if entry.key.fingerprint == fingerprint), None)

    def people_at(self, position: int) -> list[EnrolledKey]:
        """The keys of people that are in force."""
        entries = (entry for entry in self.enrolments if entry.holds_at(position) and entry.key.kind in (SSH_KEY, PASSKEY_KEY))
        return [entry.key for entry in entries]

    def policy_at(self, position: int) -> TrustPolicy:
        return next((policy for since, policy in reversed(self.policies) if since <= position), TrustPolicy())

    def requirement(self, position: int, act: PolicyAct) -> ProofRequirement:
        """What an act needs at an entry."""
        return self.policy_at(position).requirement(act, people=bool(self.people_at(position)))

    def proved(self, commit: RawCommit, position: int, verb: str) -> Proved:
        """Who proved the statement of a commit, of those who may act. ``BadSignature`` if a proof or the statement is not valid.

        Whether the statement is about this commit is for the caller to check.
        """
        return self.proved_by(commit.trailers, position, verb)

    def proved_by(self, trailers: list[tuple[str, str]], position: int, verb: str) -> Proved:
        """The same, of the trailers of a commit."""
        stated = stated_in(trailers)
        if stated is None:
            return Proved((), ATTESTED)
        if stated.statement is None:
            raise BadSignature(str(stated.problem), code="malformed-statement")
        if stated.statement.space != self.space or stated.statement.verb != verb:
            raise BadSignature("the statement is for another space or verb", code="wrong-statement")
        if not stated.proofs:
            raise BadSignature("the statement has no proof", code="no-proof")
        people: dict[str, str] = {}
        owners: dict[str, str] = {}
        for proof in stated.proofs:
            enrolment = self.key_at(proof.key, position)
            if enrolment is None:
                entry_of_key = self.enrolment_of(proof.key)
                code = "unknown-key" if entry_of_key is None else "revoked-key"
                raise BadSignature(f"a proof is made with the key {proof.key}, which is not enrolled", code=code)
            strength = verify_proof(stated.statement, proof, enrolment.key).strength
            if not may(enrolment.key.roles, verb) and not self._is_own(stated.statement, enrolment.key.owner):
                raise BadSignature(f"{enrolment.key.owner!r} may not {verb}", code="not-allowed")
            owner, person = enrolment.key.owner, stated.statement.person
            name = person if is_person(owner, person) else owner.casefold()  # by name or address, it is one person
            owners[name] = min(owners.get(name, owner), owner)
            people[name] = max(people.get(name, strength), strength, key=STRENGTHS.index)
        if stated.statement.person not in people:
            raise BadSignature(f"the statement is by {stated.statement.person!r}, who did not prove it", code="wrong-person")
        return Proved(tuple(sorted(owners.values())), min(people.values(), key=STRENGTHS.index))

    def _is_own(self, statement: PersonalStatement, owner: str) -> bool:
        """Whether a person revokes or replaces their own key."""
        enrolment = self.enrolment_of(statement.about) if statement.verb in (REVOKE, ROTATE) else None
        return enrolment is not None and enrolment.key.owner == owner

    def missing(self, proved: Proved, requirement: ProofRequirement) -> str | None:
        """Why a statement's proofs do not meet a requirement; None if they do."""
        if is_weaker(proved.strength, requirement.strength):
            return f"it is proved by {proved.strength}, but the policy asks for {requirement.strength}"
        if max(len(proved.people), proved.strength == ATTESTED) < requirement.threshold:
            return f"{requirement.threshold} people are needed, but {', '.join(proved.people) or 'nobody'} proved it"
        return None

    # Reading

    def append(self, commit: RawCommit) -> None:
        """Judge the next commit of the chain."""
        self.positions[commit.cid] = self.position
        if self.problem is not None:
            return
        texts = [value for key, value in commit.trailers if key == ENTRY]
        if not texts:
            return
        try:
            body = read_entry(texts, self.space)
            self._check(commit, body)
            self._apply(commit, body)
        except CliaError as err:
            self.problem = ChainProblem(err.code, err.message, commit.cid)

    def _check(self, commit: RawCommit, body: Mapping[str, Any]) -> None:
        """Check that an entry is signed and stated by those who may."""
        action, position = body["entry"], self.position
        signer = signer_fingerprint(commit)
        if action == ROOT:
            if self.commits or body["key"].kind != MACHINE_KEY or body["key"].fingerprint != signer:
                raise BadSignature("a root comes first, and is signed with its own key", code="forged-root")
            return
        machine = self.key_at(signer, position)
        if not self.commits or machine is None or machine.key.kind != MACHINE_KEY:
            code = "unknown-key" if self.enrolment_of(signer) is None else "revoked-key"
            raise BadSignature(f"an entry of the chain of keys is signed with {signer}, which is not enrolled", code=code)
        if action == ROTATE and body["key"] == signer:
            return  # a machine replaces its own key
        proved = self.proved(commit, position, action)
        stated = stated_in(commit.trailers)
        statement = None if stated is None else stated.statement
        expected = (about_entry(body), entry_digest(body), _parent_of(commit))
        if statement is not None and (statement.about, statement.value, statement.parent) != expected:
            raise BadSignature("the statement is about another entry", code="wrong-statement")
        own = self.enrolment_of(body["key"]) if action in (REVOKE, ROTATE) else None
        if own is not None and own.key.owner in proved.people and own.key.kind in (SSH_KEY, PASSKEY_KEY):
            return  # people revoke and replace their own keys
        problem = self.missing(proved, self.requirement(position, PolicyAct((action,), about_entry(body))))
        if problem is None and proved.strength == ATTESTED and OWNER not in machine.key.roles:
            problem = f"the machine {machine.key.owner!r} may not {action}"
        if problem is not None:
            raise BadSignature(f"an entry of the chain of keys does not meet the policy: {problem}", code="not-authorized")

    def _apply(self, commit: RawCommit, body: Mapping[str, Any]) -> None:
        action = body["entry"]
        position = len(self.commits)
        if action in (ROOT, ENROL):
            self._enrol(body["key"], position, commit.at)
        elif action == REVOKE:
            self._end(body["key"], position, body.get("log"))
        elif action == ROTATE:
            before = self._end(body["key"], position, body.get("log"))
            key: EnrolledKey = body["new"]
            if (key.owner, key.roles, key.kind) != (before.key.owner, before.key.roles, before.key.kind):
                raise BadSignature("a rotation keeps the owner, the kind and the roles", code="wrong-rotation")
            self._enrol(key, position, commit.at)
        elif action == POLICY:
            self.policies.append((position, read_policy(body["policy"])))
        else:
            self._annotate(commit, body)
        self.commits.append(commit.cid)
        self.positions[commit.cid] = position
        if action == ROOT:
            self.root_tree = commit.tree

    def _annotate(self, commit: RawCommit, body: Mapping[str, Any]) -> None:
        proved = self.proved(commit, self.position, body["entry"])
        by = ", ".join(proved.people) or commit.committer
        if body["entry"] == ACCEPT:
            self.accepted.append(Acceptance(body["finding"], body["object"], by, body["reason"], proved.strength))
        else:
            self.endorsements.append(Endorsement(body["until"], by, body["reason"], proved.strength, commit.cid))

    def _enrol(self, key: EnrolledKey, position: int, at: int) -> None:
        if self.enrolment_of(key.fingerprint) is not None:
            raise BadSignature(f"the key {key.fingerprint} is or was enrolled already", code="key-reused")
        self.enrolments.append(Enrolment(key, position, at=at))

    def _end(self, fingerprint: str, position: int, log: str | None) -> Enrolment:
        for number, enrolment in enumerate(self.enrolments):
            if enrolment.key.fingerprint == fingerprint and enrolment.until is None:
                self.enrolments[number] = enrolment._replace(until=position, log=log)
                return enrolment
        raise BadSignature(f"the key {fingerprint} is not enrolled", code="unknown-key")


def read_key_chain(read: Callable[[str], RawCommit], tip: str | None, space: str) -> KeyChain:
    """Judge the chain that ends at a commit; ``read`` returns a commit."""
    commits: list[RawCommit] = []
    cid = tip
    while cid is not None and len(commits) < CHAIN_MAX:
        commits.append(read(cid))
        cid = commits[-1].parents[0] if commits[-1].parents else None
    chain = KeyChain(space)
    for commit in reversed(commits):
        chain.append(commit)
    return chain


def chain_of(read: Callable[[str], RawCommit], tip: str | None) -> KeyChain:
    """The chain of keys that ends at a commit, of the space that its oldest entry names."""
    space, cid, left = "", tip, CHAIN_MAX
    while cid is not None and left:
        commit = read(cid)
        text = commit.trailer(ENTRY)
        with suppress(ValueError, RecursionError):
            value = json.loads(text) if text is not None else None
            named = value.get("space") if isinstance(value, dict) else None
            space = named if isinstance(named, str) else space
        cid, left = (commit.parents[0] if commit.parents else None), left - 1
    return read_key_chain(read, tip, space)


def is_person(owner: str, person: str) -> bool:
    """Whether the owner of a key is a person as commits name them: ``Ada <ada@example.org>``, the name or the address."""
    name, _, address = person.partition("<")
    return owner in (person, name.strip(), address.rstrip("> "))


def signer_fingerprint(commit: RawCommit) -> str:
    """The fingerprint of the key that a commit is signed with; ``BadSignature`` if it has no valid signature."""
    if commit.signature is None:
        raise BadSignature(f"{commit.cid} is not signed", code="unsigned")
    if commit.strange is not None:
        raise BadSignature(f"{commit.cid} has a header that git does not write: {commit.strange[:60]!r}", code="strange-commit")
    signature = verify_signature(commit.signature, commit.signed, GIT)
    if signature.certificate is not None:
        raise BadSignature(f"{commit.cid} is signed by an agent, not by a machine", code="wrong-key")
    return signature.key.fingerprint


def read_entry(texts: Sequence[str], space: str) -> dict[str, Any]:
    """Parse the entry of a commit; ``BadSignature`` (malformed-entry) for anything but a canonical one of this space."""
    text = texts[0]
    try:
        body = json.loads(text) if len(texts) == 1 and len(text) <= ENTRY_MAX else None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or canonical_bytes(body).decode("utf-8") != text:
        raise _malformed("an entry of the chain of keys cannot be read")
    action = body.get("entry")
    if action not in _ACTIONS or body.get("space") != space or body.keys() - {"entry", "space"} != _ACTIONS[action]:
        raise _malformed("an entry of the chain of keys is for another space, or has missing or unknown fields")
    for name in ("key", "new"):
        if isinstance(body.get(name), dict):
            body[name] = key_from_json(body[name])
    expected: dict[str, type] = {"key": str if action in (REVOKE, ROTATE) else EnrolledKey, "new": EnrolledKey, "policy": dict}
    for name, value in body.items():
        if name != "log" and not isinstance(value, expected.get(name, str)):
            raise _malformed(f"the field {name!r} of an entry has the wrong type")
    if action == ROTATE:
        _check_rotation(body)
    return body


def _check_rotation(body: Mapping[str, Any]) -> None:
    """The new key signs that it replaces the old one, so that nobody enrols the key of another."""
    key: EnrolledKey = body["new"]
    if verify_signature(body["proof"], rotation_data(body["space"], body["key"]), GIT).key.fingerprint != key.fingerprint:
        raise BadSignature("the new key did not sign its rotation", code="wrong-rotation")


def rotation_data(space: str, old: str) -> bytes:
    """What a new key signs."""
    return canonical_bytes({"type": "rotation", "space": space, "replaces": old})


def _malformed(message: str) -> BadSignature:
    return BadSignature(message, code="malformed-entry")


def key_as_json(key: EnrolledKey) -> dict[str, Any]:
    body = {"kind": key.kind, "public": key.public, "owner": key.owner, "roles": list(key.roles)}
    return body | ({"details": dict(key.details)} if key.details else {})


def key_from_json(body: Mapping[str, Any]) -> EnrolledKey:
    """Parse a key; ``BadSignature`` (malformed-entry) unless it is complete, of a supported type and in its only form."""
    kind, public, owner, roles = (body.get(name) for name in ("kind", "public", "owner", "roles"))
    details = body.get("details", {})
    texts = isinstance(public, str) and isinstance(owner, str) and bool(owner) and len(owner) <= 200 and "\n" not in owner
    lists = isinstance(roles, list) and all(isinstance(role, str) for role in roles) and isinstance(details, dict)
    if kind not in KINDS or not texts or not lists or body.keys() - {"kind", "public", "owner", "roles", "details"}:
        raise _malformed("a key of the chain is incomplete")
    try:
        fingerprint = passkey_fingerprint(str(public)) if kind == PASSKEY_KEY else read_public_key(str(public)).fingerprint
        if kind != PASSKEY_KEY and read_public_key(str(public)).text != public:
            raise _malformed("a key of the chain has a comment")
    except InvalidInput as err:
        raise _malformed(err.message) from None
    return EnrolledKey(fingerprint, kind, str(public), str(owner), tuple(roles or ()), details)


def passkey_fingerprint(public: str) -> str:
    """The fingerprint of a passkey: of its COSE key, base64url without padding."""
    import base64
    import binascii
    import hashlib

    try:
        data = base64.b64decode(public + "=" * (-len(public) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("the public key of a passkey must be base64url", code="invalid-key", fields={"field": "key"}) from None
    return "SHA256:" + base64.b64encode(hashlib.sha256(data).digest()).decode("ascii").rstrip("=")


def entry_text(body: Mapping[str, Any]) -> str:
    """An entry as it is in its trailer."""
    plain = {name: key_as_json(value) if isinstance(value, EnrolledKey) else value for name, value in body.items()}
    return canonical_bytes(plain).decode("utf-8")


def entry_digest(body: Mapping[str, Any]) -> str:
    """What the statement about an entry names."""
    return digest(json.loads(entry_text(body)))


def about_entry(body: Mapping[str, Any]) -> str:
    """What an entry is about: a key, a finding, or its action."""
    key = body.get("key")
    return key.fingerprint if isinstance(key, EnrolledKey) else str(key or body.get("finding") or body["entry"])


def _parent_of(commit: RawCommit) -> str:
    return commit.parents[0] if commit.parents else ""
