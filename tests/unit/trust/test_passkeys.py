"""Proofs by passkeys: our offline check agrees with the webauthn package, for every algorithm and every trick."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from webauthn import verify_authentication_response
from webauthn.helpers.exceptions import WebAuthnException

from clia.errors import BadSignature
from clia.trust.passkeys import (
    Passkey,
    PasskeyPlace,
    assertion_in,
    check_assertion,
    counter_in,
    proof_of,
)
from clia.trust.statements import DECIDE, PersonalStatement, StatementProof, read_proof, verify_proof
from support.authenticator import PRESENT, VERIFIED, SoftAuthenticator, b64url

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST = "clia-0123456789.localhost"
ORIGIN = f"http://{HOST}:8337"
PLACE = PasskeyPlace(HOST, (ORIGIN, "https://forge.example.org"))
ADA = "Ada <ada@example.org>"
STATEMENT = PersonalStatement("space-1", DECIDE, ADA, "scout", 1_780_000_000, parent="a" * 40, request="ask-1.1", value="yes")
OTHER_CHALLENGE = b"\1" * 32

TRICKS: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "the other origin": {"origin": "https://forge.example.org"},
    "another origin": {"origin": "http://evil.example"},
    "another port": {"origin": f"http://{HOST}:9999"},
    "an origin with a path": {"origin": f"{ORIGIN}/"},
    "an origin that starts like ours": {"origin": f"{ORIGIN}0"},
    "no origin": {"origin": None},
    "another host name": {"rp_id": "localhost"},
    "no verification": {"flags": PRESENT},
    "nobody present": {"flags": VERIFIED},
    "no flags": {"flags": 0},
    "another challenge": {"challenge": OTHER_CHALLENGE},
    "the start of the challenge": {"challenge": STATEMENT.challenge()[:31]},
    "a registration": {"type": "webauthn.create"},
    "no counter": {"count": 0},
    "a high counter": {"count": 2**32 - 1},
    "another key": {"private": SoftAuthenticator(ORIGIN, HOST).private},
}


def passkey_of(key: SoftAuthenticator, place: PasskeyPlace = PLACE) -> Passkey:
    return Passkey(b64url(key.credential), key.public, place)


def theirs(response: str, passkey: Passkey, count: int) -> bool:
    """What the package says."""
    try:
        verify_authentication_response(
            credential=json.loads(response),
            expected_challenge=STATEMENT.challenge(),
            expected_rp_id=passkey.place.rp_id,
            expected_origin=list(passkey.place.origins),
            credential_public_key=cose(passkey),
            credential_current_sign_count=count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError):
        return False
    return True


def cose(passkey: Passkey) -> bytes:
    return base64.urlsafe_b64decode(passkey.public + "=" * (-len(passkey.public) % 4))


def ours(response: str, passkey: Passkey, count: int) -> bool:
    try:
        check_assertion(assertion_in(json.loads(response)["response"]), STATEMENT.challenge(), passkey, count)
    except BadSignature:
        return False
    return True


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("name", TRICKS)
def test_our_check_agrees_with_the_package(name: str, count: int) -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    response = key.answer(STATEMENT.challenge(), **{"count": 7, **TRICKS[name]})
    expected = theirs(response, passkey_of(key), count)
    assert ours(response, passkey_of(key), count) is expected
    good = {"nothing", "the other origin"} if count < 7 else set()
    assert expected is (name in good or name == "a high counter" or (name == "no counter" and count == 0))


@pytest.mark.parametrize("client", [{"crossOrigin": True}, {"topOrigin": "https://evil.example"}, {"crossOrigin": "no"}])
def test_an_answer_in_a_frame_of_another_site_does_not_count(client: dict[str, Any]) -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    assert not ours(key.answer(STATEMENT.challenge(), client=client), passkey_of(key), 0)


def test_every_byte_counts() -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    assertion = assertion_in(json.loads(key.answer(STATEMENT.challenge()))["response"])
    check_assertion(assertion, STATEMENT.challenge(), passkey_of(key))
    for field, data in assertion._asdict().items():
        for at in range(len(data)):
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            with pytest.raises(BadSignature):
                check_assertion(assertion._replace(**{field: changed}), STATEMENT.challenge(), passkey_of(key))
        for other in (data[:-1], data + b"\0", b""):
            with pytest.raises(BadSignature):
                check_assertion(assertion._replace(**{field: other}), STATEMENT.challenge(), passkey_of(key))


@pytest.mark.parametrize("kind", ["EdDSA", "RS256"])
def test_keys_of_the_other_algorithms(kind: str) -> None:
    soft = SoftAuthenticator(ORIGIN, HOST)
    assertion = assertion_in(json.loads(soft.answer(STATEMENT.challenge()))["response"])
    signed = assertion.authenticator_data + hashlib.sha256(assertion.client_data).digest()
    if kind == "EdDSA":
        private = ed25519.Ed25519PrivateKey.generate()
        public, signature = cbor2.dumps({1: 1, 3: -8, -1: 6, -2: private.public_key().public_bytes_raw()}), private.sign(signed)
    else:
        rsa_key = rsa.generate_private_key(65537, 2048)
        modulus = rsa_key.public_key().public_numbers().n.to_bytes(256, "big")
        public = cbor2.dumps({1: 3, 3: -257, -1: modulus, -2: b"\1\0\1"})
        signature = rsa_key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    passkey = Passkey(b64url(soft.credential), b64url(public), PLACE)
    good = assertion._replace(signature=signature)
    assert check_assertion(good, STATEMENT.challenge(), passkey) == soft.count
    with pytest.raises(BadSignature):
        check_assertion(assertion, STATEMENT.challenge(), passkey)


@pytest.mark.parametrize(
    "public",
    [
        b"",
        b"\xa0",
        cbor2.dumps({1: 2, 3: -7, -1: 1, -2: b"x" * 32}),
        cbor2.dumps({1: 2, 3: -7, -1: 1, -2: b"\0" * 32, -3: b"\0" * 32}),
        cbor2.dumps({1: 2, 3: -35, -1: 2, -2: b"x" * 48, -3: b"y" * 48}),
        cbor2.dumps({1: 2, 3: -7, -1: 1, -2: b"x" * 32, -3: b"y" * 32}) + b"\0",
        b"\xff" * 2000,
    ],
)
def test_other_keys_prove_nothing(public: bytes) -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    assertion = assertion_in(json.loads(key.answer(STATEMENT.challenge()))["response"])
    with pytest.raises(BadSignature):
        check_assertion(assertion, STATEMENT.challenge(), Passkey("x", b64url(public), PLACE))


# Proofs


def proof_by(key: SoftAuthenticator, statement: PersonalStatement = STATEMENT, **wrong: Any) -> StatementProof:
    return proof_of(assertion_in(json.loads(key.answer(statement.challenge(), **wrong))["response"]), passkey_of(key))


def test_a_proof_travels_as_text() -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    proof = read_proof(proof_by(key, count=5).text())
    assert verify_proof(STATEMENT, proof, passkey_of(key).enrolled(ADA)).strength == "passkey"
    assert counter_in(proof) == 5


@pytest.mark.parametrize("field", [name for name in PersonalStatement._fields if name != "at"])
def test_a_proof_of_one_statement_proves_no_other(field: str) -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    other = STATEMENT._replace(**{field: "other"})  # type: ignore[arg-type]  # a text
    with pytest.raises(BadSignature):
        verify_proof(other, proof_by(key), passkey_of(key).enrolled(ADA))


def test_a_proof_counts_for_the_enrolled_key_and_place_only() -> None:
    key, other = SoftAuthenticator(ORIGIN, HOST), SoftAuthenticator(ORIGIN, HOST)
    proof, enrolled = proof_by(key), passkey_of(key).enrolled(ADA)
    for wrong in (
        passkey_of(other).enrolled(ADA),
        enrolled._replace(public=other.public),
        passkey_of(key, PasskeyPlace("localhost", PLACE.origins)).enrolled(ADA),
        passkey_of(key, PasskeyPlace(HOST, ("https://forge.example.org",))).enrolled(ADA),
        enrolled._replace(details={}),
        enrolled._replace(details={**enrolled.details, "origins": []}),
        enrolled._replace(details={**enrolled.details, "origins": ORIGIN}),
        enrolled._replace(details={**enrolled.details, "rp_id": ""}),
        enrolled._replace(kind="ssh"),
    ):
        with pytest.raises(BadSignature):
            verify_proof(STATEMENT, proof, wrong)


@pytest.mark.parametrize("change", ["missing", "extra", "padded", "plain base64", "long", "not base64"])
def test_malformed_proofs_are_refused(change: str) -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    proof = proof_by(key)
    fields = dict(proof.fields)
    if change == "missing":
        fields.pop("signature")
    elif change == "extra":
        fields["more"] = "x"
    elif change == "padded":
        fields["signature"] += "="
    elif change == "plain base64":
        fields["client_data"] = "+/" + fields["client_data"]
    else:
        fields["client_data"] = "A" * 20_000 if change == "long" else "ä"
    with pytest.raises(BadSignature) as caught:
        verify_proof(STATEMENT, proof._replace(fields=fields), passkey_of(key).enrolled(ADA))
    assert caught.value.code == "malformed-proof"


def test_the_check_loads_no_package_of_the_forge() -> None:
    """A stranger with a plain install checks passkeys, too."""
    code = """if True:
        import sys
        sys.modules.update(webauthn=None, cbor2=None)
        from clia.errors import BadSignature
        from clia.trust.passkeys import Assertion, Passkey, PasskeyPlace, check_assertion
        try:
            check_assertion(Assertion(b"x" * 37, b"{}", b"x"), b"", Passkey("x", "AA", PasskeyPlace("h", ())))
        except BadSignature as err:
            print(err.code)
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "bad-assertion\n"
