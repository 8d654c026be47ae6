"""Private files: clia's files beside a repository are readable by their owner only, unless the repository is shared.

Files are created with mode 0600 and directories with 0700, whatever the umask. What an earlier version created with more
permissions is tightened when its owner opens the space.

In a repository with ``core.sharedRepository``, the directory of clia's files has the set-group-id bit and gives the group access.
New files and directories get the access of the directory that they are in, whatever the umask.

Locks are held on such files with ``flock``: the kernel releases a lock when its holder dies, also by SIGKILL. The files stay and
mean nothing.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import contextmanager, suppress

from clia.errors import Conflict, FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
NOTICE_SECONDS = 5.0
"""A wait that takes longer is reported."""
LOCK_SECONDS = 300
"""The default limit of a wait for an agent; verbs take seconds."""
_OTHERS = 0o077
_READ_WRITE = 0o066
_WORKTREES = "work"  # modes of checked-out files belong to git; their directory is private
_NEVER_SHARED = ("keys", _WORKTREES)


def make_directory(path: str) -> None:
    """Create a private directory, and its missing parents; one that exists stays as it is."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        with suppress(FileExistsError):  # created by another process
            os.mkdir(directory, DIRECTORY_MODE)
            adjust(directory)


def open_file(path: str, flags: int) -> int:
    """Open a file, created private; usable as the ``opener`` of ``open``."""
    handle = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    if flags & os.O_CREAT:
        adjust(path)
    return handle


def open_lock(path: str) -> int:
    """Open a lock file, created if missing, together with its directory."""
    with suppress(FileNotFoundError):
        return open_file(path, os.O_RDWR)  # most exist: their access was adjusted when they were created
    make_directory(os.path.dirname(path))
    return open_file(path, os.O_RDWR | os.O_CREAT)


def release_lock(handle: int) -> None:
    """Release the lock on a file and close it. Closing is not enough: a forked child may have it open too."""
    import fcntl  # POSIX only, and only writers need it

    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def make_file(path: str) -> None:
    """Create an empty private file without opening it; one that exists is tightened.

    Closing a handle on an SQLite file would drop the locks that this process holds on it.
    """
    with suppress(FileExistsError):
        os.mknod(path, FILE_MODE | stat.S_IFREG)
    adjust(path)


def adjust(path: str) -> None:
    """Give a file or directory of clia the access that its directory gives others: none, unless that is shared."""
    with suppress(OSError):
        parent = os.stat(os.path.dirname(path) or ".").st_mode
        access = parent & _READ_WRITE if parent & stat.S_ISGID else 0
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode) & ~_OTHERS | access
        if stat.S_ISDIR(status.st_mode):
            mode |= (access & 0o044) >> 2 | (stat.S_ISGID if access else 0)
        if mode != stat.S_IMODE(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
            os.chmod(path, mode)


def share_tree(directory: str, apply: Callable[[str], None]) -> None:
    """Share a directory and everything in it, except private keys; ``apply`` sets the permissions of one path."""
    apply(directory)
    for parent, directories, files in os.walk(directory):
        if parent == directory:
            directories[:] = [name for name in directories if name not in _NEVER_SHARED]
        for name in (*directories, *files):
            apply(os.path.join(parent, name))


def tighten(path: str) -> None:
    """Remove the permissions of others from a file or directory of clia; no effect on anything else."""
    with suppress(OSError):
        status = os.lstat(path)
        if status.st_uid == os.geteuid() and status.st_mode & _OTHERS and not stat.S_ISLNK(status.st_mode):
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS)


def tighten_tree(directory: str) -> None:
    """Tighten a directory and everything in it, if others can access the directory. Otherwise it costs one ``stat``."""
    with suppress(OSError):
        if not os.lstat(directory).st_mode & _OTHERS:
            return
    tighten(directory)
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            tighten(os.path.join(parent, name))
        if parent == directory and _WORKTREES in directories:
            directories.remove(_WORKTREES)


