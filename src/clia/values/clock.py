"""A clock is a function that returns an aware UTC time; callers pass it in."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    Clock = Callable[[], datetime]


def timestamp(moment: datetime, precision: str = "seconds") -> str:
    """Format a time as RFC 3339 in UTC with a ``Z``, in seconds or ``milliseconds``."""
    if moment.tzinfo is None:
        raise ValueError("a clock must return aware times")
    from datetime import UTC  # only writers come here

    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{utc.isoformat(timespec=precision)[:-6]}Z"  # without its +00:00


def timestamp_at(seconds: int) -> str:
    """Format a time in seconds since the epoch."""
    from datetime import UTC, datetime  # as above

    return timestamp(datetime.fromtimestamp(seconds, UTC))
