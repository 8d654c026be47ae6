from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.plain_git import commit_file
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    import clia


@pytest.fixture
def people(space: clia.Space, repo: Path) -> Path:
    """The space's repository with a person's commit on ``main``, where the agent ``scout`` starts."""
    commit_file(repo, "a", "1\n")
    space.spawn_at("scout", BRIEFING, "main")
    return repo
