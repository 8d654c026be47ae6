"""Objects of submodules are read from the copies in the repository and its worktree."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from clia.git.repository import open_repository
from clia.git.submodule_objects import SubmoduleObjects
from support import git
from support.plain_git import commit_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def inner(tmp_path: Path) -> tuple[Path, str]:
    """A repository with one commit."""
    path = tmp_path / "inner"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", path], check=True)
    return path, commit_file(path, "file", "text")


def submodules(tmp_path: Path) -> SubmoduleObjects:
    outer = tmp_path / "outer"
    subprocess.run(["git", "init", "--quiet", outer], check=True)
    opened = open_repository(str(outer), {}, lambda _: None, durable=False)
    return SubmoduleObjects(opened.handle, opened.command)


@pytest.mark.parametrize("copy", [".git/modules/lib/deep", ".git/modules/lib/modules/deep", "lib/deep"])
def test_a_commit_is_read_from_a_copy(tmp_path: Path, inner: tuple[Path, str], copy: str) -> None:
    objects = submodules(tmp_path)
    subprocess.run(["git", "clone", "--quiet", inner[0], tmp_path / "clone"], check=True)
    source = tmp_path / "clone" if copy.startswith("lib") else tmp_path / "clone" / ".git"
    target = tmp_path / "outer" / copy
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    found = objects.tree("lib/deep", inner[1])
    assert found is not None
    assert found[1] == git("rev-parse", "HEAD^{tree}", cwd=inner[0]).strip()
    assert objects.tree("lib/deep", "f" * 40) is None


@pytest.mark.parametrize("path", ["lib", "../inner", "", ".", "a//b", ".git"])
def test_what_is_not_here_is_not_read(tmp_path: Path, inner: tuple[Path, str], path: str) -> None:
    assert submodules(tmp_path).tree(path, inner[1]) is None
