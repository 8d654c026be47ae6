"""Statements of people: canonical, complete, and proved by the key that they name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clia.errors import BadSignature
from clia.trust.ssh_signatures import CLIA, GIT, signer_of
from clia.trust.statements import (
    DECIDE,
    PROOF_MAX,
    STATEMENT_MAX,
    STRENGTHS,
    EnrolledKey,
    PersonalStatement,
    StatementProof,
    is_weaker,
    read_proof,
    read_statement,
    stated_in,
    trailers_of,
    verify_proof,
)
from clia.values.commit_messages import STATEMENT

SIGNER = signer_of(b"\2" * 32)
KEY = EnrolledKey(SIGNER.public.fingerprint, "ssh", SIGNER.public.text, "Ada", ("decide",))
DECISION = PersonalStatement("s", DECIDE, "Ada", "scout", 1, "p" * 40, "t" * 40, "r-1", "q", {"go": True}, "why\n", "cli")


def proof_of(statement: PersonalStatement, namespace: str = CLIA) -> StatementProof:
    return StatementProof("ssh", KEY.fingerprint, {"signature": SIGNER.sign(statement.data(), namespace)})


def test_a_statement_and_its_proof_are_read_back_from_trailers() -> None:
    stated = stated_in(trailers_of(DECISION, [proof_of(DECISION)]))
    assert stated is not None
    assert stated.statement == DECISION
    assert verify_proof(DECISION, stated.proofs[0], KEY) == (KEY, "ssh")


@pytest.mark.parametrize("field", [name for name in PersonalStatement._fields if name != "verb"])
def test_a_proof_holds_for_no_other_statement(field: str) -> None:
    changes: dict[str, Any] = {field: 2 if field == "at" else "other"}
    other = DECISION._replace(**changes)
    with pytest.raises(BadSignature) as refused:
        verify_proof(other, proof_of(DECISION), KEY)
    assert refused.value.code == "bad-signature"


def test_a_commit_signature_is_no_proof() -> None:
    with pytest.raises(BadSignature) as refused:
        verify_proof(DECISION, proof_of(DECISION, GIT), KEY)
    assert refused.value.code == "wrong-namespace"


def test_a_proof_by_another_key_or_method_is_refused() -> None:
    other = signer_of(b"\3" * 32)
    forged = StatementProof("ssh", KEY.fingerprint, {"signature": other.sign(DECISION.data(), CLIA)})
    cases = [(forged, "wrong-key"), (proof_of(DECISION)._replace(key="SHA256:x"), "wrong-key")]
    cases += [(proof_of(DECISION)._replace(method="pgp"), "unknown-method")]
    cases += [(proof_of(DECISION)._replace(fields={}), "malformed-proof")]
    for proof, code in cases:
        with pytest.raises(BadSignature) as refused:
            verify_proof(DECISION, proof, KEY)
        assert refused.value.code == code


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body | {"extra": 1},
        lambda body: body | {"type": "other"},
        lambda body: body | {"at": "1"},
        lambda body: body | {"at": True},
        lambda body: body | {"verb": "dance"},
        lambda body: body | {"tree": ""},
        lambda body: {key: value for key, value in body.items() if key != "person"},
    ],
)
def test_an_incomplete_or_unknown_statement_is_refused(change: object) -> None:
    text = json.dumps(change(DECISION.as_json()), sort_keys=True, separators=(",", ":"))  # type: ignore[operator]
    with pytest.raises(BadSignature) as refused:
        read_statement(text)
    assert refused.value.code == "malformed-statement"


@pytest.mark.parametrize("text", ["", "[]", "{" * 5000, "x" * (STATEMENT_MAX + 1), json.dumps(DECISION.as_json(), indent=1)])
def test_oversized_and_malformed_trailers_are_refused(text: str) -> None:
    with pytest.raises(BadSignature):
        read_statement(text)
    with pytest.raises(BadSignature):
        read_proof(text[:PROOF_MAX] + "x")


def test_duplicate_statements_and_proofs_alone_are_problems() -> None:
    trailers = trailers_of(DECISION, [proof_of(DECISION)])
    for broken in ([*trailers, trailers[0]], trailers[1:], [(STATEMENT, "{}")]):
        stated = stated_in(broken)
        assert stated is not None
        assert stated.problem is not None
    assert stated_in([("Clia-Agent", "scout")]) is None


def test_strengths_are_ordered() -> None:
    assert STRENGTHS == ("unsigned", "attested", "ssh", "ssh-fido", "passkey")
    assert is_weaker("attested", "ssh")
    assert not is_weaker("passkey", "passkey")
