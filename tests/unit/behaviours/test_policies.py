"""The operator's policy: what the record suggests is adopted without a person, once, and only what people let run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from clia.cli.workers import news
from clia.errors import StoreError
from clia.values.typed_objects import SESSION_FLOW
from clia.workers.policies import PolicyFollower
from support import git
from support.effects import in_background, worker_for
from support.session_spaces import Place, with_agents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia

POLICY = """
[worker]
behaviours_seconds = 7

[behaviours.review]
measure = "finished"
least = 8
error = 0.2
adopt = true

[behaviours.gone]
adopt = true

[behaviours.manual]
least = 8
error = 0.2
"""
BAD, GOOD = "def main(input):\n    raise ValueError('bad')\n", "def main(input):\n    return 1\n"


def observed(space: clia.Space, name: str, times: int = 12) -> tuple[str, str]:
    """A behaviour with a version that always fails and is current, and one on trial that never does."""
    bad = space.add_behaviour(name, BAD, SESSION_FLOW).cid
    good = space.propose_behaviour(name, GOOD).cid
    space.adopt_behaviour(name, good, trial=True)
    for cid in (bad, good) * times:
        space.start("scout", cid)
    return bad, good


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve() / "repo").configured(POLICY)


@pytest.fixture
def space(place: Place) -> Iterator[clia.Space]:
    with with_agents(place.open(), "scout") as made:
        made.add_behaviour("gone", GOOD, SESSION_FLOW)  # comes first, and has nothing to judge
        made.retire_behaviour("gone")
        yield made


def work(space: clia.Space, place: Place, **more: Any) -> Any:
    return worker_for(space, place.root, config=space.running.config, **more)


def test_workers_adopt_what_a_policy_says_once_and_the_chain_tells_why(place: Place, space: clia.Space) -> None:
    """Of two at once one does it. What has no such policy is left to people, whatever the record says."""
    bad, good = observed(space, "review")
    observed(space, "manual")
    manual = space.behaviour("manual")
    assert space.suggest_behaviour("manual").action == "adopt"
    assert space.follow_policy("manual") is None
    with place.open() as other:
        workers = [work(space, place), work(other, place, name="w2")]
        for thread in [in_background(each, once=True) for each in workers]:
            thread.join()
    told = [each for worker in workers for each in worker.status().adopted]
    assert told == [f"review {good}"]
    assert [each.status().last for each in workers] == [None, None]  # what has nothing to judge is no trouble
    assert f"adopted by policy: review {good}" in [line for each in workers for line in news(None, each.status())]
    known = space.behaviour("review")
    assert (known.current, known.history[0].event, known.history[0].measure) == (good, "adopt", "finished")
    assert known.history[0].why.startswith("by the operator's policy: ")
    assert "by the operator's policy" in git("log", "-1", "--format=%s", "refs/clia/behaviours/review", cwd=place.root)
    assert known.history[0].evidence
    assert [each.event for each in known.history].count("adopt") == 1
    assert space.behaviour("manual") == manual
    assert work(space, place).run(once=True).adopted == ()
    assert space.behaviour("review") == known
    assert {each.state for each in known.versions if each.cid == bad} == {"former"}


def test_a_policy_never_lets_run_what_a_person_retires_meanwhile_or_has_never_adopted(
    place: Place, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = observed(space, "review")
    suggest = space.suggest_behaviour

    def slow(name: str) -> Any:
        found = suggest(name)
        assert (found.action, found.cid) == ("adopt", good)
        with place.open() as other:
            other.retire_behaviour("review", good)
        return found

    monkeypatch.setattr(space.behaviours, "suggest", slow)
    assert space.follow_policy("review") is None
    states = {each.cid: each.state for each in space.behaviour("review").versions}
    assert states == {bad: "current", good: "retired"}
    third = space.add_behaviour("review", GOOD.replace("1", "3")).cid  # a person chose while the policy was thinking
    space.adopt_behaviour("review", good, trial=True)
    monkeypatch.setattr(space.behaviours, "suggest", lambda name: suggest(name)._replace(action="adopt", cid=good, expect=bad))
    assert space.follow_policy("review") is None
    assert space.behaviour("review").current == third
    space.adopt_behaviour("review", bad)
    never = space.propose_behaviour("review", GOOD.replace("1", "2")).cid
    monkeypatch.setattr(space.behaviours, "suggest", lambda name: suggest(name)._replace(action="adopt", cid=never, expect=bad))
    assert space.follow_policy("review") is None
    assert space.behaviour("review").current == bad


def test_policies_are_followed_every_so_often_and_trouble_with_one_is_told_and_keeps_no_other_from_it(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.add_behaviour("review", GOOD, SESSION_FLOW)
    space.add_behaviour("manual", GOOD, SESSION_FLOW)
    asked: list[str] = []
    waits: list[float] = []
    troubles: list[str | None] = []

    def follow(name: str) -> None:
        asked.append(name)
        if len(waits) == 1 and name == "gone":
            raise StoreError("the store is away")
        if len(waits) in (2, 4) and name == "gone":
            raise ZeroDivisionError("nobody\nthought of it")

    def wait(over: threading.Event, seconds: float) -> bool:
        del over
        waits.append(seconds)
        troubles.append(policies.trouble)
        if len(waits) == 4:
            monkeypatch.setattr(space.behaviours.library, "all", lambda: follow("gone"))
        return len(waits) == 5

    monkeypatch.setattr(space.behaviours, "follow_policy", follow)
    policies = PolicyFollower(space.behaviours, space.running.config, wait)
    assert policies.any()
    policies.keep_following(threading.Event(), lambda: None)
    assert waits == [7.0] * 5
    unexpected = "ZeroDivisionError: nobody thought of it"
    assert troubles == [None, "policy of gone: the store is away", f"policy of gone: {unexpected}", None, f"policies: {unexpected}"]
    assert asked == [*["gone", "review"] * 4, "gone"]
    quiet = space.running.config._replace(behaviours={"*": space.running.config.behaviours["manual"]})
    assert not PolicyFollower(space.behaviours, quiet, wait).any()
