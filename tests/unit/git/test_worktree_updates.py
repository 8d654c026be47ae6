"""Changes of HEAD, index and files of a worktree: locks, and what a killed change left."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.errors import Conflict, GitError
from clia.git.records import Checkout
from support import git

if TYPE_CHECKING:
    from support import Tree
    from support.porcelain import BenchRepository


@pytest.fixture
def place(repository: BenchRepository, tree: Tree) -> str:
    """An agent's worktree at a commit; the branch has a newer one."""
    place = tree.path("w")
    repository.bench.add_worktree(place, "scout", repository.head())
    repository.commit(**{"a.txt": "three\n", "new.txt": "new\n"})
    return place


def admin_of(place: str) -> Path:
    return Path(git("rev-parse", "--absolute-git-dir", cwd=place).strip())


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock"])
def test_a_lock_of_another_program_is_respected(repository: BenchRepository, place: str, name: str) -> None:
    lock = admin_of(place) / name
    lock.touch()
    with pytest.raises(GitError, match=name) as caught:
        repository.bench.move_worktree(place, "scout", repository.head())
    assert "delete the file" in caught.value.hints[0]
    assert lock.exists()
    assert Path(place, "a.txt").read_text() != "three\n"
    lock.unlink()
    repository.bench.move_worktree(place, "scout", repository.head())
    assert repository.bench.checkout_of(place) == Checkout("scout", repository.head(), place)
    assert git("status", "--porcelain", cwd=place) == ""


def test_files_of_a_killed_checkout_are_completed_and_other_files_are_kept(repository: BenchRepository, place: str) -> None:
    """One is written, one begun; a third is a user's."""
    checkout = repository.bench.checkout_of(place)
    assert checkout is not None
    Path(place, "a.txt").write_text("three\n")
    Path(place, "new.txt").write_text("ne")
    Path(place, "sub/b.txt").write_text("mine\n")
    repository.bench.record(place, "scout", checkout.base, moving=repository.head())
    repository.bench.move_worktree(place, "scout", repository.head())
    assert [Path(place, name).read_text() for name in ("a.txt", "new.txt", "sub/b.txt")] == ["three\n", "new\n", "mine\n"]
    assert git("status", "--porcelain", cwd=place) == " M sub/b.txt\n"


def test_files_that_equal_the_new_version_without_a_killed_checkout_are_a_users(repository: BenchRepository, place: str) -> None:
    Path(place, "a.txt").write_text("thr")
    with pytest.raises(Conflict, match=r"would be lost: a\.txt"):
        repository.bench.move_worktree(place, "scout", repository.head())
    assert Path(place, "a.txt").read_text() == "thr"


def test_a_sparse_worktree_stays_sparse(repository: BenchRepository, place: str) -> None:
    git("sparse-checkout", "set", "--no-cone", "/a.txt", cwd=place)
    repository.bench.move_worktree(place, "scout", repository.head())
    assert sorted(path.name for path in Path(place).iterdir()) == [".git", "a.txt"]
    assert git("status", "--porcelain", cwd=place) == ""


def test_the_reflog_names_each_move(repository: BenchRepository, place: str) -> None:
    repository.bench.move_worktree(place, "scout", repository.head())
    assert git("reflog", "--format=%H %gs", "-1", "HEAD", cwd=place) == f"{repository.head()} clia: checked out\n"


def test_a_file_system_without_hard_links_is_enough(
    repository: BenchRepository, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    repository.bench.move_worktree(place, "scout", repository.head())
    assert git("status", "--porcelain", cwd=place) == ""
    assert not list(admin_of(place).glob("*.lock"))
