"""Git's files of refs, without a cache. A loose ref overrides a packed one.

They are written by git's rules: under ``<ref>.lock``, with a reflog, and packed refs under their own lock. A part of a large packed
file is found by binary search, because git sorts the file.

libgit2 does the same, but its lock files cannot be told from those of other programs (``lock_files``).
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import re
import time
from contextlib import ExitStack, contextmanager, suppress

from clia.git.libgit2 import git_error
from clia.git.lock_files import LockFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from clia.git.libgit2 import GitHandle
    from clia.git.lock_files import HeldLock

_LOGGED = ("refs/heads/", "refs/remotes/", "refs/notes/")
_NOTHING = "0" * 40
PACKED = "packed-refs"
_PATIENCE, _PAUSE = 1.0, 0.002
"""Seconds to wait for the lock of the packed refs, as git does: a change of them takes an instant."""


class RefFiles:
    """The files of the refs of one repository."""

    def __init__(self, handle: GitHandle) -> None:
        self._handle = handle
        self._common_dir = handle.common_dir
        self.locks = LockFiles(handle.common_dir, handle.sharing)

    def path(self, name: str) -> str:
        return f"{self._common_dir}/{name}"

    def lock_path(self, name: str) -> str:
        return f"{self.path(name)}.lock"

    def hold(self, name: str, value: str | None) -> AbstractContextManager[HeldLock]:
        """Hold a ref's lock; its file already has the value that the ref is about to get."""
        path = self.lock_path(name)
        self._handle.sharing.make_directory(os.path.dirname(path))
        return self.locks.hold(path, f"{value}\n".encode("ascii") if value else b"", durable=self._handle.durable)

    def is_plain(self, name: str) -> bool:
        """Return whether a ref is not symbolic."""
        try:
            with open(self.path(name), "rb") as file:
                return not file.read(4).startswith(b"ref:")
        except OSError:
            return True

    def publish(self, lock: HeldLock, name: str, old: str | None, new: str, why: str) -> None:
        """Give a ref the value in its lock file, then log the move: the last line of a reflog never claims too much.

        A log that cannot be written is not an error, because the ref has moved.
        """
        path = self.path(name)
        _over_empty_directories(path, lambda: lock.publish(path))
        self._sync(os.path.dirname(path))
        with suppress(OSError):
            self._log(name, old, new, why)
            if name.startswith("refs/heads/") and self._is_head(name):
                self._log("HEAD", old, new, why)

    def remove(self, name: str) -> None:
        """Remove a ref and its reflog; the caller holds its lock.

        The packed value goes first, because the loose one overrides it. Until the loose one is gone, too, the packed refs stay
        locked: ``git pack-refs`` would pack it and bring the ref back.
        """
        packed = os.path.join(self._common_dir, PACKED)
        with self.locks.hold(f"{packed}.lock"):
            self._unlink(f"{self._common_dir}/logs/{name}")  # as git: no log without its ref
            remaining = _without(_content(packed), name)
            if remaining is not None:
                self.locks.replace(packed, remaining, durable=self._handle.durable)
                self._sync(self._common_dir)
            self._unlink(self.path(name))

    def remove_all(self, names: Sequence[str], logs: str) -> None:
        """Remove refs, whose locks the caller holds, in one change of the packed file. Their reflogs move to another directory."""
        with self._packed() as packed:
            content = _content(packed)
            remaining = edited(content, dict.fromkeys(names))
            if remaining is None:  # written by an old version of git
                for name in names:
                    content = remaining = _without(content, name) or content
            if remaining and remaining != _content(packed):
                self.locks.replace(packed, remaining, durable=self._handle.durable)
                self._sync(self._common_dir)
            for name in names:
                self._move_log(os.path.join(self._common_dir, "logs"), logs, name)
                self._unlink(self.path(name))

    def create_packed(self, refs: Mapping[str, str], locks: Mapping[str, HeldLock], why: str) -> None:
        """Create refs, whose locks the caller holds, in the packed file.

        Not as loose refs: a ``git pack-refs`` that packed a ref before it was removed still removes a loose ref of that value.
        """
        with self._packed() as packed:
            content = edited(_content(packed), refs) if refs else None
            if content is not None:
                self.locks.replace(packed, content, durable=self._handle.durable)
                self._sync(self._common_dir)
        for name, cid in refs.items():
            if content is None:  # the packed file was written by an old version of git
                self.publish(locks[name], name, None, cid, why)
            else:
                with suppress(OSError):
                    self._log(name, None, cid, why)

    @contextmanager
    def _packed(self) -> Iterator[str]:
        """Wait for the lock of the packed refs and hold it: the path of their file. Its holders wait for no other lock."""
        packed, started = os.path.join(self._common_dir, PACKED), time.monotonic()
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self.locks.hold(f"{packed}.lock"))
                    break
                except FileExistsError:
                    if time.monotonic() - started > _PATIENCE:
                        raise
                time.sleep(_PAUSE * (0.5 + random.random()))  # noqa: S311  # jitter, not a secret
            yield packed

    def bring_log(self, logs: str, name: str) -> None:
        """Bring back the reflog of a ref that has none yet."""
        if not os.path.exists(f"{self._common_dir}/logs/{name}"):
            self._move_log(logs, os.path.join(self._common_dir, "logs"), name)

    def _move_log(self, source: str, target: str, name: str) -> None:
        path, new = (f"{logs}/{name}" for logs in (source, target))
        if os.path.isfile(path):
            self._handle.sharing.make_directory(os.path.dirname(new))
            with suppress(FileNotFoundError):
                os.replace(path, new)

    def pack(self, prefixes: Sequence[str]) -> int:
        """Move loose refs into the packed file, as ``git pack-refs`` does, but only those below some prefixes; return how many."""
        with self._packed() as packed:  # nobody removes a loose ref meanwhile
            loose = {name: cid for prefix in prefixes for name, cid in read_loose(self._common_dir, prefix)}
            content = edited(_content(packed), loose) if loose else None
            if content is not None:
                self.locks.replace(packed, content, durable=self._handle.durable)
                self._sync(self._common_dir)
        for name, cid in loose.items() if content is not None else ():
            with suppress(OSError), self.locks.hold(self.lock_path(name)):  # not if it is being moved
                if _content(self.path(name)) == f"{cid}\n".encode("ascii"):
                    os.unlink(self.path(name))
        self._remove_empty_directories(prefixes)
        return len(loose) if content is not None else 0

    def _remove_empty_directories(self, prefixes: Sequence[str]) -> None:
        """Remove the empty directories below some prefixes: git lists each. A writer that needs one creates it again."""
        for prefix in prefixes:
            for directory, _, _ in os.walk(os.path.join(self._common_dir, *prefix.rstrip("/").split("/")), topdown=False):
                with suppress(OSError):  # it has a ref
                    os.rmdir(directory)

    def _unlink(self, path: str) -> None:
        with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            os.unlink(path)
            self._sync(os.path.dirname(path))

    def _log(self, name: str, old: str | None, new: str, why: str) -> None:
        path = f"{self._common_dir}/logs/{name}"
        exists = os.path.exists(path)
        if not exists and not self._creates_log(name):
            return
        line = self._log_line(old, new, why)
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            _append(path, line)
            return
        if not exists or self._creates_log(name):
            self._handle.sharing.make_directory(os.path.dirname(path))
            _over_empty_directories(path, lambda: _append(path, line, os.O_CREAT))
            self._handle.sharing.apply(path)

    def _creates_log(self, name: str) -> bool:
        """Return whether a ref without a reflog gets one (``core.logAllRefUpdates``)."""
        config, key = self._handle.repo.config, "core.logallrefupdates"
        configured = config[key] if key in config else None  # noqa: SIM401  # it has no get
        value = str(not self._handle.repo.is_bare if configured is None else configured).lower()
        return value == "always" or (value in ("true", "yes", "on", "1", "") and (name == "HEAD" or name.startswith(_LOGGED)))

    def _log_line(self, old: str | None, new: str, why: str) -> bytes:
        try:
            by = self._handle.repo.default_signature
            who, when, offset = f"{by.name} <{by.email}>", by.time, by.offset
        except (KeyError, ValueError):
            who, when, offset = "unknown <unknown>", int(time.time()), 0
        zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}{abs(offset) % 60:02}"
        text = f"{old or _NOTHING} {new} {who} {when} {zone}\t{' '.join(why.split())}\n"
        return text.encode("utf-8", "surrogateescape")

    def _is_head(self, name: str) -> bool:
        with suppress(OSError), open(os.path.join(self._common_dir, "HEAD"), "rb") as file:
            return file.readline().strip() == f"ref: {name}".encode("utf-8", "surrogateescape")
        return False

    def _sync(self, directory: str) -> None:
        if not self._handle.durable:
            return
        with suppress(FileNotFoundError):  # git removes empty directories
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _without(packed: bytes, name: str) -> bytes | None:
    """Return packed refs without one of them; None if it is not there."""
    end = f" {name}\n".encode("utf-8", "surrogateescape")
    if end not in packed:
        return None
    lines_kept: list[bytes] = []
    removed = False
    for line in packed.splitlines(keepends=True):
        removed = line.endswith(end) if not line.startswith(b"^") else removed
        if not removed:
            lines_kept.append(line)
    return b"".join(lines_kept)


