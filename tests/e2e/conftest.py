"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.worker_places import WorkerSpace


@pytest.fixture
def worker_space(tmp_path: Path) -> Iterator[WorkerSpace]:
    """A space for workers in this process."""
    from support.worker_places import WorkerSpace  # loads the workers, which not every test needs

    opened = WorkerSpace(tmp_path / "space")
    yield opened
    opened.space.close()
