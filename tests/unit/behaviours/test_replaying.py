"""A past session under another version: what it would have asked, where it departs, how it would have ended; nothing is written."""

from __future__ import annotations

import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import CliaError
from clia.values.typed_objects import PROMPT, SESSION_FLOW
from support import git
from support.behaviour_walks import started
from support.federation import Pair
from support.session_spaces import Place, with_agents
from support.spaces import refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.behaviours.model import Replayed

TWO = """
def main(input):
    one = request("check", {"n": input})
    two = request("check", {"n": input + 1}, tag="more")
    print("saw", one, two)
    return [one, two]
"""
BOTH = """
import asyncio


async def main(input):
    one, two = await asyncio.gather(request("part", 1), request("part", 2))
    return [one, two]
"""
CARELESS = """
def main(input):
    try:
        return request("check", {"n": input})
    except RuntimeError as err:
        return {"failed": str(err)}
"""


def dump(place: Place) -> tuple[list[str], list[str], str]:
    """Everything that is kept: each row of the store (the feed's too), each ref, and how many objects there are."""
    with sqlite3.connect(place.root / ".git/clia/space.db") as store:
        rows = list(store.iterdump())
    return rows, git("for-each-ref", cwd=place.root).splitlines(), git("count-objects", "-v", cwd=place.root)


