"""A separate PostgreSQL server, which a test can stop and start."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from support import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.url = f"postgresql://clia@/postgres?host={directory}"

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "-m", mode)

    def save(self, name: str) -> None:
        """Stop the server, copy its files, and start it again."""
        self.stop()
        self._copy("data", name)
        self.start()

    def put_back(self, name: str) -> None:
        """Replace the server's files by a copy, as a restored snapshot of its machine does."""
        self.stop("immediate")
        self._copy(name, "data")
        self.start()

    def _copy(self, name: str, to: str) -> None:
        shutil.rmtree(f"{self.directory}/{to}", ignore_errors=True)
        subprocess.run(["cp", "-a", f"{self.directory}/{name}", f"{self.directory}/{to}"], check=True)

    def start(self, more: str = "") -> None:
        self._control("start", "-l", f"{self.directory}/log", "-o", f"{postgres.SETTINGS} -k {self.directory} {more}")

    def _control(self, *words: str) -> None:
        program = str(postgres.binaries() / "pg_ctl")
        postgres.run([program, *words, "-w", "-D", f"{self.directory}/data"], self.directory)


@contextmanager
def own_server() -> Iterator[Server]:
    directory = f"/tmp/clia-pg-{uuid.uuid4().hex[:12]}"  # short: the path of a socket has 107 bytes
    os.mkdir(directory, 0o700)
    try:
        postgres.start(directory)
        yield Server(directory)
    finally:
        with suppress(postgres.NoPostgres):  # it is stopped or was never started
            Server(directory).stop()
        shutil.rmtree(directory, ignore_errors=True)
