"""The binary forms of OpenSSH: strings, public keys and private keys (RFC 4251, PROTOCOL.key, PROTOCOL.certkeys).

Invariant: every read is bounded, and whatever remains after the last field is an error. No key is used here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ED25519 = "ssh-ed25519"
ECDSA = ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
SK_ED25519, SK_ECDSA = "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"
CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"
KEY_TYPES = (ED25519, *ECDSA, SK_ED25519, SK_ECDSA)
"""The types that may be enrolled. RSA and DSA keys are not: few use them, and they allow weak parameters."""
_PRIVATE_MAGIC = b"openssh-key-v1\0"
_WIDTH = 70
_KEY_MAX = 4096
_USER_CERTIFICATE = 1


class Malformed(ValueError):
    """Bytes that have not the form that they should have."""


class PublicKey(NamedTuple):
    """A public key of OpenSSH, as it is in signatures."""

    kind: str  # ssh-ed25519, …
    blob: bytes

    @property
    def text(self) -> str:
        """The key as in ``authorized_keys``, without a comment."""
        return f"{self.kind} {base64.b64encode(self.blob).decode('ascii')}"

    @property
    def fingerprint(self) -> str:
        """The key's fingerprint, as ``ssh-keygen -l`` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii").rstrip("=")


class Certificate(NamedTuple):
    """A certificate for an Ed25519 key, issued by another key."""

    key: bytes  # the 32 bytes of the certified key
    serial: int
    key_id: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    issuer: PublicKey
    signed: bytes  # what the issuer signed
    signature: bytes

    def is_valid_at(self, at: int) -> bool:
        return self.valid_after <= at < self.valid_before


class Reader:
    """Reads the fields of a binary form, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._data):
            raise Malformed("data ends too early")
        part, self.at = self._data[self.at : end], end
        return part

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        try:
            return self.string().decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def texts(self) -> Iterator[str]:
        """All texts up to the end."""
        while self.at < len(self._data):
            yield self.text()

    def end(self) -> None:
        if self.at != len(self._data):
            raise Malformed("data continues after its end")


def string(data: bytes | str) -> bytes:
    """A string with its length in front."""
    raw = data.encode("utf-8") if isinstance(data, str) else data
    return len(raw).to_bytes(4, "big") + raw


def ed25519_key(raw: bytes) -> PublicKey:
    """The public key with these 32 bytes."""
    return PublicKey(ED25519, string(ED25519) + string(raw))


def public_key(blob: bytes) -> PublicKey:
    """The public key in a blob; ``Malformed`` unless it is one that may be enrolled, in its only form."""
    reader = Reader(blob)
    kind = reader.text()
    if kind == ED25519:
        sizes: tuple[bool, ...] = (len(reader.string()) == 32,)
    elif kind in ECDSA:
        sizes = (reader.text() == kind.removeprefix("ecdsa-sha2-"), _is_point(reader.string()))
    elif kind == SK_ED25519:
        sizes = (len(reader.string()) == 32, reader.text().startswith("ssh:"))
    elif kind == SK_ECDSA:
        sizes = (reader.text() == "nistp256", _is_point(reader.string()), reader.text().startswith("ssh:"))
    else:
        raise Malformed(f"keys of the type {kind[:60]!r} are not supported")
    reader.end()
    if not all(sizes):
        raise Malformed(f"not a key of the type {kind}")
    return PublicKey(kind, blob)


def _is_point(data: bytes) -> bool:
    return len(data) in (65, 97, 133) and data[0] == 4


def read_public_key(text: str, field: str = "key") -> PublicKey:
    """Parse a line of ``authorized_keys`` or a ``.pub`` file; options in front of the key are refused."""
    words = text.strip().split(None, 2)
    try:
        if len(words) < 2 or len(text) > _KEY_MAX or "\n" in text.strip():
            raise Malformed("it must be one line: TYPE BASE64 COMMENT")
        key = public_key(base64.b64decode(words[1], validate=True))
        if key.kind != words[0]:
            raise Malformed(f"it is a key of the type {key.kind}, not {words[0]}")
    except (Malformed, binascii.Error) as err:
        hints = ["it is one line, as in ~/.ssh/id_ed25519.pub; create a key with: ssh-keygen -t ed25519"]
        raise InvalidInput(f"not an SSH public key: {err}", code="invalid-key", hints=hints, fields={"field": field}) from None
    return key


def read_certificate(blob: bytes) -> Certificate:
    """Parse a certificate; ``Malformed`` for anything but a user certificate of an Ed25519 key. Its signature is not checked."""
    reader = Reader(blob)
    if reader.text() != CERTIFICATE:
        raise Malformed("not a certificate of an Ed25519 key")
    reader.string()  # the nonce
    key, serial, kind, key_id = reader.string(), reader.number(8), reader.number(), reader.text()
    principals = tuple(Reader(reader.string()).texts())
    after, before, options = reader.number(8), reader.number(8), reader.string()
    reader.string()  # the extensions
    reader.string()  # reserved
    issuer = public_key(reader.string())
    signed = blob[: reader.at]
    signature = reader.string()
    reader.end()
    if kind != _USER_CERTIFICATE or len(key) != 32 or options:
        raise Malformed("not a plain user certificate")
    return Certificate(key, serial, key_id, principals, after, before, issuer, signed, signature)


def armored(data: bytes, label: str) -> str:
    """Data in OpenSSH's text form."""
    text = base64.b64encode(data).decode("ascii")
    lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


