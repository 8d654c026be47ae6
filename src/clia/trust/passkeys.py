"""Passkeys: what an authenticator signs, checked offline.

An authenticator signs its own data (the hash of the host name that the key belongs to, flags, a counter) and the browser's (the
challenge, the page's origin). The challenge of a decision is the SHA-256 of its statement.

Invariant: an assertion counts only for the host name and the origins that its key was enrolled for, if the person was verified (by
PIN, finger or face) and no other site had framed the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import NamedTuple

from clia.errors import BadSignature
from clia.trust.statements import PASSKEY, PASSKEY_KEY, EnrolledKey, StatementProof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.trust.statements import PersonalStatement

FIELDS = ("authenticator_data", "client_data", "signature")
"""The fields of a proof, each in base64url."""
CREDENTIAL, RP_ID, ORIGINS = "credential", "rp_id", "origins"
"""The details of an enrolled key."""
_FIELD_MAX = 8 * 1024
_ALGORITHMS = (-7, -8, -257)  # ES256, EdDSA, RS256: what browsers offer
_FLAGS, _DATA_LENGTH = 32, 37  # after the digest of the host name; without extensions
_PRESENT, _VERIFIED, _EXTENDED = 0x01, 0x04, 0x80
_EC2, _OKP, _RSA = "ES256", "EdDSA", "RS256"
_COSE = {
    _EC2: ((bytes.fromhex("a5010203262001215820"), 32), (bytes.fromhex("225820"), 32)),
    _OKP: ((bytes.fromhex("a4010103272006215820"), 32),),
    _RSA: ((bytes.fromhex("a401030339010020590100"), 256), (bytes.fromhex("2143010001"), 0)),
}
"""The bytes before each number of a COSE key, and the length of the number."""


class PasskeyPlace(NamedTuple):
    """Where passkeys are used: the host name that they belong to, and the origins of the pages."""

    rp_id: str
    origins: tuple[str, ...]


class Passkey(NamedTuple):
    """The public half of a passkey."""

    credential: str  # its id, base64url
    public: str  # COSE key, base64url
    place: PasskeyPlace

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.public)

    def enrolled(self, owner: str, roles: tuple[str, ...] = ()) -> EnrolledKey:
        """The key as it is in the chain of keys."""
        details = {CREDENTIAL: self.credential, RP_ID: self.place.rp_id, ORIGINS: list(self.place.origins)}
        return EnrolledKey(self.fingerprint, PASSKEY_KEY, self.public, owner, roles, details)


class Assertion(NamedTuple):
    """What an authenticator signed."""

    authenticator_data: bytes
    client_data: bytes
    signature: bytes


def verify(statement: PersonalStatement, proof: StatementProof, key: EnrolledKey) -> str:
    """Check the assertion over a statement; returns the proof's strength. ``BadSignature`` says what is wrong with it."""
    if proof.fields.keys() != set(FIELDS):
        raise BadSignature(f"a proof by a passkey has the fields {', '.join(FIELDS)}", code="malformed-proof")
    if proof.key != fingerprint_of(key.public):
        raise BadSignature("the proof names another key", code="wrong-key", fields={"key": proof.key})
    assertion = Assertion(*(decoded(proof.fields[name], name) for name in FIELDS))
    check_assertion(assertion, statement.challenge(), _passkey_in(key))
    return PASSKEY


def check_assertion(assertion: Assertion, challenge: bytes, passkey: Passkey, count: int = 0) -> int:
    """Check what an authenticator signed; returns its counter, which is above ``count`` unless the authenticator has none.

    ``BadSignature`` (bad-assertion) otherwise. Needs no package besides cryptography, so that everyone can check a proof.
    """
    fields = _client_data(assertion.client_data)
    if fields.get("type") != "webauthn.get" or fields.get("challenge") != encoded(challenge):
        raise bad_assertion("it is for another challenge")
    if fields.get("origin") not in passkey.place.origins:
        raise bad_assertion(f"it was given at {str(fields.get('origin'))[:100]!r}")
    data = assertion.authenticator_data
    flags = data[_FLAGS] if len(data) >= _DATA_LENGTH else 0
    if len(data) < _DATA_LENGTH or (len(data) > _DATA_LENGTH and not flags & _EXTENDED):
        raise bad_assertion("the data of the authenticator is malformed")
    if data[:_FLAGS] != hashlib.sha256(passkey.place.rp_id.encode("utf-8")).digest():
        raise bad_assertion("it is for another host name")
    if not flags & _PRESENT or not flags & _VERIFIED:
        raise bad_assertion("the authenticator did not verify the person")
    counter = int.from_bytes(data[_FLAGS + 1 : _DATA_LENGTH], "big")
    if (counter or count) and counter <= count:
        raise bad_assertion(f"its counter is {counter}, and was {count} before: the key may have been copied")
    _check_signature(passkey.public, assertion.signature, data + hashlib.sha256(assertion.client_data).digest())
    return counter


