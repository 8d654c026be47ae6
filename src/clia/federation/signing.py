"""Ed25519 keys and signed tokens.

A public key is 43 characters of base64url, the 32 bytes of the key. A token is a compact JWS.

Invariant: a token's header must be byte for byte the one that we write for its key and type (``alg``, ``kid``, ``typ``), so that no
other algorithm, embedded key or extension is accepted. A private key is a file that only its owner can read, written completely
or not at all.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from clia.errors import BadSignature, FileError, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any


class SignedPayload(NamedTuple):
    """The key and payload of a token with a valid signature."""

    key: str
    payload: bytes


ALGORITHM = "Ed25519"
_PUBLIC_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_KEY_SUFFIX = ".jwk"
_PAYLOAD_MAX = 64 * 1024 * 1024
"""The library's limit of 128,000 characters is too small for a snapshot of a thousand refs; callers set their own."""


class Ed25519Verifier:
    """Verifies tokens; pure."""

    def read(self, token: str, typ: str, keys: Container[str]) -> SignedPayload:
        """The payload of a token that one of ``keys`` signed.

        ``BadSignature`` with the codes ``malformed-token``, ``wrong-algorithm``, ``wrong-token-type``, ``unknown-key`` and
        ``bad-signature``, checked in this order.
        """
        header = _read_header(token)
        if header.get("alg") != ALGORITHM:
            message = f"only {ALGORITHM} is accepted, not {header.get('alg')!r}"
            raise BadSignature(message, code="wrong-algorithm", fields={"alg": repr(header.get("alg"))})
        if header.get("typ") != typ:
            raise BadSignature(f"the token is a {header.get('typ')!r}, not a {typ}", code="wrong-token-type")
        key = header.get("kid")
        if not isinstance(key, str) or key not in keys or not self.is_key(key):
            raise BadSignature("the token is signed with an unknown key", code="unknown-key", fields={"key": repr(key)})
        if token.partition(".")[0] != _encoded(json.dumps(_header(key, typ), separators=(",", ":")).encode("ascii")):
            raise BadSignature("the token has a non-standard header", code="malformed-token")
        return SignedPayload(key, _payload(token, key))

    def is_key(self, text: str) -> bool:
        """Whether a text is a public key in its canonical form."""
        return _PUBLIC_KEY.fullmatch(text) is not None and _encoded(_decoded(text)) == text


class KeyFiles:
    """The private keys of one clone, in a directory outside git."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def make(self) -> str:
        """Generate and store a key pair; returns the public key."""
        from joserfc.jwk import OKPKey

        key = OKPKey.generate_key("Ed25519").as_dict(private=True)
        public = str(key["x"])
        self._write(public, json.dumps({name: key[name] for name in ("kty", "crv", "x", "d")}).encode("ascii"))
        return public

    def has(self, public: str) -> bool:
        return os.path.exists(self._path(public))

    def sign(self, public: str, typ: str, payload: bytes) -> str:
        """A signed token. ``NotFound`` (no-private-key) if this clone does not have the key."""
        from joserfc import jws

        return jws.serialize_compact(_header(public, typ), payload, _private_key(self._read(public)), algorithms=[ALGORITHM])

    def forget(self, public: str) -> None:
        """Remove a private key, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(public))

    def exposed(self) -> list[str]:
        """The paths of key files that other users can read."""
        try:
            paths = sorted(os.path.join(self._directory, name) for name in os.listdir(self._directory))
        except FileNotFoundError:
            return []
        except OSError as err:
            raise FileError(f"{self._directory}: {err.strerror}", fields={"path": self._directory}) from None
        exposed = []
        for path in paths:
            with suppress(OSError):  # removed meanwhile
                exposed += [path] if os.lstat(path).st_mode & 0o077 else []
        return exposed

    def _path(self, public: str) -> str:
        if not _PUBLIC_KEY.fullmatch(public):
            raise NotFound(f"{public!r} is not a public key", code="no-private-key")
        return os.path.join(self._directory, public + _KEY_SUFFIX)

    def _read(self, public: str) -> str:
        path = self._path(public)
        try:
            with open(path, encoding="ascii") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(4096)
        except FileNotFoundError:
            raise no_private_key(public) from None
        except (OSError, ValueError) as err:
            raise FileError(f"{path}: {err}", fields={"path": path, "reason": str(err)}) from None
        if mode & 0o077:
            hints = [f"chmod 600 {path}; if it leaked: clia key rotate"]
            raise FileError(f"{path} can be read by others", code="key-exposed", hints=hints)
        return text

    def _write(self, public: str, data: bytes) -> None:
        """Write the file privately and completely before giving it its name."""
        path = self._path(public)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.replace(f"{path}.new", path)
            directory = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(directory)
            os.close(directory)
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def _header(key: str, typ: str) -> dict[str, str]:
    """The only accepted header of a token."""
    return {"alg": ALGORITHM, "kid": key, "typ": typ}


def no_private_key(key: str) -> NotFound:
    message = "this clone does not have the private key of the space"
    hints = ["run the command in the clone that has it, or if it is lost: clia key rotate --lost"]
    return NotFound(message, code="no-private-key", hints=hints, fields={"key": key})


def _read_header(token: str) -> dict[str, Any]:
    if not token.isascii() or token.count(".") != 2:
        raise BadSignature("not a signed token", code="malformed-token")
    try:
        header = json.loads(_decoded(token.partition(".")[0]))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise BadSignature("the token header cannot be read", code="malformed-token")
    return header


def _payload(token: str, key: str) -> bytes:
    from joserfc import jws
    from joserfc.errors import JoseError

    try:
        payload = jws.deserialize_compact(token.encode("ascii"), _public_key(key), registry=_registry()).payload
    except (JoseError, ValueError) as err:
        message = "the signature is invalid: the token was changed, or signed with another key"
        raise BadSignature(message, fields={"reason": str(err)}) from None
    # Base64 has several encodings of the same bytes, but a statement is identified by its token: accept one only.
    if ".".join(_encoded(_decoded(part)) for part in token.split(".")) != token:
        raise BadSignature("the token is not in its canonical encoding", code="malformed-token")
    return payload


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


@lru_cache(maxsize=1)
def _registry() -> Any:
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=[ALGORITHM])
    registry.max_payload_length = _PAYLOAD_MAX
    return registry


@lru_cache(maxsize=1024)
def _public_key(key: str) -> Any:
    from joserfc.jwk import OKPKey

    return OKPKey.import_key({"kty": "OKP", "crv": ALGORITHM, "x": key})


@lru_cache(maxsize=16)
def _private_key(text: str) -> Any:
    from joserfc.jwk import OKPKey

    return OKPKey.import_key(json.loads(text))
