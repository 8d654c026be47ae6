"""Workers under load that are killed one after another: every session ends, and each request is resumed once."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from clia.store.store_queue import StoreQueue
from support.crashes import KILLED, exit_code
from support.space_driver import postgres_url
from support.worker_driver import DriverSpace, check_answered_once, start

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from pathlib import Path
    from typing import Self

MANY = 1000  # attempts: enough that no request is given up because of killed workers


class WorkerLoad(NamedTuple):
    workers: int
    sessions: int
    requests: int  # of each session
    deaths: int


class Crew:
    """Several workers; a killed one is replaced. All end with the block."""

    def __init__(self, place: DriverSpace, workers: int) -> None:
        self.place = place
        self.names = (f"w{number}" for number in count())
        self.at_work = [self._new_worker() for _ in range(workers)]

    def _new_worker(self) -> tuple[str, BaseProcess]:
        name = next(self.names)
        return name, start(self.place, name, attempts=MANY)

    def wait_for_attempts(self, number: int) -> None:
        while len(self.place.tried()) < number:
            assert {process.exitcode for _, process in self.at_work} == {None}
            threading.Event().wait(0.02)

    def kill_the_oldest(self) -> str:
        name, victim = self.at_work.pop(0)
        victim.kill()
        assert exit_code(victim) == KILLED
        self.at_work.append(self._new_worker())
        return name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for _, process in self.at_work:
            process.kill()
            process.join()


def check_all_is_answered_despite_killed_workers(place: DriverSpace, load: WorkerLoad) -> None:
    """After every few attempts, the oldest worker is killed."""
    place.made(load.sessions, load.requests)
    requests, in_hand = load.sessions * load.requests, 0
    with place.open() as space, Crew(place, load.workers) as crew:
        for death in range(1, load.deaths + 1):
            crew.wait_for_attempts(requests * death // (load.deaths + 1))
            victim = crew.kill_the_oldest()
            in_hand += len([task for task in StoreQueue(space.local.store).waiting() if task.worker == victim])
        assert {exit_code(process) for _, process in crew.at_work} == {0}
    assert in_hand > 0  # some were killed during an attempt, which others repeated
    calls = range(1, load.requests + 1)
    assert set(place.tried()) == {(f"a{agent}", f"1.{call}") for agent in range(load.sessions) for call in calls}
    check_answered_once(place, load.sessions, [number * 10 for number in range(load.requests)])


def test_four_workers_on_one_postgresql_finish_200_sessions_despite_repeated_kills(
    tmp_path: Path, postgres_address: str, soak: bool
) -> None:
    place = DriverSpace(str(tmp_path / "space"), postgres_url(postgres_address), str(tmp_path / "paper"))
    load = WorkerLoad(workers=4, sessions=200, requests=100 if soak else 3, deaths=100 if soak else 8)
    check_all_is_answered_despite_killed_workers(place, load)


def test_workers_on_sqlite_answer_everything_once_despite_kills(tmp_path: Path, soak: bool) -> None:
    place = DriverSpace(str(tmp_path / "space"), None, str(tmp_path / "paper"))
    load = WorkerLoad(workers=3, sessions=60 if soak else 16, requests=60 if soak else 6, deaths=40 if soak else 3)
    check_all_is_answered_despite_killed_workers(place, load)
