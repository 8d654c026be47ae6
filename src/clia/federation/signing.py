"""Keys and signatures, as the domain sees them: texts.

A public key is 43 characters of base64url, the 32 bytes of an Ed25519 key, and names itself. A token is a compact JWS whose
header is exactly ``alg: Ed25519``, ``kid: <public key>`` and ``typ``; nothing else is ever made or taken.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container


class Signed(NamedTuple):
    """A token whose signature holds: by which key, and what it says."""

    key: str
    payload: bytes


class Verifier(Protocol):
    def read(self, token: str, typ: str, keys: Container[str]) -> Signed:
        """What a token says; pure. ``BadSignature`` with the codes ``malformed-token``, ``wrong-algorithm``, ``wrong-token-type``,
        ``unknown-key`` (signed by none of ``keys``) and ``bad-signature``, in the order in which they are looked for."""

    def is_key(self, text: str) -> bool:
        """Whether a text is a public key."""


class KeyRing(Protocol):
    """Private keys of one clone: never in git, readable by their owner alone."""

    def make(self) -> str:
        """A new key pair, kept; its public key."""

    def has(self, public: str) -> bool: ...

    def sign(self, public: str, typ: str, payload: bytes) -> str:
        """A token. ``NotFound`` (no-private-key) where this clone does not have the key."""

    def forget(self, public: str) -> None:
        """Removes a private key; one that is not there changes nothing."""

    def exposed(self) -> list[str]:
        """Where private keys lie that somebody else can read."""
