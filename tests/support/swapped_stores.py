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

    import pytest

TABLES = ("clia_streams", "clia_entries", "clia_values", "clia_edges", "clia_retractions")


class StoreFiles(NamedTuple):
    """The files of a store beside a repository."""

    home: Path

    def all(self) -> list[Path]:
        return sorted(self.home.glob("space.db*"))

    def save(self, copy: Path) -> None:
        """Copy them, as a backup of the disk does."""
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in self.all():
            shutil.copy(file, copy)

    def put_back(self, copy: Path) -> None:
        self.lose()
        for file in copy.iterdir():
            shutil.copy(file, self.home)

    def lose(self) -> None:
        for file in self.all():
            file.unlink()

    def lose_journal(self) -> None:
        """Remove what SQLite keeps beside its database."""
        for file in self.all():
            if file.suffix != ".db":
                file.unlink()


def lose_tables(address: str) -> None:
    """Empty the tables of a store on a server."""
    with psycopg.connect(address) as server:
        server.execute(f"TRUNCATE {', '.join(TABLES)}".encode())


class SwappableSpace(NamedTuple):
    """A space whose store can be saved, put back and lost."""

    root: Path
    address: str | None  # of PostgreSQL

    def open(self, **more: object) -> clia.Space:
        return clia.init(self.root, settings=settings(store=self.address and postgres_url(self.address), **more))

    @property
    def files(self) -> StoreFiles:
        return StoreFiles(self.root / ".git/clia")

    def save(self, name: str) -> None:
        """Copy the store, as a backup of the disk or the server does."""
        if self.address is None:
            self.files.save(self.root.parent / name)
            return
        with psycopg.connect(self.address) as server:
            for table in TABLES:
                server.execute(f"CREATE TABLE {name}_{table} AS SELECT * FROM {table}".encode())  # noqa: S608  # constants

    def put_back(self, name: str) -> None:
        self.lose()
        if self.address is None:
            self.files.put_back(self.root.parent / name)
            return
        with psycopg.connect(self.address) as server:
            for table in TABLES:
                server.execute(f"INSERT INTO {table} SELECT * FROM {name}_{table}".encode())  # noqa: S608  # constants

    def lose(self) -> None:
        self.files.lose()
        if self.address is not None:
            lose_tables(self.address)

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


def swappable_on(request: pytest.FixtureRequest, root: Path) -> SwappableSpace:
    """The space of a fixture whose parameter is ``sqlite`` or ``postgresql``."""
    return SwappableSpace(root, None if request.param == "sqlite" else request.getfixturevalue("postgres_address"))


def session_ailments(space: clia.Space, *, repair: bool = False) -> list[tuple[str, str, bool]]:
    """The problems of sessions; entries in the trace of each decision are pending again in an older store."""
    ailments = space.doctor(repair=repair)
    return [(ailment.code, ailment.session, ailment.repaired) for ailment in ailments if ailment.code != "trace-bound"]
