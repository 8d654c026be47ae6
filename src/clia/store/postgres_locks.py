"""Locks that machines share: advisory locks of a PostgreSQL server, behind the machine's own.

Invariant: a lock is taken on this machine first, then at the server, so that few connections wait there. All locks of a thread
are held by one connection, which the thread keeps until it holds none. The server releases them when the connection ends: with
the process, or half a minute after the machine became silent. A lost connection loses its locks silently: a lock says who is at
work; conflicting work is decided by compare-and-swap. Waiting is limited and ends with an error, because
a stopped process keeps its connection.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress

from clia.errors import Conflict, StoreError
from clia.store.interface import CLONE_LOCKS
from clia.store.postgres_server import PostgresAddress, detect_dead_peers, disable_limits, lock_number, modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, LiteralString

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
        self._timeout = timeout
        self._patience = patience
        self._space = space
        self._inner = inner
        self._mutex = threading.Lock()
        self._idle: dict[int, list[LockSession]] = {}  # by process: a forked child does not use its parent's
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
            try:
                session, _ = self._request(_LOCK[shared], number)
            except TimeoutError:
                message = f"another process has held the lock {name!r} for {self._patience:g} seconds; it may be stopped or hanging"
                hints = ["clia fleet shows the machines at work", "the lock is released when that process ends"]
                raise Conflict(message, code="agent-held", hints=hints, fields={"lock": name}) from None
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

    def _number(self, name: str) -> int:
        return lock_number(f"lock {self._space} {name}")

    def _request(self, sql: LiteralString, number: int) -> tuple[LockSession, Any]:
        """Request a lock; return the connection and the answer. Reconnects if the connection was lost unnoticed."""
        while True:
            session = self._session()
            try:
                return session, session.request(sql, number)
            except BaseException as err:
                self._give_back(session)
                if not (isinstance(err, StoreError) and session.lost and session.used):
                    raise

    def _unlock(self, session: LockSession, sql: LiteralString | None, number: int) -> None:
        try:
            if sql is not None and not session.lost:
                with suppress(StoreError):  # the server releases it
                    session.request(sql, number)
        finally:
            self._give_back(session)

    def _session(self) -> LockSession:
        """Return this thread's session, counting one more lock."""
        session: LockSession | None = getattr(self._thread, "session", None)
        with self._mutex:
            idle = self._idle.get(os.getpid(), [])
            while idle and (session is None or session.lost):
                session = idle.pop()
        if session is None or session.lost:
            session = LockSession(self._dsn, self._timeout, self._patience)
        self._thread.session = session
        session.holds += 1
        return session

    def _give_back(self, session: LockSession) -> None:
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


class LockSession:
    """One connection, used by one thread at a time."""

    def __init__(self, dsn: str, timeout: float, patience: float) -> None:
        self._address = PostgresAddress(dsn, timeout)
        self._process = os.getpid()
        self.holds = 0
        self.used = False  # it worked before, so a failure may mean a lost connection
        with self._address.translated():
            self.connection = self._address.connect()
            try:
                detect_dead_peers(self.connection)
                disable_limits(self.connection)
                self.connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{round(patience * 1000)}ms"])
            except BaseException:
                self.connection.close()
                raise

    @property
    def lost(self) -> bool:
        """True also in a forked child: the connection belongs to its parent."""
        return self._process != os.getpid() or self.connection.closed

    def request(self, sql: LiteralString, number: int) -> Any:
        """Return the server's answer; ``TimeoutError`` if another session held the lock too long."""
        try:
            with self._address.translated():
                try:
                    row = self.connection.execute(sql, [number]).fetchone()
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
            self.connection.close()
