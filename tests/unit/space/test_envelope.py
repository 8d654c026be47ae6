from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.space.envelope import Append, Intent, RefMove
from clia.testing import components
from support import git
from support.spaces import BRIEFING, refused, settings, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


class Dies(BaseException):
    """The process ends here, as far as the space is concerned."""


class Hook:
    """Told each step; runs what it is given at one of them, once."""

    def __init__(self, step: str, then: Callable[[], object]) -> None:
        self._step = step
        self._then: Callable[[], object] | None = then

    def __call__(self, step: str) -> None:
        then = self._then
        if step == self._step and then is not None:
            self._then = None
            then()


def die() -> None:
    raise Dies


def bound(space: clia.Space, commit: str) -> list[str]:
    """The texts of the trace that a commit has."""
    trace = space.trace_for(commit)
    assert trace is not None
    return texts(trace.entries)


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


@pytest.mark.parametrize("verb", ["archive", "restore"])
def test_a_ref_that_alone_holds_work_is_never_overwritten(scout: clia.Space, repo: Path, verb: str) -> None:
    other = scout.commit("scout", "finding", {"a": b"theirs"})
    git("update-ref", "refs/heads/agents/scout", scout.genesis("scout"), cwd=repo)
    mine = scout.commit("scout", "finding", {"a": b"mine"})
    act, target = (
        (scout.archive, "refs/clia/archive/agents/scout") if verb == "archive" else (scout.restore, "refs/heads/agents/scout")
    )
    if verb == "restore":
        scout.archive("scout")
    git("update-ref", target, other, cwd=repo)
    before = git("for-each-ref", cwd=repo)
    refused("diverged", lambda: act("scout"))
    assert git("for-each-ref", cwd=repo) == before
    git("update-ref", target, scout.genesis("scout"), cwd=repo)  # which the other holds
    act("scout")
    assert rev(repo, target) == mine


def test_a_branch_below_an_agents_name_is_a_clash(space: clia.Space, people: Path) -> None:
    git("branch", "agents/x/y", "main", cwd=people)
    refused("ref-clash", lambda: space.spawn("x", BRIEFING))
    assert git("for-each-ref", "refs/clia/agents/x", cwd=people) == ""
    assert components(space).envelope.unfinished() == []
    git("branch", "-D", "agents/x/y", cwd=people)
    space.spawn("x", BRIEFING)


def test_a_verb_is_finished_although_someone_went_on_before_it_could_be(scout: clia.Space, repo: Path) -> None:
    scout.trace("scout", "console", "mine")
    with clia.open(repo, settings=settings(reached=Hook("committed", die))) as dying, pytest.raises(Dies):
        dying.commit_with_trace("scout", "finding", {"a": b"1"})
    made = scout.head("scout")
    on_top = commit_tree(repo, "by hand\n", made, tree=rev(repo, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", on_top, cwd=repo)
    with clia.open(repo, settings=settings()) as opened:
        assert opened.head("scout") == on_top
        assert bound(opened, made) == ["mine"]
        assert opened.trace_pending("scout") == []
        assert components(opened).envelope.unfinished() == []


def test_a_verb_that_another_has_finished_is_not_settled_again(scout: clia.Space) -> None:
    head = scout.head("scout")
    new = scout.core.write_commit("scout", scout.show(head).tree, [head], "x", [], "x")
    move = RefMove("refs/heads/agents/scout", head, new)
    intent = Intent("scout", "test", move, appends=(Append("told/scout", ({"said": "once"},)),))
    components(scout).envelope.carry_out(intent)
    components(scout).envelope.finish(intent)
    with scout.core.store.reading() as view:
        assert [each.body for each in view.streams.read("told/scout")] == [{"said": "once"}]
