"""Locks that machines share: advisory locks of a PostgreSQL server, behind the machine's own.

Invariant: a lock is taken on this machine first, then at the server, so that few connections wait there. All locks of a thread
are held by one connection, which the thread keeps until it holds none. The server releases them when the connection ends: with
the process, or half a minute after the machine became silent. A lost connection loses its locks silently: a lock says who is at
work; conflicting work is decided by compare-and-swap. Nobody waits forever: a stopped process keeps its connection, so waiting
ends with an error.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress

from clia.errors import Conflict, StoreError
from clia.store.interface import CLONE_LOCKS
from clia.store.postgres_server import KEEPALIVE, PostgresAddress, detect_dead_peers, disable_limits, lock_number, modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, LiteralString

    import psycopg

    from clia.store.interface import Locks

LOCK_TIMEOUT = 300.0
"""Seconds to wait for a lock of another machine; verbs take seconds."""
_MAX_IDLE = 8
"""Idle connections kept open."""
_LOCK: dict[bool, LiteralString] = {False: "SELECT pg_advisory_lock(%s)", True: "SELECT pg_advisory_lock_shared(%s)"}
_UNLOCK: dict[bool, LiteralString] = {False: "SELECT pg_advisory_unlock(%s)", True: "SELECT pg_advisory_unlock_shared(%s)"}
_TRY: LiteralString = "SELECT pg_try_advisory_lock(%s)"


class PostgresLocks:
    """``Locks`` of all machines that share a PostgreSQL server; ``inner`` are this machine's.

    Connects when the first shared lock is requested.
    """

    def __init__(self, dsn: str, space: str, inner: Locks, *, timeout: float = 30.0, patience: float = LOCK_TIMEOUT) -> None:
        self._dsn = dsn
        self._patience = patience
        self._space = space
        self._inner = inner
        self._seconds = max(2, round(timeout))  # the minimum of libpq
        self._mutex = threading.Lock()
        self._idle: dict[int, list[_LockSession]] = {}  # by process: a forked child does not use its parent's
        self._closed = False
        self._thread = threading.local()

    def close(self) -> None:
        """Close idle connections; the others are closed when released."""
        with self._mutex:
            self._closed = True
            for session in self._idle.pop(os.getpid(), []):
                session.end()

    @contextmanager
    def hold(self, name: str, *, shared: bool = False) -> Iterator[None]:
        with self._inner.hold(name, shared=shared):
            if name in CLONE_LOCKS:
                yield
                return
            number = self._number(name)
            session = self._wait(name, _LOCK[shared], number)
            try:
                yield
            finally:
                self._unlock(session, _UNLOCK[shared], number)

    @contextmanager
    def attempt(self, name: str) -> Iterator[bool]:
        with self._inner.attempt(name) as free:
            if name in CLONE_LOCKS or not free:
                yield free
                return
            number = self._number(name)
            session, granted = self._request(_TRY, number)
            try:
                yield bool(granted)
            finally:
                self._unlock(session, _UNLOCK[False] if granted else None, number)

    def _wait(self, name: str, sql: LiteralString, number: int) -> _LockSession:
        try:
            return self._request(sql, number)[0]
        except TimeoutError:
            raise _held(name, self._patience) from None

    def _number(self, name: str) -> int:
        return lock_number(f"lock {self._space} {name}")

    def _request(self, sql: LiteralString, number: int) -> tuple[_LockSession, Any]:
        """Request a lock; return the connection and the answer. Reconnects once if the connection was lost unnoticed."""
        session = self._session()
        try:
            return session, session.request(sql, number)
        except BaseException as err:
            self._give_back(session)
            if not (isinstance(err, StoreError) and session.lost and session.used):
                raise
        session = self._session()
        try:
            return session, session.request(sql, number)
        except BaseException:
            self._give_back(session)
            raise

    def _unlock(self, session: _LockSession, sql: LiteralString | None, number: int) -> None:
        try:
            if sql is not None and not session.lost:
                with suppress(StoreError):  # the server releases it
                    session.request(sql, number)
        finally:
            self._give_back(session)

    def _session(self) -> _LockSession:
        """Return this thread's session, counting one more lock."""
        session: _LockSession | None = getattr(self._thread, "session", None)
        if session is None or session.lost:
            session = self._free_session()
            self._thread.session = session
        session.holds += 1
        return session

    def _free_session(self) -> _LockSession:
        with self._mutex:
            idle = self._idle.get(os.getpid(), [])
            while idle:
                session = idle.pop()
                if not session.lost:
                    return session
        return _LockSession(self._dsn, self._seconds, self._patience)

    def _give_back(self, session: _LockSession) -> None:
        session.holds -= 1
        if session.holds:
            return
        if getattr(self._thread, "session", None) is session:
            self._thread.session = None
        with self._mutex:
            idle = self._idle.setdefault(os.getpid(), [])
            if not session.lost and not self._closed and len(idle) < _MAX_IDLE:
                idle.append(session)
                return
        session.end()


class _LockSession:
    """One connection, used by one thread at a time."""

    def __init__(self, dsn: str, seconds: int, patience: float) -> None:
        self._address = PostgresAddress(dsn)
        self._process = os.getpid()
        self.holds = 0
        self.used = False  # it worked before, so a failure may mean a lost connection
        with self._address.translated():
            self._connection: psycopg.Connection = modules()[0].connect(dsn, autocommit=True, connect_timeout=seconds, **KEEPALIVE)
            try:
                detect_dead_peers(self._connection)
                disable_limits(self._connection)
                self._connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{round(patience * 1000)}ms"])
            except BaseException:
                self._connection.close()
                raise

    @property
    def lost(self) -> bool:
        """True also in a forked child: the connection belongs to its parent."""
        return self._process != os.getpid() or self._connection.closed

    def request(self, sql: LiteralString, number: int) -> Any:
        """Return the server's answer; ``TimeoutError`` if another session held the lock too long."""
        try:
            with self._address.translated():
                try:
                    row = self._connection.execute(sql, [number]).fetchone()
                except modules()[0].errors.LockNotAvailable:
                    raise TimeoutError from None
        except (StoreError, TimeoutError):
            raise
        except BaseException:
            self.end()  # interrupted: its locks are unknown
            raise
        self.used = True
        return row and row[0]

    def end(self) -> None:
        if self._process == os.getpid():
            self._connection.close()


def _held(name: str, seconds: float) -> Conflict:
    return Conflict(
        f"another process has held the lock {name!r} for {seconds:g} seconds; it may be stopped or hanging",
        code="agent-held",
        hints=["clia fleet shows the machines at work", "the lock is released when that process ends"],
        fields={"lock": name},
    )
