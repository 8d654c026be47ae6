"""SSH signatures (PROTOCOL.sshsig), as ``ssh-keygen -Y`` and git make and verify them.

Invariant: a signature is accepted for one namespace only. The signed bytes are hashed with SHA-512 or SHA-256. The signing key may
be a certificate; who issued it, and whether that counts, is for the caller to judge.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

from clia.errors import BadSignature
from clia.trust.ssh_format import (
    CERTIFICATE,
    ECDSA,
    ED25519,
    SK_ECDSA,
    SK_ED25519,
    Certificate,
    Malformed,
    PublicKey,
    Reader,
    armored,
    ed25519_key,
    public_key,
    read_certificate,
    string,
    unarmored,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurve
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from clia.trust.statements import EnrolledKey, PersonalStatement, StatementProof

LABEL = "SSH SIGNATURE"
GIT, CLIA = "git", "clia"
"""Namespaces: of commits, as git uses it; of statements by people."""
SIGNATURE_MAX = 16 * 1024
_MAGIC = b"SSHSIG"
_HASHES = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}
_PRESENT, _VERIFIED = 1, 4
_CURVES = dict(zip(ECDSA, ((256, "SECP256R1", "SHA256"), (384, "SECP384R1", "SHA384"), (521, "SECP521R1", "SHA512")), strict=True))


class SshSigner(NamedTuple):
    """A private Ed25519 key, and the certificate that it signs under, if any."""

    private: Ed25519PrivateKey
    public: PublicKey
    certificate: bytes | None = None

    def sign(self, data: bytes, namespace: str = GIT) -> str:
        """The signature of some bytes, in its text form. The same bytes have the same signature."""
        signature = string(ED25519) + string(self.private.sign(_to_sign(data, namespace, "sha512")))
        key = self.certificate or self.public.blob
        blob = (
            _MAGIC + (1).to_bytes(4, "big") + string(key) + string(namespace) + string(b"") + string("sha512") + string(signature)
        )
        return armored(blob, LABEL)


def signer_of(seed: bytes, certificate: bytes | None = None) -> SshSigner:
    """The signer with a private key's 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # 20 ms; few commands sign

    private = Ed25519PrivateKey.from_private_bytes(seed)
    return SshSigner(private, ed25519_key(private.public_key().public_bytes_raw()), certificate)


def certified(issuer: SshSigner, key: PublicKey, key_id: str, principal: str, valid: tuple[int, int], nonce: bytes) -> bytes:
    """A user certificate of OpenSSH for an Ed25519 key, without options, for one principal."""
    after, before = (number.to_bytes(8, "big") for number in valid)
    raw = key.blob[-32:]
    head = string(CERTIFICATE) + string(nonce) + string(raw) + bytes(8) + (1).to_bytes(4, "big") + string(key_id)
    body = head + string(string(principal)) + after + before + string(b"") + string(b"") + string(b"") + string(issuer.public.blob)
    return body + string(string(ED25519) + string(issuer.private.sign(body)))


class SshSignature(NamedTuple):
    """A signature that is valid for its own key."""

    key: PublicKey
    certificate: Certificate | None  # what another key says about this one
    user_verified: bool = False  # a security key asked for a PIN or a finger


def verify_signature(text: str, data: bytes, namespace: str) -> SshSignature:
    """Check a signature in its text form. ``BadSignature`` with the codes ``malformed-signature``, ``wrong-namespace`` and
    ``bad-signature``.
    """
    try:
        return _verified(unarmored(text, LABEL, SIGNATURE_MAX), data, namespace)
    except Malformed as err:
        raise BadSignature(f"not an SSH signature: {err}", code="malformed-signature") from None


def read_verified_signature(text: str, namespace: str) -> SshSignature:
    """A signature of a commit that was verified before: its key and certificate, without the arithmetic."""
    try:
        return _verified(unarmored(text, LABEL, SIGNATURE_MAX), None, namespace)
    except Malformed as err:
        raise BadSignature(f"not an SSH signature: {err}", code="malformed-signature") from None


