from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.spaces import BRIEFING, settings, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as made:
        yield made


@pytest.fixture
def scout(space: clia.Space) -> clia.Space:
    space.spawn("scout", BRIEFING)
    return space


@pytest.fixture
def people(space: clia.Space, repo: Path) -> Path:
    commit_file(repo, "a", "1\n")
    space.spawn_at("scout", BRIEFING, "main")
    return repo


def bound(space: clia.Space, commit: str) -> list[str]:
    """The texts of the trace that a commit has."""
    trace = space.trace_for(commit)
    assert trace is not None
    return texts(trace.entries)


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


def fed(where: Path, data: str | bytes, *words: str) -> str:
    """Stock git with something on its standard input."""
    given = data.encode() if isinstance(data, str) else data
    command = ["git", "-c", "user.name=Tess", "-c", "user.email=tess@example.org", *words]
    return subprocess.run(command, cwd=where, input=given, capture_output=True, check=True).stdout.decode().strip()


def commit_tree(where: Path, message: str, *parents: str, tree: str = EMPTY_TREE) -> str:
    """A commit that nobody but plain git has made."""
    fed(where, "", "hash-object", "-t", "tree", "-w", "--stdin")
    return fed(where, message, "commit-tree", tree, *(word for each in parents for word in ("-p", each)), "-F", "-")


def test_relinking_finds_a_rewritten_commit_below_a_newer_traced_one(space: clia.Space, people: Path) -> None:
    first = traced(space, "one", b=b"1\n")
    message = git("log", "-1", "--format=%B", first, cwd=people)
    anew = commit_tree(
        people, message.replace("finding by scout", "reworded"), space.genesis("scout"), tree=rev(people, f"{first}^{{tree}}")
    )
    git("update-ref", "refs/heads/agents/scout", anew, cwd=people)
    second = traced(space, "two", c=b"1\n")
    assert space.trace_for(anew) is None
    assert [(each.commit, each.sources) for each in space.relink()] == [(anew, (first,))]
    assert (bound(space, anew), bound(space, second)) == (["one"], ["two"])
    assert space.relink() == []


def test_relink_finds_what_people_picked_below_a_newer_traced_commit(scout: clia.Space, repo: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    scout.spawn_at("picker", clia.Briefing("Pick"), "main")
    scout.trace("picker", "console", "why")
    picked = scout.commit_with_trace("picker", "finding", changes={"a": b"1\n"})
    git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=repo)
    git("cherry-pick", picked, cwd=repo)
    git("commit", "-q", "--allow-empty", "-m", "on top", cwd=repo)
    scout.attach_trace("main", [{"text": "newer"}], agent="picker")
    assert [(each.commit, each.sources) for each in scout.relink()] == [(scout.find("main~1"), (picked,))]


def test_an_old_squash_is_no_base_once_newer_work_is_shared(scout: clia.Space, repo: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    scout.spawn_at("first", clia.Briefing("First"), "main")
    scout.commit("first", "finding", {"a": b"one\n"})
    assert isinstance(scout.land("first", "main", squash=True), clia.Landed)
    scout.commit("first", "finding", {"a": b"two\n"})
    assert isinstance(scout.land("first", "main", no_ff=True), clia.Landed)
    git("commit", "-q", "--allow-empty", "-m", "by hand", cwd=repo)
    (repo / "a").write_text("by hand\n")
    git("commit", "-qam", "people changed it", cwd=repo)
    scout.commit("first", "finding", changes={"b": b"new\n"})
    assert isinstance(scout.land("first", "main"), clia.Landed)
    assert scout.files("main") == {"a": b"by hand\n", "b": b"new\n"}
