from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.behaviours.measures import ObservationSum
from clia.behaviours.model import ADOPT, KEEP, NOT_ENOUGH, RETIRE, BehaviourVersion, KnownBehaviour, Suggestion
from clia.behaviours.observing import OUTCOME
from clia.behaviours.statistics import Count, proven
from clia.behaviours.suggesting import Policy, suggest
from clia.values.typed_objects import PROMPT
from support.behaviour_walks import started
from support.session_spaces import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with started(tmp_path.resolve() / "repo") as made:
        yield made


def test_a_proof_has_the_values_that_are_worked_out_by_hand() -> None:
    """60 and 90 of 100: the score is 24, the bar (1 + 1/4.5) (ln 5.5 + 2 ln 20). 995 of 1000 and 18 of 20: the ratio is 7.7335."""
    assert proven(Count(60, 40), Count(90, 10)).reached == pytest.approx(2.55143, abs=1e-5)
    assert proven(Count(995, 5), Count(18, 2)).reached == pytest.approx(0.70433, abs=1e-5)


def _suggested(own: Count, *others: tuple[str, Count], policy: Policy = Policy("passed")) -> Suggestion:  # noqa: B008  # a constant
    """What is suggested of a current version and others, each with its state; their ids are 1, 2, 3."""
    listed = [("current", own), *others]
    versions = tuple(BehaviourVersion("review", str(at), PROMPT, state, "") for at, (state, _) in enumerate(listed))
    sums = {
        str(at): ObservationSum({"2026-05-01": {f"{OUTCOME}passed": count.good, f"{OUTCOME}failed": count.bad}}, {})
        for at, (_, count) in enumerate(listed)
    }
    return suggest(KnownBehaviour("review", PROMPT, "0", versions, ()), versions[0], sums, policy)


def test_the_error_is_shared_among_those_that_may_run_and_no_others() -> None:
    """48 of 60 beside 30 of 60 is a proof for one alone, and none for one of two; what nobody let run does not count."""
    half, more = Count(30, 30), Count(48, 12)
    assert proven(half, more, 0.05).reached > 1 > proven(half, more, 0.025).reached
    idle = [(state, Count()) for state in ("proposed", "proposed", "retired")]
    found = _suggested(half, ("trial", more), *idle)
    assert (found.action, found.cid, [each.cid for each in found.candidates]) == (ADOPT, "1", ["1", "2", "3"])
    assert _suggested(half, ("trial", more), ("former", Count())).action == KEEP


def test_of_several_the_best_is_adopted_and_the_worst_retired_and_enough_is_asked_of_the_current_one_too() -> None:
    half, few = Count(100, 100), Count(0, 19)
    good, better = ("trial", Count(170, 30)), ("trial", Count(195, 5))
    bad, worse = ("former", Count(30, 170)), ("former", Count(5, 195))
    assert [_suggested(half, *each)[1:3] for each in ((good, better), (better, good))] == [(ADOPT, "2"), (ADOPT, "1")]
    assert [_suggested(half, *each)[1:3] for each in ((bad, worse), (worse, bad))] == [(RETIRE, "2"), (RETIRE, "1")]
    assert _suggested(few, ("trial", Count(1000, 0))).action == NOT_ENOUGH


def test_a_names_own_policy_comes_before_the_one_for_all(tmp_path: Path) -> None:
    text = '[behaviours."*"]\nleast = 30\n[behaviours.review]\nleast = 40\n'
    with Place(tmp_path.resolve() / "repo").configured(text).open() as space:
        for name in ("review", "plan"):
            space.add_behaviour(name, "Look.", PROMPT)
        assert [space.suggest_behaviour(name).least for name in ("review", "plan")] == [40, 30]
