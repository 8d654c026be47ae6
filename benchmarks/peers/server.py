"""A temporary PostgreSQL server for the peers that need one: the one that the tests start, without fsync."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from contextlib import ExitStack

_SIZE = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relkind = 'r'"
)


class NoServer(Exception):
    """Why no server is available."""


class Server(NamedTuple):
    directory: str  # of its socket

    def database(self, name: str) -> Database:
        """A new database."""
        with _connect(self.directory, "postgres") as admin:
            admin.execute(f"CREATE DATABASE {name}")
        return Database(self.directory, name)


class Database(NamedTuple):
    directory: str
    name: str

    def address(self, scheme: str = "postgresql") -> str:
        return f"{scheme}://clia@/{self.name}?host={self.directory}"

    def connect(self) -> Any:
        return _connect(self.directory, self.name)

    def size(self, schema: str) -> int:
        """The size of the tables of a schema and their indexes, without deleted rows."""
        with self.connect() as admin:
            admin.execute("VACUUM FULL")
            return int(admin.execute(_SIZE, [schema]).fetchone()[0])


def started(stack: ExitStack) -> Server:
    """A server that ends with the stack."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
    from support import postgres

    postgres.announce()
    stack.callback(postgres.stop)
    try:
        postgres.fresh()
    except postgres.NoPostgres as err:
        raise NoServer(str(err)) from None
    return Server(os.environ[postgres.DIRECTORY])


def _connect(directory: str, database: str) -> Any:
    # By name: psycopg is an extra, and other measurements must not need it.
    return import_module("psycopg").connect(f"host={directory} user=clia dbname={database}", autocommit=True)
