"""Counting landings, reverts, merges and sessions of behaviours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support import git
from support.behaviour_walks import FLOW, landed_and_reverted, spawn_with_prompt
from support.session_spaces import with_agents

if TYPE_CHECKING:
    from pathlib import Path


def test_work_that_an_agent_landed_by_squash_is_not_counted_again_for_its_sub_agent(space: clia.Space, repo: Path) -> None:
    spawn_with_prompt(space, "dd")
    space.land("dd", "main", squash=True)
    spawn_with_prompt(space, "ee", "dd")
    landed = space.land("ee", "main", squash=True)
    assert isinstance(landed, clia.Landed)
    assert (landed_and_reverted(space, "dd"), landed_and_reverted(space, "ee")) == ((1, 0), (1, 0))
    git("switch", "-q", "main", cwd=repo)
    git("revert", "--no-edit", landed.cid, cwd=repo)
    assert (landed_and_reverted(space, "dd"), landed_and_reverted(space, "ee")) == ((1, 0), (1, 1))


def test_work_on_two_branches_is_reverted_per_branch(space: clia.Space, repo: Path) -> None:
    spawn_with_prompt(space, "ii")
    space.land("ii", "main")
    space.land("ii", "side", no_ff=True)
    git("switch", "-q", "main", cwd=repo)
    git("revert", "--no-edit", space.head("ii"), cwd=repo)
    assert landed_and_reverted(space, "ii") == (2, 1)
    git("switch", "-q", "side", cwd=repo)
    git("revert", "--no-edit", space.head("ii"), cwd=repo)
    assert landed_and_reverted(space, "ii") == (2, 2)


def test_a_version_on_trial_differs_from_a_former_one(space: clia.Space) -> None:
    one, two = (version.cid for version in space.behaviours.get("review").versions)
    assert {version.cid: version.state for version in space.behaviours.get("review").versions} == {one: "current", two: "trial"}
    space.behaviours.adopt("review", two)
    assert {version.cid: version.state for version in space.behaviours.get("review").versions} == {one: "former", two: "current"}


def test_a_version_that_ran_and_is_in_no_chain_keeps_its_name(space: clia.Space, repo: Path) -> None:
    with_agents(space, "scout")
    space.start("scout", "review", 1)
    space.decide("scout", "yes")
    git("update-ref", "-d", "refs/clia/behaviours/review", cwd=repo)
    stats = space.behaviours.stats()
    assert [(row.name, row.state, row.sessions) for row in stats] == [("review", "foreign", {"finished": 1})]
    assert FLOW in space.behaviours.version(stats[0].cid).body


def test_an_agent_that_reverts_its_own_commit_before_landing_has_no_reverts(space: clia.Space) -> None:
    spawn_with_prompt(space, "cc")
    space.commit("cc", "finding", changes={"more.txt": b"1"}, message=f"Revert it\n\nThis reverts commit {space.head('cc')}.")
    space.land("cc", "main", no_ff=True)
    assert landed_and_reverted(space, "cc") == (1, 0)


def test_a_landing_recorded_several_times_counts_once(space: clia.Space, repo: Path) -> None:
    spawn_with_prompt(space, "ll")
    space.land("ll", "main", squash=True)
    body = git("cat-file", "commit", "refs/clia/events/ll", cwd=repo).partition("\n\n")[2]
    for _ in range(3):
        tree = git("rev-parse", "refs/clia/events/ll^{tree}", cwd=repo).strip()
        commit = git("commit-tree", tree, "-p", "refs/clia/events/ll", "-m", body, cwd=repo).strip()
        git("update-ref", "refs/clia/events/ll", commit, cwd=repo)
    assert landed_and_reverted(space, "ll") == (1, 0)


def test_an_event_that_names_an_object_other_than_a_commit_is_not_a_gap(space: clia.Space, repo: Path) -> None:
    """Nothing is missing, and nothing has to be read again each time."""
    spawn_with_prompt(space, "gg")
    blob = git("rev-parse", "agents/gg:gg.txt", cwd=repo).strip()
    head = space.head("gg")
    tree = git("hash-object", "-t", "tree", "/dev/null", cwd=repo).strip()
    message = f'odd\n\nClia-Event: {{"event":"merge-refused","from":"gg","into":"gg","ours":"{head}","theirs":"{blob}"}}\n'
    commit = git("commit-tree", tree, "-m", message, cwd=repo).strip()
    git("update-ref", "refs/clia/events/gg", commit, cwd=repo)
    assert space.behaviours.stats("gg")[0].merges == {}
    assert space.behaviours.gaps() == 0
