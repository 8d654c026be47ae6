"""What everything that talks to a PostgreSQL server shares: the driver, its errors in our words, the numbers of locks.

Invariant: a password is never in an error, and an error is one line.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager

from clia.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import psycopg

# Both sides must learn that the other is gone, also where nothing says so: within half a minute.
ALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
# What the server is told of it, and since which version it takes that.
_WATCH = {"tcp_keepalives_idle": 0, "tcp_keepalives_interval": 0, "tcp_keepalives_count": 0, "tcp_user_timeout": 120_000}
IDLE_SECONDS = 60.0
"""For so long whoever is in a transaction may say nothing: a process that is stopped in one keeps all others from writing."""
_IDLE = "idle_in_transaction_session_timeout"
# A server may end sessions that are idle, and statements that wait. A session that holds locks is, and does.
_LIMITS = {"idle_session_timeout": 140_000, "lock_timeout": 0, "statement_timeout": 0}
_MAY_MAKE = "SELECT current_user, current_schema(), has_schema_privilege(current_schema(), 'CREATE')"
_GRANT = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA … TO this role; with a hub also USAGE ON ALL SEQUENCES"


class PostgresAddress:
    """What errors say of the database: where it is, and never the password."""

    def __init__(self, dsn: str) -> None:
        self._postgres, self._pools = modules()
        try:
            self._parts = self._postgres.conninfo.conninfo_to_dict(dsn)
        except self._postgres.Error:
            # libpq quotes the text it cannot read, with the password in it.
            raise StoreError("the address of the PostgreSQL store cannot be read", hints=["postgresql://user@host/name"]) from None

    def __str__(self) -> str:
        named = [f"{key}={self._parts[key]}" for key in ("host", "port", "dbname", "user") if self._parts.get(key)]
        return f"PostgreSQL ({' '.join(named)})" if named else "PostgreSQL"

    def error(self, reason: str, *, code: str | None = None, hints: Sequence[str] = (), retryable: bool = False) -> StoreError:
        secret = self._parts.get("password")
        text = reason.replace(str(secret), "***") if secret else reason
        error = StoreError(f"{self}: {text}", code=code, hints=hints, fields={"store": str(self), "reason": text})
        error.retryable = retryable
        return error

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except self._postgres.errors.LockNotAvailable:
            hints = ["another program is writing; try again"]
            raise self.error("others were writing all the time", code="store-locked", hints=hints, retryable=True) from None
        except self._postgres.errors.DeadlockDetected:
            hints = ["another program waits for what this one holds; try again"]
            raise self.error("each waited for the other", code="store-locked", hints=hints, retryable=True) from None
        except self._pools.PoolTimeout as err:
            raise self.error(str(err), code="store-unavailable", retryable=True) from None
        except self._postgres.OperationalError as err:
            hints = ["check that the server runs and lets you in"]
            raise self.error(_reason(err), code="store-unavailable", hints=hints, retryable=True) from None
        except self._postgres.errors.InsufficientPrivilege as err:
            raise self.error(_reason(err), code="store-denied", hints=[_GRANT]) from None
        except self._postgres.Error as err:
            raise self.error(_reason(err)) from None

    def check_may_make(self, connection: psycopg.Connection) -> None:
        """Before tables are made: ``StoreError`` (store-denied) where the role may not."""
        role, schema, may = connection.execute(_MAY_MAKE).fetchone() or (None, None, None)
        if may:
            return
        where = "in any schema of its search_path" if schema is None else f"in the schema {schema}"
        hints = [
            f'GRANT USAGE, CREATE ON SCHEMA "{schema or "public"}" TO "{role}"',
            f"or have a role that may run the same command first, then {_GRANT}",
        ]
        raise self.error(f"the role {role} may not make clia's tables {where}", code="store-denied", hints=hints)


def _reason(err: psycopg.Error) -> str:
    """What the server says in a sentence, without the statement; or what libpq says, which has lines."""
    return err.diag.message_primary or " ".join(str(err).split())


def modules() -> tuple[Any, Any]:
    try:
        import psycopg  # an extra, and 430 ms at start-up
        import psycopg_pool
    except ImportError:
        hints = ["pip install 'clia[postgres]'"]
        raise StoreError("a store in PostgreSQL needs psycopg", code="store-extra-missing", hints=hints) from None
    return psycopg, psycopg_pool


def watch(connection: psycopg.Connection) -> None:
    """Has the server find out by itself that nobody is at the other end: else what a silent machine held stays held for hours."""
    values = dict(zip(_WATCH, ALIVE.values(), strict=True))
    _set(connection, {**values, _IDLE: int(IDLE_SECONDS * 1000)}, {**_WATCH, _IDLE: 0})


def never_end(connection: psycopg.Connection) -> None:
    """Takes the server's limits off a connection that is idle, or waits, for good reason."""
    _set(connection, dict.fromkeys(_LIMITS, 0), _LIMITS)


def _set(connection: psycopg.Connection, values: dict[str, int], since: dict[str, int]) -> None:
    known = connection.info.server_version
    made: Any = "; ".join(f"SET {name} = {value}" for name, value in values.items() if since[name] <= known)
    connection.execute(made)


def lock_number(name: str) -> int:
    """The number of an advisory lock: two names that share one wait for each other, and nothing worse."""
    return int.from_bytes(hashlib.sha256(f"clia {name}".encode()).digest()[:8], "big", signed=True)
