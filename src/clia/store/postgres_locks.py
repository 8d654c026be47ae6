"""Locks that machines share: advisory locks of a PostgreSQL server, behind those of the machine.

Invariant: a lock is held first on this machine, then at the server, so that few connections wait there. All that one thread
holds is held by one connection, which is that thread's until it holds nothing more; the server frees it all when the
connection ends: with the process, or half a minute after the machine fell silent. A connection that is lost takes its
locks along in silence: a lock says who is at work, and what two do at once is settled by what they compare and swap.
Nobody waits for ever: a process that was stopped keeps its connection, and whoever waits for it is told after a while.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress

from clia.errors import Conflict, StoreError
from clia.store.interface import CLONE_LOCKS
from clia.store.postgres_server import ALIVE, PostgresAddress, lock_number, modules, never_end, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, LiteralString

    import psycopg

    from clia.store.interface import Locks

PATIENCE = 300.0
"""Seconds after which a lock that another machine holds is not waited for any longer: what a verb does takes seconds."""
_KEPT = 8
"""So many connections that hold nothing stay open."""
_HOLD: dict[bool, LiteralString] = {False: "SELECT pg_advisory_lock(%s)", True: "SELECT pg_advisory_lock_shared(%s)"}
_LET_GO: dict[bool, LiteralString] = {False: "SELECT pg_advisory_unlock(%s)", True: "SELECT pg_advisory_unlock_shared(%s)"}
_TRY: LiteralString = "SELECT pg_try_advisory_lock(%s)"


class PostgresLocks:
    """``Locks`` of all machines that share a PostgreSQL server; ``inner`` are those of this machine.

    Nothing is connected before the first lock is wanted that is not about one clone alone.
    """

    def __init__(self, dsn: str, space: str, inner: Locks, *, timeout: float = 30.0, patience: float = PATIENCE) -> None:
        self._dsn = dsn
        self._patience = patience
        self._space = space
        self._inner = inner
        self._seconds = max(2, round(timeout))  # libpq takes no less
        self._mutex = threading.Lock()
        self._idle: dict[int, list[_Session]] = {}  # by process: a forked one leaves its parent's alone
        self._closed = False
        self._thread = threading.local()

    def close(self) -> None:
        """Ends the connections that hold nothing; the others end when they are let go."""
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
            session = self._wait(name, _HOLD[shared], number)
            try:
                yield
            finally:
                self._let_go(session, _LET_GO[shared], number)

    @contextmanager
    def attempt(self, name: str) -> Iterator[bool]:
        with self._inner.attempt(name) as free:
            if name in CLONE_LOCKS or not free:
                yield free
                return
            number = self._number(name)
            session, granted = self._ask(_TRY, number)
            try:
                yield bool(granted)
            finally:
                self._let_go(session, _LET_GO[False] if granted else None, number)

    def _wait(self, name: str, sql: LiteralString, number: int) -> _Session:
        try:
            return self._ask(sql, number)[0]
        except TimeoutError:
            raise _held(name, self._patience) from None

    def _number(self, name: str) -> int:
        return lock_number(f"lock {self._space} {name}")

    def _ask(self, sql: LiteralString, number: int) -> tuple[_Session, Any]:
        """The connection that was asked for a lock, and its answer. One that was lost unnoticed is made anew, once."""
        session = self._session()
        try:
            return session, session.ask(sql, number)
        except BaseException as err:
            self._give_back(session)
            if not (isinstance(err, StoreError) and session.lost and session.used):
                raise
        session = self._session()
        try:
            return session, session.ask(sql, number)
        except BaseException:
            self._give_back(session)
            raise

    def _let_go(self, session: _Session, sql: LiteralString | None, number: int) -> None:
        try:
            if sql is not None and not session.lost:
                with suppress(StoreError):  # the server has freed it, or will
                    session.ask(sql, number)
        finally:
            self._give_back(session)

    def _session(self) -> _Session:
        """The one of this thread, which is asked for one lock more."""
        session: _Session | None = getattr(self._thread, "session", None)
        if session is None or session.lost:
            session = self._free_session()
            self._thread.session = session
        session.holds += 1
        return session

    def _free_session(self) -> _Session:
        with self._mutex:
            idle = self._idle.get(os.getpid(), [])
            while idle:
                session = idle.pop()
                if not session.lost:
                    return session
        return _Session(self._dsn, self._seconds, self._patience)

    def _give_back(self, session: _Session) -> None:
        session.holds -= 1
        if session.holds:
            return
        if getattr(self._thread, "session", None) is session:
            self._thread.session = None
        with self._mutex:
            idle = self._idle.setdefault(os.getpid(), [])
            if not session.lost and not self._closed and len(idle) < _KEPT:
                idle.append(session)
                return
        session.end()


class _Session:
    """One connection, of one thread at a time."""

    def __init__(self, dsn: str, seconds: int, patience: float) -> None:
        self._address = PostgresAddress(dsn)
        self._process = os.getpid()
        self.holds = 0
        self.used = False  # it has worked before: that it does not now may be old news
        with self._address.translated():
            self._connection: psycopg.Connection = modules()[0].connect(dsn, autocommit=True, connect_timeout=seconds, **ALIVE)
            try:
                watch(self._connection)
                never_end(self._connection)
                self._connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{round(patience * 1000)}ms"])
            except BaseException:
                self._connection.close()
                raise

    @property
    def lost(self) -> bool:
        """Also in a process that was forked: the connection is its parent's."""
        return self._process != os.getpid() or self._connection.closed

    def ask(self, sql: LiteralString, number: int) -> Any:
        """The server's answer; ``TimeoutError`` where another has held the lock for too long."""
        try:
            with self._address.translated():
                try:
                    row = self._connection.execute(sql, [number]).fetchone()
                except modules()[0].errors.LockNotAvailable:
                    raise TimeoutError from None
        except (StoreError, TimeoutError):
            raise
        except BaseException:
            self.end()  # interrupted: nobody knows what it holds now
            raise
        self.used = True
        return row and row[0]

    def end(self) -> None:
        if self._process == os.getpid():
            self._connection.close()


def _held(name: str, seconds: float) -> Conflict:
    return Conflict(
        f"another process has held {name!r} for {seconds:g} seconds: it may be stopped, or hang",
        code="agent-held",
        hints=["clia fleet tells which machines are at work", "when that process ends, so does its lock"],
        fields={"lock": name},
    )
