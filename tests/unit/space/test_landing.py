from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.spaces import BRIEFING, refused, settings

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
def people(space: clia.Space, repo: Path) -> Path:
    commit_file(repo, "a", "1\n")
    space.spawn_at("scout", BRIEFING, "main")
    return repo


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


@pytest.mark.parametrize("squash", [False, True])
def test_a_landing_that_was_reset_away_lands_again(space: clia.Space, people: Path, squash: bool) -> None:
    start = rev(people, "main")
    space.commit("scout", "finding", changes={"b": b"1\n"})
    assert isinstance(space.land("scout", "main", squash=squash), clia.Landed)
    assert space.states()[0].landed == "main"
    git("reset", "-q", "--hard", start, cwd=people)
    assert space.states()[0].landed is None
    assert isinstance(space.land("scout", "main", squash=squash), clia.Landed)
    assert space.states()[0].landed == "main"
    assert sorted(space.files("main")) == ["a", "b"]
    assert isinstance(space.land("scout", "main", squash=squash), clia.UpToDate)


@pytest.mark.parametrize("squash", [False, True])
def test_work_that_landed_on_one_branch_lands_on_another(space: clia.Space, people: Path, squash: bool) -> None:
    git("branch", "release", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    space.land("scout", "main", squash=squash)
    assert isinstance(space.land("scout", "release", squash=squash), clia.Landed)
    assert sorted(space.files("release")) == ["a", "b"]


def test_a_locked_index_in_the_worktree_stops_a_landing(space: clia.Space, people: Path) -> None:
    tip = rev(people, "main")
    space.commit("scout", "finding", changes={"b": b"1\n"})
    (people / ".git/index.lock").touch()
    assert isinstance(refused("uncommitted-work", lambda: space.land("scout", "main")), errors.Conflict)
    assert rev(people, "main") == tip
    assert space.landings("scout") == []
    assert not (people / "b").exists()
    (people / ".git/index.lock").unlink()
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_a_worktree_that_fails_to_go_along_is_a_warning(space: clia.Space, people: Path) -> None:
    for key, value in (("smudge", "false"), ("required", "true")):  # found out only when the file is written
        git("config", f"filter.bad.{key}", value, cwd=people)
    (people / ".git/info").mkdir(exist_ok=True)
    (people / ".git/info/attributes").write_text("b filter=bad\n")
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    done = space.land("scout", "main")
    assert isinstance(done, clia.Landed)
    assert rev(people, "main") == head
    assert len(done.warnings) == 1
    assert str(people) in done.warnings[0]
    assert space.states()[0].landed == "main"
    assert components(space).envelope.unfinished() == []


def test_a_branch_that_is_being_rebased_is_left_alone(space: clia.Space, people: Path) -> None:
    git("checkout", "-q", "-b", "topic", cwd=people)
    tip = commit_file(people, "a", "topic\n")
    git("checkout", "-q", "main", cwd=people)
    commit_file(people, "a", "main\n")
    with pytest.raises(subprocess.CalledProcessError):
        git("rebase", "main", "topic", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    refused("branch-busy", lambda: space.land("scout", "topic"))
    assert rev(people, "topic") == tip
    assert space.landings("scout") == []
    git("rebase", "--abort", cwd=people)
    assert isinstance(space.land("scout", "topic"), clia.Landed)


@pytest.mark.parametrize("name", ["", "a b", "../x"])
def test_what_is_no_name_of_a_branch_is_refused(space: clia.Space, people: Path, name: str) -> None:
    refused("invalid-branch", lambda: space.land("scout", name))
    assert space.landings("scout") == []


@pytest.mark.parametrize("how", ["squash", "no_ff"])
def test_a_landing_names_the_decisions_it_brings(space: clia.Space, people: Path, how: str) -> None:
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    said = "decided\n\nClia-Agent: scout\nClia-Type: decision\n"
    decision = commit_tree(people, said, head, tree=rev(people, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", decision, cwd=people)
    space.commit("scout", "finding", changes={"c": b"1\n"})
    done = space.land("scout", "main", squash=how == "squash", no_ff=how == "no_ff")
    assert isinstance(done, clia.Landed)
    assert space.show(done.cid).decisions == (decision,)


def test_an_event_that_plain_git_adds_during_a_landing_is_kept_beside_it(space: clia.Space, people: Path) -> None:
    space.spawn("lead", BRIEFING)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    said = {"event": "edge", "src": "scout", "kind": "reviews", "dst": "lead"}
    event = commit_tree(people, f"by hand\n\nClia-Event: {json.dumps(said)}\n")
    hook = Hook("committed", lambda: git("update-ref", "refs/clia/events/scout", event, cwd=people))
    with clia.open(people, settings=settings(reached=hook)) as landing:
        assert isinstance(landing.land("scout", "main"), clia.Landed)
    assert [each["onto"] for each in space.landings("scout")] == ["refs/heads/main"]
    assert space.reviewing("scout") == ["lead"]
    assert space.verify().clean
