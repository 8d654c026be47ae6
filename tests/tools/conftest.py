"""Sessions of real coding tools; ``make test-tools`` installs them and runs these tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.model_server import ModelServer
from support.real_tools import PACKAGES, Computer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

collect_ignore_glob = [] if PACKAGES in os.environ else ["test_*.py"]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """The model of one test. A tool that requests anything from another host fails the test."""
    with ModelServer() as server:
        yield server
        assert (server.outside, server.unknown) == ([], [])


@pytest.fixture
def computer(tmp_path: Path, model: ModelServer) -> Computer:
    return Computer(tmp_path.resolve(), model)
