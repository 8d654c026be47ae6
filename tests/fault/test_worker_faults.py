"""Killed workers, handlers that kill them, and unreachable stores: each request is answered once."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import StoreError
from support import git
from support.crashes import KILLED, exit_code
from support.effects import worker_for
from support.own_postgres import own_server
from support.space_driver import BRIEFING, Paper, postgres_url, settings
from support.worker_driver import DriverSpace, check_answered_once, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clia.workers.effects.context import Context
    from clia.workers.worker import Worker, WorkerStatus
    from support.own_postgres import Server


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DriverSpace:
    store = None if request.param == "sqlite" else postgres_url(request.getfixturevalue("postgres_address"))
    return DriverSpace(str(tmp_path / "space"), store, str(tmp_path / "paper"))


@pytest.mark.parametrize("step", ["claimed", "handling", "handled", "answered"])
def test_a_killed_worker_is_followed_by_another(place: DriverSpace, step: str) -> None:
    place.made(1, 2)
    assert exit_code(start(place, "first", step)) == KILLED
    assert exit_code(start(place, "second")) == 0
    check_answered_once(place, 1, [0, 10])
    assert len(place.tried()) == (3 if step in ("handling", "handled") else 2)


def test_a_request_that_kills_every_worker_is_given_up(place: DriverSpace) -> None:
    place.made(1, 1)
    lives = [exit_code(start(place, f"w{number}", "handling", attempts=2, lease_seconds=0.2)) for number in range(3)]
    assert lives == [KILLED, KILLED, 0]
    check_answered_once(place, 1, ["given up after 2 attempts: its workers were lost, or their answers could not be recorded"])


def wait_for(condition: Callable[[], bool], is_running: Callable[[], bool]) -> None:
    """Wait until a running worker fulfils a condition."""
    never = threading.Event()
    while not condition():
        assert is_running(), "the worker ended before"
        never.wait(0.01)


def test_a_program_ends_with_its_killed_worker_and_the_next_attempt_starts_clean(place: DriverSpace, tmp_path: Path) -> None:
    mark = tmp_path / "hanging"
    script = f"append log.txt line\nhang-once {mark}\nsay done"
    with clia.init(place.root, settings=settings(store=place.store)) as space:
        space.sessions.define("code", 'def main(input):\n    return request("command", {"program": "agent", "stdin": input})\n')
        space.spawn("scout", BRIEFING)
        space.start("scout", "code", script)
    victim = start(place, "first")
    wait_for(lambda: mark.exists() and bool(mark.read_text()), lambda: victim.exitcode is None)
    victim.kill()
    victim.join()
    assert exit_code(start(place, "second")) == 0
    with place.open() as space:
        result = space.session("scout").result
        assert (result["exit_code"], result["output"]) == (0, "done\n")
        assert space.files("scout") == {"log.txt": b"line\n"}  # without the line of the first attempt
        assert len(space.history.own("scout")) == 2
    assert not os.path.exists(f"/proc/{mark.read_text()}")
    git("fsck", "--strict", cwd=place.root)


# An outage of the server for ten seconds


GONE_FOR = 10.0
DIALOGUE = """
def main(input):
    found = []
    for n in range(input):
        found.append(request("work", n))
        found.append(request("human", {"question": f"Is {found[-1]} right?"}))
    return found
"""


class Outage:
    """A server that stops during a handler, which answers during the outage."""

    def __init__(self, place: DriverSpace, server: Server, at: tuple[str, int]) -> None:
        self.place = place
        self.server = server
        self.at = at
        self.at_work, self.noticed = threading.Event(), threading.Event()
        self.refusals: list[StoreError] = []

    def handle(self, context: Context, payload: Any) -> Any:
        Paper(self.place.paper).note("tried", context.agent, context.request.id)
        if (context.agent, payload) == self.at:
            self.at_work.set()
            assert self.noticed.wait(60)
        return payload * 10

    def tell(self, status: WorkerStatus) -> None:
        (self.noticed.set if status.trouble else self.noticed.clear)()

    def answer_all(self) -> bool:
        """Answer all pending questions with a separate handle, as the command line does."""
        with self.place.open() as space:
            waiting = [request for request in space.pending() if request.kind == "human"]
            for request in waiting:
                space.decide(request.agent, "yes", "looks right", by="Tess", request_id=request.id)
            return bool(space.pending())

    def happen(self) -> None:
        """Stop the server; people keep trying and get errors until it is back."""
        before = git("for-each-ref", cwd=self.place.root)
        self.server.stop()
        assert self.noticed.wait(60)
        back_at = monotonic() + GONE_FOR
        while monotonic() < back_at:
            with pytest.raises(StoreError) as caught:
                self.answer_all()
            self.refusals.append(caught.value)
            assert self.noticed.wait(60)  # the worker reports it during the outage
            threading.Event().wait(0.2)
        assert git("for-each-ref", cwd=self.place.root) == before
        self.server.start()


@contextmanager
def in_background(worker: Worker) -> Iterator[Callable[[], bool]]:
    """Run the worker in a thread; yield a function that returns whether it is running."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        worker.stop()
        thread.join()


def test_an_outage_of_ten_seconds_is_reported_and_nothing_is_lost_or_done_twice(
    tmp_path: Path,
) -> None:
    agents, turns = 3, 3
    with own_server() as server:
        place = DriverSpace(str(tmp_path / "space"), server.url, str(tmp_path / "paper")).made(agents, turns, DIALOGUE)
        outage = Outage(place, server, ("a1", 1))
        with place.open() as space:
            space.local.store.pool().timeout = 2.0  # type: ignore[attr-defined]  # instead of half a minute
            worker = worker_for(space, tmp_path / "space", {"work": outage.handle}, tell=outage.tell)
            with in_background(worker) as is_running:
                wait_for(lambda: outage.answer_all() and outage.at_work.is_set(), is_running)
                outage.happen()
                wait_for(lambda: not outage.answer_all(), is_running)
        assert {refusal.code for refusal in outage.refusals} == {"store-unavailable"}
        assert all(refusal.retryable and refusal.hints for refusal in outage.refusals)
        status = worker.status()
        assert (status.answered, status.given_up, status.trouble) == (agents * turns, 0, None)
        check_answered_once(place, agents, [answer for turn in range(turns) for answer in (turn * 10, "yes")])
        assert sorted(place.tried()) == [(f"a{agent}", f"1.{2 * turn + 1}") for agent in range(agents) for turn in range(turns)]
        with place.open() as space:
            kinds = [[commit.kind for commit in space.history.own(f"a{agent}")] for agent in range(agents)]
            assert kinds == [["decision"] * turns + ["spawn"]] * agents
