"""Replays of a past session with another version: its requests, where they differ, and its end; nothing is written."""

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
from support.session_spaces import SessionSpace, with_agents
from support.spaces import refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.behaviours.model import Replayed
    from support.federation import Pair

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


def dump(place: SessionSpace) -> tuple[list[str], list[str], str]:
    """All stored state: the rows of the store, including the feed's, the refs, and the number of objects."""
    with sqlite3.connect(place.root / ".git/clia/space.db") as store:
        rows = list(store.iterdump())
    return rows, git("for-each-ref", cwd=place.root).splitlines(), git("count-objects", "-v", cwd=place.root)


class ReplayScene:
    """A space with ended sessions; each replay is checked to write nothing."""

    def __init__(self, place: SessionSpace) -> None:
        self.place = place
        self.space = with_agents(place.open(), "scout", "both", "stray")
        for name, body in (("two", TWO), ("parts", BOTH), ("careless", CARELESS)):
            self.space.behaviours.add(name, body, SESSION_FLOW)
        self.space.start("scout", "two", 3)
        self.space.resume("scout", "a")
        self.space.resume("scout", "b")
        self.space.start("both", "parts")
        self.space.resume("both", "second", "1.2")
        self.space.resume("both", "first", "1.1")

    def version(self, name: str, body: str) -> str:
        """Propose a version; a replay needs no adoption."""
        version = self.space.behaviours.propose(name, body, agent="scout")
        assert version.state in ("proposed", "current")
        return version.cid

    def replay(self, agent: str, name: str, body: str, session: str | None = None) -> Replayed:
        cid = self.version(name, body)
        before = dump(self.place)
        replayed = self.space.behaviours.replay(agent, cid, session)
        assert dump(self.place) == before
        return replayed


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayScene]:
    scene = ReplayScene(SessionSpace(tmp_path_factory.mktemp("replay").resolve() / "repo"))
    yield scene
    scene.space.close()


def requests_of(replayed: Replayed) -> list[tuple[Any, bool, int | None]]:
    return [(step.payload, step.answered, step.recorded) for step in replayed.steps]


def test_the_same_flow_and_an_equivalent_one_replay_identically(scene: ReplayScene) -> None:
    for body in (TWO, TWO.replace("[one, two]", "[one] + [two]")):
        replayed = scene.replay("scout", "two", body)
        assert (replayed.same, replayed.departs_at, replayed.unasked, replayed.ended) == (True, None, (), True)
        assert requests_of(replayed) == [({"n": 3}, True, 1), ({"n": 4}, True, 2)]
        assert [step.value for step in replayed.steps] == ["a", "b"] == replayed.result == replayed.recorded_result
        assert (replayed.recorded_status, replayed.printed) == ("finished", "saw a b\n")


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


@pytest.mark.parametrize("case", DEPARTING)
def test_another_flow_differs_at_its_first_other_request(scene: ReplayScene, case: str) -> None:
    """A recorded answer is found by its request at any position, and is used once."""
    body, departs, steps, unasked, result = DEPARTING[case]
    replayed = scene.replay("scout", "two", body)
    assert not replayed.same
    assert (replayed.departs_at, requests_of(replayed), replayed.unasked, replayed.result) == (departs, steps, unasked, result)
    assert replayed.ended == all(answered for _, answered, _ in steps)
    assert [step.payload for step in replayed.recorded] == [{"n": 3}, {"n": 4}]


def test_a_failing_flow_is_reported_and_an_endless_one_is_stopped(scene: ReplayScene) -> None:
    failing = TWO.replace("    print", "    raise ValueError('no ' + two)\n    print")
    replayed = scene.replay("scout", "two", failing)
    assert (replayed.same, replayed.departs_at, replayed.ended) == (False, None, True)
    assert replayed.failure is not None
    assert replayed.failure["message"] == "ValueError: no b"
    place = scene.place.configured("[flows]\nturn_seconds = 0.3\n")
    endless = scene.version("two", TWO.replace("    print", "    while True:\n        pass\n    print"))
    before = dump(place)
    with place.open() as space:
        stopped = space.behaviours.replay("scout", endless)
    assert stopped.failure == {"reason": "limit", "message": "time: a turn used more than 0.3 seconds of processor time"}
    assert dump(place) == before


def test_concurrent_requests_are_matched_by_the_order_of_their_answers(scene: ReplayScene) -> None:
    assert scene.replay("both", "parts", BOTH).same
    swapped = scene.replay(
        "both", "parts", BOTH.replace('request("part", 1), request("part", 2)', 'request("part", 2), request("part", 1)')
    )
    assert (swapped.departs_at, swapped.result, swapped.recorded_result) == (None, ["second", "first"], ["first", "second"])
    assert not swapped.same
    one_by_one = 'async def main(input):\n    return [await request("part", 1), await request("part", 2)]\n'
    sequential = scene.replay("both", "parts", one_by_one)
    assert (sequential.departs_at, sequential.same, sequential.result) == (1, False, ["first", "second"])


