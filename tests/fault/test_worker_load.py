"""Workers under load, of which one after the other is killed: every session comes to its end, each request resumed once."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from clia.backends.store_queue import StoreQueue
from support.space_driver import postgres_url
from support.worker_driver import Place, start

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    import pytest

WORKERS, SESSIONS = 4, 200
MANY = 1000  # attempts: no request is given up, however many of its workers are killed


class Load(NamedTuple):
    requests: int  # of each session
    deaths: int


USUAL, SOAK = Load(requests=2, deaths=6), Load(requests=60, deaths=150)


def new_worker(place: Place, number: int) -> tuple[str, subprocess.Popen[bytes]]:
    return f"w{number}", start(place, f"w{number}", attempts=MANY)


def kill_one_by_one(place: Place, load: Load) -> int:
    """Four workers at work, the oldest killed whenever some more was tried, and another put in its place; how many requests
    they had in hand when they died."""
    in_hand, never = 0, threading.Event()
    workers = [new_worker(place, number) for number in range(WORKERS)]
    with place.open() as space:
        for death in range(load.deaths):
            while len(place.tried()) < SESSIONS * load.requests * (death + 1) // (load.deaths + 1):
                never.wait(0.02)
            name, victim = workers.pop(0)
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
            in_hand += len([each for each in StoreQueue(space._core.store).waiting() if each.worker == name])
            workers.append(new_worker(place, WORKERS + death))
    assert [each.wait() for _, each in workers] == [0] * WORKERS
    return in_hand


def test_four_workers_on_one_postgresql_of_which_one_is_killed_again_and_again_finish_200_sessions(
    tmp_path: Path, postgres_address: str, pytestconfig: pytest.Config
) -> None:
    load = SOAK if pytestconfig.getoption("--soak") else USUAL
    place = Place(str(tmp_path / "space"), postgres_url(postgres_address), str(tmp_path / "paper")).made(SESSIONS, load.requests)
    assert kill_one_by_one(place, load) > 0
    numbers, tried = range(1, load.requests + 1), Counter(place.tried())
    assert set(tried) == {(f"a{agent}", f"1.{number}") for agent in range(SESSIONS) for number in numbers}
    with place.open() as space:
        for agent in (f"a{number}" for number in range(SESSIONS)):
            ended = space.session(agent)
            assert (ended.status, ended.result) == ("finished", [(number - 1) * 10 for number in numbers])
            assert Counter(each["resume"][0] for each in space.journal(agent) if each["event"] == "resumed") == Counter(numbers)
        assert StoreQueue(space._core.store).waiting() == []
        assert space.doctor() == []
        report = space.verify()
        assert report.clean, report.findings
