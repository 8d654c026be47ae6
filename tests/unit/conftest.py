"""Fixtures that the unit tests of several packages use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support.plain_git import trust_new_packed_refs
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


@pytest.fixture
def trusted_packed_refs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a ``packed-refs`` file as old at once, so that a scan of it is trusted."""
    trust_new_packed_refs(monkeypatch)
