"""Run a function or a program under ``ptrace``, and kill or stop it, with all its children, after its nth change of the disk.

A change is a system call that creates, renames, links or removes a directory entry, or that writes to a file at a position, as
SQLite does. Changes are counted over all processes of the run, so that a schedule can name the moment of a fault.

The tracer is a process of its own, the parent of the run, and stays until the run has ended: a stopped process whose parent ends
would be continued by the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
import traceback
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from support.crashes import FORK

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_TRACEME, _CONT, _SYSCALL, _DETACH, _SETOPTIONS, _GET_SYSCALL_INFO, _EVENT_MESSAGE = 0, 7, 24, 17, 0x4200, 0x420E, 0x4201
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC, _EXITKILL = 1, 2, 4, 8, 16, 1 << 20
_WALL = 0x40000000
_CHILD_SUBREAPER = 36
_ENTRY = 1
_SYSCALL_STOP = signal.SIGTRAP | 0x80
# Numbers of system calls, by machine: open, openat, rename, renameat, renameat2, link, linkat, unlink, unlinkat, mkdir, mkdirat,
# rmdir, ftruncate, pwrite64
_NUMBERS = {
    "x86_64": (2, 257, 82, 264, 316, 86, 265, 87, 263, 83, 258, 84, 77, 18),
    "aarch64": (None, 56, None, 38, 276, None, 37, None, 35, None, 34, None, 46, 68),
}
_THREAD_KILL = {"x86_64": 200, "aarch64": 130}
KILL, STOP = "kill", "stop"
LONGEST = 900.0
"""Seconds after which a run counts as hanging."""


class Fault(NamedTuple):
    """What happens to a run, and after how many changes. ``names_only``: only calls that rename, link or unlink are counted."""

    action: str
    after: int
    names_only: bool = False


class Ended(NamedTuple):
    """How a run ended."""

    result: Any  # what the function returned; None for a program, and if the run was killed
    failure: str  # the traceback of an unexpected error
    code: int  # exit code; negative for a signal
    changes: int  # changes of the disk until then
    out: bytes = b""


class _SyscallInfo(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("nr", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
        ("more", ctypes.c_uint64),
    )


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return libc


def _ptrace(request: int, pid: int, address: int = 0, data: Any = 0) -> None:
    if _libc().ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Run:
    """A run under way. After ``wait`` it is stopped, or ``ended`` is set."""

    def __init__(
        self, job: Callable[[], Any] | list[str], fault: Fault | None, cwd: str, env: dict[str, str] | None = None
    ) -> None:
        self._pipe, theirs = FORK.Pipe()
        self._tracer = FORK.Process(target=_trace, args=(theirs, self._pipe, job, fault, cwd, env))
        self._tracer.start()
        theirs.close()
        self.pids: list[int] = []
        self.ended: Ended | None = None

    def wait(self) -> Run:
        """Wait until the run has ended or is stopped by its fault."""
        self._receive()
        return self

    def _receive(self) -> None:
        if not self._pipe.poll(LONGEST):
            raise RuntimeError(f"process {self._tracer.pid} has traced a run for {LONGEST:g} s")
        try:
            what, *more = self._pipe.recv()
        except EOFError:
            self._tracer.join()
            raise RuntimeError(f"the tracer ended with {self._tracer.exitcode}") from None
        if what == "stopped":
            (self.pids,) = more
        else:
            self.ended = Ended(*more)
            self._tracer.join()
            self._pipe.close()

    @property
    def is_stopped(self) -> bool:
        return self.ended is None

    def go_on(self) -> Ended:
        """Continue a stopped run, and wait for its end."""
        self._pipe.send("continue")
        self._receive()
        assert self.ended is not None
        return self.ended

    def kill(self) -> Ended:
        self._pipe.send("kill")
        self._receive()
        assert self.ended is not None
        return self.ended


def _trace(
    pipe: Connection, other_end: Connection, job: Callable[[], Any] | list[str], fault: Fault | None, cwd: str, env: Any
) -> None:
    """The tracer's process."""
    _libc().prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)  # git takes a dead process for alive until its parent has waited for it
    other_end.close()
    report, reported = os.pipe()
    out, written = os.pipe()
    pid = os.fork()
    if not pid:
        _child(job, fault, cwd, env, reported, written)
    os.close(reported)
    os.close(written)
    # Output is read at the end: what a run writes fits into a pipe.
    tracer = _Tracer(pid, fault)
    status = tracer.follow()
    if status is None:
        pipe.send(("stopped", sorted(tracer.pids)))
        command = pipe.recv()
        for traced in tracer.pids:
            with suppress(ProcessLookupError):
                os.kill(traced, signal.SIGCONT if command == "continue" else signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    data = _rest(report)
    result, failure = _decoded(data)
    pipe.send(("ended", result, failure, os.waitstatus_to_exitcode(status), tracer.changes, _rest(out)))


def _decoded(data: bytes) -> tuple[Any, str]:
    import pickle

    if not data:
        return None, ""
    try:
        result, failure = pickle.loads(data)  # noqa: S301  # our own child's
    except (EOFError, pickle.UnpicklingError):
        return None, ""  # killed while it reported
    return result, failure


def _rest(handle: int) -> bytes:
    """What is in a pipe. A grandchild that continues may have it open: do not wait for it."""
    os.set_blocking(handle, False)
    data = b""
    with suppress(BlockingIOError):
        while part := os.read(handle, 1 << 20):
            data += part
    os.close(handle)
    return data


def _child(job: Any, fault: Fault | None, cwd: str, env: Any, reported: int, written: int) -> None:
    import pickle

    code = 1
    try:
        os.chdir(cwd)
        os.setpgid(0, 0)
        if fault is not None:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
        if isinstance(job, list):
            null = os.open(os.devnull, os.O_RDWR)
            for handle, target in ((null, 0), (written, 1), (written, 2)):
                os.dup2(handle, target)
            os.execvpe(job[0], job, env or dict(os.environ))  # noqa: S606
        try:
            answer = (job(), "")
        except BaseException:  # noqa: BLE001  # reported
            answer = (None, traceback.format_exc())
        os.write(reported, pickle.dumps(answer))
        code = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


class _Tracer:
    """Follows a run until its end, or until it is stopped by its fault."""

    def __init__(self, pid: int, fault: Fault | None) -> None:
        self._first = pid
        self._fault = fault
        self.changes = 0
        self.pids = {pid}
        numbers = _NUMBERS[platform.machine()]
        self._opens = {numbers[0]: 1, numbers[1]: 2}  # the argument with the flags
        self._changing = set(numbers[2:])
        if fault is not None and fault.names_only:
            self._opens, self._changing = {}, set(numbers[2:9])

    def follow(self) -> int | None:
        """Return the exit status of the run, or None if it is stopped now."""
        if self._fault is None:
            return os.waitpid(self._first, 0)[1]
        os.waitpid(self._first, _WALL)
        _ptrace(_SETOPTIONS, self._first, 0, _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC | _EXITKILL)
        _ptrace(_SYSCALL, self._first)
        while True:
            pid, status = os.waitpid(-1, _WALL)
            if not os.WIFSTOPPED(status):
                self.pids.discard(pid)
                if pid == self._first:
                    return status
                continue
            self.pids.add(pid)
            if status >> 16:
                self._add_new(pid)
            passed = 0
            stop = os.WSTOPSIG(status)
            if stop == _SYSCALL_STOP:
                if self._is_change(pid):
                    self.changes += 1
                    if self.changes == self._fault.after:
                        return self._act(pid)
            elif stop not in (signal.SIGTRAP, signal.SIGSTOP):
                passed = stop
            with suppress(ProcessLookupError):
                _ptrace(_SYSCALL, pid, 0, passed)

    def _add_new(self, pid: int) -> None:
        """Note the process or thread that a traced one has just started: it may have made no stop of its own yet."""
        new = ctypes.c_ulong()
        with suppress(OSError):
            _ptrace(_EVENT_MESSAGE, pid, 0, ctypes.byref(new))
            if os.path.exists(f"/proc/{new.value}/stat"):  # an exec has the former thread's id here
                self.pids.add(new.value)

    def _is_change(self, pid: int) -> bool:
        info = _SyscallInfo()
        try:
            _ptrace(_GET_SYSCALL_INFO, pid, ctypes.sizeof(info), ctypes.byref(info))
        except OSError as err:
            if err.errno != errno.ESRCH:
                raise
            return False
        if info.op != _ENTRY:
            return False
        flags = self._opens.get(info.nr)
        return bool(info.args[flags] & os.O_CREAT) if flags is not None else info.nr in self._changing

    def _act(self, at: int) -> int | None:
        """Kill or stop every process of the run, each where it is; the one at a change makes it first."""
        assert self._fault is not None
        if self._fault.action == KILL:
            with suppress(OSError):
                _ptrace(_SYSCALL, at)  # to the end of this call
                os.waitpid(at, _WALL)
            for pid in self.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return self._wait_for_death()
        for pid in list(self.pids):
            _signal_thread(pid, signal.SIGSTOP)
        for pid in list(self.pids):
            self._detach(pid, is_waiting=pid == at)
        while any(state_of(pid) not in "TZ" for pid in self.pids):  # the signal arrives after this call
            os.sched_yield()
        return None

    def _detach(self, pid: int, *, is_waiting: bool) -> None:
        signalled = 0
        try:
            if not is_waiting:
                _, status = os.waitpid(pid, _WALL)
                if not os.WIFSTOPPED(status):
                    self.pids.discard(pid)
                    return
                signalled = signal.SIGSTOP if os.WSTOPSIG(status) == signal.SIGSTOP else 0
            _ptrace(_DETACH, pid, 0, signalled)
        except (ChildProcessError, ProcessLookupError):
            self.pids.discard(pid)

    def _wait_for_death(self) -> int:
        status = 0
        remaining = set(self.pids)
        while True:
            try:
                # What remains at the end are children of processes that have ended.
                pid, state = os.waitpid(-1, _WALL if remaining else _WALL | os.WNOHANG)
            except ChildProcessError:
                return status
            if not pid:
                return status
            if not os.WIFSTOPPED(state):
                remaining.discard(pid)
                status = state if pid == self._first else status


def _signal_thread(pid: int, number: int) -> None:
    """Send a signal to one thread, or to a process with a single one; not if it has ended."""
    _libc().syscall(_THREAD_KILL[platform.machine()], pid, number)


def state_of(pid: int) -> str:
    """The state of a process, as in ``ps``; Z: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def is_possible() -> bool:
    """Whether processes can be traced here."""
    if platform.machine() not in _NUMBERS or not sys.platform.startswith("linux"):
        return False
    try:
        return Run(["true"], Fault(KILL, 1_000_000), "/").wait().ended is not None
    except (OSError, RuntimeError):
        return False
