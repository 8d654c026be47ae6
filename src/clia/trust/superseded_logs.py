"""What appends to a log leave behind: each replaces the log's commit, and some replace its tree or files.

Nothing refers to these objects, so git removes them after two weeks. A busy space would have many thousands by then. So a file
beside the store, ``clia/signing/tips-MACHINE``, lists them, and they are removed after a minute: a reader that found a log's commit
at its ref has read it by then. The file also says which commit of ours was the newest, in case another program moves or removes the
ref.

Invariant: only objects that clia wrote as parts of this log are removed, none of which a ref points at, and none while git packs.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.git.repository import Git

GRACE_SECONDS = 60
LISTED_MAX, LISTED_BYTES = 512, 64 * 1024
"""If the list gets so long within the grace period, all but the newest appends are removed from it."""
_PACKING_SECONDS = 3600
"""A program that packs for longer is taken for dead, which leaves its temporary files."""
READING = "reading"
"""The directory beside the store with a file for each process that reads objects which may have been replaced."""
_LINE = re.compile(r"(\d{1,18})((?: [0-9a-f]{40})+)")


class _Append(NamedTuple):
    at: int
    commit: str  # the newest commit of the log since then
    replaced: tuple[str, ...]


@contextmanager
def kept_objects(git: Git) -> Iterator[None]:
    """Let no append or upkeep remove objects of logs while the block runs, for example for a backup of refs that were read."""
    path = os.path.join(git.handle.common_dir, "clia", READING, secrets.token_hex(8))
    with suppress(OSError):
        private_files.make_directory(os.path.dirname(path))
        os.close(private_files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)


class SupersededLogs:
    """The objects that appends of this clone replaced. The caller holds the lock of the log, except for ``last``."""

    def __init__(self, git: Git, directory: str) -> None:
        self._git = git
        self._directory = directory

    def add(self, machine: str, commit: str, replaced: Sequence[str]) -> None:
        """Note that a commit is the newest of a log, and what it replaced. A failure only leaves objects to git.

        Upkeep removes what is listed. Before that, a long list is shortened here.
        """
        line = " ".join((str(int(time.time())), commit, *replaced)) + "\n"
        with suppress(OSError):
            handle = private_files.open_file(self._path(machine), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(handle, line.encode("ascii"))
                size = os.fstat(handle).st_size
            finally:
                os.close(handle)
            if size > LISTED_BYTES:
                self.remove(machine)

    def last(self, machine: str) -> str | None:
        """The newest commit of ours."""
        appends = self._read(machine)
        return appends[-1].commit if appends else None

    def remove(self, machine: str) -> None:
        """Remove the objects that were replaced long ago, and all but the newest ones of a long list."""
        appends = self._read(machine)
        oldest, surplus = time.time() - GRACE_SECONDS, len(appends) - LISTED_MAX
        due = {cid for number, item in enumerate(appends) if item.at < oldest or number < surplus for cid in item.replaced}
        if not due or self._is_being_packed():
            return
        due -= {cid for _, cid in self._git.refs.present_under("refs/")}  # as for a tracking ref; removed once that has moved
        for cid in due:
            with suppress(OSError):
                os.unlink(os.path.join(self._git.handle.common_dir, "objects", cid[:2], cid[2:]))
        left = [item._replace(replaced=tuple(cid for cid in item.replaced if cid not in due)) for item in appends]
        self._write(machine, [item for number, item in enumerate(left, 1) if item.replaced or number == len(left)])

    def _is_being_packed(self) -> bool:
        """Whether a program may need objects that it found a while ago."""
        common = self._git.handle.common_dir
        oldest = time.time() - _PACKING_SECONDS
        paths = [os.path.join(common, "gc.pid")]
        for folder, prefixes in ((("objects", "pack"), ("tmp_", ".tmp-")), (("clia",), ("push-",)), (("clia", READING), ("",))):
            with suppress(OSError):
                directory = os.path.join(common, *folder)
                paths += [os.path.join(directory, name) for name in os.listdir(directory) if name.startswith(prefixes)]
        for path in paths:
            with suppress(OSError):
                if os.stat(path).st_mtime > oldest:
                    return True
        return False

    def _path(self, machine: str) -> str:
        return os.path.join(self._directory, f"tips-{machine}")

    def _read(self, machine: str) -> list[_Append]:
        """What is listed. A line that a crash has damaged is left out."""
        try:
            with open(self._path(machine), encoding="ascii", errors="replace") as file:
                lines = file.read().split("\n")[:-1]
        except OSError:
            return []
        appends = []
        for match in filter(None, map(_LINE.fullmatch, lines)):
            commit, *replaced = match[2].split()
            appends.append(_Append(int(match[1]), commit, tuple(replaced)))
        return appends

    def _write(self, machine: str, appends: Sequence[_Append]) -> None:
        path = self._path(machine)
        temporary = f"{path}.{secrets.token_hex(4)}.new"
        with suppress(OSError):
            handle = private_files.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(handle, "w", encoding="ascii") as file:
                file.writelines(" ".join((str(item.at), item.commit, *item.replaced)) + "\n" for item in appends)
            os.replace(temporary, path)
