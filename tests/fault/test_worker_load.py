"""Workers under load, of which one after the other is killed: every session comes to its end, each request resumed once."""

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

MANY = 1000  # attempts: no request is given up, however many of its workers are killed


class WorkerLoad(NamedTuple):
    workers: int
    sessions: int
    requests: int  # of each session
    deaths: int


class Crew:
    """Some workers; one that dies is followed by another. All end with whoever made it."""

    def __init__(self, place: DriverSpace, workers: int) -> None:
        self.place = place
        self.names = (f"w{number}" for number in count())
        self.at_work = [self._hired() for _ in range(workers)]

    def _hired(self) -> tuple[str, BaseProcess]:
        name = next(self.names)
        return name, start(self.place, name, attempts=MANY)

    def wait_for_tries(self, number: int) -> None:
        while len(self.place.tried()) < number:
            assert {each.exitcode for _, each in self.at_work} == {None}
            threading.Event().wait(0.02)

    def kill_the_oldest(self) -> str:
        name, victim = self.at_work.pop(0)
        victim.kill()
        assert exit_code(victim) == KILLED
        self.at_work.append(self._hired())
        return name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for _, each in self.at_work:
            each.kill()
            each.join()


def check_all_is_answered_although_workers_die(place: DriverSpace, load: WorkerLoad) -> None:
    """Whenever some more was tried, the oldest worker is killed."""
    place.made(load.sessions, load.requests)
    requests, in_hand = load.sessions * load.requests, 0
    with place.open() as space, Crew(place, load.workers) as crew:
        for death in range(1, load.deaths + 1):
            crew.wait_for_tries(requests * death // (load.deaths + 1))
            victim = crew.kill_the_oldest()
            in_hand += len([each for each in StoreQueue(space.core.store).waiting() if each.worker == victim])
        assert {exit_code(each) for _, each in crew.at_work} == {0}
    assert in_hand > 0  # they died with work in hand, which others then did
    calls = range(1, load.requests + 1)
    assert set(place.tried()) == {(f"a{agent}", f"1.{call}") for agent in range(load.sessions) for call in calls}
    check_answered_once(place, load.sessions, [number * 10 for number in range(load.requests)])


def test_four_workers_on_one_postgresql_of_which_one_is_killed_again_and_again_finish_200_sessions(
    tmp_path: Path, postgres_address: str, soak: bool
) -> None:
    place = DriverSpace(str(tmp_path / "space"), postgres_url(postgres_address), str(tmp_path / "paper"))
    load = WorkerLoad(workers=4, sessions=200, requests=100 if soak else 3, deaths=100 if soak else 8)
    check_all_is_answered_although_workers_die(place, load)


def test_workers_on_sqlite_that_are_killed_one_by_one_answer_everything_once(tmp_path: Path, soak: bool) -> None:
    place = DriverSpace(str(tmp_path / "space"), None, str(tmp_path / "paper"))
    load = WorkerLoad(workers=3, sessions=60 if soak else 16, requests=60 if soak else 6, deaths=40 if soak else 3)
    check_all_is_answered_although_workers_die(place, load)
