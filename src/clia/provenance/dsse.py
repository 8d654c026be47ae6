"""DSSE envelopes: a payload, its type, and Ed25519 signatures over both (https://github.com/secure-systems-lab/dsse).

Invariant: a signature covers the type and the exact bytes of the payload. What is not an envelope in this form is refused, not
repaired.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from clia.errors import BadSignature, InvalidInput
from clia.values.canonical import canonical_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.trust.ssh_format import PublicKey
    from clia.trust.ssh_signatures import SshSigner

IN_TOTO_TYPE = "application/vnd.in-toto+json"
DOCUMENT_MAX, _SIGNATURES_MAX = 8 * 1024 * 1024, 20
_ED25519_SIZE = 32


class EnvelopeSignature(NamedTuple):
    """A signature of an envelope."""

    key: str  # the fingerprint of the key that it names
    signature: bytes


class DsseEnvelope(NamedTuple):
    """An envelope; its signatures are not checked yet."""

    payload_type: str
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]

    def signed_bytes(self) -> bytes:
        """What a signature is over: the pre-authentication encoding."""
        kind = self.payload_type.encode("utf-8")
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)

    def verify(self, key: PublicKey) -> None:
        """Check the signature that names a key; ``BadSignature`` if there is none, or it is not valid."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        signature = next((signature.signature for signature in self.signatures if signature.key == key.fingerprint), None)
        if signature is None or key.kind != "ssh-ed25519":
            raise BadSignature(f"no Ed25519 signature names the key {key.fingerprint}", code="unknown-key")
        try:
            Ed25519PublicKey.from_public_bytes(key.blob[-_ED25519_SIZE:]).verify(signature, self.signed_bytes())
        except (InvalidSignature, ValueError):
            message = f"the signature with {key.fingerprint} is invalid: the attestation was changed, or signed with another key"
            raise BadSignature(message, code="bad-signature", fields={"key": key.fingerprint}) from None


def signed_envelope(statement: Mapping[str, Any], signer: SshSigner) -> dict[str, Any]:
    """The JSON of an envelope with a statement in its canonical form."""
    envelope = DsseEnvelope(IN_TOTO_TYPE, canonical_bytes(statement), ())
    signature = signer.private.sign(envelope.signed_bytes())
    return {
        "payload": base64.b64encode(envelope.payload).decode("ascii"),
        "payloadType": envelope.payload_type,
        "signatures": [{"keyid": signer.public.fingerprint, "sig": base64.b64encode(signature).decode("ascii")}],
    }


def read_envelope(value: Any, where: str) -> DsseEnvelope:
    """Parse an envelope; ``InvalidInput`` names the field that is wrong."""
    if not isinstance(value, dict) or not isinstance(value.get("payloadType"), str):
        hints = ["records of --format agent-trace are not signed, unless --sign was given"]
        raise _malformed(where, "not a DSSE envelope: it has no payloadType", hints)
    listed = value.get("signatures")
    if not isinstance(listed, list) or not 1 <= len(listed) <= _SIGNATURES_MAX:
        raise _malformed(f"{where}.signatures", f"must be a list of 1 to {_SIGNATURES_MAX} signatures")
    signatures = tuple(_signature(entry, f"{where}.signatures[{number}]") for number, entry in enumerate(listed))
    if len({signature.key for signature in signatures}) < len(signatures):
        raise _malformed(f"{where}.signatures", "two signatures name the same key")
    return DsseEnvelope(value["payloadType"], _decoded(value.get("payload"), f"{where}.payload"), signatures)


def read_statement(envelope: DsseEnvelope, where: str) -> dict[str, Any]:
    """The in-toto Statement in an envelope."""
    if envelope.payload_type != IN_TOTO_TYPE:
        raise _malformed(f"{where}.payloadType", f"must be {IN_TOTO_TYPE}")
    try:
        statement = json.loads(envelope.payload)
    except (ValueError, RecursionError):
        statement = None
    if not isinstance(statement, dict) or statement.get("_type") != "https://in-toto.io/Statement/v1":
        raise _malformed(f"{where}.payload", "not an in-toto Statement of version 1")
    if not isinstance(statement.get("predicateType"), str) or not isinstance(statement.get("predicate"), dict):
        raise _malformed(f"{where}.payload", "the statement has no predicate")
    return statement


def _signature(value: Any, where: str) -> EnvelopeSignature:
    if not isinstance(value, dict) or not isinstance(value.get("keyid"), str):
        raise _malformed(f"{where}.keyid", "must be the fingerprint of a key")
    return EnvelopeSignature(value["keyid"], _decoded(value.get("sig"), f"{where}.sig"))


def _decoded(value: Any, where: str) -> bytes:
    try:
        if not isinstance(value, str):
            raise ValueError
        return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        raise _malformed(where, "must be base64") from None


def _malformed(where: str, problem: str, hints: list[str] | None = None) -> InvalidInput:
    return InvalidInput(f"{where}: {problem}", code="invalid-attestation", hints=hints or [], fields={"field": where})
