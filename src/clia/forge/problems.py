"""Errors as HTTP responses: status codes and problem documents (RFC 9457).

Invariant: every error response for programs is ``application/problem+json`` with the library's error. Internal details are only
logged.
"""

from __future__ import annotations

from clia import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.errors import CliaError

PROBLEM = "application/problem+json"
_BY_CODE = {
    "malformed-json": 400,
    "too-slow": 408,
    "payload-too-large": 413,
    "too-many-requests": 429,
    "stale-if-match": 412,
    "not-a-human-request": 409,  # the role suffices; the request is of the wrong kind
    "method-not-allowed": 405,
    "unsupported-media-type": 415,
    "too-many-listeners": 503,
    "ambiguous-length": 400,
    "unknown-host": 421,
}


class Unauthenticated(errors.Denied):
    """The request has no valid credentials."""

    code = "not-authenticated"


# The first matching class applies.
_BY_CLASS: tuple[tuple[type[CliaError], int], ...] = (
    (Unauthenticated, 401),
    (errors.InvalidInput, 422),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.Denied, 403),
    (errors.ReplayError, 409),
    (errors.BackendError, 503),
)


def status_of(err: CliaError) -> int:
    return _BY_CODE.get(err.code) or next((status for kind, status in _BY_CLASS if isinstance(err, kind)), 500)


def problem(err: CliaError, status: int | None = None) -> dict[str, Any]:
    """A problem document with the library's fields; ``kind`` is the error class, so that a client can raise the same one."""
    kind = type(err).code
    return {
        "type": f"urn:clia:error:{err.code}",
        "title": kind.replace("-", " "),
        "status": status if status is not None else status_of(err),
        "detail": err.message,
        "code": err.code,
        "kind": kind,
        "hints": list(err.hints),
        "fields": err.fields,
    }
