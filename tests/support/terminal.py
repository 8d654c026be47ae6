"""A person at a terminal: the program on a pseudo-terminal, read and typed to line by line."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

PATIENCE = 60.0  # seconds without output before a test fails
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@contextmanager
def no_signals(listener: Callable[[int], None]) -> Iterator[None]:
    """A source of signals that sends none."""
    del listener
    yield


class Terminal:
    """One program that runs at a terminal. What it shows is kept in ``shown``, with every escape sequence."""

    def __init__(self, cwd: Path, *words: str, env: Mapping[str, str] | None = None) -> None:
        self.master, screen = pty.openpty()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_", "NO_COLOR"))}
        environment |= {"TERM": "xterm", "COLUMNS": "200", "LC_ALL": "C.UTF-8", **(env or {})}
        self.process = subprocess.Popen(
            [warm.program(), *words], cwd=cwd, env=environment, stdin=screen, stdout=screen, stderr=screen, start_new_session=True
        )
        os.close(screen)
        self.shown = ""
        self._read_to = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def sees(self, text: str) -> str:
        """Wait until a text is shown that was not seen before; return everything up to it, without colours."""
        while True:
            fresh = _STYLE.sub("", self.shown)[self._read_to :]
            if text in fresh:
                end = fresh.index(text) + len(text)
                self._read_to += end
                return fresh[:end]
            assert self._read(), f"the program ended without {text!r}: {self.shown}"

    def types(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def closes_input(self) -> None:
        """Ctrl-D on an empty line."""
        os.write(self.master, b"\x04")

    def ends(self) -> int:
        """Read to the end; return the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    @property
    def plain(self) -> str:
        """Everything shown so far, without colours."""
        return _STYLE.sub("", self.shown)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], PATIENCE)
        assert ready, f"nothing more was shown after: {self.shown}"
        try:
            data = os.read(self.master, 65536)
        except OSError:  # on Linux, the other end is closed
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)
