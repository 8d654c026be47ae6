"""Landing an agent's work on a branch of people."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.crashes import CrashHook, CrashPoint
from support.plain_git import commit_file, commit_tree, rev
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("squash", [False, True])
def test_work_whose_landing_was_reset_can_land_again(space: clia.Space, people: Path, squash: bool) -> None:
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
def test_work_that_landed_on_one_branch_can_land_on_another(space: clia.Space, people: Path, squash: bool) -> None:
    git("branch", "release", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    space.land("scout", "main", squash=squash)
    assert isinstance(space.land("scout", "release", squash=squash), clia.Landed)
    assert sorted(space.files("release")) == ["a", "b"]


def test_a_locked_index_in_the_worktree_prevents_a_landing(space: clia.Space, people: Path) -> None:
    tip = rev(people, "main")
    space.commit("scout", "finding", changes={"b": b"1\n"})
    (people / ".git/index.lock").touch()
    assert isinstance(refused("uncommitted-work", lambda: space.land("scout", "main")), errors.Conflict)
    assert rev(people, "main") == tip
    assert space.history.landings("scout") == []
    assert not (people / "b").exists()
    (people / ".git/index.lock").unlink()
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_a_worktree_that_cannot_be_updated_is_a_warning(space: clia.Space, people: Path) -> None:
    for key, value in (("smudge", "false"), ("required", "true")):  # detected only when the file is written
        git("config", f"filter.bad.{key}", value, cwd=people)
    (people / ".git/info").mkdir(exist_ok=True)
    (people / ".git/info/attributes").write_text("b filter=bad\n")
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    landing = space.land("scout", "main", how="fast-forward")
    assert isinstance(landing, clia.Landed)
    assert rev(people, "main") == head
    assert len(landing.warnings) == 1
    assert str(people) in landing.warnings[0]
    assert space.states()[0].landed == "main"
    assert components(space).envelope.unfinished() == []


def test_landing_on_a_branch_that_is_being_rebased_is_refused(space: clia.Space, people: Path) -> None:
    git("checkout", "-q", "-b", "topic", cwd=people)
    tip = commit_file(people, "a", "topic\n")
    git("checkout", "-q", "main", cwd=people)
    commit_file(people, "a", "main\n")
    with pytest.raises(subprocess.CalledProcessError):
        git("rebase", "main", "topic", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    refused("branch-busy", lambda: space.land("scout", "topic"))
    assert rev(people, "topic") == tip
    assert space.history.landings("scout") == []
    git("rebase", "--abort", cwd=people)
    assert isinstance(space.land("scout", "topic"), clia.Landed)


@pytest.mark.parametrize("name", ["", "a b", "../x"])
def test_an_invalid_branch_name_is_refused(space: clia.Space, people: Path, name: str) -> None:
    refused("invalid-branch", lambda: space.land("scout", name))
    assert space.history.landings("scout") == []


@pytest.mark.parametrize("mode", ["squash", "no_ff"])
def test_a_landing_names_the_decisions_it_brings(space: clia.Space, people: Path, mode: str) -> None:
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    message = "decided\n\nClia-Agent: scout\nClia-Type: decision\n"
    decision = commit_tree(people, message, head, tree=rev(people, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", decision, cwd=people)
    space.commit("scout", "finding", changes={"c": b"1\n"})
    landing = space.land("scout", "main", squash=mode == "squash", no_ff=mode == "no_ff")
    assert isinstance(landing, clia.Landed)
    assert space.show(landing.cid).decisions == (decision,)


def test_an_event_that_git_adds_during_a_landing_is_kept(space: clia.Space, people: Path) -> None:
    space.spawn("lead", BRIEFING)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    edge = {"event": "edge", "src": "scout", "kind": "reviews", "dst": "lead"}
    event = commit_tree(people, f"by hand\n\nClia-Event: {json.dumps(edge)}\n")

    def add_event() -> None:
        git("update-ref", "refs/clia/events/scout", event, cwd=people)

    with clia.open(
        people, settings=settings(reached=CrashHook(armed=True, actions={CrashPoint("committed", 1): add_event}))
    ) as lander:
        assert isinstance(lander.land("scout", "main"), clia.Landed)
    assert [row["onto"] for row in space.history.landings("scout")] == ["refs/heads/main"]
    assert space.relations.reviewing("scout") == ["lead"]
    assert space.verify().clean


def test_the_default_branch_is_the_one_that_is_checked_out(space: clia.Space, people: Path) -> None:
    git("checkout", "-q", "-b", "topic", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    assert isinstance(space.land("scout"), clia.Landed)
    assert space.states()[0].landed == "topic"


@pytest.mark.parametrize("head", ["--detach", "agents/other"])
def test_without_a_branch_of_people_checked_out_work_lands_on_main(space: clia.Space, people: Path, head: str) -> None:
    space.spawn("other", BRIEFING)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    git("checkout", "-q", head, cwd=people)
    assert isinstance(space.land("scout"), clia.Landed)
    assert "main" in [state.landed for state in space.states()]
    git("branch", "-m", "main", "trunk", cwd=people)
    space.commit("scout", "finding", changes={"b": b"2\n"})
    assert "--onto BRANCH" in " ".join(refused("no-default-branch", lambda: space.land("scout")).hints)


@pytest.mark.parametrize("how", ["squash", "merge", "fast-forward"])
def test_how_work_lands_is_a_setting(repo: Path, space: clia.Space, people: Path, how: str) -> None:
    space.commit("scout", "finding", changes={"b": b"1\n"})
    git("config", "clia.land", how, cwd=people)
    with clia.open(repo, settings=settings()) as again:
        landed = again.land("scout", "main")
    assert isinstance(landed, clia.Landed)
    assert landed.how == how


def test_an_unknown_way_to_land_is_refused(repo: Path, space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"b": b"1\n"})
    git("config", "clia.land", "rebase", cwd=people)
    with clia.open(repo, settings=settings()) as again:
        refused("invalid-landing", lambda: again.land("scout", "main"))


def test_a_branch_that_clia_did_not_create_is_left_alone(space: clia.Space, people: Path) -> None:
    git("branch", "agents/mine", "main", cwd=people)
    tip = rev(people, "agents/mine")
    for act in (
        lambda: space.commit("mine", "finding", changes={"b": b"1\n"}),
        lambda: space.trace("mine", "note", "hello"),
        lambda: space.archive("mine"),
        lambda: space.land("mine", "main"),
        lambda: space.spawn("mine", clia.Briefing("Mine")),
    ):
        assert "git branch -m agents/mine" in refused("foreign-branch", act).hints[0]
    assert rev(people, "agents/mine") == tip
    (state,) = [state for state in space.states() if state.agent == "mine"]
    assert state.problem == "the branch agents/mine was not created by clia; it is left alone"
    space.maintain(archive_idle_days=0)
    assert rev(people, "agents/mine") == tip
