"""Commits of directories and worktrees, with agents' branches checked out by people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.testing import components
from support import git
from support.spaces import refused, texts

if TYPE_CHECKING:
    from pathlib import Path

    import clia


def test_committing_a_plain_directory_again_needs_a_base(space: clia.Space, people: Path, tmp_path: Path) -> None:
    directory = tmp_path / "plain"
    directory.mkdir()
    (directory / "x").write_text("1")
    first = space.commit_dir("scout", "finding", directory)
    (directory / "x").write_text("2")
    refused("base-needed", lambda: space.commit_dir("scout", "finding", directory))
    assert space.head("scout") == first
    space.commit_dir("scout", "finding", directory, base=first)
    assert space.files("scout") == {"x": b"2"}


def test_a_worktree_added_by_git_commits_on_its_own_head(space: clia.Space, people: Path, tmp_path: Path) -> None:
    worktree = tmp_path / "desk"
    space.commit("scout", "finding", changes={"b": b"1\n"})
    git("worktree", "add", "-q", "--detach", str(worktree), "agents/scout", cwd=people)
    (worktree / "c").write_text("mine\n")
    head = space.commit("scout", "finding", changes={"d": b"another's\n"})
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", worktree))
    assert space.head("scout") == head
    git("checkout", "-q", "--detach", "agents/scout", cwd=worktree)
    space.commit_dir("scout", "finding", worktree)
    assert sorted(space.files("scout")) == ["a", "b", "c", "d"]


def test_a_persons_worktree_with_other_files_is_not_a_base(space: clia.Space, people: Path) -> None:
    (people / "x").write_text("1")
    first = space.commit_dir("scout", "finding", people)  # still the same tree
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", people))
    assert space.head("scout") == first


@pytest.mark.parametrize("checked_out", [True, False])
def test_a_hostile_gitmodules_file_in_a_directory_is_refused(
    space: clia.Space, people: Path, tmp_path: Path, checked_out: bool
) -> None:
    directory = tmp_path / "desk"
    if checked_out:
        space.checkout("scout", directory)
    else:
        directory.mkdir()
    head = space.head("scout")
    (directory / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch x\n')
    refused("unsafe-path", lambda: space.commit_dir("scout", "finding", directory))
    assert space.head("scout") == head


def test_a_commit_updates_the_worktree_in_which_a_person_checked_out_the_branch(space: clia.Space, people: Path) -> None:
    git("checkout", "-q", "agents/scout", cwd=people)
    head = space.commit("scout", "finding", changes={"a": b"2\n"})
    assert (people / "a").read_text() == "2\n"
    assert git("status", "--porcelain", cwd=people) == ""
    (people / "a").write_text("not yet committed\n")
    space.trace("scout", "console", "kept")
    refused("uncommitted-work", lambda: space.commit("scout", "finding", changes={"a": b"3\n"}))
    refused("uncommitted-work", lambda: space.commit_with_trace("scout", "finding", changes={"a": b"3\n"}))
    assert space.head("scout") == head
    assert (people / "a").read_text() == "not yet committed\n"
    assert texts(space.traces.pending("scout")) == ["kept"]
    assert components(space).envelope.unfinished() == []