def _check_signature(public: str, signature: bytes, signed: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.hashes import SHA256

    kind, parts = _cose_key(decoded(public, "public key"))
    try:
        if kind == _EC2:
            point = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b"\4" + b"".join(parts))
            point.verify(signature, signed, ECDSA(SHA256()))
        elif kind == _OKP:
            Ed25519PublicKey.from_public_bytes(parts[0]).verify(signature, signed)
        else:
            RSAPublicNumbers(65537, int.from_bytes(parts[0], "big")).public_key().verify(signature, signed, PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        raise bad_assertion("the signature is not by the key") from None


def _cose_key(data: bytes) -> tuple[str, list[bytes]]:
    """The algorithm of a COSE key, and its numbers. There is one encoding of each key (CTAP2)."""
    for kind, template in _COSE.items():
        at, parts = 0, []
        for fixed, length in template:
            if data[at : at + len(fixed)] != fixed:
                break
            at += len(fixed)
            parts.append(data[at : at + length])
            at += length
        else:
            if at == len(data):
                return kind, [part for part in parts if part]
    raise BadSignature("the passkey's public key is of an unsupported kind", code="wrong-key")


def registered(response: Mapping[str, Any], challenge: bytes, place: PasskeyPlace) -> tuple[Passkey, int]:
    """The passkey that a browser created, and its counter. ``BadSignature`` (bad-assertion) if the response does not hold.

    Attestation (who built the authenticator) is neither asked for nor judged.
    """
    from webauthn import verify_registration_response
    from webauthn.helpers.cose import COSEAlgorithmIdentifier
    from webauthn.helpers.exceptions import WebAuthnException

    _client_data(_field(response.get("response"), "clientDataJSON"))
    try:
        verified = verify_registration_response(
            credential=dict(response),
            expected_challenge=challenge,
            expected_rp_id=place.rp_id,
            expected_origin=list(place.origins),
            require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier(number) for number in _ALGORITHMS],
        )
    except (WebAuthnException, ValueError, TypeError, KeyError, AttributeError, IndexError) as err:
        raise bad_assertion(str(err)) from None
    _cose_key(verified.credential_public_key)
    passkey = Passkey(encoded(verified.credential_id), encoded(verified.credential_public_key), place)
    return passkey, verified.sign_count


def assertion_in(response: Any) -> Assertion:
    """The assertion in a browser's response."""
    return Assertion(*(_field(response, name) for name in ("authenticatorData", "clientDataJSON", "signature")))


def proof_of(assertion: Assertion, passkey: Passkey) -> StatementProof:
    """The proof of a statement, for the trailer of its commit."""
    fields = {name: encoded(value) for name, value in zip(FIELDS, assertion, strict=True)}
    return StatementProof(PASSKEY_KEY, passkey.fingerprint, fields)


def counter_in(proof: StatementProof) -> int:
    """The counter that an authenticator signed; 0 if it has none. Two proofs with one counter come from a copied key."""
    data = decoded(proof.fields.get("authenticator_data", ""), "authenticator_data")
    return int.from_bytes(data[_FLAGS + 1 : _DATA_LENGTH], "big")


def fingerprint_of(public: str) -> str:
    """The fingerprint of a passkey, by its COSE key in base64url."""
    digest = hashlib.sha256(decoded(public, "public key")).digest()
    return f"SHA256:{base64.b64encode(digest).decode('ascii').rstrip('=')}"


def encoded(data: bytes) -> str:
    """Base64url without padding, as WebAuthn has it."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def offered_algorithms() -> Sequence[int]:
    """The COSE numbers of the signature algorithms, best first."""
    return _ALGORITHMS


def bad_assertion(reason: str) -> BadSignature:
    return BadSignature(
        f"the passkey's answer does not hold: {reason[:300]}", code="bad-assertion", fields={"reason": reason[:300]}
    )


def _passkey_in(key: EnrolledKey) -> Passkey:
    """The passkey of an enrolled key."""
    credential, rp_id, origins = (key.details.get(name) for name in (CREDENTIAL, RP_ID, ORIGINS))
    sound = isinstance(origins, (list, tuple)) and bool(origins) and all(isinstance(origin, str) for origin in origins)
    if not sound or not isinstance(credential, str) or not isinstance(rp_id, str) or not rp_id:
        raise BadSignature("the enrolled passkey names no host name or origins", code="wrong-key", fields={"key": key.fingerprint})
    assert isinstance(origins, (list, tuple))  # noqa: S101  # for mypy: as checked
    return Passkey(credential, key.public, PasskeyPlace(rp_id, tuple(origins)))


def _client_data(data: bytes) -> dict[str, Any]:
    """What the browser says about the page; refused if the answer was given in a frame of another site."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise bad_assertion("the client data is not a JSON object")
    if fields.get("crossOrigin") not in (None, False) or "topOrigin" in fields:
        raise bad_assertion("it was given in a frame of another site")
    return fields


def _field(response: Any, name: str) -> bytes:
    value = response.get(name) if isinstance(response, dict) else None
    if not isinstance(value, str):
        raise bad_assertion(f"{name} is missing")
    return decoded(value, name)


def decoded(text: str, name: str) -> bytes:
    """Strict base64url: one text for each value."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        data = b""
    if len(text) > _FIELD_MAX or not data or encoded(data) != text:
        raise BadSignature(f"{name} is not base64url, or too long", code="malformed-proof", fields={"field": name})
    return data
