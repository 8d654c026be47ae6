"""Refs: read from git's files, moved by compare and swap.

Invariant: of several writers that expect the same old value, one wins and the others get ``StaleRef``. A lock file of git is waited
for; it is removed only if a process of clia made it and is dead (``lock_files``). Values are not cached; a part of a large packed
file is found by binary search, because git sorts the file. A loose ref overrides a packed one.
"""

from __future__ import annotations

import mmap
import os
import random
import re
import time
from itertools import islice

from clia.errors import Conflict, GitError, InvalidInput, StaleRef
from clia.git.libgit2 import git_error, is_lock_failure, message_of
from clia.git.lock_files import CannotProve
from clia.git.records import RefScan
from clia.git.ref_files import RefFiles
from clia.values.refs import TRACKING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle
    from clia.git.reflogs import ReflogEntry

_FIRST_PAUSE, _LONGEST_PAUSE, PATIENCE = 0.0005, 0.05, 30.0
_OURS = ("refs/heads/agents/", "refs/clia/", "refs/notes/clia/", "refs/clia-tracking/")
"""Refs that clia moves itself. Users' branches are moved by the git command."""
_NOTHING = "0" * 40
_FEW = 20
"""So many refs are looked up one by one; listing directories is faster for more."""


class GitRefs:
    """The refs of one repository. ``reached`` is called when a ref's lock is held: a crash point for tests."""

    shared = False

    def __init__(self, handle: GitHandle, command: GitCommand, reached: Callable[[str], None]) -> None:
        self._handle = handle
        self._command = command
        self._reached = reached
        self._files = RefFiles(handle)
        self._listed: dict[str, tuple[str, frozenset[str]]] = {}
        self._packed_lock = os.path.join(handle.common_dir, "packed-refs.lock")

    def get(self, name: str) -> str | None:
        import pygit2

        try:
            ref = self._handle.repo.references.get(name)
            return None if ref is None else str(ref.resolve().target)
        except (pygit2.GitError, KeyError, OSError, ValueError) as err:
            raise git_error(f"cannot read ref {name}", err, ref=name) from None

    def under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        # Loose refs first: git writes the packed file before it removes a loose one.
        loose = dict(islice(read_loose(self._handle.common_dir, prefix, after), limit))
        packed = read_packed(self._handle.common_dir, prefix, after, limit)
        return sorted((dict(packed) | loose).items())[:limit] if loose else packed

    def missing(self, prefix: str, names: set[str]) -> set[str]:
        if len(names) <= _FEW:
            return {name for name in names if self.get(prefix + name) is None}
        return names - self._present(prefix)

    def _present(self, prefix: str) -> frozenset[str]:
        """Return the names of the refs in a directory; remembered while its files are the same, because there may be many."""
        common, cut = self._handle.common_dir, len(prefix)
        state = _listing_state(common, prefix)
        if state is None or self._listed.get(prefix, ("", ()))[0] != state:
            loose = list(_names(common, prefix.rstrip("/")))  # first, as above
            refs = [*loose, *[ref for ref, _ in read_packed(common, prefix)]]
            self._listed[prefix] = state or "", frozenset([ref[cut:] for ref in refs])
        return self._listed[prefix][1]

    def look(self, prefixes: Sequence[str], since: Any = None) -> RefScan:
        loose = {name: cid for prefix in prefixes for name, cid in read_loose(self._handle.common_dir, prefix)}
        packed = packed_state(self._handle.common_dir)
        if packed is None:
            return RefScan(None, None)
        before = since.get("loose") if isinstance(since, dict) and since.get("packed") == packed else None
        state = {"packed": packed, "loose": loose}
        if not isinstance(before, dict):
            return RefScan(state, None)
        return RefScan(state, sorted(name for name in before.keys() | loose.keys() if before.get(name) != loose.get(name)))

    def move(self, name: str, old: str | None, new: str | None, why: str) -> None:
        import pygit2

        self.check(name, old, new)
        swap = self._swap if name.startswith(_OURS) and self._files.is_plain(name) else self._swap_by_git
        # Pauses with jitter keep writers from colliding again and again.
        started, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                swap(name, old, new, why)
            except CannotProve:
                swap = self._swap_by_git
                continue
            except (KeyError, OSError, ValueError, pygit2.GitError) as err:
                # ``git pack-refs`` may remove an empty folder during the write, which libgit2 reports in two ways.
                folder_vanished = isinstance(err, KeyError) or "no such file or directory" in message_of(err).lower()
                if not (folder_vanished or isinstance(err, FileNotFoundError) or is_lock_failure(err)):
                    raise git_error(f"cannot move ref {name}", err, ref=name) from None
                self._handle.renew()
                if time.monotonic() - started > PATIENCE:
                    raise self._locked(name, self._packed_lock if "packed-refs.lock" in message_of(err) else None) from None
            else:
                if not name.startswith(TRACKING):  # fetches move and prune those
                    self._check_moved(name, old, new)
                return
            for lock in (self._files.lock_path(name), self._packed_lock):
                self._files.locks.break_if_dead(lock)
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311  # jitter, not a secret
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _swap(self, name: str, old: str | None, new: str | None, why: str) -> None:
        with self._files.hold(name, new) as lock:
            self._reached("ref-locked")
            actual = self.get(name)
            if actual != old:
                raise stale(name, old, actual)
            if new is None:
                self._files.remove(name)
            else:
                self._files.publish(lock, name, old, new, why)

    def _check_moved(self, name: str, old: str | None, new: str | None) -> None:
        """Read a ref after its move: another program that ignores locks may have undone it."""
        actual = self.get(name)
        if actual == new or (actual is not None and actual != old):
            return  # or others have moved it on
        message = f"ref {name} was moved and has its old value again: another program removed the new one"
        hints = ["check which programs change this repository, and try again"]
        raise GitError(message, code="ref-lost", hints=hints, fields={"ref": name, "expected": new, "actual": actual})

    def _locked(self, name: str, lock: str | None) -> GitError:
        path = lock or self._files.lock_path(name)
        message = f"ref {name} is locked by another process: {path} ({self._files.locks.describe(path)})"
        hints = [f"if no git process is running, or only a stopped one that you end, remove {path}"]
        error = GitError(message, code="ref-locked", hints=hints, fields={"ref": name, "lock": path})
        error.retryable = True
        return error

    def _swap_by_git(self, name: str, old: str | None, new: str | None, why: str) -> None:
        """Move a user's branch with the git command: if we are killed, git still finishes and removes its lock."""
        words = ("-d", name, old or _NOTHING) if new is None else (name, new, old or _NOTHING)
        result = self._command.attempt("update-ref", "-m", why, *words)
        if result.code:
            actual = self.get(name)
            raise stale(name, old, actual) if actual != old else OSError(result.err)

    def move_together(self, moves: Sequence[tuple[str, str | None, str | None]], why: str) -> bool:
        del moves, why
        return False

    def is_at_hub(self, name: str, cid: str) -> bool:
        del name, cid
        return False

    def check(self, name: str, old: str | None, new: str | None) -> None:
        """Raise if a move is impossible for reasons that libgit2's transaction does not check."""
        import pygit2

        if not pygit2.reference_is_valid_name(name):
            raise InvalidInput(f"{name!r} is not a valid ref name", code="invalid-ref", fields={"ref": name})
        if new is not None and not isinstance(self._handle.repo.get(new), pygit2.Commit):
            raise GitError(f"ref {name} cannot point at {new}: no such commit", fields={"ref": name, "cid": new})
        if old is not None:
            return
        parts = name.split("/")
        parents = ("/".join(parts[:count]) for count in range(3, len(parts)))
        others = [parent for parent in parents if self.get(parent) is not None] or [ref for ref, _ in self.under(f"{name}/")]
        if others:
            raise Conflict(
                f"cannot create {name} while {others[0]} exists",
                code="ref-clash",
                hints=[f"git cannot store both; rename or delete {others[0]}"],
                fields={"ref": name, "other": others[0]},
            )

    def followed_by(self, name: str) -> str | None:
        common = self._handle.common_dir
        config = self._handle.repo.config
        if not ("core.bare" in config and config.get_bool("core.bare")) and _checked_out(common) == name:
            place = config["core.worktree"] if "core.worktree" in config else None  # noqa: SIM401  # it has no get
            return os.path.realpath(os.path.join(common, place)) if place else os.path.dirname(common)
        for worktree in sorted(_entries(os.path.join(common, "worktrees"))):
            if _checked_out(worktree) == name:
                place = _first_line(os.path.join(worktree, "gitdir"))
                return None if place is None else os.path.dirname(place)
        return None

    def busy(self, name: str) -> str | None:
        common = self._handle.common_dir
        for git_dir in (common, *sorted(_entries(os.path.join(common, "worktrees")))):
            for doing in ("rebase-merge", "rebase-apply"):
                if _first_line(os.path.join(git_dir, doing, "head-name")) == name:
                    return "a rebase is in progress"
        return None

    def past(self, name: str) -> list[ReflogEntry]:
        from clia.git.reflogs import read_reflog  # only checks need it

        return read_reflog(os.path.join(self._handle.common_dir, "logs", *name.split("/")))

    def with_past(self, prefix: str) -> list[str]:
        return sorted(name.removeprefix("logs/") for name in _names(self._handle.common_dir, f"logs/{prefix.rstrip('/')}"))

    def forget_past(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._handle.common_dir, "logs", *name.split("/")))
        except FileNotFoundError:
            return
        except OSError as err:
            raise git_error(f"cannot remove the reflog of {name}", err, ref=name) from None


