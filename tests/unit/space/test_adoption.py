from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


NOTES = "refs/notes/clia/trace/scout"


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


def commit_file(where: Path, path: str, text: str) -> str:
    (where / path).write_text(text)
    git("add", path, cwd=where)
    git("commit", "-qm", f"{path}: {text.strip()}", cwd=where)
    return rev(where, "HEAD")


def rev(where: Path, name: str) -> str:
    return git("rev-parse", name, cwd=where).strip()


class Pair:
    """A space, and a clone of it that has adopted its agents."""

    def __init__(self, origin: clia.Space, at: Path, reached: Callable[[str], None] | None = None) -> None:
        self.origin = origin
        self.at = at / "clone"
        git("clone", "-q", str(at / "repo"), "clone", cwd=at)
        self.clone = clia.init(self.at, settings=settings(reached=reached))


@pytest.fixture
def pair(space: clia.Space, people: Path, tmp_path: Path) -> Iterator[Pair]:
    space.commit("scout", "finding", changes={"b": b"1\n"})
    made = Pair(space, tmp_path)
    with made.clone:
        yield made


FOREIGN: dict[str, Callable[[clia.Space], object]] = {
    "attach_trace": lambda space: space.attach_trace("scout", [{"text": "x"}]),
    "merge": lambda space: space.merge("scout", "mine"),
    "resolve": lambda space: space.resolve("scout", "mine", {}, ours=space.head("scout"), theirs=space.head("mine")),
    "land": lambda space: space.land("scout", "main"),
    "relate": lambda space: space.relate("scout", "reviews", "mine"),
    "commit": lambda space: space.commit("scout", "finding", {}),
    "trace": lambda space: space.trace("scout", "console", "x"),
    "archive": lambda space: space.archive("scout"),
}


@pytest.mark.parametrize("verb", FOREIGN)
def test_an_agent_of_another_clone_is_read_only(pair: Pair, verb: str) -> None:
    pair.clone.spawn("mine", BRIEFING)
    pair.clone.commit("mine", "finding", {"m": b"1"})
    before = git("for-each-ref", cwd=pair.at)
    refused("foreign-agent", lambda: FOREIGN[verb](pair.clone))
    assert git("for-each-ref", cwd=pair.at) == before
    pair.clone.claim("scout")
    FOREIGN[verb](pair.clone)


def test_an_agent_of_another_clone_is_marked_before_it_shows(space: clia.Space, people: Path, tmp_path: Path) -> None:
    marked: list[bool] = []

    def look(step: str) -> None:
        if step == "ref-locked" and (tmp_path / "clone/.git/refs/heads/agents/late.lock").exists():
            with made.clone.core.store.reading() as view:
                marked.append(view.values.get("foreign/late") is not None)
            assert "late" not in made.clone.agents()

    made = Pair(space, tmp_path, look)
    with made.clone:
        space.spawn("late", BRIEFING)
        made.clone.adopt()
        assert "late" in made.clone.agents()
    assert marked == [True]


def test_refs_that_a_remote_makes_up_are_not_adopted(space: clia.Space, people: Path, tmp_path: Path) -> None:
    odd = ["refs/clia/capabilities", "refs/clia/peers/x", "refs/clia/agents/Bad_Name", "refs/notes/clia/odd"]
    for ref in odd:
        git("update-ref", ref, "main", cwd=people)
    made = Pair(space, tmp_path)
    with made.clone as clone:
        refs = git("for-each-ref", "--format=%(refname)", "refs/clia/", "refs/notes/", "refs/heads/", cwd=made.at).split()
        assert not {*odd} & {*refs}
        assert clone.agents() == ["scout"]
        assert clone.adopt() == []
        assert clone.verify().clean


def test_adopting_makes_no_head_beside_an_archive(pair: Pair) -> None:
    pair.clone.claim("scout")
    head = pair.clone.head("scout")
    pair.clone.archive("scout")
    assert "refs/heads/agents/scout" not in {each.ref for each in pair.clone.adopt()}
    pair.origin.commit("scout", "finding", changes={"b": b"2\n"})
    assert {each.ref: each.what for each in pair.clone.adopt()} == {"refs/heads/agents/scout": "diverged"}
    assert (pair.clone.agents(), pair.clone.agents(archived=True)) == ([], ["scout"])
    assert rev(pair.at, "refs/clia/archive/agents/scout") == head


def test_adopting_leaves_an_agents_branch_alone_that_is_checked_out(pair: Pair) -> None:
    git("checkout", "-q", "agents/scout", cwd=pair.at)
    head = pair.clone.head("scout")
    newer = pair.origin.commit("scout", "finding", changes={"b": b"2\n"})
    assert {each.ref: each.what for each in pair.clone.adopt()} == {"refs/heads/agents/scout": "diverged"}
    assert pair.clone.head("scout") == head
    assert git("status", "--porcelain", cwd=pair.at) == ""
    git("checkout", "-q", "main", cwd=pair.at)
    assert {each.ref: each.what for each in pair.clone.adopt()} == {"refs/heads/agents/scout": "ahead"}
    assert pair.clone.head("scout") == newer


def test_a_forged_purge_does_not_stop_an_adoption(scout: clia.Space, repo: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub.git"
    git("init", "-q", "--bare", str(hub), cwd=tmp_path)
    git("remote", "add", "hub", str(hub), cwd=repo)
    scout.trace("scout", "console", "here")
    scout.commit_with_trace("scout", "finding", {})
    scout.publish(["scout"], "hub")
    for gone in ("5", "null", '["x", 7]'):
        body = f'{{"event":"purge","gone":{gone},"ref":"{NOTES}"}}'
        forged = git("commit-tree", EMPTY_TREE, "-m", f"forged\n\nClia-Event: {body}", cwd=repo).strip()
        git("update-ref", "refs/clia/events/scout", forged, cwd=repo)
        git("update-ref", "-d", NOTES, cwd=repo)
        assert ("refs/notes/clia/trace/scout", "new") in [(each.ref, each.what) for each in scout.adopt("hub")]
