"""Statistics of the profiles that agents work under."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.behaviours.index import FORMAT_KEY
from clia.behaviours.sources import READ
from clia.identities.writing import NewIdentity, WriteLocation, init
from clia.testing import components
from support.plain_git import commit_file
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    import clia

FLOW = 'def main(input):\n    return request("human", {"question": "Sell?", "choices": ["yes", "no"]})\n'


@pytest.fixture
def scouts(space: clia.Space, repo: Path) -> clia.Space:
    """Two agents under the identity ``scout``, one under none, with commits, a session and a landing."""
    init("scout", NewIdentity(title="Scout"), WriteLocation(str(repo)))
    commit_file(repo, "a", "1\n")
    for name, slug in (("one", "scout"), ("two", "scout"), ("alone", None)):
        space.spawn_at(name, BRIEFING, "main", slug=slug)
        space.commit(name, "finding", changes={name: b"1\n"}, meta={"outcome": "passed"})
    space.define("sell", FLOW)
    space.start("one", "sell")
    space.decide("one", "yes")
    space.land("one", "main")
    return space


def test_work_counts_for_the_profile_as_it_does_for_a_behaviour(scouts: clia.Space) -> None:
    (stats,) = scouts.behaviours.of_identities("scout")
    assert (stats.name, stats.cid) == ("scout", scouts.show("one").profile)
    assert stats.commits == {"decision": 1, "finding": 2, "spawn": 2}
    assert (stats.sessions, stats.decisions, stats.outcomes) == ({"finished": 1}, {"approved": 1}, {"passed": 2})
    assert stats.landed == 1
    assert scouts.behaviours.of_identities() == [stats]
    assert scouts.behaviours.of_identities("nobody") == []


def test_profiles_are_not_listed_as_behaviours(scouts: clia.Space) -> None:
    profile = scouts.show("one").profile
    assert profile not in [stats.cid for stats in scouts.behaviours.stats()]
    assert "sell" in [stats.name for stats in scouts.behaviours.stats()]


def test_a_changed_profile_is_counted_apart(scouts: clia.Space, repo: Path) -> None:
    (path,) = (repo / ".clia/agents/scout").glob("*.agent.triad.json")
    path.write_text('{"slug": "scout", "title": "Better scout"}')
    scouts.spawn_at("three", BRIEFING, "main", slug="scout")
    commits = {stats.cid: stats.commits for stats in scouts.behaviours.of_identities("scout")}
    assert commits.keys() == {scouts.show("one").profile, scouts.show("three").profile}
    assert commits[scouts.show("three").profile or ""] == {"spawn": 1}


def test_an_index_of_an_earlier_version_is_read_again(scouts: clia.Space) -> None:
    expected = scouts.behaviours.of_identities()
    store = components(scouts).core.store
    with store.writing() as transaction:
        transaction.values.delete(FORMAT_KEY)
        for key, _ in transaction.values.scan("behaviours/sum/"):
            transaction.values.delete(key)
    assert store.scan(READ)
    assert scouts.behaviours.of_identities() == expected
