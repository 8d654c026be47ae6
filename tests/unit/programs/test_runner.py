"""Running a program on the user's streams; ``tests/conformance/test_programs.py`` has the runs without a user."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from clia.errors import FileError
from clia.programs.runner import EXITED, ProgramCommand, ProgramExit, ProgramRunner, UserStreams
from support.terminal import PATIENCE, no_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Listener = Callable[[int], None]

ENVIRONMENT = {"PATH": os.environ["PATH"]}
PRINTS_ITS_SIZE = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
while True:
    print(*os.get_terminal_size(1), flush=True)
    signal.sigwait([signal.SIGWINCH])
"""


class ForwardedSignals:
    """The signals of a user, which a test sends through ``listener``."""

    def __init__(self) -> None:
        self.listener: Listener = lambda _: None

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        self.listener = listener
        yield


def attend(command: ProgramCommand, user: UserStreams, on_output: Callable[[str, bytes], None], directory: Path) -> ProgramExit:
    programs, place = ProgramRunner(PATIENCE), str(directory / "place.lock")
    with programs.alone(place, lambda: False):
        return programs.attend(command, place, user, on_output)


def test_output_is_shown_on_the_users_streams_and_recorded_under_their_names(tmp_path: Path) -> None:
    chunks: list[tuple[str, bytes]] = []
    command = ProgramCommand(("sh", "-c", "cat; echo problem >&2; exit 3"), str(tmp_path), ENVIRONMENT)
    (tmp_path / "in").write_bytes(b"input\n")
    with open(tmp_path / "in", "rb") as stdin, open(tmp_path / "out", "wb") as stdout, open(tmp_path / "err", "wb") as stderr:
        user = UserStreams(stdin.fileno(), stdout.fileno(), stderr.fileno(), False, no_signals)
        assert attend(command, user, lambda name, data: chunks.append((name, data)), tmp_path) == ProgramExit(EXITED, 3)
    assert {chunk for chunk in chunks if chunk[1]} == {("stdout", b"input\n"), ("stderr", b"problem\n")}
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()) == (b"input\n", b"problem\n")


def test_a_signal_to_clia_is_forwarded_to_the_program(tmp_path: Path) -> None:
    signals, output = ForwardedSignals(), bytearray()
    script = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [2]); print('ready', flush=True); exit(3 + signal.sigwait([2]))"
    )

    def interrupt_when_ready(name: str, data: bytes) -> None:
        output.extend(data)
        if data:
            signals.listener(signal.SIGINT)

    with open(os.devnull, "r+b", 0) as nothing:
        user = UserStreams(nothing.fileno(), nothing.fileno(), nothing.fileno(), False, signals.listening)
        command = ProgramCommand((sys.executable, "-c", script), str(tmp_path), ENVIRONMENT)
        assert attend(command, user, interrupt_when_ready, tmp_path) == ProgramExit(EXITED, 5)
    assert output == b"ready\n"


def test_the_program_is_told_when_the_users_terminal_changes_its_size(tmp_path: Path) -> None:
    signals, output = ForwardedSignals(), bytearray()
    master, screen = pty.openpty()
    termios.tcsetwinsize(screen, (30, 90))

    def resize_once_and_terminate(name: str, data: bytes) -> None:
        if not data:
            return
        output.extend(data)
        if output == b"90 30\r\n":
            termios.tcsetwinsize(screen, (40, 120))
            signals.listener(signal.SIGWINCH)
        elif output.count(b"\n") == 2:
            signals.listener(signal.SIGTERM)

    user = UserStreams(screen, screen, screen, True, signals.listening)
    command = ProgramCommand((sys.executable, "-c", PRINTS_ITS_SIZE), str(tmp_path), ENVIRONMENT)
    assert attend(command, user, resize_once_and_terminate, tmp_path) == ProgramExit(EXITED, 128 + signal.SIGTERM)
    assert output == b"90 30\r\n120 40\r\n"
    os.close(master)
    os.close(screen)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no-such-program", "program-not-found"),
        ("./none", "program-not-found"),
        ("./text", "program-not-executable"),
        ("./folder", "program-not-executable"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "text").touch(0o644)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError) as caught:
        ProgramRunner().check(ProgramCommand((name,), str(tmp_path), ENVIRONMENT))
    assert (caught.value.code, caught.value.fields["path"]) == (code, name)
