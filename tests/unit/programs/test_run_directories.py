"""Where programs work as agents: outside the git directory, found again after a move, moved from where earlier versions had it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Mapping


def opened(root: Path, environment: Mapping[str, str]) -> clia.Space:
    """A space with the agent ``scout``."""
    chosen = settings()._replace(environment={"PATH": os.environ["PATH"], **environment})
    if root.exists():
        return clia.open(root, settings=chosen)
    space = clia.init(root, settings=chosen)
    space.spawn("scout", BRIEFING)
    return space


def started(space: clia.Space) -> Path:
    """The directory of ``scout``, with its worktree."""
    directory = space.local.run_directories.directory("scout")
    space.checkout("scout", directory)
    return Path(directory)


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path.resolve() / "state")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "shop"


def test_a_run_directory_is_private_below_the_state_directory_and_outside_any_git_directory(
    root: Path, state: dict[str, str], tmp_path: Path
) -> None:
    with opened(root, state) as space:
        directory = started(space)
        assert started(space) == directory
        assert ".git" not in directory.parts
        assert directory.parts[-5:-2] == ("state", "clia", "worktrees")
        assert directory.parent.name.startswith("shop-")
        assert directory.name == "scout"
        for private in (directory.parent, directory.parent.parent):
            assert stat.S_IMODE(private.stat().st_mode) == 0o700
        worker = Path(space.local.run_directories.directory("scout", worker=True))
        assert worker != directory
        assert worker.parent.name == f"{directory.parent.name}-worker"
    with opened(root, {"HOME": str(tmp_path / "home")}) as space:
        assert space.local.run_directories.directory("scout").startswith(
            f"{tmp_path.resolve()}/home/.local/state/clia/worktrees/shop-"
        )


def test_the_parent_directory_is_configurable(root: Path, state: dict[str, str], tmp_path: Path) -> None:
    with opened(root, state) as space:
        before = started(space)
        (before / "draft.txt").write_text("draft\n")
    config = root / ".git" / "clia" / "config.toml"
    config.write_text(f'[run]\ndirectory = "{tmp_path.resolve()}/trees"\n')
    with opened(root, state) as space:
        after = started(space)
        assert after == tmp_path.resolve() / "trees" / before.parent.name / "scout"
        assert (after / "draft.txt").read_text() == "draft\n"
        assert not before.exists()
    config.write_text('[run]\ndirectory = "trees"\n')
    refused("invalid-config", lambda: opened(root, state))


def test_two_repositories_of_one_name_and_a_copy_have_different_directories(
    root: Path, state: dict[str, str], tmp_path: Path
) -> None:
    with opened(root, state) as space:
        first = started(space)
    with opened(tmp_path.resolve() / "other" / "shop", state) as space:
        second = started(space)
    shutil.copytree(root, tmp_path / "copy" / "shop", symlinks=True)
    with opened(tmp_path.resolve() / "copy" / "shop", state) as space:
        third = started(space)
    assert len({first, second, third}) == 3
    with opened(root, state) as space:
        assert started(space) == first
        checkout = space.checkout_at(first)
        assert checkout is not None


def test_a_renamed_repository_finds_its_directory_again_with_its_changes(root: Path, state: dict[str, str], tmp_path: Path) -> None:
    with opened(root, state) as space:
        before = started(space)
        (before / "draft.txt").write_text("draft\n")
    moved = tmp_path.resolve() / "moved" / "store"
    moved.parent.mkdir()
    root.rename(moved)
    with opened(moved, state) as space:
        assert started(space) == before
        commit = space.commit_dir("scout", "finding", before)
        assert space.files(commit) == {"draft.txt": b"draft\n"}
    assert git("status", "--porcelain", cwd=before) == ""


def old_directory(space: clia.Space, root: Path) -> Path:
    """A worktree where earlier versions had it, with a file that is not committed."""
    old = root / ".git" / "clia" / "run" / "scout"
    space.checkout("scout", old)
    (old / "draft.txt").write_text("draft\n")
    return old


def test_a_directory_of_an_earlier_version_is_moved_when_it_is_used(root: Path, state: dict[str, str]) -> None:
    with opened(root, state) as space:
        old = old_directory(space, root)
        new = started(space)
        assert not old.exists()
        assert (new / "draft.txt").read_text() == "draft\n"
        checkout = space.checkout_at(new)
        assert checkout is not None
        assert checkout.agent == "scout"
    assert git("worktree", "prune", "--dry-run", "--verbose", "--expire=now", cwd=root) == ""


def test_a_directory_on_another_file_system_is_copied(root: Path, state: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def across(source: str, target: str) -> None:
        if not str(source).endswith(".moving"):
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    with opened(root, state) as space:
        old = old_directory(space, root)
        (old / "link").symlink_to("draft.txt")
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", across)
            new = Path(space.local.run_directories.directory("scout"))
        assert not old.exists()
        assert (new / "link").is_symlink()
        assert space.files(space.commit_dir("scout", "finding", new)).keys() == {"draft.txt", "link"}


def test_maintenance_moves_directories_that_no_program_uses_and_reports_the_others(root: Path, state: dict[str, str]) -> None:
    with opened(root, state) as space:
        old = old_directory(space, root)
        with open(space.local.run_directories.lock("scout"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            report = space.maintain()
            assert (report.moved, report.left) == ((), ("scout",))
            assert (old / "draft.txt").exists()
        report = space.maintain()
        assert report.moved == (space.local.run_directories.directory("scout"),)
        assert report.left == ()
        assert not old.exists()


def test_a_directory_with_a_submodule_is_moved_with_it(root: Path, state: dict[str, str], tmp_path: Path) -> None:
    library = tmp_path / "library"
    git("init", "--quiet", str(library), cwd=tmp_path)
    git("-c", "user.name=T", "-c", "user.email=t@t", "commit", "--quiet", "--allow-empty", "-m", "One", cwd=library)
    with opened(root, state) as space:
        old = old_directory(space, root)
        git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib", cwd=old)
        new = started(space)
        head = git("rev-parse", "HEAD", cwd=library).strip()
        assert git("rev-parse", "HEAD", cwd=new / "lib").strip() == head
        commit = space.commit_dir("scout", "finding", new)
        assert git("ls-tree", commit, "lib", cwd=root).split()[:3] == ["160000", "commit", head]


def test_a_missing_or_unwritable_state_directory_is_reported_with_a_hint(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for environment in ({}, {"XDG_STATE_HOME": str(tmp_path / "file")}):
        with opened(root, environment) as space:
            error = refused("no-run-directory", lambda: space.local.run_directories.directory("scout"))  # called at once
            assert "[run]" in error.hints[0]
