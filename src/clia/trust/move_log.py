"""The log of a machine: every move of a ref that clia made here, in a signed chain of entries (``clia.trust.machine_log``).

An entry has the moves of one verb or, under load, of several that finished at the same time, and the commit of the chain of keys
that was current.

A move is noted in a file before it happens (``clia/signing/moves``), and logged after it happened; the file is removed last. So a
process that dies in between leaves a note, and the next one that logs anything logs that move, too.

Invariant: a move that happened has one entry. A verb returns only after the entries of its moves are written.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from contextlib import contextmanager, suppress

from clia.errors import CliaError, GitError
from clia.store import private_files
from clia.store.private_files import FileLocks
from clia.trust.log_writer import LogWriter
from clia.trust.machine_log import LogEntry, LoggedMove
from clia.trust.superseded_logs import SupersededLogs
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.git.records import Stamp
    from clia.git.repository import Git
    from clia.trust.machine_keys import MachineKey

STEPS = ("move-noted", "log-locked", "moves-logged")
"""The crash points: a move is noted and has not happened; moves have happened; they are logged and still noted."""
MOVES_MAX = 200
"""Moves of one entry; more are spread over several."""
_ADOPTIONS = ("clia: adopt", "clia: follow the hub", "clia: purged at the hub", "clia: from the archive repository")
"""Moves to what another machine did and logged."""
_DIRECTORY, _LOCK = "moves", "@log"
_AT_HUB = "-hub"
"""End of the names of notes about moves at the hub, which happen there before they happen here."""
LOCK_SECONDS = 10
"""The limit of a wait for the lock of the log, whose holder may be stopped. Then a later command logs the moves."""


class MoveLog:
    """The log of this clone's machine. Nothing is logged in a space that does not sign."""

    def __init__(
        self, git: Git, machine: MachineKey, by: Callable[[], Stamp], reached: Callable[[str], None], notify: Callable[[str], None]
    ) -> None:
        """``notify`` is called with a sentence if a move happened and cannot be logged yet."""
        self._notify = notify
        self._git = git
        self._machine = machine
        self._by = by
        self._reached = reached
        self._home = os.path.join(git.handle.common_dir, "clia", "signing")
        self._directory = os.path.join(self._home, _DIRECTORY)
        self._local = threading.local()
        self._count = 0
        self._superseded = SupersededLogs(git, self._home)
        self._writer = LogWriter(git, machine, self._superseded)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Log the moves that this thread makes inside together, when the outermost block ends."""
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        try:
            yield
        except Exception:
            self._leave(depth)
            raise
        except BaseException:
            self._local.depth = depth
            raise
        self._leave(depth)

    def _leave(self, depth: int) -> None:
        self._local.depth = depth
        if not depth:
            self.flush()

    def begin(self, ref: str, old: str | None, new: str | None, why: str, *, at_hub: bool = False) -> str | None:
        """Note a move before it happens, ``at_hub`` or here; returns the note, or None if the move is not logged."""
        pending = self._pending()
        if not self._is_logged(ref, why) or not (pending or self._machine.exists()):
            return None
        doubtful = self._doubtful().pop((ref, old, new), None)
        if doubtful is not None:
            self._local.noted = doubtful, LoggedMove(ref, old, new, why)
            return doubtful
        self._count += 1
        name = f"{time.time_ns():020}-{os.getpid()}-{self._count}"
        path, move = f"{self._directory}/{name}{_AT_HUB if at_hub else ''}", LoggedMove(ref, old, new, why)
        try:
            self._write(path, move.text)
        except OSError as err:
            raise GitError(f"cannot note the move of {ref}: {err.strerror}", fields={"ref": ref, "reason": err.strerror}) from None
        self._reached("move-noted")
        self._local.noted = path, move
        return path

    def cancel(self, note: str) -> None:
        """Remove the note of a move that did not happen."""
        with suppress(OSError):
            os.unlink(note)

    def end(self, note: str) -> None:
        """A move has happened. It is logged now, or at the end of the batch."""
        path, move = self._local.noted
        self._pending()[note] = move if path == note else self._read(note)
        if not getattr(self._local, "depth", 0):
            self.flush()

    def doubt(self, note: str) -> None:
        """A move at the hub may have happened: its note is that of the same move here."""
        path, move = self._local.noted
        known = move if path == note else self._read(note)
        if known is not None:
            self._doubtful()[known[:3]] = note

    def _doubtful(self) -> dict[tuple[str, str | None, str | None], str]:
        """The notes of this thread's moves at the hub that may have happened."""
        if not hasattr(self._local, "doubtful"):
            self._local.doubtful = {}
        doubtful: dict[tuple[str, str | None, str | None], str] = self._local.doubtful
        return doubtful

    def settle(self, at_hub: Callable[[str], str | None]) -> None:
        """Decide about moves at the hub that dead processes noted. ``at_hub``: the values that it has now."""
        if any(path.endswith(_AT_HUB) for path in self._notes()):
            with suppress(CliaError, OSError), self._locks().attempt(_LOCK) as is_free:
                if is_free:
                    self._drain({}, at_hub)

    def flush(self) -> None:
        """Log the moves of this thread, and those that dead processes noted.

        A failure is not an error, which would make the caller repeat the verb: the notes stay for the next flush.
        """
        pending = self._pending()
        try:
            if any(map(os.path.exists, pending)):  # another process may have logged them with its own
                with self._locks().hold(_LOCK):
                    self._drain(pending)
        except (CliaError, OSError) as err:
            reason = err.message if isinstance(err, CliaError) else err.strerror
            self._notify(f"recorded, but not in the log yet ({reason}); the next command completes it")
        pending.clear()

    def recover(self) -> None:
        """Log what processes noted and did not log before they died."""
        with suppress(CliaError):
            self._machine.finish_rotation(self._newest_key)
        try:
            notes = os.listdir(self._directory)
        except OSError:
            return
        if notes:
            with suppress(CliaError, OSError), self._locks().attempt(_LOCK) as is_free:
                if is_free:  # otherwise its holder logs them
                    self._drain({})

    def tidy(self) -> None:
        """Give a log of an earlier version the present form, and remove objects of the log that nothing needs any more."""
        if os.path.isdir(self._home):
            with suppress(CliaError, OSError), self._locks().attempt(_LOCK) as is_free:
                if is_free:
                    self._writer.tidy(self._machine.name(), self._by())

    def _newest_key(self) -> str:
        tip = self._git.refs.get(names.KEYS)
        return "" if tip is None else self._git.objects.commit(tip).message

    def _pending(self) -> dict[str, LoggedMove | None]:
        """The moves of this thread that are not logged yet, by their notes."""
        if not hasattr(self._local, "pending"):
            self._local.pending = {}
        pending: dict[str, LoggedMove | None] = self._local.pending
        return pending

    def _is_logged(self, ref: str, why: str) -> bool:
        return (names.is_shared(ref) or ref.startswith(names.BRANCHES)) and not why.startswith(_ADOPTIONS)

    def _write(self, path: str, text: str) -> None:
        try:
            handle = private_files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileNotFoundError:
            private_files.make_directory(self._directory)
            handle = private_files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(handle, text.encode("utf-8"))
        finally:
            os.close(handle)

    def _locks(self) -> FileLocks:
        return FileLocks(self._home, LOCK_SECONDS)

    def _drain(self, own: Mapping[str, LoggedMove | None], at_hub: Callable[[str], str | None] | None = None) -> None:
        """Log every noted move that has happened, and remove its note. Without ``at_hub``, what may have happened there stays."""
        self._reached("log-locked")
        machine = self._machine.name()
        logged = self._writer.noted(machine)
        notes = {path: own.get(path) or self._read(path) for path in self._notes()}
        happened = self._happened(notes, own, at_hub)
        moves: dict[str, LoggedMove] = {}
        done: list[str] = []
        for path, move in notes.items():
            if os.path.basename(path) in logged:
                done.append(path)  # its process died before it removed the note
            elif move is not None and path in happened:
                done.append(path)
                moves[os.path.basename(path)] = move
            elif _is_alive(path) or (move is not None and at_hub is None and path.endswith(_AT_HUB)):
                continue  # it may be about to write the note, or to move the ref; a sync tells about the hub
            else:
                done.append(path)
        if moves:
            self._append(machine, moves)
            self._reached("moves-logged")
        for path in done:
            self.cancel(path)

    def _append(self, machine: str, noted: Mapping[str, LoggedMove]) -> None:
        by, keys, order = self._by(), self._git.refs.get(names.KEYS), list(noted)
        parts = (order[start : start + MOVES_MAX] for start in range(0, len(order), MOVES_MAX))
        entries = [LogEntry(keys, by.at, tuple(noted[note] for note in part), tuple(part)) for part in parts]
        self._writer.append(machine, entries, by)

    def _notes(self) -> list[str]:
        try:
            return [f"{self._directory}/{name}" for name in sorted(os.listdir(self._directory))]
        except FileNotFoundError:
            return []

    def _read(self, path: str) -> LoggedMove | None:
        try:
            with open(path, encoding="utf-8") as file:
                ref, old, new, why = json.load(file)
        except (OSError, ValueError, TypeError):
            return None
        return LoggedMove(ref, old, new, why)

    def _happened(
        self, notes: Mapping[str, LoggedMove | None], own: Mapping[str, Any], at_hub: Callable[[str], str | None] | None
    ) -> set[str]:
        """The noted moves that happened. A later move that starts where one ended proves that one."""
        happened: set[str] = set()
        starts: set[tuple[str, str | None]] = set()
        for path, move in reversed(list(notes.items())):
            if move is None:
                continue
            is_at_hub = at_hub is not None and path.endswith(_AT_HUB) and self._has_reached(at_hub(move.ref), move)
            if path in own or (move.ref, move.new) in starts or is_at_hub or self._has_reached(self._git.refs.get(move.ref), move):
                happened.add(path)
                starts |= {(move.ref, move.old)} if move.old is not None else set()
        return happened

    def _has_reached(self, now: str | None, move: LoggedMove) -> bool:
        """Whether a ref with this value was moved as noted, possibly further since."""
        git = self._git
        if now == move.new or now is None or move.new is None:
            return now == move.new
        return git.objects.kind(move.new) == "commit" and git.graph.descends(now, move.new)


def _is_alive(path: str) -> bool:
    """Whether the process that noted a move still runs."""
    try:
        pid = int(os.path.basename(path).split("-")[1])
        os.kill(pid, 0)
    except (ValueError, IndexError, ProcessLookupError):
        return False
    except OSError as err:
        return err.errno == errno.EPERM
    return True
