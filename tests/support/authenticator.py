"""An authenticator in software: what a browser and a security key send, and the same with single things wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Mapping

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unb64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class SoftAuthenticator:
    """One passkey. The keyword arguments of its methods replace what a browser or an authenticator would send."""

    def __init__(self, origin: str, rp_id: str, *, counts: bool = True) -> None:
        self.origin, self.rp_id = origin, rp_id
        self.count = 1 if counts else 0
        self.credential = os.urandom(32)
        self.private = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> str:
        """The COSE key, base64url."""
        point = self.private.public_key().public_numbers()
        return b64url(cbor2.dumps({1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}))

    def created(self, options: Mapping[str, Any], **wrong: Any) -> str:
        """The browser's response to creation options."""
        client = self._client("webauthn.create", unb64url(options["challenge"]), wrong)
        flags = wrong.get("flags", PRESENT | VERIFIED) | ATTESTED
        attested = bytes(16) + len(self.credential).to_bytes(2, "big") + self.credential + unb64url(self.public)
        data = self._data(flags, wrong) + attested
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._response({"clientDataJSON": b64url(client), "attestationObject": b64url(attestation)})

    def answer(self, challenge: bytes | str, /, **wrong: Any) -> str:
        """The browser's response to request options with this challenge."""
        raw = unb64url(challenge) if isinstance(challenge, str) else challenge
        client = self._client("webauthn.get", raw, wrong)
        self.count += 1 if self.count else 0
        data = self._data(wrong.get("flags", PRESENT | VERIFIED), wrong)
        signed = data + hashlib.sha256(client).digest()
        signature = wrong.get("private", self.private).sign(signed, ec.ECDSA(hashes.SHA256()))
        fields = {"clientDataJSON": b64url(client), "authenticatorData": b64url(data), "signature": b64url(signature)}
        return self._response(fields)

    def _client(self, kind: str, challenge: bytes, wrong: Mapping[str, Any]) -> bytes:
        fields = {"type": wrong.get("type", kind), "challenge": b64url(wrong.get("challenge", challenge))}
        fields |= {"origin": wrong.get("origin", self.origin), "crossOrigin": wrong.get("crossOrigin", False)}
        return json.dumps(fields | wrong.get("client", {}), separators=(",", ":")).encode()

    def _data(self, flags: int, wrong: Mapping[str, Any]) -> bytes:
        rp_id: str = wrong.get("rp_id", self.rp_id)
        count: int = wrong.get("count", self.count)
        return hashlib.sha256(rp_id.encode()).digest() + bytes([flags]) + count.to_bytes(4, "big")

    def _response(self, response: Mapping[str, str]) -> str:
        name = b64url(self.credential)
        return json.dumps({"id": name, "rawId": name, "type": "public-key", "response": response})
