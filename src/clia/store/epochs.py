"""Epochs of a store: how clia notices a lost store, or an older copy of one, before it writes anything.

The repository names the *epoch* of its store, and the store has a row with the same id. The version of that row counts the
transactions that changed live state; a small file beside the store, the *mark*, has the last count that was acknowledged. A store
without the row is lost, one with a lower count is an older copy, and one with another id is another store.

Invariant: a transaction that changes live state checks and advances the row before it commits, and advances the mark before it is
acknowledged. The epoch begins with the first such transaction: a store without an epoch contains nothing that is missing in git.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from clia.errors import CliaError, StoreError
from clia.store import private_files
from clia.store.interface import EPOCH
from clia.store.validation import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.store.sql_store import GuardedConnection, SqlStore

MARK_FILE = "store-mark"
"""In the directory of clia's own files."""
SAME, NEWER, BEFORE, UNRELATED = "same", "newer", "before", "unrelated"
_PUT = (
    "INSERT INTO clia_values VALUES (?, ?, 1, ?)"
    " ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1, value = excluded.value RETURNING version"
)
_REPAIR = "or continue with what git has: clia doctor --repair"


class EpochRow(NamedTuple):
    """The row of a store, and the content of a mark."""

    number: int  # of transactions that changed live state
    epoch: str


class RepositoryEpochs(Protocol):
    """The epochs of a clone's store, as its repository names them."""

    def current(self) -> str | None:
        """Return the id of the current epoch of this clone; None if there was none yet."""

    def write(self, why: str) -> str:
        """Write the epoch that follows the current one, and return its id; it is not current yet."""

    def settle(self, epoch: str) -> None:
        """Make an epoch the current one, unless a later one is."""

    def relation(self, epoch: str) -> str:
        """Return whether an epoch is the ``SAME`` as the current one, ``NEWER``, from ``BEFORE`` it, or ``UNRELATED``."""


class StoreMark(NamedTuple):
    """The file with the last acknowledged count. Losing it is harmless: an older store is then recognised by git alone."""

    path: str

    def read(self) -> EpochRow | None:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return _parsed(os.pread(handle, 80, 0))
        except OSError:
            return None
        finally:
            os.close(handle)

    def write(self, row: EpochRow) -> None:
        """Advance the mark. It is not flushed: after a power failure it may be lower than the store's, never higher."""
        with suppress(OSError):
            handle = private_files.open_lock(self.path)
            try:
                before = _parsed(os.pread(handle, 80, 0))
                if before is None or before.epoch != row.epoch or before.number < row.number:
                    os.pwrite(handle, b"%s %020d\n" % (row.epoch.encode("ascii"), row.number), 0)
            finally:
                os.close(handle)


def _parsed(content: bytes) -> EpochRow | None:
    epoch, _, number = content.partition(b"\n")[0].decode("ascii", "replace").partition(" ")
    return EpochRow(int(number), epoch) if len(epoch) == 40 and number.isdigit() else None


