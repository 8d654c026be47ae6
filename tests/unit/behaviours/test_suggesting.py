from __future__ import annotations

from typing import TYPE_CHECKING

import pygit2

from clia.behaviours.model import NOT_ENOUGH
from clia.behaviours.statistics import Count, still_needed
from clia.space.model import AGENT, BEHAVIOUR, META, TYPE
from clia.values.commit_messages import compose
from support.behaviour_walks import SIGNATURE, started
from support.session_spaces import with_agents

if TYPE_CHECKING:
    from pathlib import Path


PROMPT = "Look twice."


def test_commits_that_claim_a_version_which_nobody_let_run_suggest_nothing(tmp_path: Path) -> None:
    """A trailer is a claim: whoever can commit can make it. Neither is it adopted, nor does it make the bar higher."""
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout", "rogue")
    first = space.add_behaviour("plan", PROMPT, "prompt")
    claimed = space.propose_behaviour("plan", f"{PROMPT} Or do not.", agent="rogue")
    repo = pygit2.Repository(str(root))
    for number in range(50):
        for agent, behaviour, outcome in (("scout", first.cid, ("fail", "pass")[number % 2]), ("rogue", claimed.cid, "pass")):
            said = [(AGENT, agent), (TYPE, "finding"), (BEHAVIOUR, behaviour), (META, f'{{"outcome":"{outcome}"}}')]
            head = repo.references[f"refs/heads/agents/{agent}"].peel(pygit2.Commit)
            text = compose(f"work {number}", said, "")
            repo.create_commit(f"refs/heads/agents/{agent}", SIGNATURE, SIGNATURE, text, head.tree_id, [head.id])
    found = space.suggest_behaviour("plan", "passed")
    assert (found.action, found.candidates[0].state, found.candidates[0].compared.after.n) == (NOT_ENOUGH, "proposed", 50)
    space.adopt_behaviour("plan", claimed.cid, trial=True)
    assert space.suggest_behaviour("plan", "passed").action == "adopt"


def test_about_as_many_are_needed_as_really_are_where_one_version_has_most_of_the_observations() -> None:
    for one, other, really in ((Count(5, 15), Count(900, 1000), 29), (Count(18, 2), Count(2000, 100), 195)):
        needed = still_needed(one, other)
        assert needed is not None
        assert really / 1.5 < needed < really * 1.5
