"""The envelope of verbs: refs that other programs moved, and interrupted verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import StoreError
from clia.space.envelope import Append, Intent, RefMove
from clia.testing import Crash, components, crash_at
from support import git
from support.plain_git import commit_tree, rev
from support.spaces import BRIEFING, refused, settings, trace_texts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("verb", ["archive", "restore"])
def test_archive_and_restore_never_overwrite_a_ref_with_other_work(scout: clia.Space, repo: Path, verb: str) -> None:
    other_commit = scout.commit("scout", "finding", {"a": b"theirs"})
    git("update-ref", "refs/heads/agents/scout", scout.genesis("scout"), cwd=repo)
    own_commit = scout.commit("scout", "finding", {"a": b"mine"})
    run_verb, target = (
        (scout.archive, "refs/clia/archive/agents/scout") if verb == "archive" else (scout.restore, "refs/heads/agents/scout")
    )
    if verb == "restore":
        scout.archive("scout")
    git("update-ref", target, other_commit, cwd=repo)
    before = git("for-each-ref", cwd=repo)
    refused("diverged", lambda: run_verb("scout"))
    assert git("for-each-ref", cwd=repo) == before
    git("update-ref", target, scout.genesis("scout"), cwd=repo)  # an ancestor of the agent's head
    run_verb("scout")
    assert rev(repo, target) == own_commit


def test_a_branch_below_an_agents_branch_is_a_ref_clash(space: clia.Space, people: Path) -> None:
    git("branch", "agents/x/y", "main", cwd=people)
    refused("ref-clash", lambda: space.spawn("x", BRIEFING))
    assert git("for-each-ref", "refs/clia/agents/x", cwd=people) == ""
    assert components(space).envelope.unfinished() == []
    git("branch", "-D", "agents/x/y", cwd=people)
    space.spawn("x", BRIEFING)


def test_an_interrupted_verb_is_finished_after_someone_else_moved_the_branch(scout: clia.Space, repo: Path) -> None:
    scout.trace("scout", "console", "mine")
    with (
        clia.open(repo, settings=settings(reached=crash_at("committed"))) as crashing,
        pytest.raises(Crash),
    ):
        crashing.commit_with_trace("scout", "finding", {"a": b"1"})
    commit = scout.head("scout")
    later_commit = commit_tree(repo, "by hand\n", commit, tree=rev(repo, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", later_commit, cwd=repo)
    with clia.open(repo, settings=settings()) as opened:
        assert opened.head("scout") == later_commit
        assert trace_texts(opened, commit) == ["mine"]
        assert opened.trace_pending("scout") == []
        assert components(opened).envelope.unfinished() == []


def test_a_verb_that_another_process_finished_is_not_applied_again(scout: clia.Space) -> None:
    head = scout.head("scout")
    new = components(scout).core.write_commit("scout", scout.show(head).tree, [head], "x", [], "x")
    move = RefMove("refs/heads/agents/scout", head, new)
    intent = Intent("scout", "test", move, appends=(Append("test/scout", ({"text": "once"},)),))
    components(scout).envelope.carry_out(intent)
    components(scout).envelope.finish(intent)
    with scout.local.store.reading() as view:
        assert [row.body for row in view.streams.read("test/scout")] == [{"text": "once"}]


def test_a_decision_that_a_person_amends_before_it_is_complete_is_not_asked_again(scout: clia.Space, repo: Path) -> None:
    scout.define("approval", 'def main(input):\n    return request("human", {"question": "Go on?"})\n')
    scout.start("scout", "approval")
    with clia.open(repo, settings=settings(reached=crash_at("committed"))) as crashing, pytest.raises(Crash):
        crashing.decide("scout", "yes")
    git("switch", "--quiet", "agents/scout", cwd=repo)
    git("commit", "--quiet", "--amend", "--allow-empty", "--message", "mine", cwd=repo)
    with clia.open(repo, settings=settings()) as opened:
        assert opened.pending() == []
        assert opened.session("scout").result == "yes"


def test_a_failure_after_the_point_of_no_return_is_not_an_error(scout: clia.Space, repo: Path) -> None:
    """The caller would repeat it; the next verb completes it."""

    def full(step: str) -> None:
        if step == "notes-bound":
            raise StoreError("disk full", code="store-full")

    scout.trace("scout", "console", "mine")
    notices: list[str] = []
    with clia.open(repo, settings=settings(reached=full, notify=notices.append)) as failing:
        commit = failing.commit_with_trace("scout", "finding", {"a": b"1"})
        assert components(failing).envelope.unfinished() == ["scout"]
    assert notices == ["recorded, but not complete yet (disk full); the next command on 'scout' completes it"]
    assert scout.head("scout") == commit
    with clia.open(repo, settings=settings()) as opened:
        assert components(opened).envelope.unfinished() == []
        assert trace_texts(opened, commit) == ["mine"]
        assert opened.trace_pending("scout") == []
        assert [entry.kind for entry in opened.session_log("scout")].count("finding") == 1