def _verified(blob: bytes, data: bytes | None, namespace: str) -> SshSignature:
    """Read a signature, and check it unless it was checked before (``data`` None)."""
    reader = Reader(blob)
    if reader.take(len(_MAGIC)) != _MAGIC or reader.number() != 1:
        raise Malformed("unknown version")
    key_blob, actual, reserved, hash_name = reader.string(), reader.text(), reader.string(), reader.text()
    signature = reader.string()
    reader.end()
    if actual != namespace:
        raise BadSignature(f"the signature is for {actual[:60]!r}, not for {namespace!r}", code="wrong-namespace")
    if reserved or hash_name not in _HASHES:
        raise Malformed(f"unknown hash {hash_name[:60]!r}")
    certificate = None
    if Reader(key_blob).text() == CERTIFICATE:
        certificate = _certificate(key_blob)
        key = ed25519_key(certificate.key)
    else:
        key = public_key(key_blob)
    verified = data is not None and _check(key, signature, _to_sign(data, namespace, hash_name))
    return SshSignature(key, certificate, verified)


@lru_cache(maxsize=256)
def _certificate(blob: bytes) -> Certificate:
    """A certificate whose issuer signed it."""
    certificate = read_certificate(blob)
    _check(certificate.issuer, certificate.signature, certificate.signed)
    return certificate


def _to_sign(data: bytes, namespace: str, hash_name: str) -> bytes:
    return _MAGIC + string(namespace) + string(b"") + string(hash_name) + string(_HASHES[hash_name](data).digest())


def _check(key: PublicKey, blob: bytes, signed: bytes) -> bool:
    """Verify one signature; returns whether a security key verified its user."""
    from cryptography.exceptions import InvalidSignature

    reader = Reader(blob)
    kind, signature = reader.text(), reader.string()
    flags = 0
    if key.kind in (SK_ED25519, SK_ECDSA):
        tail = reader.take(5)
        flags = tail[0]
        signed = hashlib.sha256(_application(key)).digest() + tail + hashlib.sha256(signed).digest()
        if not flags & _PRESENT:
            raise BadSignature("nobody touched the security key for this signature", code="no-user-presence")
    reader.end()
    if kind != key.kind:
        raise Malformed(f"a signature of the type {kind[:60]!r} for a key of the type {key.kind}")
    try:
        if key.kind in (ED25519, SK_ED25519):
            _ed25519(key.blob).verify(signature, signed)
        else:
            _verify_ecdsa(key, signature, signed)
    except (InvalidSignature, ValueError):
        message = "the signature is invalid: the data was changed, or signed with another key"
        raise BadSignature(message, code="bad-signature", fields={"key": key.fingerprint}) from None
    return bool(flags & _VERIFIED)


def _application(key: PublicKey) -> bytes:
    reader = Reader(key.blob)
    for _ in range(2 if key.kind == SK_ED25519 else 3):
        reader.string()
    return reader.string()


@lru_cache(maxsize=256)
def _ed25519(blob: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    reader = Reader(blob)
    reader.string()
    return Ed25519PublicKey.from_public_bytes(reader.string())


def _verify_ecdsa(key: PublicKey, signature: bytes, signed: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    _, curve_name, hash_name = _CURVES["ecdsa-sha2-nistp256" if key.kind == SK_ECDSA else key.kind]
    curve: EllipticCurve = getattr(ec, curve_name)()
    reader = Reader(key.blob)
    reader.string()
    reader.string()
    public = ec.EllipticCurvePublicKey.from_encoded_point(curve, reader.string())
    numbers = Reader(signature)
    pair = [int.from_bytes(numbers.string(), "big") for _ in range(2)]
    numbers.end()
    public.verify(encode_dss_signature(*pair), signed, ec.ECDSA(getattr(hashes, hash_name)()))


def verify_proof(statement: PersonalStatement, proof: StatementProof, key: EnrolledKey) -> str:
    """Check that an SSH key signed a statement (``ssh-keygen -Y sign -n clia``); returns the proof's strength."""
    from clia.trust.statements import strength_of_key  # most signatures are of commits

    if proof.fields.keys() != {"signature"}:
        raise BadSignature("a proof by an SSH key has a signature and nothing else", code="malformed-proof")
    signature = verify_signature(proof.fields["signature"], statement.data(), CLIA)
    if signature.certificate is not None or signature.key.text != key.public:
        raise BadSignature("the statement is signed with another key", code="wrong-key", fields={"key": signature.key.fingerprint})
    return strength_of_key(key.kind, key.public)