class FileLocks:
    """``Locks`` for all processes of one machine.

    ``patience``: seconds after which waiting ends with ``Conflict`` (agent-held); None: never. ``notify`` is called with a sentence
    that says who holds the lock, once a wait takes longer than ``NOTICE_SECONDS``.
    """

    def __init__(self, directory: str, patience: float | None = None, notify: Callable[[str], None] | None = None) -> None:
        self._directory = directory
        self._patience = patience
        self._notify = notify

    @contextmanager
    def hold(self, name: str, *, shared: bool = False) -> Iterator[None]:
        import fcntl  # POSIX only, and only writers need it

        handle, kind = self._open(name), fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(name, handle, kind)
            if not shared:
                _sign(handle)
        except BaseException:
            os.close(handle)
            raise
        try:
            yield
        finally:
            if not shared:
                _sign(handle, clear=True)  # the next holders may be shared ones, which do not sign
            release_lock(handle)

    def _wait(self, name: str, handle: int, kind: int) -> None:
        import fcntl

        if self._patience is None:
            fcntl.flock(handle, kind)
            return
        # A thread waits in the kernel, which serves waiting processes in order. If this one gives up, it closes the file.
        failures: list[OSError] = []

        def wait() -> None:
            try:
                fcntl.flock(handle, kind)
            except OSError as err:
                failures.append(err)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        thread.join(min(NOTICE_SECONDS, self._patience))
        if thread.is_alive() and self._notify is not None and self._patience > NOTICE_SECONDS:
            self._notify(f"waiting for {_subject(name)}, {describe_holder(handle)[0]}")
        thread.join(max(0.0, self._patience - NOTICE_SECONDS))
        if thread.is_alive():
            raise self._held(name, handle)
        if failures:
            raise FileError(f"{os.path.join(self._directory, name)}: {failures[0].strerror}") from None

    def _held(self, name: str, handle: int) -> Conflict:
        holder, fields = describe_holder(handle)
        message = f"{_subject(name)} is busy, {holder}; it was waited for {self._patience:g} s"
        hints = ["it may be stopped or hang: the lock is released when it continues or ends"]
        if "pid" in fields:
            hints.append(f"look at it: ps -fp {fields['pid']}; continue it if it is stopped: kill -CONT {fields['pid']}")
        hints.append("to wait longer: git config clia.lockSeconds SECONDS")
        return Conflict(message, code="agent-held", hints=hints, fields={"lock": name, **fields})

    @contextmanager
    def attempt(self, name: str) -> Iterator[bool]:
        import fcntl

        handle = self._open(name)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = True
            except BlockingIOError:
                free = False
            yield free
        finally:
            release_lock(handle)

    def _open(self, name: str) -> int:
        path = os.path.join(self._directory, name)
        try:
            return open_lock(path)
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def _sign(handle: int, *, clear: bool = False) -> None:
    """Write who holds a lock into its file, for those who wait; the lock itself is the kernel's."""
    with suppress(OSError):  # a full disk
        os.pwrite(handle, b" " * 42 if clear else b"%-20d %-20d\n" % (os.getpid(), int(time.time())), 0)


def describe_holder(handle: int) -> tuple[str, dict[str, int]]:
    """Return who holds the lock on a file, as a phrase and as fields."""
    signed = _signature(handle)
    pids = _lockers(os.fstat(handle).st_ino, "FLOCK")
    if signed is not None and (pids is None or signed[0] in pids):
        pid, since = signed
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
        return f"held by process {pid}{_state(pid)} since {at}", {"pid": pid, "since": since}
    return describe_holders(pids)  # a lock that several processes can hold is not signed


def describe_holders(pids: list[int] | None) -> tuple[str, dict[str, int]]:
    """Return the processes that hold a lock, as a phrase and as fields."""
    if not pids:
        return "held by another process", {}
    others = f" and {len(pids) - 1} more" if len(pids) > 1 else ""
    return f"held by process {pids[0]}{_state(pids[0])}{others}", {"pid": pids[0]}


def record_lockers(path: str) -> list[int] | None:
    """Return the processes with POSIX locks on a file, such as SQLite's; None if the system does not report them."""
    try:
        return _lockers(os.stat(path).st_ino, "POSIX")
    except OSError:
        return None


def _signature(handle: int) -> tuple[int, int] | None:
    """Return the process that signed a lock last, and when; it may have died since."""
    try:
        pid, since = (int(word) for word in os.pread(handle, 64, 0).split())
    except (OSError, ValueError):
        return None
    return pid, since


def _lockers(inode: int, kind: str) -> list[int] | None:
    """Return the other processes with locks on a file, stopped ones first; None if the system does not report them."""
    try:
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except (OSError, ValueError):
        return None
    # NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END; waiting processes have an arrow after the number.
    locks = [words for words in lines if len(words) > 5 and words[1] == kind and words[5].rpartition(":")[2] == str(inode)]
    pids = {int(words[4]) for words in locks if words[4].isdigit() and int(words[4])} - {os.getpid()}
    return sorted(pids, key=lambda pid: (not _state(pid), pid))


def _state(pid: int) -> str:
    """Return `` (stopped)`` for a process that is."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return " (stopped)" if file.read().rpartition(")")[2].split()[0] in ("T", "t") else ""
    except (OSError, IndexError):
        return ""


def _subject(name: str) -> str:
    return f"the lock {name!r}" if name.startswith("@") else f"the agent {name!r}"
