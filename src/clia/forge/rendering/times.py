"""Moments for people: how long ago, and when exactly.

Invariant: what is shown depends on the arguments alone; now is passed in. What is no moment is shown as the text it is.
"""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

from clia.forge.rendering.texts import escaped
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    Moment = datetime | str | float  # a string in ISO 8601, a number of seconds since 1970

_UNITS = ((365 * 86400, "y"), (30 * 86400, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


def ago(then: Moment, now: Moment) -> str:
    """The time between two moments in its largest unit: ``3 min``, ``2 d``; "" where one of them is no moment."""
    start, end = moment(then), moment(now)
    if start is None or end is None:
        return ""
    seconds = int((end - start).total_seconds())
    if seconds < 0:
        return f"in {_span(-seconds)}"
    return _span(seconds)


def _span(seconds: int) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def stamp(when: Moment, now: Moment | None = None) -> Markup:
    """A moment in UTC as a ``<time>``; with ``now``, how long ago it was, and the moment as its title."""
    found = moment(when)
    if found is None:
        return escaped(str(when))
    exact = timestamp(found)
    shown = f"{exact[:10]} {exact[11:-1]} UTC"
    if now is None:
        return Markup('<time datetime="{}">{}</time>').format(exact, shown)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, shown, ago(found, now))


def moment(when: Moment) -> datetime | None:
    """A moment in UTC; a time without a zone is taken for UTC. None where the value says no moment."""
    try:
        if isinstance(when, str):
            made = datetime.fromisoformat(when)
        elif isinstance(when, datetime):
            made = when
        else:
            made = datetime.fromtimestamp(when, UTC)
        return (made if made.tzinfo else made.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return None
