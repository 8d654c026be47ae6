"""Reading a single file of a worktree.

Invariant: only a regular file or a symbolic link of the worktree itself is read, never one of another repository, of a ``.git``
directory or behind a symbolic link.
"""

from __future__ import annotations

import os
import stat

from clia.errors import FileError, InvalidInput, NotFound
from clia.values.paths import printable


def read_worktree_file(top: str, path: str) -> bytes:
    """Return the content of a file, or the target of a symbolic link. The path is relative to the top of the worktree."""
    place, parts = os.path.join(top, path), path.split("/")
    if ".git" in parts:
        raise _not_a_file(path, "in a .git directory")
    for count in range(1, len(parts)):
        folder = os.path.join(top, *parts[:count])
        if os.path.islink(folder):
            raise _not_a_file(path, f"beyond the symbolic link {'/'.join(parts[:count])!r}")
        if os.path.lexists(os.path.join(folder, ".git")):
            raise _not_a_file(path, f"in another repository, {'/'.join(parts[:count])!r}")
    try:
        mode = os.lstat(place).st_mode
        if stat.S_ISLNK(mode):
            return os.fsencode(os.readlink(place))
        if not stat.S_ISREG(mode):
            raise _not_a_file(path, "a directory" if stat.S_ISDIR(mode) else "a special file")
        with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no file {path!r} in the worktree", code="no-such-path", fields={"path": printable(path)}) from None
    except OSError as err:
        raise FileError(f"cannot read {path!r}: {err.strerror}", fields={"path": printable(path)}) from None


def _not_a_file(path: str, what: str) -> InvalidInput:
    where = "is" if what.startswith("a ") else "is not a file of the worktree: it is"
    return InvalidInput(f"{path!r} {where} {what}", code="not-a-file", fields={"path": printable(path)})
