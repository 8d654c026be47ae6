"""Errors as HTTP says them: the one place where a code of the library becomes a status.

Invariant: every answer that is no success has the library's error in it, as ``application/problem+json`` (RFC 9457) for programs;
what went wrong inside is said to the log, and never to whoever asked.
"""

from __future__ import annotations

from clia import errors
from clia.errors import CliaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROBLEM = "application/problem+json"
_BY_CODE = {
    "malformed-json": 400,
    "too-slow": 408,
    "payload-too-large": 413,
    "too-many-requests": 429,
    "stale-if-match": 412,
    "method-not-allowed": 405,
    "unsupported-media-type": 415,
    "too-many-listeners": 503,
}
# The first class that fits decides.
_BY_CLASS: tuple[tuple[type[CliaError], int], ...] = (
    (errors.InvalidInput, 422),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.Denied, 403),
    (errors.ReplayError, 409),
    (errors.BackendError, 503),
)


class Unauthenticated(errors.Denied):
    """Nobody is logged in."""

    code = "not-authenticated"


def status_of(err: CliaError) -> int:
    if err.code in _BY_CODE:
        return _BY_CODE[err.code]
    if isinstance(err, Unauthenticated):
        return 401
    return next((status for kind, status in _BY_CLASS if isinstance(err, kind)), 500)


def problem(err: CliaError, status: int | None = None) -> dict[str, Any]:
    """RFC 9457 with the library's words beside it; ``kind`` names the class, so that a client raises the same one."""
    return {
        "type": f"urn:clia:error:{err.code}",
        "title": _kind(err).replace("-", " "),
        "status": status if status is not None else status_of(err),
        "detail": err.message,
        "code": err.code,
        "kind": _kind(err),
        "hints": list(err.hints),
        "fields": err.fields,
    }


def _kind(err: CliaError) -> str:
    return type(err).code


def internal() -> CliaError:
    """What is said of a bug."""
    hints = ["the forge's log has the details"]
    return CliaError("something went wrong inside the forge", code="internal", hints=hints)
