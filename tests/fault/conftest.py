"""Fixtures of the fault tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.git import refs as git_refs
from clia.hub import remote as git_hub
from support import git
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.git_hubs import Hub


@pytest.fixture
def way(tmp_path: Path, hub: Hub) -> Path:
    """A path to the hub for one machine, which can be removed while others still reach the hub."""
    link = tmp_path / "way"
    link.symlink_to(hub.repository)
    return link


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable hub is retried at once, and waits for locks are short."""
    monkeypatch.setattr(git_hub, "BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(git_refs, "PATIENCE", 0.5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A space with the user's branch and one agent on it."""
    path = tmp_path / "space"
    with clia.init(path, settings=settings()) as space:
        (path / "a").write_text("1\n")
        git("add", "a", cwd=path)
        git("commit", "-qm", "start", cwd=path)
        space.spawn_at("scout", BRIEFING, "main")
    return path


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as opened:
        yield opened
