"""Fixtures that the unit tests of several packages use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """The path of the space's repository."""
    return tmp_path.resolve() / "repo"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    """An empty space."""
    with clia.init(repo, settings=settings()) as opened:
        yield opened


@pytest.fixture
def scout(space: clia.Space) -> clia.Space:
    """The space with one agent, ``scout``."""
    space.spawn("scout", BRIEFING)
    return space
