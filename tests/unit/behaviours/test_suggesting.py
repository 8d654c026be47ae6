"""Suggestions to adopt or retire a version, and their policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pygit2

from clia.behaviours.measures import ObservationSum
from clia.behaviours.model import ADOPT, KEEP, NOT_ENOUGH, RETIRE, BehaviourVersion, KnownBehaviour, Suggestion
from clia.behaviours.observing import OUTCOME
from clia.behaviours.statistics import Count, proven
from clia.behaviours.suggesting import Policy, suggest
from clia.space.model import AGENT, BEHAVIOUR, META, TYPE
from clia.values.commit_messages import compose
from clia.values.typed_objects import PROMPT
from support.behaviour_walks import SIGNATURE, started
from support.session_spaces import SessionSpace, with_agents

if TYPE_CHECKING:
    from pathlib import Path


BODY = "Look twice."


def test_commits_that_claim_a_version_without_permission_suggest_nothing(tmp_path: Path) -> None:
    """Anyone who can commit can write a trailer. The version is not adopted, and does not raise the bar for others."""
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout", "rogue")
    first = space.behaviours.add("plan", BODY, PROMPT)
    proposal = space.behaviours.propose("plan", f"{BODY} Or do not.", agent="rogue")
    repo = pygit2.Repository(str(root))
    for number in range(50):
        for agent, behaviour, outcome in (("scout", first.cid, ("fail", "pass")[number % 2]), ("rogue", proposal.cid, "pass")):
            trailers = [(AGENT, agent), (TYPE, "finding"), (BEHAVIOUR, behaviour), (META, f'{{"outcome":"{outcome}"}}')]
            head = repo.references[f"refs/heads/agents/{agent}"].peel(pygit2.Commit)
            text = compose(f"work {number}", trailers, "")
            repo.create_commit(f"refs/heads/agents/{agent}", SIGNATURE, SIGNATURE, text, head.tree_id, [head.id])
    suggestion = space.behaviours.suggest("plan", "passed")
    assert (suggestion.action, suggestion.candidates[0].state, suggestion.candidates[0].compared.after.n) == (
        NOT_ENOUGH,
        "proposed",
        50,
    )
    space.behaviours.adopt("plan", proposal.cid, trial=True)
    assert space.behaviours.suggest("plan", "passed").action == "adopt"


def _suggestion(own: Count, *others: tuple[str, Count], policy: Policy = Policy("passed")) -> Suggestion:  # noqa: B008  # a constant
    """The suggestion for a current version and others with their states; their ids are 1, 2, 3."""
    counts = [("current", own), *others]
    versions = tuple(BehaviourVersion("review", str(index), PROMPT, state, "") for index, (state, _) in enumerate(counts))
    sums = {
        str(index): ObservationSum({"2026-05-01": {f"{OUTCOME}passed": count.good, f"{OUTCOME}failed": count.bad}}, {})
        for index, (_, count) in enumerate(counts)
    }
    return suggest(KnownBehaviour("review", PROMPT, "0", versions, ()), versions[0], sums, policy)


def test_the_error_is_divided_among_versions_that_may_run() -> None:
    """48 of 60 against 30 of 60 proves one candidate but not one of two; versions that may not run do not count."""
    half, more = Count(30, 30), Count(48, 12)
    assert proven(half, more, 0.05).reached > 1 > proven(half, more, 0.025).reached
    idle = [(state, Count()) for state in ("proposed", "proposed", "retired")]
    suggestion = _suggestion(half, ("trial", more), *idle)
    assert (suggestion.action, suggestion.cid, [candidate.cid for candidate in suggestion.candidates]) == (
        ADOPT,
        "1",
        ["1", "2", "3"],
    )
    assert _suggestion(half, ("trial", more), ("former", Count())).action == KEEP


def test_the_best_version_is_adopted_the_worst_retired_and_the_current_one_needs_enough_data() -> None:
    half, few = Count(100, 100), Count(0, 19)
    good, better = ("trial", Count(170, 30)), ("trial", Count(195, 5))
    bad, worse = ("former", Count(30, 170)), ("former", Count(5, 195))
    assert [_suggestion(half, *versions)[1:3] for versions in ((good, better), (better, good))] == [(ADOPT, "2"), (ADOPT, "1")]
    assert [_suggestion(half, *versions)[1:3] for versions in ((bad, worse), (worse, bad))] == [(RETIRE, "2"), (RETIRE, "1")]
    assert _suggestion(few, ("trial", Count(1000, 0))).action == NOT_ENOUGH


def test_a_policy_of_a_name_overrides_the_policy_for_all(tmp_path: Path) -> None:
    text = '[behaviours."*"]\nleast = 30\n[behaviours.review]\nleast = 40\n'
    with SessionSpace(tmp_path.resolve() / "repo").configured(text).open() as space:
        for name in ("review", "plan"):
            space.behaviours.add(name, "Look.", PROMPT)
        assert [space.behaviours.suggest(name).least for name in ("review", "plan")] == [40, 30]
