from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.capture.installation.hook_tools import CliaProgram
from support.captured import new_space
from support.hook_desk import Desk
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support import Tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a person's commit, which is a space."""
    return new_space(tmp_path.resolve() / "repo")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as opened:
        yield opened


@pytest.fixture
def desk(tree: Tree) -> Desk:
    program = tree.write("bin/clia", "")
    program.chmod(0o755)
    tree.directory("home")
    return Desk(tree.repository("w"), {"HOME": tree.path("home")}, CliaProgram(str(program), str(program)))
