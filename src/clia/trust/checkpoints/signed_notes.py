"""Signed notes and checkpoints, in the formats of C2SP: signed-note, tlog-checkpoint and tlog-cosignature (Ed25519).

A note is text, an empty line and signature lines. The text of a checkpoint is the origin of a log, its size and its root. The log
signs the text; a witness signs the text and a time, and thereby says that the log only grew.

Invariant: there is one way to write each value, and only that is read. Signatures of unknown keys are ignored; a signature that
names a known key and does not verify is an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import NamedTuple

from clia.errors import BadSignature, InvalidInput
from clia.trust.checkpoints.merkle import HASH_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LOG_SIGNATURE, COSIGNATURE = 0x01, 0x04
"""The types of keys: Ed25519 over the text of a note, and Ed25519 over a checkpoint and a time."""
NOTE_MAX, SIGNATURES_MAX = 64 * 1024, 64
"""Maximum length of a note in characters, and number of its signatures."""
SIZE_MAX = 2**63 - 1
_HEADER = "cosignature/v1"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_NAME_MAX = 255
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


class NoteKey(NamedTuple):
    """A public key that signs notes: a *vkey*."""

    name: str
    kind: int  # LOG_SIGNATURE or COSIGNATURE
    public: bytes  # the 32 bytes of Ed25519

    @property
    def key_id(self) -> bytes:
        return hashlib.sha256(self.name.encode("utf-8") + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    @property
    def text(self) -> str:
        """The key as witnesses and their clients exchange it: ``NAME+ID+KEY``."""
        return f"{self.name}+{self.key_id.hex()}+{_base64(bytes([self.kind]) + self.public)}"


class NoteSignature(NamedTuple):
    """A signature line."""

    name: str
    key_id: bytes
    data: bytes

    @property
    def line(self) -> str:
        return f"— {self.name} {_base64(self.key_id + self.data)}\n"


class SignedNote(NamedTuple):
    """A text, which ends with a line break, and signatures."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def __str__(self) -> str:
        return self.text + "\n" + "".join(signature.line for signature in self.signatures)

    def with_signatures(self, signatures: Iterable[NoteSignature]) -> SignedNote:
        """The note with further signatures; one by the same key replaces the former one."""
        merged = {(signature.name, signature.key_id): signature for signature in (*self.signatures, *signatures)}
        return SignedNote(self.text, tuple(merged.values()))


class CheckpointHead(NamedTuple):
    """The text of a checkpoint: which log, its size and its root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"

    @property
    def name(self) -> str:
        """The checkpoint in one line, as people pass it to ``--since``."""
        return f"{self.origin}@{self.size}:{self.root.hex()}"


def read_note_key(text: str, field: str = "key") -> NoteKey:
    """Parse a vkey; ``InvalidInput`` unless it is an Ed25519 key in its only form."""
    words = text.strip().split("+", 2)
    try:
        data = _from_base64(words[2]) if len(words) == 3 else b""
        if len(data) != 33 or data[0] not in (LOG_SIGNATURE, COSIGNATURE):
            raise ValueError("it is NAME+ID+KEY, with an Ed25519 key")
        key = NoteKey(check_key_name(words[0]), data[0], data[1:])
        if key.text != text.strip():
            raise ValueError("its ID does not belong to its name and key")
    except (ValueError, InvalidInput) as err:
        message = err.message if isinstance(err, InvalidInput) else str(err)
        hints = ["a witness prints it with: clia witness key"]
        raise InvalidInput(
            f"not the key of a witness: {message}", code="invalid-key", hints=hints, fields={"field": field}
        ) from None
    return key


def check_key_name(name: str, field: str = "name") -> str:
    """The name of a key; ``InvalidInput`` if notes cannot have it."""
    if not name or len(name) > _NAME_MAX or "+" in name or any(character.isspace() or ord(character) < 32 for character in name):
        message = f"{name[:60]!r} is not a name for a witness"
        hints = ["use letters, digits, dots and slashes: ci.example.org/shop"]
        raise InvalidInput(message, code="invalid-name", hints=hints, fields={"field": field})
    return name


def read_note(text: str) -> SignedNote:
    """Parse a note; ``BadSignature`` (malformed-note) for anything else. No signature is verified."""
    body, separator, lines = text.rpartition("\n\n")
    if len(text) > NOTE_MAX or not separator or not body or not lines.endswith("\n") or _CONTROL.search(text):
        raise _malformed("it is not a text, an empty line and signatures")
    signatures = [_read_signature(line) for line in lines[:-1].split("\n")]
    if len(signatures) > SIGNATURES_MAX:
        raise _malformed(f"it has more than {SIGNATURES_MAX} signatures")
    return SignedNote(body + "\n", tuple(signatures))


def read_signature_lines(text: str) -> list[NoteSignature]:
    """Parse the answer of a witness: signature lines only."""
    if len(text) > NOTE_MAX or not text.endswith("\n"):
        raise _malformed("it is not a list of signatures")
    return [_read_signature(line) for line in text[:-1].split("\n")[:SIGNATURES_MAX]]


def read_head(note_text: str) -> CheckpointHead:
    """Parse the text of a checkpoint; ``BadSignature`` (malformed-note) for anything else. Further lines are ignored."""
    lines = note_text.split("\n")
    if len(lines) < 4 or lines.pop() != "" or not all(lines):
        raise _malformed("a checkpoint has at least three lines, none of them empty")
    size = read_size(lines[1])
    try:
        root = _from_base64(lines[2])
    except ValueError:
        raise _malformed("its root is not base64") from None
    if size is None or len(root) != HASH_SIZE:
        raise _malformed("its size or its root has another form")
    return CheckpointHead(lines[0], size, root)


def read_size(text: str) -> int | None:
    """A number in its only form; None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) and int(text) <= SIZE_MAX else None


