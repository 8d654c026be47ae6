from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.testing import components
from support import git
from support.spaces import BRIEFING, refused, settings, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as made:
        yield made


@pytest.fixture
def people(space: clia.Space, repo: Path) -> Path:
    commit_file(repo, "a", "1\n")
    space.spawn_at("scout", BRIEFING, "main")
    return repo


def commit_file(where: Path, path: str, text: str) -> str:
    (where / path).write_text(text)
    git("add", path, cwd=where)
    git("commit", "-qm", f"{path}: {text.strip()}", cwd=where)
    return rev(where, "HEAD")


def rev(where: Path, name: str) -> str:
    return git("rev-parse", name, cwd=where).strip()


def test_a_plain_directory_needs_a_base_once_the_agent_has_done_something(space: clia.Space, people: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "x").write_text("1")
    first = space.commit_dir("scout", "finding", plain)
    (plain / "x").write_text("2")
    refused("base-needed", lambda: space.commit_dir("scout", "finding", plain))
    assert space.head("scout") == first
    space.commit_dir("scout", "finding", plain, base=first)
    assert space.files("scout") == {"x": b"2"}


def test_a_worktree_that_git_made_commits_from_its_own_head(space: clia.Space, people: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    space.commit("scout", "finding", changes={"b": b"1\n"})
    git("worktree", "add", "-q", "--detach", str(desk), "agents/scout", cwd=people)
    (desk / "c").write_text("mine\n")
    moved = space.commit("scout", "finding", changes={"d": b"another's\n"})
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", desk))
    assert space.head("scout") == moved
    git("checkout", "-q", "--detach", "agents/scout", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    assert sorted(space.files("scout")) == ["a", "b", "c", "d"]


def test_a_worktree_of_people_with_other_files_is_no_base(space: clia.Space, people: Path) -> None:
    (people / "x").write_text("1")
    first = space.commit_dir("scout", "finding", people)  # the same tree still
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", people))
    assert space.head("scout") == first


@pytest.mark.parametrize("checked_out", [True, False])
def test_a_hostile_gitmodules_file_in_a_directory_is_refused(
    space: clia.Space, people: Path, tmp_path: Path, checked_out: bool
) -> None:
    desk = tmp_path / "desk"
    if checked_out:
        space.checkout("scout", desk)
    else:
        desk.mkdir()
    head = space.head("scout")
    (desk / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch x\n')
    refused("unsafe-path", lambda: space.commit_dir("scout", "finding", desk))
    assert space.head("scout") == head


def test_the_agents_branch_that_a_person_has_checked_out_goes_along(space: clia.Space, people: Path) -> None:
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
    assert texts(space.trace_pending("scout")) == ["kept"]
    assert components(space).envelope.unfinished() == []
