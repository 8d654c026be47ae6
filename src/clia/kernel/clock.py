"""Time comes in from outside: a clock is a function that gives an aware UTC time."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    Clock = Callable[[], datetime]


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with a ``Z``, to the second."""
    if moment.tzinfo is None:
        raise ValueError("a clock must give aware times")
    from datetime import UTC  # only writers come here

    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
