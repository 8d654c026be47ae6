"""One definition of a value's bytes: the JSON Canonicalization Scheme (RFC 8785), and its SHA-256."""

from __future__ import annotations

import hashlib
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def canonical_bytes(value: Any) -> bytes:
    """JCS bytes of ``value``.

    JCS has no form for integers beyond 2**53; those are written in full, so that values which differ never
    share a digest.
    """
    import rfc8785  # 6 ms at start-up, and reading lineage does not need it

    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")


def digest(value: Any) -> str:
    """SHA-256 of the canonical bytes, in hex."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def text_digest(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
