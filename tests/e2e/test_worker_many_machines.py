"""Workers on the queue of several machines, and their notifications."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from clia.facade.config import Config
from clia.store.procrastinate_queue import ProcrastinateQueue
from clia.workers.setup import wake_on_notifications
from support.crashes import KILLED, exit_code
from support.effects import QUICK, echo, in_background, made_space, worker_for
from support.space_driver import postgres_url
from support.worker_driver import DriverSpace, check_answered_once, start

if TYPE_CHECKING:
    from pathlib import Path

    from clia.workers.worker import WorkerStatus

ONE = "def main(input):\n    return request('echo', input)\n"
PATIENCE = 60.0


def test_worker_processes_answer_each_request_once_even_if_one_is_killed(tmp_path: Path, postgres_address: str) -> None:
    place = DriverSpace(str(tmp_path / "space"), postgres_url(postgres_address), str(tmp_path / "paper")).made(2, 2)
    victim = start(place, "victim", "handling", shared=True, concurrency=1)
    assert exit_code(victim, PATIENCE) == KILLED
    heir = start(place, "heir", shared=True, concurrency=2)
    assert exit_code(heir, PATIENCE) == 0
    assert len(place.tried()) == 5  # one more than there were requests
    check_answered_once(place, 2, [0, 10])


def test_a_request_wakes_a_sleeping_worker(tmp_path: Path, postgres_address: str) -> None:
    """Its polling interval is an hour; its status shows that it polled without a request, and answered later."""
    space = made_space(tmp_path / "space", store=postgres_url(postgres_address))
    queue = ProcrastinateQueue(space.local.store, postgres_address, space.id)
    idle, answered = threading.Event(), threading.Event()

    def tell(status: WorkerStatus) -> None:
        idle.set()
        if status.answered:
            answered.set()

    config = Config(worker=QUICK._replace(poll_seconds=3600.0))
    worker = worker_for(space, tmp_path / "space", {"echo": echo}, config, queue=queue, tell=tell)
    with wake_on_notifications(space, queue, worker.wake):
        thread = in_background(worker)
        try:
            assert idle.wait(PATIENCE)
            space.sessions.define("one", ONE)
            space.start("scout", "one", {"n": 1})
            assert answered.wait(PATIENCE)
        finally:
            worker.stop()
            thread.join()
    assert space.session("scout").result == {"n": 1}
    queue.close()
    space.close()
