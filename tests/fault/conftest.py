"""Fixtures of the tests of a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.git import refs as git_refs
from clia.hub import remote as git_hub

if TYPE_CHECKING:
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
