"""Workers that are killed, handlers that kill, stores that go away: each request is answered, and once."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.app.config import Config
from clia.backends.store_queue import StoreQueue
from support import git
from support.effects import QUICK, worker_for
from support.own_postgres import own_server
from support.space_driver import BRIEFING, Paper, postgres_url, settings
from support.worker_driver import Place, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clia.app.effects.context import Context
    from support.own_postgres import Server


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    store = None if request.param == "sqlite" else postgres_url(request.getfixturevalue("postgres_address"))
    return Place(str(tmp_path / "space"), store, str(tmp_path / "paper"))


def check_answered_once(place: Place, agents: int, wanted: list[Any]) -> None:
    with place.open() as space:
        for number in range(agents):
            found = space.session(f"a{number}")
            assert (found.status, found.result) == ("finished", wanted)
            assert len([each for each in space.journal(f"a{number}") if each["event"] == "resumed"]) == len(wanted)
        assert StoreQueue(space._core.store).waiting() == []
        assert space.verify().clean


@pytest.mark.parametrize("step", ["claimed", "handling", "handled", "answered"])
def test_a_worker_that_is_killed_is_followed_by_another(place: Place, step: str) -> None:
    place.made(1, 2)
    assert start(place, "first", step).wait() == -signal.SIGKILL
    assert start(place, "second").wait() == 0
    check_answered_once(place, 1, [0, 10])
    assert len(place.tried()) == (3 if step in ("handling", "handled") else 2)


def test_a_request_that_kills_every_worker_is_given_up(place: Place) -> None:
    place.made(1, 1)
    lives = [start(place, f"w{number}", "handling", attempts=2, lease_seconds=0.2).wait() for number in range(3)]
    assert lives == [-signal.SIGKILL, -signal.SIGKILL, 0]
    check_answered_once(place, 1, ["given up after 2 attempts: whoever tried it did not come back"])


def test_workers_that_are_killed_one_by_one_answer_everything_once(place: Place, request: pytest.FixtureRequest) -> None:
    sessions, requests = (60, 4) if request.config.getoption("--soak") else (16, 3)
    place.made(sessions, requests)
    workers = [start(place, f"w{number}") for number in range(3)]
    for life in range(3):
        target = min(len(place.tried()) + sessions * requests // 5, sessions * requests)
        wait_for_tries(place, target)
        victim = workers.pop(0)
        victim.kill()
        victim.wait()
        workers.append(start(place, f"new{life}"))
    assert [each.wait() for each in workers] == [0, 0, 0]
    check_answered_once(place, sessions, [number * 10 for number in range(requests)])


def wait_for_tries(place: Place, count: int) -> None:
    wait_for(lambda: len(place.tried()) >= count)


def wait_for(condition: Callable[[], bool]) -> None:
    """Until something in another process has happened; a run that hangs here has failed."""
    never = threading.Event()
    while not condition():
        never.wait(0.01)


def test_a_program_dies_with_its_worker_and_the_next_attempt_starts_clean(place: Place, tmp_path: Path) -> None:
    mark = tmp_path / "hanging"
    script = f"append log.txt line\nhang-once {mark}\nsay done"
    with clia.init(place.root, settings=settings(store=place.store)) as space:
        space.define("code", 'def main(input):\n    return request("command", {"program": "agent", "stdin": input})\n')
        space.spawn("scout", BRIEFING)
        space.start("scout", "code", script)
    victim = start(place, "first")
    wait_for(lambda: mark.exists() and bool(mark.read_text()))
    victim.kill()
    victim.wait()
    assert start(place, "second").wait() == 0
    with place.open() as space:
        found = space.session("scout").result
        assert (found["exit_code"], found["output"]) == (0, "done\n")
        assert space.files("scout") == {"log.txt": b"line\n"}  # and not the first attempt's line too
        assert len(space.session_log("scout")) == 2
    assert not os.path.exists(f"/proc/{mark.read_text()}")
    git("fsck", "--strict", cwd=place.root)


class Outage:
    """A server that stops while a handler works, and is back when the worker has noticed and waits."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_away = False
        self.waits = 0
        self._mutex = threading.Lock()

    def begin(self) -> None:
        with self._mutex:
            self.server.stop()
            self.is_away = True

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._mutex:
            self.waits += self.is_away
            if self.is_away and self.waits >= 3:
                self.server.start()
                self.is_away = False
        return event.wait(min(seconds, 0.05))


def test_a_server_that_is_gone_for_a_while_is_waited_for_and_nothing_is_lost(tmp_path: Path) -> None:
    with own_server() as server:
        place = Place(str(tmp_path / "space"), server.url, str(tmp_path / "paper")).made(3, 3)
        outage = Outage(server)

        def handle(context: Context, payload: Any) -> Any:
            Paper(place.paper).note("tried", context.agent, context.request.id)
            if context.agent == "a1" and payload == 1:
                outage.begin()
            return payload * 10

        with place.open() as space:
            space._core.store._pool().timeout = 0.3  # type: ignore[attr-defined]  # nobody wants to wait half a minute here
            config = Config(worker=QUICK)
            seen = worker_for(space, tmp_path / "space", {"work": handle}, config, wait=outage.wait).run(until_idle=True)
        assert not outage.is_away
        assert seen.answered == 9
        assert seen.trouble is None
        check_answered_once(place, 3, [0, 10, 20])
        assert len(set(place.tried())) == 9
