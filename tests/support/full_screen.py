"""A program with a full screen in a pseudo-terminal, driven by keys as a person does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

ENTER, ESCAPE, INTERRUPT = "\r", "\x1b", "\x03"
_CLEAR_LINE = "\x15"
_ROWS, _COLUMNS = 50, 160
_PAUSE, _PATIENCE = 0.05, 15.0
# What programs ask a terminal, and what an ordinary one answers.
_ANSWERS = (
    (re.compile(rb"\x1b\[6n"), b"\x1b[1;1R"),
    (re.compile(rb"\x1b\[0?c"), b"\x1b[?62;22c"),
    (re.compile(rb"\x1b\[\?u"), b"\x1b[?0u"),
    (re.compile(rb"\x1b\]10;\?(\x07|\x1b\\)"), b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (re.compile(rb"\x1b\]11;\?(\x07|\x1b\\)"), b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
)
_SEQUENCE = re.compile(
    r"\x1b(\[[0-9;:?<>=!]*[ -/]*[@-~]|[\]P_^][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78cDEHMNOZ])"
    r"|[\x00-\x08\x0b-\x1f]"
)


class FullScreen:
    """A running program. ``shown`` is all text that it has drawn, without control sequences and white space."""

    def __init__(self, command: list[str], cwd: Path, environment: Mapping[str, str], deadline: float) -> None:
        self._deadline = deadline
        self._output = bytearray()
        self._terminal, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        modes = termios.tcgetattr(screen)
        modes[3] &= ~termios.ECHO  # what is shown was drawn by the program
        termios.tcsetattr(screen, termios.TCSANOW, modes)
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # no thread runs yet
        )
        os.close(screen)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()

    @property
    def shown(self) -> str:
        return "".join(_SEQUENCE.sub("", self._output.decode("utf-8", "replace")).split())

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float | None = None) -> bool:
        """Wait until a condition holds. With ``seconds``, whether it did in that time; otherwise it must."""
        end = time.monotonic() + (self._deadline if seconds is None else seconds)
        pause = threading.Event()
        while True:
            has_ended = self.process.poll() is not None
            if condition():
                return True
            assert not has_ended, f"ended before {what}: {self.shown[-3000:]}"
            if time.monotonic() > end:
                assert seconds is not None, f"no {what}: {self.shown[-3000:]}"
                return False
            pause.wait(_PAUSE)

    def enter(self, text: str, taken: Callable[[], bool]) -> None:
        """Type a line and press Enter, until it is taken. A program that starts may drop keys, or take Enter for pasted text."""
        seen = len(self.shown)
        typed = "".join(text.split())
        end, clear = time.monotonic() + self._deadline, ""
        while not taken():
            assert time.monotonic() < end, f"{text!r} was not taken: {self.shown[-3000:]}"
            if typed not in self.shown[seen:]:
                self.press(clear + text)
                clear = _CLEAR_LINE  # a slow program may read the first text later
                self.wait_until(lambda: typed in self.shown[seen:], "echo", _PATIENCE)
            else:
                self.press(ENTER)
                self.wait_until(taken, "answer", _PATIENCE)

    def leave(self, command: str) -> None:
        """End the program by a command of its own."""
        self.enter(command, lambda: self.process.poll() is not None)

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._terminal, 65536):
                self._output += data
                for question, answer in _ANSWERS:
                    for _ in question.findall(data):
                        os.write(self._terminal, answer)
