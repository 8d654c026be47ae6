from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.spaces import BRIEFING, settings

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


def traced(space: clia.Space, text: str, **changes: bytes) -> str:
    space.trace("scout", "console", text)
    return space.commit_with_trace("scout", "finding", changes=changes)


def commit_file(where: Path, path: str, text: str) -> str:
    (where / path).write_text(text)
    git("add", path, cwd=where)
    git("commit", "-qm", f"{path}: {text.strip()}", cwd=where)
    return rev(where, "HEAD")


def rev(where: Path, name: str) -> str:
    return git("rev-parse", name, cwd=where).strip()


@pytest.mark.parametrize("how", ["relinked", "attached"])
def test_blame_names_the_agent_and_trace_behind_commits_of_people(space: clia.Space, people: Path, how: str) -> None:
    if how == "relinked":
        source = traced(space, "why", b=b"1\n")
        git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=people)
        git("cherry-pick", source, cwd=people)
        git("commit", "-q", "--amend", "-m", "as people say it", cwd=people)
        assert [each.commit for each in space.relink()] == [rev(people, "main")]
    else:
        space.attach_trace(commit_file(people, "b", "1\n"), [{"text": "why"}], agent="scout")
    (line,) = space.blame("main", "b")
    assert (line.commit, line.agent, line.kind) == (rev(people, "main"), "scout", None)
    assert line.trace == space.trace_cid_for("main") is not None
    (line,) = space.blame("main", "a")
    assert (line.agent, line.trace) == (None, None)


def test_blame_takes_no_notice_of_revisions_that_people_ignore(space: clia.Space, people: Path) -> None:
    made = space.commit("scout", "finding", changes={"a": b"2\n"})
    (people / ".ignored").write_text(f"{made}\n")
    git("config", "blame.ignoreRevsFile", ".ignored", cwd=people)
    assert space.blame("scout", "a")[0].commit == made
