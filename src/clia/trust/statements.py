"""What people state, and how strongly each statement is proved.

A decision, an adoption or a revocation is more than a commit: it is a statement of a person. The statement is canonical JSON; its
SHA-256 is what a person's key signs. A commit carries both as trailers: ``Clia-Statement`` and one ``Clia-Proof`` for each person.

Invariant: a statement names everything that its meaning depends on: the space, the verb, whom it is about, the commit before, the
resulting tree, the request, and the digest of the question as the person saw it. A proof of one statement proves no other.
"""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from typing import NamedTuple

from clia.errors import BadSignature
from clia.trust.ssh_format import SK_ECDSA, SK_ED25519
from clia.values.canonical import canonical_bytes, digest
from clia.values.commit_messages import PROOF, STATEMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

UNSIGNED, ATTESTED, SSH, SSH_FIDO, PASSKEY = STRENGTHS = ("unsigned", "attested", "ssh", "ssh-fido", "passkey")
"""How strongly a statement is proved, weakest first. ``attested``: the machine that recorded it vouches for a login."""
DECIDE, ADOPT, RETIRE, GRANT, UNGRANT, LAND, PURGE = "decide", "adopt", "retire", "grant", "ungrant", "land", "purge"
ENROL, REVOKE, ROTATE, POLICY, ENDORSE, ACCEPT = "enrol", "revoke", "rotate", "policy", "endorse", "accept"
WAIVE = "waive"
"""A decision that takes guardrails away. Its statement has the verb ``decide``; rules of a policy can name it."""
VERBS = (DECIDE, ADOPT, RETIRE, GRANT, UNGRANT, LAND, PURGE, WAIVE, ENROL, REVOKE, ROTATE, POLICY, ENDORSE, ACCEPT)
SSH_KEY, PASSKEY_KEY = "ssh", "passkey"
"""The kinds of keys that people enrol."""
STATEMENT_MAX, PROOF_MAX = 64 * 1024, 16 * 1024
"""Maximum length of each trailer, in characters."""
_VALUE_MAX = 8 * 1024
WHOLE_QUESTION = "asked_sha256"
"""The field of a decision's commit with the digest of a question that is cut."""
_TYPE = "statement"


class PersonalStatement(NamedTuple):
    """What a person states. Empty fields do not apply to the verb."""

    space: str  # the id of the space
    verb: str  # one of VERBS
    person: str  # who states it: the name under which their keys are enrolled
    about: str  # the agent, behaviour, peer or key that it is about
    at: int  # when, in seconds since the epoch
    parent: str = ""  # the commit that the statement's commit follows
    tree: str = ""  # the tree that results
    request: str = ""  # the id of the request that it answers
    question: str = ""  # SHA-256 of the question as it was shown
    value: Any = None  # the answer, the version, the policy …
    reason: str = ""  # why
    channel: str = ""  # how it came: cli, forge, mcp
    kind: str = ""  # the kind of the request that it answers

    def as_json(self) -> dict[str, Any]:
        """The statement's JSON: empty fields are left out. An answer may be an empty text, which differs from ``null``."""
        fields = {key: value for key, value in self._asdict().items() if value is not None and (value != "" or key == "value")}
        return {"type": _TYPE, **fields}

    def data(self) -> bytes:
        """The canonical bytes, which an SSH key signs."""
        return canonical_bytes(self.as_json())

    def challenge(self) -> bytes:
        """The SHA-256 of the canonical bytes: the challenge of a passkey."""
        return hashlib.sha256(self.data()).digest()


class StatementProof(NamedTuple):
    """What proves that a person made a statement."""

    method: str  # ssh or passkey
    key: str  # the fingerprint of the enrolled key
    fields: Mapping[str, str]  # of the method: `signature` of SSH; `authenticator_data`, `client_data`, `signature` of a passkey

    def text(self) -> str:
        """The proof as it is in a trailer."""
        return canonical_bytes({"method": self.method, "key": self.key, **self.fields}).decode("utf-8")


class EnrolledKey(NamedTuple):
    """A public key in the chain of keys, and whose it is."""

    fingerprint: str  # as `ssh-keygen -l` prints it; of a passkey: SHA256 of its public key
    kind: str  # machine, ssh, passkey or witness
    public: str  # of SSH: type and base64; of a passkey: base64url of the COSE key
    owner: str  # the person, or the name of the machine
    roles: tuple[str, ...] = ()  # what it may do
    details: Mapping[str, Any] = {}  # of a passkey: `credential`, `rp_id`, `origins`


class VerifiedProof(NamedTuple):
    """A proof that holds for its statement."""

    key: EnrolledKey
    strength: str


class Stated(NamedTuple):
    """The statement and the proofs of a commit. ``problem``: why the trailers could not be read."""

    statement: PersonalStatement | None
    proofs: tuple[StatementProof, ...] = ()
    problem: str | None = None


_METHODS = {SSH_KEY: "clia.trust.ssh_signatures:verify_proof", PASSKEY_KEY: "clia.trust.passkeys:verify"}
"""Where each method is verified. Each is called with the statement, the proof and the enrolled key, raises ``BadSignature``, and
returns the strength."""


