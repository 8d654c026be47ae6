"""Asking a server over HTTP.

Invariant of every call: it ends within its time, holds no more than it was told of the answer, follows no redirect, and
trusts no server whose certificate does not hold.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

TOO_SLOW = "it does not answer in time"
"""The ``reason`` among a ``TransportError``'s fields where the time was up: the server may be at it still."""


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes


class HttpStream(NamedTuple):
    """An answer that goes on: its lines come as the server sends them, without their ends."""

    status: int
    headers: Mapping[str, str]
    lines: Iterator[bytes]


class Http(Protocol):
    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpAnswer:
        """The server's answer, whatever its status. ``TransportError`` where none came in time, or more than ``limit`` bytes."""


class HttpChannel(Protocol):
    """One server; a target is an address on it, from its first slash on. Threads may share it."""

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, limit: int
    ) -> HttpAnswer:
        """As ``Http.post``, with any method, on a connection that may be kept for the next one."""

    def stream(self, target: str, headers: Mapping[str, str], *, seconds: float) -> AbstractContextManager[HttpStream]:
        """An answer without an end. ``TransportError`` where nothing came for so many seconds, or the connection was lost."""

    def close(self) -> None:
        """Lets go of every connection."""
