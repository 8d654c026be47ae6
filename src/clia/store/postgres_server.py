"""The common parts of all users of a PostgreSQL server: the driver, connections, error translation and lock numbers.

Invariant: an error is one line and never contains a password.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import contextmanager

from clia.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import psycopg

# Both sides detect a dead peer within half a minute.
KEEPALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
_SERVER_KEEPALIVE = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
_SINCE = {"tcp_user_timeout": 120_000, "idle_session_timeout": 140_000}  # the server version that introduced a setting
_RECONNECT_SECONDS = 15.0
IDLE_SECONDS = 60.0
"""How long a transaction may be idle: a stopped process would block all other writers."""
# Limits that a server may set, but that must not end a session that holds locks.
_LIMITS = ("idle_session_timeout", "lock_timeout", "statement_timeout")
_MAY_CREATE = "SELECT current_user, current_schema(), has_schema_privilege(current_schema(), 'CREATE')"
_CHECK_SERVER = "check that the server is running and accepts your connection"
_GRANT = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA … TO this role; with a hub also USAGE ON ALL SEQUENCES"


class PostgresAddress:
    """A database address, shown in errors without the password. Connects within ``timeout`` seconds."""

    def __init__(self, dsn: str, timeout: float) -> None:
        self._postgres, _ = modules()
        self._dsn, self._timeout = dsn, timeout
        # The minimum of libpq is 2.
        self._settings = {"connect_timeout": max(2, round(timeout)), **KEEPALIVE}
        try:
            self._parts = self._postgres.conninfo.conninfo_to_dict(dsn)
        except self._postgres.Error:
            # libpq's message would contain the password.
            raise StoreError("invalid PostgreSQL address", hints=["postgresql://user@host/name"]) from None

    def __str__(self) -> str:
        parts = [f"{key}={self._parts[key]}" for key in ("host", "port", "dbname", "user") if self._parts.get(key)]
        return f"PostgreSQL ({' '.join(parts)})" if parts else "PostgreSQL"

    def error(self, reason: str, *, code: str | None = None, hints: Sequence[str] = (), retryable: bool = False) -> StoreError:
        secret = self._parts.get("password")
        text = reason.replace(str(secret), "***") if secret else reason
        error = StoreError(f"{self}: {text}", code=code, hints=hints, fields={"store": str(self), "reason": text})
        error.retryable = retryable
        return error

    def connect(self) -> psycopg.Connection:
        """Connect without a pool, which would retry a refused connection until its timeout."""
        connection: psycopg.Connection = self._postgres.connect(self._dsn, autocommit=True, **self._settings)
        connection.isolation_level = self._postgres.IsolationLevel.READ_COMMITTED
        return connection

    def pool_settings(self, size: int, **settings: Any) -> dict[str, Any]:
        # The pool logs lost connections; the next caller gets an error anyway.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        # The pool doubles its pause after each failure; limit it, so that a returning server is noticed.
        limits = {"timeout": self._timeout, "reconnect_timeout": min(self._timeout, _RECONNECT_SECONDS)}
        sizes = {"min_size": 0, "max_size": size, "num_workers": 1}
        return {"conninfo": self._dsn, "kwargs": {**self._settings, **settings}, **sizes, **limits}

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except self._postgres.errors.LockNotAvailable:
            hints = ["another program is writing; try again"]
            raise self.error("other programs kept writing", code="store-locked", hints=hints, retryable=True) from None
        except self._postgres.errors.DeadlockDetected:
            hints = ["try again"]
            raise self.error("deadlock with another program", code="store-locked", hints=hints, retryable=True) from None
        except self._postgres.OperationalError as err:
            raise self.error(_reason(err), code="store-unavailable", hints=[_CHECK_SERVER], retryable=True) from None
        except self._postgres.errors.InsufficientPrivilege as err:
            raise self.error(_reason(err), code="store-denied", hints=[_GRANT]) from None
        except self._postgres.Error as err:
            raise self.error(_reason(err)) from None

    def check_may_create(self, connection: psycopg.Connection) -> None:
        """``StoreError`` (store-denied) if the role may not create tables."""
        role, schema, may = connection.execute(_MAY_CREATE).fetchone() or (None, None, None)
        if may:
            return
        where = "in any schema of its search_path" if schema is None else f"in the schema {schema}"
        hints = [
            f'GRANT USAGE, CREATE ON SCHEMA "{schema or "public"}" TO "{role}"',
            f"or run the same command once with a role that may, then {_GRANT}",
        ]
        raise self.error(f"the role {role} may not create clia's tables {where}", code="store-denied", hints=hints)


def _reason(err: psycopg.Error) -> str:
    """Return the server's primary message, or libpq's on one line."""
    return err.diag.message_primary or " ".join(str(err).split())


def modules() -> tuple[Any, Any]:
    try:
        import psycopg  # an extra, and 430 ms at start-up
        import psycopg_pool
    except ImportError:
        hints = ["pip install 'clia-agents[postgres]'"]
        raise StoreError("a PostgreSQL store requires psycopg", code="store-extra-missing", hints=hints) from None
    return psycopg, psycopg_pool


def detect_dead_peers(connection: psycopg.Connection) -> None:
    """Let the server detect a dead client; otherwise its locks would be held for hours."""
    values = dict(zip(_SERVER_KEEPALIVE, KEEPALIVE.values(), strict=True))
    _set(connection, {**values, "idle_in_transaction_session_timeout": int(IDLE_SECONDS * 1000)})


def disable_limits(connection: psycopg.Connection) -> None:
    """Disable the server's limits for a connection that is idle, or waits, on purpose."""
    _set(connection, dict.fromkeys(_LIMITS, 0))


def _set(connection: psycopg.Connection, values: dict[str, int]) -> None:
    version = connection.info.server_version
    sql: Any = "; ".join(f"SET {name} = {value}" for name, value in values.items() if _SINCE.get(name, 0) <= version)
    connection.execute(sql)


def lock_number(name: str) -> int:
    """Return the number of an advisory lock. A collision of two names only makes them wait for each other."""
    return int.from_bytes(hashlib.sha256(f"clia {name}".encode()).digest()[:8], "big", signed=True)