class Scene:
    """A space with sessions that are over; each replay is seen to write nothing."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.space = with_agents(place.open(), "scout", "both", "stray")
        for name, body in (("two", TWO), ("parts", BOTH), ("careless", CARELESS)):
            self.space.add_behaviour(name, body, SESSION_FLOW)
        self.space.start("scout", "two", 3)
        self.space.resume("scout", "a")
        self.space.resume("scout", "b")
        self.space.start("both", "parts")
        self.space.resume("both", "second", "1.2")
        self.space.resume("both", "first", "1.1")

    def version(self, name: str, body: str) -> str:
        """A version that nobody has adopted: trying it is what replays are for."""
        made = self.space.propose_behaviour(name, body, agent="scout")
        assert made.state in ("proposed", "current")
        return made.cid

    def replay(self, agent: str, name: str, body: str, session: str | None = None) -> Replayed:
        cid = self.version(name, body)
        before = dump(self.place)
        found = self.space.replay_behaviour(agent, cid, session)
        assert dump(self.place) == before
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(Place(tmp_path_factory.mktemp("replay").resolve() / "repo"))
    yield made
    made.space.close()


def asked(found: Replayed) -> list[tuple[Any, bool, int | None]]:
    return [(each.payload, each.answered, each.recorded) for each in found.steps]


def test_the_same_flow_and_one_that_asks_the_same_go_the_same_way(scene: Scene) -> None:
    for body in (TWO, TWO.replace("[one, two]", "[one] + [two]")):
        found = scene.replay("scout", "two", body)
        assert (found.same, found.departs_at, found.unasked, found.ended) == (True, None, (), True)
        assert asked(found) == [({"n": 3}, True, 1), ({"n": 4}, True, 2)]
        assert [each.value for each in found.steps] == ["a", "b"] == found.result == found.recorded_result
        assert (found.recorded_status, found.printed) == ("finished", "saw a b\n")


DEPARTING: dict[str, tuple[str, int | None, list[tuple[Any, bool, int | None]], tuple[int, ...], Any]] = {
    "another payload": (
        TWO.replace("input + 1", "input + 2"),
        2,
        [({"n": 3}, True, 1), ({"n": 5}, False, None)],
        (2,),
        None,
    ),
    "another tag": (TWO.replace("more", "less"), 2, [({"n": 3}, True, 1), ({"n": 4}, False, None)], (2,), None),
    "another order": (
        'def main(input):\n    two = request("check", {"n": 4}, tag="more")\n    return [request("check", {"n": 3}), two]\n',
        1,
        [({"n": 4}, True, 2), ({"n": 3}, True, 1)],
        (),
        ["a", "b"],
    ),
    "fewer": ('def main(input):\n    return request("check", {"n": 3})\n', 2, [({"n": 3}, True, 1)], (2,), "a"),
    "none": ("def main(input):\n    return 1\n", 1, [], (1, 2), 1),
    "one of them twice": (
        TWO.replace("    print", '    request("check", {"n": 3})\n    print'),
        3,
        [({"n": 3}, True, 1), ({"n": 4}, True, 2), ({"n": 3}, False, None)],
        (),
        None,
    ),
    "another end": (TWO.replace("[one, two]", "two"), None, [({"n": 3}, True, 1), ({"n": 4}, True, 2)], (), "b"),
}


@pytest.mark.parametrize("said", DEPARTING)
def test_another_flow_departs_where_it_asks_for_something_else(scene: Scene, said: str) -> None:
    """What was recorded is found by what was asked, wherever that is; each answer is given once."""
    body, departs, steps, unasked, result = DEPARTING[said]
    found = scene.replay("scout", "two", body)
    assert not found.same
    assert (found.departs_at, asked(found), found.unasked, found.result) == (departs, steps, unasked, result)
    assert found.ended == all(answered for _, answered, _ in steps)
    assert [each.payload for each in found.recorded] == [{"n": 3}, {"n": 4}]


def test_a_flow_that_fails_says_how_and_one_that_never_stops_is_stopped(scene: Scene) -> None:
    failing = TWO.replace("    print", "    raise ValueError('no ' + two)\n    print")
    found = scene.replay("scout", "two", failing)
    assert (found.same, found.departs_at, found.ended) == (False, None, True)
    assert found.failure is not None
    assert found.failure["message"] == "ValueError: no b"
    place = scene.place.configured("[flows]\nturn_seconds = 0.3\n")
    endless = scene.version("two", TWO.replace("    print", "    while True:\n        pass\n    print"))
    before = dump(place)
    with place.open() as space:
        stopped = space.replay_behaviour("scout", endless)
    assert stopped.failure == {"reason": "limit", "message": "time: a turn ran longer than 0.3 seconds"}
    assert dump(place) == before


def test_what_was_asked_at_once_has_the_order_of_its_answers(scene: Scene) -> None:
    assert scene.replay("both", "parts", BOTH).same
    turned = scene.replay(
        "both", "parts", BOTH.replace('request("part", 1), request("part", 2)', 'request("part", 2), request("part", 1)')
    )
    assert (turned.departs_at, turned.result, turned.recorded_result) == (None, ["second", "first"], ["first", "second"])
    assert not turned.same
    one_by_one = 'async def main(input):\n    return [await request("part", 1), await request("part", 2)]\n'
    found = scene.replay("both", "parts", one_by_one)
    assert (found.departs_at, found.same, found.result) == (1, False, ["first", "second"])


def test_sessions_that_were_given_up_cancelled_forked_or_are_still_live(scene: Scene) -> None:
    space = scene.space
    space.start("stray", "careless", 1)
    space.give_up("stray", "no such check")
    found = scene.replay("stray", "careless", CARELESS)
    assert (found.same, found.steps[0].error, found.result) == (True, "no such check", {"failed": "no such check"})
    bolder = scene.replay("stray", "careless", 'def main(input):\n    return request("check", {"n": input})\n')
    assert bolder.failure is not None
    assert (bolder.departs_at, bolder.recorded_failure) == (None, None)

    space.start("stray", "two", 3)
    space.resume("stray", "a")
    live = scene.replay("stray", "two", TWO)
    assert (live.same, live.ended, live.recorded_status) == (True, False, "suspended")
    assert asked(live) == [({"n": 3}, True, 1), ({"n": 4}, False, None)]
    assert live.steps == live.recorded
    space.fork("stray", "branch")
    space.resume("branch", "B")
    assert scene.replay("branch", "two", TWO).result == ["a", "B"]
    space.cancel("stray")
    gone = scene.replay("stray", "two", TWO)
    assert (gone.same, gone.recorded_status, gone.recorded_failure) == (True, "cancelled", None)
    assert scene.replay("stray", "careless", CARELESS, session="1").same


def test_what_cannot_be_replayed_is_said_and_changes_nothing(scene: Scene) -> None:
    space = scene.space
    prompt, current = space.add_behaviour("tone", "Sing.", PROMPT).cid, space.behaviour_version("two").cid
    space.spawn("idle", clia.Briefing(title="Nothing"))
    written = space.write(clia.Behaviour("two", SESSION_FLOW, CARELESS))
    before = dump(scene.place)
    for code, call in (
        ("no-such-session", partial(space.replay_behaviour, "scout", current, "77")),
        ("no-such-session", partial(space.replay_behaviour, "idle", current)),
        ("no-such-agent", partial(space.replay_behaviour, "nobody", current)),
        ("not-a-flow", partial(space.replay_behaviour, "scout", prompt)),
        ("not-a-flow", partial(space.replay_behaviour, "scout", "tone")),
        ("no-such-version", partial(space.replay_behaviour, "scout", "0123abc")),
        ("execute-denied", partial(space.replay_behaviour, "scout", written)),
    ):
        refused(code, call)
    assert dump(scene.place) == before


def test_with_the_store_gone_a_session_is_replayed_as_far_as_git_has_it(tmp_path: Any) -> None:
    place = Place(tmp_path.resolve() / "repo")
    with with_agents(place.open(), "scout", two=TWO) as space:
        space.start("scout", "two", 3)
        space.resume("scout", "a")
        space.commit("scout", "finding", {"a.txt": b"a"})
        space.resume("scout", "b")
        space.start("scout", "two", 8)
    place.lose_store()
    with place.open() as space:
        current = space.behaviour_version("two").cid
        before = dump(place)
        for session in (None, "1"):
            found = space.replay_behaviour("scout", current, session)
            assert (found.same, found.session, found.recorded_status, found.in_part) == (True, "1", "finished", True)
            assert asked(found) == [({"n": 3}, True, 1), ({"n": 4}, False, None)]
        with pytest.raises(CliaError):
            space.replay_behaviour("scout", current, "2")  # it never came to a commit
        assert dump(place) == before


def test_with_the_store_gone_a_session_is_replayed_with_what_git_has_of_it(tmp_path: Path) -> None:
    """The answer that a decision's commit is, and how the session ended; or that not all of it is there."""
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout", "digger")
    two = space.behaviour("review").versions[1].cid
    space.start("scout", "review", 1)
    space.decide("scout", "yes")
    space.start("digger", "review", 1)
    space.cancel("digger")
    space.close()
    shutil.rmtree(root / ".git/clia")
    with clia.open(root, settings=settings()) as again:
        found = again.replay_behaviour("scout", two, "1")
        assert (found.same, found.result, found.recorded_status, found.in_part) == (True, "yes", "finished", False)
        refused("session-lost", lambda: again.replay_behaviour("digger", two, "1"))
        refused("no-such-session", lambda: again.replay_behaviour("digger", two, "2"))


