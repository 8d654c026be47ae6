"""Settings for fast test spaces with their own clock, and checks of refusals and traces."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors

if TYPE_CHECKING:
    from collections.abc import Callable

BRIEFING = clia.Briefing(title="Look around", text="Find what is slow.")


def ticking() -> Callable[[], datetime]:
    """A clock that advances by a second at each reading."""
    start, seconds = datetime(2026, 5, 1, tzinfo=UTC), itertools.count()
    return lambda: start + timedelta(seconds=next(seconds))


def settings(**more: Any) -> clia.Settings:
    return clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=ticking(), **more)


def refused(code: str, call: Callable[[], object]) -> errors.CliaError:
    """Assert that a call is refused with this error code; return the error."""
    with pytest.raises(errors.CliaError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def texts(entries: Any) -> list[str]:
    return [entry["text"] for entry in entries]


def trace_texts(space: clia.Space, commit: str) -> list[str]:
    """The texts of the trace that a commit has."""
    trace = space.traces.of(commit)
    assert trace is not None
    return texts(trace.entries)


def commit_with_trace(space: clia.Space, text: str, **changes: bytes) -> str:
    """Commit changes as ``scout``, with a trace of one entry."""
    space.trace("scout", "console", text)
    return space.commit_with_trace("scout", "finding", changes=changes)
