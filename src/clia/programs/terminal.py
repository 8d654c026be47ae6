"""The channels of a program: a pseudo-terminal if the user is at a terminal, otherwise pipes.

Invariant: every byte that the program prints is shown unchanged and in order, and then passed on. If the reader goes away, the
program's pipe is closed, as it would be without clia; if the user's terminal goes away, output is still recorded. The user's
terminal is restored at the end, unless this process is killed.
"""

from __future__ import annotations

import os
import pty
import select
import termios
import tty
from contextlib import contextmanager, suppress
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from clia.programs.runner import UserStreams

_CHUNK = 64 * 1024
_TYPED_MAX = 64 * 1024  # typed input that the program has not read yet


class _OutputChannel(NamedTuple):
    """The output of one channel, and where it is shown; None: it is no longer shown."""

    name: str
    shown: int | None


class ProgramChannels:
    """``far`` are the program's ends of the channels."""

    def __init__(self, user: UserStreams) -> None:
        self._user = user
        self._lines: dict[int, _OutputChannel] = {}
        self._ours: list[int] = []  # the program's ends that are open here too, until it has started
        self.master: int | None = None  # our end of the program's terminal
        self._hears = user.terminal
        self._typed = b""
        self.far = self._terminal() if user.terminal else (user.stdin, self._pipe("stdout"), self._pipe("stderr"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.started()
        for source in tuple(self._lines):
            self._close(source)

    def _terminal(self) -> tuple[int, int, int]:
        self.master, screen = pty.openpty()
        self._ours.append(screen)
        self._lines[self.master] = _OutputChannel("terminal", self._user.stdout)
        os.set_blocking(self.master, False)  # a program that does not read must not keep us from listening
        with suppress(termios.error):  # it went away just now
            termios.tcsetattr(screen, termios.TCSANOW, termios.tcgetattr(self._user.stdin))
        self.resize()
        return screen, screen, screen if os.isatty(self._user.stderr) else self._pipe("stderr")

    def _pipe(self, name: str) -> int:
        source, far = os.pipe()
        self._ours.append(far)
        self._lines[source] = _OutputChannel(name, self._user.stdout if name == "stdout" else self._user.stderr)
        return far

    def started(self) -> None:
        """Close our copies of the program's ends, so that the channels close with the program."""
        while self._ours:
            os.close(self._ours.pop())

    def resize(self) -> None:
        """Give the program's terminal the size of the user's."""
        if self.master is not None:
            with suppress(OSError, termios.error):  # it went away just now
                termios.tcsetwinsize(self.master, termios.tcgetwinsize(self._user.stdout))

    @contextmanager
    def raw(self) -> Iterator[None]:
        """Put the user's terminal into raw mode while the block runs: the program's terminal does the processing."""
        if not self._user.terminal:
            yield
            return
        try:
            before = termios.tcgetattr(self._user.stdin)
            tty.setraw(self._user.stdin, termios.TCSADRAIN)
        except termios.error:  # it went away just now
            yield
            return
        try:
            yield
        finally:
            with suppress(termios.error):
                termios.tcsetattr(self._user.stdin, termios.TCSADRAIN, before)

    @property
    def open(self) -> bool:
        """Whether the program can still print."""
        return bool(self._lines)

    def pass_on(self, seconds: float, on_output: Callable[[str, bytes], None]) -> bool:
        """Pass on available data in both directions, waiting up to ``seconds`` for it; return whether anything was printed."""
        sources = [*self._lines]
        if self._hears and len(self._typed) < _TYPED_MAX:
            sources.append(self._user.stdin)
        if not sources:
            return False
        typed_to = [self.master] if self._typed and self.master is not None else []
        ready, free, _ = select.select(sources, typed_to, [], seconds)
        if self._hears and self._user.stdin in ready:
            self._hear()
        if free:
            self._type()
        printed = [self._show(source, on_output) for source in ready if source in self._lines]
        if not any(printed):
            for line in tuple(self._lines.values()):
                on_output(line.name, b"")
        return any(printed)

    def _hear(self) -> None:
        data = _read(self._user.stdin)
        self._typed += data
        self._hears = bool(data)

    def _type(self) -> None:
        if self.master is None:
            return
        try:
            self._typed = self._typed[os.write(self.master, self._typed) :]
        except BlockingIOError:
            return
        except OSError:  # the program has closed its end
            self._typed, self._hears = b"", False

    def _show(self, source: int, on_output: Callable[[str, bytes], None]) -> bool:
        line, data = self._lines[source], _read(source)
        if not data:
            self._close(source)
            return False
        shown = line.shown is not None and _write(line.shown, data)
        on_output(line.name, data)
        if not shown and source == self.master:
            self._lines[source] = _OutputChannel(line.name, None)
        elif not shown:
            self._close(source)
        return True

    def _close(self, source: int) -> None:
        del self._lines[source]
        os.close(source)
        if source == self.master:
            self.master, self._typed, self._hears = None, b"", False


def _read(source: int) -> bytes:
    """The available data; empty at the end, which Linux reports as an error for a terminal."""
    try:
        return os.read(source, _CHUNK)
    except OSError:
        return b""


def _write(target: int, data: bytes) -> bool:
    """Write all data, waiting for a full channel; return whether that succeeded."""
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError:
            return False
    return True