def test_failed_cancelled_forked_and_live_sessions_can_be_replayed(scene: ReplayScene) -> None:
    space = scene.space
    space.start("stray", "careless", 1)
    space.sessions.give_up("stray", "no such check")
    replayed = scene.replay("stray", "careless", CARELESS)
    assert (replayed.same, replayed.steps[0].error, replayed.result) == (True, "no such check", {"failed": "no such check"})
    uncaught = scene.replay("stray", "careless", 'def main(input):\n    return request("check", {"n": input})\n')
    assert uncaught.failure is not None
    assert (uncaught.departs_at, uncaught.recorded_failure) == (None, None)

    space.start("stray", "two", 3)
    space.resume("stray", "a")
    live = scene.replay("stray", "two", TWO)
    assert (live.same, live.ended, live.recorded_status) == (True, False, "suspended")
    assert requests_of(live) == [({"n": 3}, True, 1), ({"n": 4}, False, None)]
    assert live.steps == live.recorded
    space.fork("stray", "branch")
    space.resume("branch", "B")
    assert scene.replay("branch", "two", TWO).result == ["a", "B"]
    space.cancel("stray")
    cancelled = scene.replay("stray", "two", TWO)
    assert (cancelled.same, cancelled.recorded_status, cancelled.recorded_failure) == (True, "cancelled", None)
    assert scene.replay("stray", "careless", CARELESS, session="1").same


def test_sessions_and_versions_that_cannot_be_replayed_are_refused(scene: ReplayScene) -> None:
    space = scene.space
    prompt, current = space.behaviours.add("tone", "Sing.", PROMPT).cid, space.behaviours.version("two").cid
    space.spawn("idle", clia.Briefing(title="Nothing"))
    written = space.types.write(clia.Behaviour("two", SESSION_FLOW, CARELESS))
    before = dump(scene.place)
    for code, call in (
        ("no-such-session", partial(space.behaviours.replay, "scout", current, "77")),
        ("no-such-session", partial(space.behaviours.replay, "idle", current)),
        ("no-such-agent", partial(space.behaviours.replay, "nobody", current)),
        ("not-a-flow", partial(space.behaviours.replay, "scout", prompt)),
        ("not-a-flow", partial(space.behaviours.replay, "scout", "tone")),
        ("no-such-version", partial(space.behaviours.replay, "scout", "0123abc")),
        ("execute-denied", partial(space.behaviours.replay, "scout", written)),
    ):
        refused(code, call)
    assert dump(scene.place) == before


def test_without_the_store_a_session_is_replayed_as_far_as_git_has_it(tmp_path: Any) -> None:
    place = SessionSpace(tmp_path.resolve() / "repo")
    with with_agents(place.open(), "scout", two=TWO) as space:
        space.start("scout", "two", 3)
        space.resume("scout", "a")
        space.commit("scout", "finding", {"a.txt": b"a"})
        space.resume("scout", "b")
        space.start("scout", "two", 8)
    place.lose_store()
    with place.open() as space:
        current = space.behaviours.version("two").cid
        before = dump(place)
        for session in (None, "1"):
            replayed = space.behaviours.replay("scout", current, session)
            assert (replayed.same, replayed.session, replayed.recorded_status, replayed.in_part) == (True, "1", "finished", True)
            assert requests_of(replayed) == [({"n": 3}, True, 1), ({"n": 4}, False, None)]
        with pytest.raises(CliaError):
            space.behaviours.replay("scout", current, "2")  # it has no commit
        assert dump(place) == before


def test_without_the_store_a_session_is_replayed_with_its_decisions_and_end(tmp_path: Path) -> None:
    """Decisions and the end of the session come from git; an incomplete session is refused."""
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout", "digger")
    two = space.behaviours.get("review").versions[1].cid
    space.start("scout", "review", 1)
    space.decide("scout", "yes")
    space.start("digger", "review", 1)
    space.cancel("digger")
    space.close()
    shutil.rmtree(root / ".git/clia")
    with clia.open(root, settings=settings()) as again:
        replayed = again.behaviours.replay("scout", two, "1")
        assert (replayed.same, replayed.result, replayed.recorded_status, replayed.in_part) == (True, "yes", "finished", False)
        refused("session-lost", lambda: again.behaviours.replay("digger", two, "1"))
        refused("no-such-session", lambda: again.behaviours.replay("digger", two, "2"))


def test_a_peers_session_is_not_replayed_without_an_execute_grant(pair: Pair) -> None:
    """The recorded flow runs, too, whatever version it is replayed with."""
    space = with_agents(pair.hearer, "three")
    space.start("three", "ay/past")
    own_version = space.behaviours.version("review").cid
    assert space.behaviours.replay("three", own_version).departs_at == 1
    space.peers.revoke("ay", "behaviour")
    refused("execute-denied", lambda: space.behaviours.replay("three", own_version))
    space.peers.grant("ay", "behaviour", "behaviour", execute=True)