def sign_note(text: str, private: Ed25519PrivateKey, name: str) -> NoteSignature:
    """The signature of a log over a note."""
    key = NoteKey(name, LOG_SIGNATURE, private.public_key().public_bytes_raw())
    return NoteSignature(name, key.key_id, private.sign(text.encode("utf-8")))


def cosign(text: str, private: Ed25519PrivateKey, name: str, at: int) -> NoteSignature:
    """The cosignature of a witness over a checkpoint, at a time in seconds since the epoch."""
    key = NoteKey(name, COSIGNATURE, private.public_key().public_bytes_raw())
    return NoteSignature(name, key.key_id, at.to_bytes(8, "big") + private.sign(_cosigned(text, at)))


def verified_by(note: SignedNote, keys: Sequence[NoteKey]) -> dict[NoteKey, int]:
    """The keys that signed a note, each with the time of its cosignature (0 for a log).

    ``BadSignature`` (forged-cosignature, bad-signature) if a line names one of the keys and does not verify.
    """
    by_id = {(key.name, key.key_id): key for key in keys}
    signed: dict[NoteKey, int] = {}
    for signature in note.signatures:
        key = by_id.get((signature.name, signature.key_id))
        if key is not None:
            at = _verify(note.text, signature, key)
            signed[key] = max(at, signed.get(key, 0))
    return signed


def _verify(text: str, signature: NoteSignature, key: NoteKey) -> int:
    from cryptography.exceptions import InvalidSignature  # few commands read notes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    at, data, signed = 0, signature.data, text.encode("utf-8")
    if key.kind == COSIGNATURE:
        at, data = int.from_bytes(data[:8], "big"), data[8:]
        signed = _cosigned(text, at)
    try:
        if at > SIZE_MAX:
            raise ValueError("the time of a cosignature is too large")
        Ed25519PublicKey.from_public_bytes(key.public).verify(data, signed)
    except (InvalidSignature, ValueError):
        code = "forged-cosignature" if key.kind == COSIGNATURE else "bad-signature"
        message = f"the signature of {key.name} is invalid: the checkpoint was changed, or signed with another key"
        raise BadSignature(message, code=code, fields={"key": key.text}) from None
    return at


def _cosigned(text: str, at: int) -> bytes:
    return f"{_HEADER}\ntime {at}\n{text}".encode()


def _read_signature(line: str) -> NoteSignature:
    words = line.split(" ")
    try:
        data = _from_base64(words[2]) if len(words) == 3 and words[0] == "—" and words[1] and "+" not in words[1] else b""
    except ValueError:
        data = b""
    if len(data) < 5:
        raise _malformed("a signature has another form")
    return NoteSignature(words[1], data[:4], data[4:])


def _malformed(reason: str) -> BadSignature:
    return BadSignature(f"not a signed note: {reason}", code="malformed-note")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_base64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is not base64") from None
    if _base64(data) != text:
        raise ValueError("it is not canonical base64")
    return data
