"""Real workers in ``clia fleet``: alive, removed after a stop, silent after a kill; locally and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import clia
from clia.client import RemoteSpace
from clia.workers.fleet import ALIVE, SHOWN_SECONDS, SILENT
from support import clia as run_clia
from support import program
from support.forge_server import PERSON, ForgeProcess, eventually, new_forge_space

if TYPE_CHECKING:
    from pathlib import Path


def started(root: Path, name: str) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))}
    words = [program(), "worker", "--path", str(root), "--name", name, "--kinds", "timer,commit"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def opened(root: Path, ahead: float = 0.0) -> clia.Space:
    """Open the space with a clock that is some seconds ahead."""
    clock = lambda: datetime.now(UTC) + timedelta(seconds=ahead)  # noqa: E731  # a clock is a function
    return clia.open(root, settings=clia.Settings(durable=False, person=PERSON, clock=clock))


def test_a_worker_is_listed_removed_when_stopped_and_silent_when_killed(tmp_path: Path) -> None:
    """The test does not wait: a later look has a clock that is ahead."""
    place = new_forge_space(tmp_path / "repo")
    stopped, killed = started(place.root, "stopped"), started(place.root, "killed")
    try:
        with ForgeProcess(place.root, cold=True) as forge, opened(place.root) as space:
            eventually(
                lambda: [worker.name for worker in space.fleet().workers] == ["killed", "stopped"] and bool(space.fleet().forges)
            )
            fleet = space.fleet()
            assert [(worker.state, worker.pid, worker.kinds) for worker in fleet.workers] == [
                (ALIVE, killed.pid, ("commit", "timer")),
                (ALIVE, stopped.pid, ("commit", "timer")),
            ]
            assert [(listed.name, listed.pid) for listed in fleet.forges] == [
                (forge.address.removeprefix("http://"), forge.process.pid)
            ]
            assert [(machine.workers, machine.forges) for machine in fleet.machines] == [(2, 1)]
            stopped.send_signal(signal.SIGTERM)
            assert stopped.wait(60) == 0
            killed.kill()
            killed.wait(60)
            with RemoteSpace(forge.address, place.token) as remote:
                far, near = remote.fleet(), space.fleet()
            assert [worker.name for worker in near.workers] == ["killed"]
            assert [worker._replace(age=0, state="") for worker in far.workers] == [
                worker._replace(age=0, state="") for worker in near.workers
            ]
            assert far.forges[0].pid == forge.process.pid
        with opened(place.root, ahead=60) as later:
            assert [(worker.name, worker.state) for worker in later.fleet().workers] == [("killed", SILENT)]
            assert later.fleet().forges == ()
        with opened(place.root, ahead=SHOWN_SECONDS + 60) as later:
            assert later.fleet().workers == ()
    finally:
        for process in (stopped, killed):
            process.kill()
            process.wait()
    result = run_clia("fleet", "--path", str(place.root))
    assert (result.code, result.err) == (0, "")
    assert "killed" in result.out
    assert "oldest request for workers: none" in result.out
    assert json.loads(run_clia("fleet", "--json", "--path", str(place.root)).out)["workers"][0]["name"] == "killed"