class StoreGuard:
    """Checks that a store is the one that belongs to its repository. Shared by the threads that use the store."""

    def __init__(self, store: SqlStore, mark: StoreMark, epochs: RepositoryEpochs) -> None:
        self._store = store
        self._mark = mark
        self._epochs = epochs
        self._problem: StoreError | None = None
        self._thread = threading.local()

    def read_mark(self) -> EpochRow | None:
        """Return the mark. Read before the row: other processes advance the row first."""
        return self._mark.read()

    def look(self, mark: EpochRow | None, row: EpochRow | None) -> None:
        """Compare the mark with the row that the store has now."""
        try:
            self._compare(mark, row)
            self._problem = None
        except StoreError as err:
            self._problem = err

    def problem(self) -> StoreError | None:
        """Why the store must not be used; None if it is the right one. A known problem is checked again, because it may be
        solved."""
        if self._problem is not None:
            self.look(self.read_mark(), self._store.epoch_row())
        return self._problem

    def require(self) -> None:
        """Raise the problem of the store, if it has one and this thread does not repair it."""
        if self._problem is not None and not self._repairing:
            problem = self.problem()
            if problem is not None:
                raise _again(problem)

    @property
    def _repairing(self) -> bool:
        return getattr(self._thread, "repairing", False)

    @contextmanager
    def repairing(self, why: str) -> Iterator[None]:
        """Allow this thread to change a store that has a problem. A new epoch begins when the block ends."""
        self._thread.repairing = True
        try:
            yield
        finally:
            self._thread.repairing = False
        self.begin(why)

    def begin(self, why: str) -> None:
        """Begin a new epoch with the store as it is now."""
        with self._store.transaction() as connection:
            connection.after_commit = self._begun(connection, self._epochs.write(why))
        self._problem = None

    def admit(self, connection: GuardedConnection, *, live: bool) -> Callable[[], None] | None:
        """Check the store at the end of a transaction; return a function to call after its commit. ``live``: it changes live
        state."""
        if self._repairing:
            return None
        row = connection.advance(EPOCH)
        if row is None:
            if self._epochs.current() is not None:
                raise self._lost()
            return self._begun(connection, self._epochs.write("first use")) if live else None
        mark = self._mark.read()
        if mark is None or mark.epoch != row.epoch or row.number <= mark.number:
            self._compare(mark, row._replace(number=row.number - 1))
        return lambda: self._mark.write(row)

    def _begun(self, connection: GuardedConnection, epoch: str) -> Callable[[], None]:
        """Put a new epoch's row into a transaction."""
        count = int(connection.fetch(_PUT, connection.key_of(EPOCH), EPOCH, encode(epoch))[0][0])

        def acknowledge() -> None:
            with suppress(CliaError):  # a locked ref, say: the next process completes it
                self._epochs.settle(epoch)
            self._mark.write(EpochRow(count, epoch))

        return acknowledge

    def _compare(self, mark: EpochRow | None, row: EpochRow | None) -> None:
        """Raise the problem of a store with this row."""
        if row is None:
            if self._epochs.current() is not None:
                raise self._lost()
            return
        if mark is not None and mark.epoch == row.epoch:
            if row.number < mark.number:
                raise self._older(mark.number - row.number)
            return
        relation = self._epochs.relation(row.epoch)
        if relation == NEWER:  # the process died before the repository named it
            self._epochs.settle(row.epoch)
        elif relation == BEFORE:
            raise self._older(None)
        elif relation == UNRELATED:
            raise self._other()

    def _lost(self) -> StoreError:
        location = self._store.location
        message = f"the store of this space is lost: {location} is empty, but live state was recorded before"
        hints = ["if the store is elsewhere, put it back, or name it: git config clia.store ADDRESS", _REPAIR]
        return StoreError(message, code="store-lost", hints=hints, fields={"store": location})

    def _older(self, missing: int | None) -> StoreError:
        """``missing``: the number of later transactions; None: it is from before the store was repaired."""
        location = self._store.location
        lack = "it is from before the last repair" if missing is None else f"its last {missing} changes are missing"
        message = f"{location} is an older copy of the store: {lack}"
        hints = ["put the newer store back, with its -wal file", _REPAIR]
        return StoreError(message, code="store-older", hints=hints, fields={"store": location, "missing": missing})

    def _other(self) -> StoreError:
        location = self._store.location
        message = f"{location} belongs to another copy of this repository, or the repository is older than it"
        hints = ["put back the store and the repository that belong together", _REPAIR]
        return StoreError(message, code="store-other", hints=hints, fields={"store": location})


def _again(problem: StoreError) -> StoreError:
    """A new exception for each raise: threads would share the traceback."""
    return StoreError(problem.message, code=problem.code, hints=problem.hints, fields=problem.fields)


def row_from(version: int, text: str) -> EpochRow:
    """Parse the row of a store; its version is the count."""
    return EpochRow(version, str(decode(text, EPOCH)))
