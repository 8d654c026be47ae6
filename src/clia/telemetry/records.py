"""Spans: what happened in a space, in the words that collectors of traces know; and whoever sends them to one.

Invariant: a span says when it began and ended in nanoseconds since 1970, ``start <= end``, and its ids are made from what it
is about: the same thing is the same span in every export. Trace ids have 32 hexadecimal digits, span ids 16.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Attributes = Mapping[str, str | int]


class SpanEvent(NamedTuple):
    """A moment inside a span."""

    name: str
    at: int
    attributes: Attributes


class Span(NamedTuple):
    """Something that took time. ``failed``: it did not do what it was for; ``reason`` says why, where that may be told."""

    trace: str
    id: str
    parent: str | None
    name: str
    start: int
    end: int
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    failed: bool = False
    reason: str = ""
    is_client: bool = False  # it waited for a server


class Sent(NamedTuple):
    """What a collector said to some spans: how many it did not want, and why."""

    rejected: int = 0
    reason: str = ""


class SpanSender(Protocol):
    def send(self, spans: Sequence[Span]) -> Sent:
        """Sends spans in one request; ``TransportError`` where the collector refused them all, or did not answer in time."""

    def close(self) -> None:
        """Lets go of the connection."""
