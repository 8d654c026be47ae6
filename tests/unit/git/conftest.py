from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support import git
from support.porcelain import BenchRepository, open_bench, state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import Tree


@pytest.fixture
def repository(tree: Tree) -> BenchRepository:
    root, home = tree.directory("repo"), tree.directory("home")
    git("init", "-q", "-b", "main", cwd=root)
    tree.write("repo/a.txt", "one\ntwo\n")
    tree.write("repo/sub/b.txt", "b\n")
    git("add", "-A", cwd=root)
    git("commit", "-q", "-m", "first", cwd=root)
    return BenchRepository(root, home, root / ".git", open_bench(root, home))


@pytest.fixture
def dirty(repository: BenchRepository) -> Iterator[BenchRepository]:
    """A worktree with staged, changed and new files. The test must not change any of them."""
    repository.write("staged.txt", "staged\n")
    git("add", "staged.txt", cwd=repository.root)
    repository.write("a.txt", "one\ntwo\nmine\n")
    repository.write("untracked.txt", "mine\n")
    before, status = state(repository.root), git("status", "--porcelain", cwd=repository.root)
    yield repository
    assert state(repository.root) == before
    assert git("status", "--porcelain", cwd=repository.root) == status
