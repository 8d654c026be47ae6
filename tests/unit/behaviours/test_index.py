from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support import git
from support.behaviour_walks import FLOW, started
from support.session_spaces import with_agents

if TYPE_CHECKING:
    from pathlib import Path


PROMPT = "Look twice."


def _counted(space: clia.Space, name: str) -> tuple[int, int]:
    found = space.behaviour_stats(name)[0]
    return found.landed, found.reverted


def _prompted(space: clia.Space, agent: str, parent: str | None = None) -> clia.Space:
    """An agent whose prompt is its own, with one commit."""
    space.add_behaviour(agent, f"{PROMPT} {agent}", "prompt")
    made = space.brief(agent, "work")
    if parent is None:
        space.spawn_at(agent, made, "main")
    else:
        space.spawn_from(agent, made, parent)
    space.commit(agent, "finding", changes={f"{agent}.txt": b"1"}, message=agent)
    return space


def test_work_that_one_agent_had_squashed_is_not_landed_again_by_its_sub_agent(tmp_path: Path) -> None:
    space = _prompted(started(tmp_path / "repo"), "dd")
    space.land("dd", "main", squash=True)
    _prompted(space, "ee", "dd")
    landed = space.land("ee", "main", squash=True)
    assert isinstance(landed, clia.Landed)
    assert (_counted(space, "dd"), _counted(space, "ee")) == ((1, 0), (1, 0))
    git("switch", "-q", "main", cwd=tmp_path / "repo")
    git("revert", "--no-edit", landed.cid, cwd=tmp_path / "repo")
    assert (_counted(space, "dd"), _counted(space, "ee")) == ((1, 0), (1, 1))


def test_work_on_two_branches_is_reverted_where_it_was_reverted(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    space = _prompted(started(root), "ii")
    space.land("ii", "main")
    space.land("ii", "side", no_ff=True)
    git("switch", "-q", "main", cwd=root)
    git("revert", "--no-edit", space.head("ii"), cwd=root)
    assert _counted(space, "ii") == (2, 1)
    git("switch", "-q", "side", cwd=root)
    git("revert", "--no-edit", space.head("ii"), cwd=root)
    assert _counted(space, "ii") == (2, 2)


def test_a_version_on_trial_is_told_from_one_that_was_current(tmp_path: Path) -> None:
    space = started(tmp_path / "repo")
    one, two = (each.cid for each in space.behaviour("review").versions)
    assert {each.cid: each.state for each in space.behaviour("review").versions} == {one: "current", two: "trial"}
    space.adopt_behaviour("review", two)
    assert {each.cid: each.state for each in space.behaviour("review").versions} == {one: "former", two: "current"}


def test_what_ran_here_and_is_no_version_of_a_chain_has_a_name_all_the_same(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout")
    space.start("scout", "review", 1)
    space.decide("scout", "yes")
    git("update-ref", "-d", "refs/clia/behaviours/review", cwd=root)
    found = space.behaviour_stats()
    assert [(each.name, each.state, each.sessions) for each in found] == [("review", "foreign", {"finished": 1})]
    assert FLOW in space.behaviour_version(found[0].cid).body


def test_an_agent_that_corrects_itself_before_it_lands_has_nothing_reverted(tmp_path: Path) -> None:
    space = _prompted(started(tmp_path / "repo"), "cc")
    space.commit("cc", "finding", changes={"more.txt": b"1"}, message=f"Revert it\n\nThis reverts commit {space.head('cc')}.")
    space.land("cc", "main", no_ff=True)
    assert _counted(space, "cc") == (1, 0)


def test_a_landing_that_is_told_twice_counts_once(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    space = _prompted(started(root), "ll")
    space.land("ll", "main", squash=True)
    body = git("cat-file", "commit", "refs/clia/events/ll", cwd=root).partition("\n\n")[2]
    for _ in range(3):
        tree = git("rev-parse", "refs/clia/events/ll^{tree}", cwd=root).strip()
        made = git("commit-tree", tree, "-p", "refs/clia/events/ll", "-m", body, cwd=root).strip()
        git("update-ref", "refs/clia/events/ll", made, cwd=root)
    assert _counted(space, "ll") == (1, 0)


def test_an_event_that_names_what_is_no_commit_is_no_gap(tmp_path: Path) -> None:
    """Nothing is lacking, and nothing has to be read again each time."""
    root = tmp_path / "repo"
    space = _prompted(started(root), "gg")
    blob = git("rev-parse", "agents/gg:gg.txt", cwd=root).strip()
    head = space.head("gg")
    tree = git("hash-object", "-t", "tree", "/dev/null", cwd=root).strip()
    said = f'odd\n\nClia-Event: {{"event":"merge-refused","from":"gg","into":"gg","ours":"{head}","theirs":"{blob}"}}\n'
    made = git("commit-tree", tree, "-m", said, cwd=root).strip()
    git("update-ref", "refs/clia/events/gg", made, cwd=root)
    assert space.behaviour_stats("gg")[0].merges == {}
    assert space.observation_gaps() == 0
