"""What tests of a hub stand on; the files of this folder share it."""

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
    """A way to the hub that one machine alone takes, and that can be gone while others still reach it."""
    made = tmp_path / "way"
    made.symlink_to(hub.repository)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that was away is asked again at once, and nobody waits long for a lock."""
    monkeypatch.setattr(git_hub, "BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(git_refs, "PATIENCE", 0.5)
