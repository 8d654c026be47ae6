"""Finding the traces of rewritten, cherry-picked and squashed commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support import git
from support.plain_git import commit_tree, rev
from support.spaces import commit_with_trace, trace_texts

if TYPE_CHECKING:
    from pathlib import Path


def test_relink_finds_a_rewritten_commit_below_a_newer_commit_with_a_trace(space: clia.Space, people: Path) -> None:
    first = commit_with_trace(space, "one", b=b"1\n")
    message = git("log", "-1", "--format=%B", first, cwd=people)
    rewritten = commit_tree(
        people,
        message.replace("finding by scout", "reworded"),
        space.agents.genesis("scout"),
        tree=rev(people, f"{first}^{{tree}}"),
    )
    git("update-ref", "refs/heads/agents/scout", rewritten, cwd=people)
    second = commit_with_trace(space, "two", c=b"1\n")
    assert space.traces.of(rewritten) is None
    assert [(relinked.commit, relinked.sources) for relinked in space.traces.relink()] == [(rewritten, (first,))]
    assert (trace_texts(space, rewritten), trace_texts(space, second)) == (["one"], ["two"])
    assert space.traces.relink() == []


def test_relink_finds_a_cherry_picked_commit_below_a_newer_commit_with_a_trace(scout: clia.Space, repo: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    scout.spawn_at("picker", clia.Briefing("Pick"), "main")
    scout.trace("picker", "console", "why")
    picked = scout.commit_with_trace("picker", "finding", changes={"a": b"1\n"})
    git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=repo)
    git("cherry-pick", picked, cwd=repo)
    git("commit", "-q", "--allow-empty", "-m", "on top", cwd=repo)
    scout.traces.attach("main", [{"text": "newer"}], agent="picker")
    assert [(relinked.commit, relinked.sources) for relinked in scout.traces.relink()] == [(scout.find("main~1"), (picked,))]


def test_a_commit_before_a_decision_does_not_get_its_trace(scout: clia.Space) -> None:
    """A decision has the tree of its parent, as a squash has the tree of the last squashed commit."""
    asked = scout.ask("scout", {"question": "Which?"})
    commit_with_trace(scout, "one", b=b"1\n")
    untraced = scout.commit("scout", "finding", changes={"b": b"2\n"})
    scout.trace("scout", "console", "asked")
    decision = scout.decide("scout", "this", request_id=asked.id).cid
    assert scout.traces.of(decision) is not None
    assert scout.traces.relink() == []
    assert scout.traces.of(untraced) is None


def test_a_squash_on_the_agents_own_branch_gets_the_traces_of_all(space: clia.Space, people: Path) -> None:
    start = space.agents.genesis("scout")
    first, second = commit_with_trace(space, "one", b=b"1\n"), commit_with_trace(space, "two", c=b"1\n")
    message = git("log", "-1", "--format=%B", first, cwd=people)
    squash = commit_tree(people, message, start, tree=rev(people, f"{second}^{{tree}}"))
    git("update-ref", "refs/heads/agents/scout", squash, cwd=people)
    assert [relinked.sources for relinked in space.traces.relink()] == [(first, second)]
    assert trace_texts(space, squash) == ["one", "two"]


def test_an_old_squash_is_not_the_merge_base_once_newer_work_is_shared(scout: clia.Space, repo: Path) -> None:
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