def verify_proof(statement: PersonalStatement, proof: StatementProof, key: EnrolledKey) -> VerifiedProof:
    """Check a proof against the key that it names. Whether the key counts for this statement is for the policy to say.

    ``BadSignature`` with the codes ``unknown-method``, ``wrong-key``, and those of the method.
    """
    if proof.method not in _METHODS:
        raise BadSignature(f"unknown kind of proof: {proof.method[:60]!r}", code="unknown-method")
    if proof.key != key.fingerprint or proof.method != key.kind:
        raise BadSignature("the proof names another key", code="wrong-key", fields={"key": proof.key})
    module, _, name = _METHODS[proof.method].partition(":")
    verify: Callable[[PersonalStatement, StatementProof, EnrolledKey], str] = getattr(import_module(module), name)
    return VerifiedProof(key, verify(statement, proof, key))


def is_weaker(strength: str, least: str) -> bool:
    return STRENGTHS.index(strength) < STRENGTHS.index(least)


def strength_of_key(kind: str, public: str) -> str:
    """The strength of the proofs that a key makes."""
    if kind == PASSKEY_KEY:
        return PASSKEY
    return SSH_FIDO if public.startswith((SK_ED25519, SK_ECDSA)) else SSH


def question_digest(asked: Any) -> str:
    """The digest of a question, of its JSON as it was shown."""
    return digest(asked)


class RecordedAct(NamedTuple):
    """What a person does, as it will be recorded."""

    verb: str  # one of VERBS
    about: str  # the agent, behaviour, peer or key that it is about
    value: Any  # what is recorded: the event, or the answer
    parent: str = ""  # the commit that it follows
    tree: str = ""  # the tree that results
    reason: str = ""  # why
    person: str = ""  # who does it; empty: the person of this clone
    paths: tuple[str, ...] = ()  # the files that it changes on a branch of people
    by_agent: bool = False  # an agent does it, or clia does it for one: no person states it


def stated_landing(body: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a landing as a person states it, before its commit exists: the heads, the branch and how."""
    return {key: value for key, value in body.items() if key != "cid"}


def stated_value(body: Any) -> Any:
    """What a statement says of an event that is recorded: the event, or its digest if it is long."""
    return body if len(canonical_bytes(body)) <= _VALUE_MAX else {"sha256": digest(body)}


def recorded_question(meta: Mapping[str, Any]) -> str:
    """The digest of the question that a decision's commit records, by the commit's open fields. A long question is cut there, with
    the digest of the whole. Empty if the commit has no question."""
    whole = meta.get(WHOLE_QUESTION)
    if isinstance(whole, str) and meta.get("cut") is True:
        return whole
    return question_digest(meta["asked"]) if "asked" in meta else ""


def trailers_of(statement: PersonalStatement, proofs: list[StatementProof]) -> list[tuple[str, str]]:
    """The trailers of a commit that carries a statement."""
    return [(STATEMENT, statement.data().decode("utf-8")), *((PROOF, proof.text()) for proof in proofs)]


def stated_in(trailers: list[tuple[str, str]]) -> Stated | None:
    """The statement that trailers carry; None if they carry none. A duplicate or unreadable one is a problem, not absent."""
    texts = [value for key, value in trailers if key == STATEMENT]
    proofs = [value for key, value in trailers if key == PROOF]
    if not texts:
        return Stated(None, (), "it has a proof without a statement") if proofs else None
    if len(texts) > 1:
        return Stated(None, (), "it has several statements")
    try:
        statement = read_statement(texts[0])
        return Stated(statement, tuple(map(read_proof, proofs)))
    except BadSignature as err:
        return Stated(None, (), err.message)


def read_statement(text: str) -> PersonalStatement:
    """Parse a statement; ``BadSignature`` unless it is canonical and complete."""
    body = _object(text, STATEMENT_MAX, "statement")
    if body.pop("type", None) != _TYPE or not body.keys() <= set(PersonalStatement._fields):
        raise BadSignature("not a statement, or one with unknown fields", code="malformed-statement")
    numbers, values = body.get("at"), {key: value for key, value in body.items() if key not in ("at", "value")}
    if type(numbers) is not int or not all(isinstance(value, str) for value in values.values()) or body.get("verb") not in VERBS:
        raise BadSignature("a field of the statement has the wrong type", code="malformed-statement")
    try:
        statement = PersonalStatement(**body)
    except TypeError as err:
        raise BadSignature(f"the statement is incomplete: {err}", code="malformed-statement") from None
    if statement.data().decode("utf-8") != text:
        raise BadSignature("the statement is not in its canonical form", code="malformed-statement")
    return statement


def read_proof(text: str) -> StatementProof:
    body = _object(text, PROOF_MAX, "proof")
    method, key = body.pop("method", None), body.pop("key", None)
    if not isinstance(method, str) or not isinstance(key, str) or not all(isinstance(value, str) for value in body.values()):
        raise BadSignature("a field of the proof is missing or has the wrong type", code="malformed-proof")
    proof = StatementProof(method, key, body)
    if proof.text() != text:
        raise BadSignature("the proof is not in its canonical form", code="malformed-proof")
    return proof


def _object(text: str, limit: int, name: str) -> dict[str, Any]:
    code = f"malformed-{name}"
    if len(text) > limit:
        raise BadSignature(f"the {name} is longer than {limit} characters", code=code)
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadSignature(f"the {name} is not a JSON object", code=code)
    return body
