"""Asking a server over HTTP.

Invariant of every call: it ends within its time, holds no more than it was told of the answer, follows no redirect, and
trusts no server whose certificate does not hold.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes


class Http(Protocol):
    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpAnswer:
        """The server's answer, whatever its status. ``TransportError`` where none came in time, or more than ``limit`` bytes."""
