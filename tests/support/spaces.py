"""Spaces made for one test: quick, with a clock of their own, and a way to say what is refused."""

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
    """A clock that goes on by a second each time it is asked."""
    start, seconds = datetime(2026, 5, 1, tzinfo=UTC), itertools.count()
    return lambda: start + timedelta(seconds=next(seconds))


def settings(**more: Any) -> clia.Settings:
    return clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=ticking(), **more)


def refused(code: str, call: Callable[[], object]) -> errors.CliaError:
    with pytest.raises(errors.CliaError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def texts(entries: Any) -> list[str]:
    return [each["text"] for each in entries]