def flow(number: int) -> str:
    return f"def main(input):\n    return [request('check', {number}), request('check', 'more')]\n"


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with started(tmp_path.resolve() / "repo") as made:
        yield made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A peer with four flows, each with a proposal of its own, and a prompt; a grant lets its behaviours run here."""
    made = Pair(tmp_path_factory.mktemp("survivors").resolve())
    for number, name in enumerate(("hello", "forked", "twice", "past")):
        made.owner.add_behaviour(name, flow(10 + number), SESSION_FLOW)
        made.owner.propose_behaviour(name, flow(20 + number))
    made.owner.add_behaviour("review", "Look twice.", PROMPT)
    made.owner.announce("bee")
    made.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    assert not made.sync().refused
    with_agents(made.hearer, "one", "two")
    made.hearer.add_behaviour("review", flow(1), SESSION_FLOW)
    yield made
    made.owner.close()
    made.hearer.close()


def test_a_peers_session_is_not_replayed_without_execute_whatever_it_is_replayed_with(pair: Pair) -> None:
    """The recorded flow runs, too."""
    space = with_agents(pair.hearer, "three")
    space.start("three", "ay/past")
    mine = space.behaviour_version("review").cid
    assert space.replay_behaviour("three", mine).departs_at == 1
    space.revoke("ay", "behaviour")
    refused("execute-denied", lambda: space.replay_behaviour("three", mine))
    space.grant("ay", "behaviour", "behaviour", execute=True)
