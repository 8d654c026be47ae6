"""Processes that keep a space open and run one verb after the other, as a forge or a worker does.

A verb of such a process is killed or stopped at a named crash point, because ptrace would have to follow its threads.
"""

from __future__ import annotations

import os
import signal
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from clia.errors import CliaError
from support.crashes import FORK
from support.fuzzer import verbs
from support.fuzzer.place import Outcome, be_impatient
from support.fuzzer.traced import KILL, LONGEST, Ended, state_of

if TYPE_CHECKING:
    from datetime import datetime
    from multiprocessing.connection import Connection

    import clia
    from support.fuzzer.place import Place
    from support.fuzzer.traced import Fault


class Server:
    """A process with an open space. A verb under way is like a ``traced.Run``."""

    def __init__(self, place: Place) -> None:
        self._pipe, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_serve, args=(theirs, self._pipe, place))
        self._process.start()
        theirs.close()
        self.ended: Ended | None = None
        self.pids = [self._process.pid or 0]

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def begin(self, place: Place, verb: str, seed: str, fault: Fault | None) -> Server:
        """Start a verb; ``wait`` waits for its end, or until it is stopped."""
        self.ended = None
        self._pipe.send((place, verb, seed, fault))
        return self

    def wait(self) -> Server:
        if not self._pipe.poll(LONGEST):
            raise RuntimeError(f"process {self.pids[0]} has run a verb for {LONGEST:g} s")
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):  # it was killed
            self._process.join()
            self.ended = Ended(None, "", self._process.exitcode or 0, 0)
            return self
        if answer == "stopping":
            while state_of(self.pids[0]) not in "TZ":
                os.sched_yield()
        else:
            result, failure = answer
            self.ended = Ended(result, failure, 0, 0)
        return self

    def go_on(self) -> Ended:
        os.kill(self.pids[0], signal.SIGCONT)
        self.wait()
        assert self.ended is not None
        return self.ended

    def kill(self) -> Ended:
        with suppress(ProcessLookupError):
            os.kill(self.pids[0], signal.SIGKILL)
        self._process.join()
        self._pipe.close()
        return Ended(None, "", -signal.SIGKILL, 0)


class _Faults:
    """Kills or stops this process at the nth crash point of a verb."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.fault: Fault | None = None
        self.left = 0

    def arm(self, fault: Fault | None) -> None:
        self.fault, self.left = fault, fault.after if fault else 0

    def __call__(self, step: str) -> None:
        del step
        if self.fault is None:
            return
        self.left -= 1
        if self.left:
            return
        if self.fault.action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        self._pipe.send("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)


def _serve(pipe: Connection, other_end: Connection, place: Place) -> None:
    other_end.close()
    be_impatient(place)
    current = [place]

    def now() -> datetime:
        return current[0].now()

    faults = _Faults(pipe)
    try:
        with place.open(faults, now) as space:
            while True:
                current[0], verb, seed, fault = pipe.recv()
                be_impatient(current[0])
                faults.arm(fault)
                answer = _answer(current[0], space, verb, seed)
                faults.arm(None)
                pipe.send(answer)
    except CliaError as err:  # it could not open the space
        pipe.recv()
        pipe.send((Outcome("refused", (), err.code, err.message), ""))
    except EOFError:
        return


def _answer(place: Place, space: clia.Space, verb: str, seed: str) -> tuple[Outcome | None, str]:
    try:
        return verbs.acted(place, space, verb, seed), ""
    except BaseException:  # noqa: BLE001  # reported
        return None, traceback.format_exc()
