"""Clones of a space: adopted agents, their refs, and forged events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.plain_git import EMPTY_TREE, rev
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


NOTES = "refs/notes/clia/trace/scout"


class CloneOfSpace:
    """A space and a clone of its repository, which is a space too and has adopted the agents."""

    def __init__(self, origin: clia.Space, directory: Path, reached: Callable[[str], None] | None = None) -> None:
        self.origin = origin
        self.path = directory / "clone"
        git("clone", "-q", str(directory / "repo"), "clone", cwd=directory)
        self.clone = clia.init(self.path, settings=settings(reached=reached))


@pytest.fixture
def pair(space: clia.Space, people: Path, tmp_path: Path) -> Iterator[CloneOfSpace]:
    space.commit("scout", "finding", changes={"b": b"1\n"})
    pair = CloneOfSpace(space, tmp_path)
    with pair.clone:
        yield pair


FOREIGN: dict[str, Callable[[clia.Space], object]] = {
    "attach_trace": lambda space: space.traces.attach("scout", [{"text": "x"}]),
    "merge": lambda space: space.merge("scout", "mine"),
    "resolve": lambda space: space.resolve("scout", "mine", {}, ours=space.head("scout"), theirs=space.head("mine")),
    "land": lambda space: space.land("scout", "main"),
    "relate": lambda space: space.relate("scout", "reviews", "mine"),
    "commit": lambda space: space.commit("scout", "finding", {}),
    "trace": lambda space: space.trace("scout", "console", "x"),
    "archive": lambda space: space.agents.archive("scout"),
}


@pytest.mark.parametrize("verb", FOREIGN)
def test_an_agent_of_another_clone_is_read_only(pair: CloneOfSpace, verb: str) -> None:
    pair.clone.spawn("mine", BRIEFING)
    pair.clone.commit("mine", "finding", {"m": b"1"})
    before = git("for-each-ref", cwd=pair.path)
    refused("foreign-agent", lambda: FOREIGN[verb](pair.clone))
    assert git("for-each-ref", cwd=pair.path) == before
    pair.clone.agents.claim("scout")
    FOREIGN[verb](pair.clone)


def test_an_adopted_agent_is_marked_as_foreign_before_it_is_listed(space: clia.Space, people: Path, tmp_path: Path) -> None:
    marked: list[bool] = []

    def look(step: str) -> None:
        if step == "ref-locked" and (tmp_path / "clone/.git/refs/heads/agents/late.lock").exists():
            with cloned.clone.local.store.reading() as view:
                marked.append(view.values.get("foreign/late") is not None)
            assert "late" not in cloned.clone.agents()

    cloned = CloneOfSpace(space, tmp_path, look)
    with cloned.clone:
        space.spawn("late", BRIEFING)
        cloned.clone.adopt()
        assert "late" in cloned.clone.agents()
    assert marked == [True]


def test_unknown_refs_of_a_remote_are_not_adopted(space: clia.Space, people: Path, tmp_path: Path) -> None:
    unknown_refs = ["refs/clia/capabilities", "refs/clia/peers/x", "refs/clia/agents/Bad_Name", "refs/notes/clia/odd"]
    for ref in unknown_refs:
        git("update-ref", ref, "main", cwd=people)
    pair = CloneOfSpace(space, tmp_path)
    with pair.clone as clone:
        refs = git("for-each-ref", "--format=%(refname)", "refs/clia/", "refs/notes/", "refs/heads/", cwd=pair.path).split()
        assert not {*unknown_refs} & {*refs}
        assert clone.agents() == ["scout"]
        assert clone.adopt() == []
        assert clone.verify().clean


def test_adopting_creates_no_head_for_an_archived_agent(pair: CloneOfSpace) -> None:
    pair.clone.agents.claim("scout")
    head = pair.clone.head("scout")
    pair.clone.agents.archive("scout")
    assert "refs/heads/agents/scout" not in {adoption.ref for adoption in pair.clone.adopt()}
    pair.origin.commit("scout", "finding", changes={"b": b"2\n"})
    assert {adoption.ref: adoption.what for adoption in pair.clone.adopt()} == {"refs/heads/agents/scout": "diverged"}
    assert (pair.clone.agents(), pair.clone.agents(archived=True)) == ([], ["scout"])
    assert rev(pair.path, "refs/clia/archive/agents/scout") == head


def test_adopting_does_not_move_an_agents_branch_that_is_checked_out(pair: CloneOfSpace) -> None:
    git("checkout", "-q", "agents/scout", cwd=pair.path)
    head = pair.clone.head("scout")
    newer = pair.origin.commit("scout", "finding", changes={"b": b"2\n"})
    assert {adoption.ref: adoption.what for adoption in pair.clone.adopt()} == {"refs/heads/agents/scout": "diverged"}
    assert pair.clone.head("scout") == head
    assert git("status", "--porcelain", cwd=pair.path) == ""
    git("checkout", "-q", "main", cwd=pair.path)
    assert {adoption.ref: adoption.what for adoption in pair.clone.adopt()} == {"refs/heads/agents/scout": "ahead"}
    assert pair.clone.head("scout") == newer


def test_a_forged_purge_does_not_stop_an_adoption(scout: clia.Space, repo: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub.git"
    git("init", "-q", "--bare", str(hub), cwd=tmp_path)
    git("remote", "add", "hub", str(hub), cwd=repo)
    scout.trace("scout", "console", "here")
    scout.commit_with_trace("scout", "finding", {})
    scout.publish(["scout"], "hub")
    for purged in ("5", "null", '["x", 7]'):
        body = f'{{"event":"purge","gone":{purged},"ref":"{NOTES}"}}'
        forged = git("commit-tree", EMPTY_TREE, "-m", f"forged\n\nClia-Event: {body}", cwd=repo).strip()
        git("update-ref", "refs/clia/events/scout", forged, cwd=repo)
        git("update-ref", "-d", NOTES, cwd=repo)
        assert ("refs/notes/clia/trace/scout", "new") in [(adoption.ref, adoption.what) for adoption in scout.adopt("hub")]


def test_many_agents_are_published_at_once_or_not_at_all(space: clia.Space, people: Path, repo: Path, tmp_path: Path) -> None:
    git("init", "-q", "--bare", "hub.git", cwd=tmp_path)
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=repo)
    agents = [f"agent-{number}" for number in range(30)]
    for name in agents:
        space.spawn(name, BRIEFING)
    space.agents.archive(agents[0])
    refused("no-such-agent", lambda: space.publish([*agents, "nobody"]))
    assert git("for-each-ref", cwd=tmp_path / "hub.git") == ""
    assert {pushed.state for pushed in space.publish(agents)} == {"new"}
    published = git(
        "for-each-ref",
        "--format=%(refname)",
        "refs/heads",
        "refs/clia/agents-published",
        "refs/clia/archive",
        cwd=tmp_path / "hub.git",
    ).split()
    assert published == [
        *sorted(f"refs/clia/agents-published/{name}" for name in agents[1:]),
        f"refs/clia/archive/agents/{agents[0]}",
    ]


def test_clones_get_a_branch_for_each_agent_only_if_the_publisher_asks_for_it(
    scout: clia.Space, repo: Path, tmp_path: Path
) -> None:
    git("init", "-q", "--bare", "hub.git", cwd=tmp_path)
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=repo)

    def branches(name: str) -> str:
        git("clone", "-q", str(tmp_path / "hub.git"), name, cwd=tmp_path)
        return git("branch", "--all", cwd=tmp_path / name)

    scout.publish(["scout"])
    assert branches("one") == ""
    with clia.init(tmp_path / "one", settings=settings()) as other:
        assert (other.agents(), other.head("scout")) == (["scout"], scout.head("scout"))
    refused("invalid-heads", lambda: scout.publish(["scout"], heads="both"))
    git("config", "clia.publish", "branches", cwd=repo)
    scout.publish(["scout"])
    assert "remotes/origin/agents/scout" in branches("two")
