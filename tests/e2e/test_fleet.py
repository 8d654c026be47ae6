"""Real workers as the fleet sees them: there, gone after a stop, silent after a kill, and over the wire as here."""

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
from support.forge_server import PERSON, ForgeProcess, eventually, made_place

if TYPE_CHECKING:
    from pathlib import Path


def started(root: Path, name: str) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))}
    words = [program(), "worker", "--path", str(root), "--name", name, "--kinds", "timer,commit"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def opened(root: Path, ahead: float = 0.0) -> clia.Space:
    """As somebody who looks after so many seconds."""
    clock = lambda: datetime.now(UTC) + timedelta(seconds=ahead)  # noqa: E731  # a clock is a function
    return clia.open(root, settings=clia.Settings(durable=False, person=PERSON, clock=clock))


def test_a_worker_shows_goes_when_it_is_stopped_and_is_silent_when_it_is_killed(tmp_path: Path) -> None:
    """Nobody waits for the time to pass: whoever looks later has a clock that is ahead."""
    place = made_place(tmp_path / "repo")
    stopped, killed = started(place.root, "stopped"), started(place.root, "killed")
    try:
        with ForgeProcess(place.root, cold=True) as forge, opened(place.root) as space:
            eventually(
                lambda: [each.name for each in space.fleet().workers] == ["killed", "stopped"] and bool(space.fleet().forges)
            )
            found = space.fleet()
            assert [(each.state, each.pid, each.kinds) for each in found.workers] == [
                (ALIVE, killed.pid, ("commit", "timer")),
                (ALIVE, stopped.pid, ("commit", "timer")),
            ]
            assert [(each.name, each.pid) for each in found.forges] == [(forge.address.removeprefix("http://"), forge.process.pid)]
            assert [(each.workers, each.forges) for each in found.machines] == [(2, 1)]
            stopped.send_signal(signal.SIGTERM)
            assert stopped.wait(60) == 0
            killed.kill()
            killed.wait(60)
            with RemoteSpace(forge.address, place.token) as remote:
                far, near = remote.fleet(), space.fleet()
            assert [each.name for each in near.workers] == ["killed"]
            assert [each._replace(age=0, state="") for each in far.workers] == [
                each._replace(age=0, state="") for each in near.workers
            ]
            assert far.forges[0].pid == forge.process.pid
        with opened(place.root, ahead=60) as later:
            assert [(each.name, each.state) for each in later.fleet().workers] == [("killed", SILENT)]
            assert later.fleet().forges == ()
        with opened(place.root, ahead=SHOWN_SECONDS + 60) as later:
            assert later.fleet().workers == ()
    finally:
        for each in (stopped, killed):
            each.kill()
            each.wait()
    said = run_clia("fleet", "--path", str(place.root))
    assert (said.code, said.err) == (0, "")
    assert "killed" in said.out
    assert "oldest request for workers: none" in said.out
    assert json.loads(run_clia("fleet", "--json", "--path", str(place.root)).out)["workers"][0]["name"] == "killed"