def unarmored(text: str, label: str, limit: int) -> bytes:
    """The data of a text form; ``Malformed`` for anything else."""
    lines = text.strip().split("\n")
    if len(text) > limit or len(lines) < 3 or (lines[0], lines[-1]) != (f"-----BEGIN {label}-----", f"-----END {label}-----"):
        raise Malformed(f"it does not start and end as an {label.lower()} does")
    try:
        return base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("it is not base64") from None


def private_key_file(seed: bytes, raw: bytes, comment: str) -> str:
    """An Ed25519 key in the form of ``ssh-keygen``, without a passphrase."""
    public = ed25519_key(raw).blob
    check = hashlib.sha256(seed + raw).digest()[:4]  # both copies must agree; any value will do
    body = check + check + string(ED25519) + string(raw) + string(seed + raw) + string(comment)
    body += bytes(range(1, 8 - len(body) % 8 + 1)) if len(body) % 8 else b""
    data = _PRIVATE_MAGIC + string("none") + string("none") + string(b"") + (1).to_bytes(4, "big") + string(public) + string(body)
    return armored(data, "OPENSSH PRIVATE KEY") + "\n"


class LockedKey(Malformed):
    """A private key that is encrypted with a passphrase."""


def read_private_key(text: str) -> tuple[bytes, bytes]:
    """The seed and the public part of an Ed25519 key; ``LockedKey`` if it has a passphrase."""
    reader = Reader(unarmored(text, "OPENSSH PRIVATE KEY", 4 * _KEY_MAX))
    if reader.take(len(_PRIVATE_MAGIC)) != _PRIVATE_MAGIC:
        raise Malformed("not a private key of OpenSSH")
    cipher = reader.text()
    reader.string()
    reader.string()
    if reader.number() != 1:
        raise Malformed("a file must hold one key")
    reader.string()
    if cipher != "none":
        raise LockedKey("the key is encrypted with a passphrase")
    body = Reader(reader.string())
    if body.take(4) != body.take(4) or body.text() != ED25519:
        raise Malformed("not an Ed25519 key")
    raw, secret = body.string(), body.string()
    if len(raw) != 32 or len(secret) != 64 or secret[32:] != raw:
        raise Malformed("the two halves of the key do not match")
    return secret[:32], raw