def stale(name: str, expected: str | None, actual: str | None) -> StaleRef:
    return StaleRef(
        f"{name} has moved: expected {expected or 'nothing'}, found {actual or 'nothing'}",
        hints=["read the ref again and retry"],
        fields={"ref": name, "expected": expected, "actual": actual},
    )


def _checked_out(git_dir: str) -> str | None:
    line = _first_line(os.path.join(git_dir, "HEAD"))
    return line[5:] if line is not None and line.startswith("ref: ") else None


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline().rstrip("\n")
    except OSError:
        return None


def _entries(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except OSError:
        return []


_ID = re.compile(r"[0-9a-f]{40}")
_SETTLED = 2_000_000_000
"""Nanoseconds. Two files written within one tick of the file system's clock may have the same times."""
NO_FILE = "none"


def read_loose(common_dir: str, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and target of the loose refs below a prefix, sorted, after a name."""
    for name in sorted(name for name in _names(common_dir, prefix.rstrip("/")) if name > after):
        try:
            file = os.open(os.path.join(common_dir, *name.split("/")), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # removed meanwhile
        try:
            cid = os.read(file, 64).decode("ascii", "replace").strip()
        except OSError:
            continue
        finally:
            os.close(file)
        if _ID.fullmatch(cid):
            yield name, cid


def _names(common_dir: str, below: str) -> Iterator[str]:
    try:
        with os.scandir(os.path.join(common_dir, *below.split("/"))) as scan:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
    except OSError:
        return
    for name, is_folder in entries:
        if is_folder:
            yield from _names(common_dir, f"{below}/{name}")
        elif not name.endswith(".lock"):
            yield f"{below}/{name}"


def read_packed(common_dir: str, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
    """Return name and target of the packed refs below a prefix, sorted, after a name, at most ``limit``."""
    first, low = (name.encode("utf-8", "surrogateescape") for name in (prefix, after))
    try:
        with open(os.path.join(common_dir, "packed-refs"), "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return []
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = data[: max(0, data.find(b"\n"))]
                if not header.startswith(b"# pack-refs with:") or b" sorted" not in header:
                    return sorted(ref for ref in _refs(data[:]) if ref[0].startswith(prefix) and ref[0] > after)[:limit]
                start = _at_or_after(data, low + b"\0" if low >= first else first)
                if limit is None:
                    return _refs(data[start : _at_or_after(data, first + b"\xff")])
                return _first_refs(data, start, prefix, limit)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as err:
        raise git_error("cannot read packed-refs", err) from None


def packed_state(common_dir: str) -> str | None:
    """Return a fingerprint of the packed file, or None if it was written a moment ago."""
    try:
        info = os.stat(os.path.join(common_dir, "packed-refs"))
    except FileNotFoundError:
        return NO_FILE
    except OSError as err:
        raise git_error("cannot read packed-refs", err) from None
    if abs(time.time_ns() - info.st_ctime_ns) < _SETTLED:
        return None
    return f"{info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"


def _listing_state(common_dir: str, prefix: str) -> str | None:
    """Return a fingerprint of which refs are directly in a directory; None if that changed a moment ago."""
    packed = packed_state(common_dir)
    try:
        info = os.stat(os.path.join(common_dir, *prefix.split("/")))
    except OSError:
        return packed
    if packed is None or abs(time.time_ns() - info.st_mtime_ns) < _SETTLED:
        return None
    return f"{packed} {info.st_dev} {info.st_ino} {info.st_mtime_ns}"


def _at_or_after(data: mmap.mmap, name: bytes) -> int:
    """Return where the first line starts whose ref is not before a name."""
    low, high = data.find(b"\n") + 1, len(data)  # the header sorts with nothing
    while low < high:
        start = max(low, data.rfind(b"\n", low, (low + high) // 2) + 1)
        while start > low and data[start] == ord("^"):  # such a line belongs to the ref before it
            start = max(low, data.rfind(b"\n", low, start - 1) + 1)
        end = _line_end(data, start)
        if data[start + 41 : end] < name:
            low = _next_ref(data, end + 1)
        else:
            high = start
    return low


def _line_end(data: mmap.mmap, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def _next_ref(data: mmap.mmap, start: int) -> int:
    while start < len(data) and data[start] == ord("^"):
        start = _line_end(data, start) + 1
    return min(start, len(data))


def _refs(lines: bytes) -> list[tuple[str, str]]:
    text = lines.decode("utf-8", "surrogateescape")
    return [(line[41:], line[:40]) for line in text.split("\n") if line and line[0] not in "#^"]


def _first_refs(data: mmap.mmap, start: int, prefix: str, limit: int) -> list[tuple[str, str]]:
    refs: list[tuple[str, str]] = []
    while start < len(data) and len(refs) < limit:
        end = _line_end(data, start)
        name, cid = _refs(data[start:end])[0]
        if not name.startswith(prefix):
            break
        refs.append((name, cid))
        start = _next_ref(data, end + 1)
    return refs
