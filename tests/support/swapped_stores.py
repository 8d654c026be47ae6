"""Spaces whose store is lost, or replaced by an older copy, as disks and servers do it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import psycopg

import clia
from support import git
from support.space_driver import postgres_url
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

TABLES = ("clia_streams", "clia_entries", "clia_values", "clia_edges", "clia_retractions")


class SwappableSpace(NamedTuple):
    """A space whose store can be saved, put back and lost."""

    root: Path
    address: str | None  # of PostgreSQL

    def open(self, **more: object) -> clia.Space:
        return clia.init(self.root, settings=settings(store=self.address and postgres_url(self.address), **more))

    @property
    def files(self) -> list[Path]:
        return sorted((self.root / ".git/clia").glob("space.db*"))

    def save(self, name: str) -> None:
        """Copy the store, as a backup of the disk or the server does."""
        if self.address is None:
            kept = self.root.parent / name
            kept.mkdir()
            for file in self.files:
                shutil.copy(file, kept)
            return
        with psycopg.connect(self.address) as server:
            for table in TABLES:
                server.execute(f"CREATE TABLE {name}_{table} AS SELECT * FROM {table}".encode())  # noqa: S608  # constants

    def put_back(self, name: str) -> None:
        self.lose()
        if self.address is None:
            for file in (self.root.parent / name).iterdir():
                shutil.copy(file, self.root / ".git/clia")
            return
        with psycopg.connect(self.address) as server:
            for table in TABLES:
                server.execute(f"INSERT INTO {table} SELECT * FROM {name}_{table}".encode())  # noqa: S608  # constants

    def lose(self) -> None:
        for file in self.files:
            file.unlink()
        if self.address is not None:
            with psycopg.connect(self.address) as server:
                server.execute(f"TRUNCATE {', '.join(TABLES)}".encode())

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)