def _append(path: str, line: bytes, flags: int = 0) -> None:
    """Append a line to a reflog, which must exist unless ``flags`` has ``O_CREAT``."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
    try:
        if 0 < (written := os.write(handle, line)) < len(line):  # the disk is full: leave no half of a line
            os.ftruncate(handle, os.fstat(handle).st_size - written)
    finally:
        os.close(handle)


def _over_empty_directories(path: str, write: Callable[[], None]) -> None:
    """Write a file in place of a directory, if that holds nothing but directories: git leaves them."""
    try:
        write()
    except OSError as err:
        if err.errno not in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST) or not os.path.isdir(path):
            raise
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
        write()


_ID = re.compile(r"[0-9a-f]{40}")
_SETTLED = 2_000_000_000
"""Nanoseconds. Two files written within one tick of the file system's clock may have the same times."""
NO_FILE = "none"


def read_loose(common_dir: str, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and target of the loose refs below a prefix, sorted, after a name."""
    for name in sorted(name for name in loose_names(common_dir, prefix.rstrip("/")) if name > after):
        try:
            file = os.open(f"{common_dir}/{name}", os.O_RDONLY | os.O_CLOEXEC)
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


def loose_names(common_dir: str, below: str) -> Iterator[str]:
    """Yield the names of the files of refs below a prefix."""
    try:
        with os.scandir(f"{common_dir}/{below}") as scan:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
    except OSError:
        return
    for name, is_folder in entries:
        if is_folder:
            yield from loose_names(common_dir, f"{below}/{name}")
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


HEADER = b"# pack-refs with: peeled fully-peeled sorted \n"


def edited(packed: bytes, changes: Mapping[str, str | None]) -> bytes | None:
    """Return a packed file with some refs to commits set or removed; None if it has another form than git writes today."""
    if packed and not packed.startswith(HEADER):
        return None
    entries: dict[bytes, bytes] = {}
    name = b""
    for line in packed[len(HEADER) :].splitlines(keepends=True):
        if line.startswith(b"^"):  # what the tag before it points at
            entries[name] += line
        else:
            name = line[41:].rstrip(b"\n")
            entries[name] = line
    for ref, cid in changes.items():
        key = ref.encode("utf-8", "surrogateescape")
        entries.pop(key, None)
        if cid is not None:
            entries[key] = cid.encode("ascii") + b" " + key + b"\n"
    return HEADER + b"".join(entries[key] for key in sorted(entries))
