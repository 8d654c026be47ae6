"""Policies: a suggested version is adopted automatically, once, and only if people permitted it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from clia.cli.workers import news
from clia.errors import StoreError
from clia.values.typed_objects import SESSION_FLOW
from clia.workers.worker import PolicyFollower
from support import git
from support.effects import in_background, worker_for
from support.session_spaces import SessionSpace, with_agents

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


def observe_two_versions(space: clia.Space, name: str, times: int = 12) -> tuple[str, str]:
    """Add a behaviour with a current version that always fails and one on trial that never does, and observe both."""
    bad = space.behaviours.add(name, BAD, SESSION_FLOW).cid
    good = space.behaviours.propose(name, GOOD).cid
    space.behaviours.adopt(name, good, trial=True)
    for cid in (bad, good) * times:
        space.start("scout", cid)
    return bad, good


@pytest.fixture
def place(tmp_path: Path) -> SessionSpace:
    return SessionSpace(tmp_path.resolve() / "repo").configured(POLICY)


@pytest.fixture
def space(place: SessionSpace) -> Iterator[clia.Space]:
    with with_agents(place.open(), "scout") as opened:
        opened.behaviours.add("gone", GOOD, SESSION_FLOW)  # comes first, and has no versions to compare
        opened.behaviours.retire("gone")
        yield opened


def work(space: clia.Space, place: SessionSpace, **more: Any) -> Any:
    return worker_for(space, place.root, config=space.local.config, **more)


def test_workers_adopt_by_policy_once_and_record_the_reason(place: SessionSpace, space: clia.Space) -> None:
    """One of two workers does it. A behaviour without such a policy is left to people."""
    bad, good = observe_two_versions(space, "review")
    observe_two_versions(space, "manual")
    manual = space.behaviours.get("manual")
    assert space.behaviours.suggest("manual").action == "adopt"
    assert space.behaviours.follow_policy("manual") is None
    with place.open() as other:
        workers = [work(space, place), work(other, place, name="w2")]
        for thread in [in_background(worker, once=True) for worker in workers]:
            thread.join()
    adoptions = [adoption for worker in workers for adoption in worker.status().adopted]
    assert adoptions == [f"review {good}"]
    assert [worker.status().last for worker in workers] == [None, None]  # a behaviour without versions to compare is not an error
    assert f"adopted by policy: review {good}" in [line for worker in workers for line in news(None, worker.status())]
    behaviour = space.behaviours.get("review")
    assert (behaviour.current, behaviour.history[0].event, behaviour.history[0].measure) == (good, "adopt", "finished")
    assert behaviour.history[0].why.startswith("by the operator's policy: ")
    assert "by the operator's policy" in git("log", "-1", "--format=%s", "refs/clia/behaviours/review", cwd=place.root)
    assert behaviour.history[0].evidence
    assert [change.event for change in behaviour.history].count("adopt") == 1
    assert space.behaviours.get("manual") == manual
    assert work(space, place).run(once=True).adopted == ()
    assert space.behaviours.get("review") == behaviour
    assert {version.state for version in behaviour.versions if version.cid == bad} == {"former"}


def test_a_policy_never_adopts_a_version_that_was_retired_meanwhile_or_never_permitted(
    place: SessionSpace, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = observe_two_versions(space, "review")
    suggest = space.behaviours.suggest

    def suggest_and_retire(name: str) -> Any:
        suggestion = suggest(name)
        assert (suggestion.action, suggestion.cid) == ("adopt", good)
        with place.open() as other:
            other.behaviours.retire("review", good)
        return suggestion

    monkeypatch.setattr(space.behaviours, "suggest", suggest_and_retire)
    assert space.behaviours.follow_policy("review") is None
    states = {version.cid: version.state for version in space.behaviours.get("review").versions}
    assert states == {bad: "current", good: "retired"}
    third = space.behaviours.add("review", GOOD.replace("1", "3")).cid  # a person added a version meanwhile
    space.behaviours.adopt("review", good, trial=True)
    monkeypatch.setattr(space.behaviours, "suggest", lambda name: suggest(name)._replace(action="adopt", cid=good, expect=bad))
    assert space.behaviours.follow_policy("review") is None
    assert space.behaviours.get("review").current == third
    space.behaviours.adopt("review", bad)
    proposal = space.behaviours.propose("review", GOOD.replace("1", "2")).cid
    monkeypatch.setattr(space.behaviours, "suggest", lambda name: suggest(name)._replace(action="adopt", cid=proposal, expect=bad))
    assert space.behaviours.follow_policy("review") is None
    assert space.behaviours.get("review").current == bad


def test_policies_are_applied_periodically_and_an_error_does_not_affect_others(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.behaviours.add("review", GOOD, SESSION_FLOW)
    space.behaviours.add("manual", GOOD, SESSION_FLOW)
    followed: list[str] = []
    waits: list[float] = []
    errors_seen: list[str | None] = []

    def follow(name: str) -> None:
        followed.append(name)
        if len(waits) == 1 and name == "gone":
            raise StoreError("the store is away")
        if len(waits) in (2, 4) and name == "gone":
            raise ZeroDivisionError("nobody\nthought of it")

    def wait(stop: threading.Event, seconds: float) -> bool:
        del stop
        waits.append(seconds)
        errors_seen.append(policies.trouble)
        if len(waits) == 4:
            monkeypatch.setattr(space.behaviours.library, "all", lambda: follow("gone"))
        return len(waits) == 5

    monkeypatch.setattr(space.behaviours, "follow_policy", follow)
    policies = PolicyFollower(space.behaviours, space.local.config, wait)
    assert policies.any()
    policies.keep_following(threading.Event(), lambda: None)
    assert waits == [7.0] * 5
    message = "ZeroDivisionError: nobody thought of it"
    assert errors_seen == [None, "policy of gone: the store is away", f"policy of gone: {message}", None, f"policies: {message}"]
    assert followed == [*["gone", "review"] * 4, "gone"]
    quiet = space.local.config._replace(behaviours={"*": space.local.config.behaviours["manual"]})
    assert not PolicyFollower(space.behaviours, quiet, wait).any()
