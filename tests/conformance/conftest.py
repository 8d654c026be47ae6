"""A forge and an engine, each shared by the tests of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.engine.monty import MontyEngine
    from support.remote import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A forge for all tests of a module."""
    from support.remote import serving  # loads the forge, which not every test needs

    with serving(tmp_path_factory.mktemp("forge") / "home") as forge:
        yield forge


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    """An engine for all tests of a module."""
    from clia.engine.monty import MontyEngine

    shared_engine = MontyEngine()
    yield shared_engine
    shared_engine.close()
