"""Time comes in from outside: a clock is a function that gives an aware UTC time."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    Clock = Callable[[], datetime]


def timestamp(moment: datetime, precision: str = "seconds") -> str:
    """RFC 3339 in UTC with a ``Z``, to the second or, with ``milliseconds``, closer."""
    if moment.tzinfo is None:
        raise ValueError("a clock must give aware times")
    from datetime import UTC  # only writers come here

    there = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{there.isoformat(timespec=precision)[:-6]}Z"  # without its +00:00
