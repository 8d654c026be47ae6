"""Clone ids.

Invariant: an id is created once per clone, and machines that share a store have different ids. A clone that was copied with all its
files (a machine image, say) has the id of its original; it gets a new one if it shares a store. Without a shared store the id
stays, because the clone's data on a server is stored under it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from uuid import uuid4

from clia.errors import AlreadyExists, FileError
from clia.files import WritableLocalFiles
from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.store.interface import Locks

_LOCK = "@clone"
_MAX_BYTES = 64


def clone_id(common_dir: str) -> str:
    """Return the id of the clone; create it if missing."""
    path = os.path.join(common_dir, "clia", "clone")
    files = WritableLocalFiles()
    content = files.read(path, _MAX_BYTES)
    if content is None:
        try:
            private_files.make_directory(os.path.dirname(path))
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": str(err.strerror)}) from None
        clone = str(uuid4())
        with suppress(AlreadyExists):  # created by another process
            files.create(path, clone.encode("ascii"))
            files.replace(f"{path}-place", f"{clone} {_inode(common_dir)}".encode("ascii"))
            for file in (path, f"{path}-place"):
                private_files.adjust(file)
        content = files.read(path, _MAX_BYTES)
    return (content or b"").decode("ascii")


def unique_clone_id(common_dir: str, locks: Locks) -> str:
    """Return the id of a clone that shares its store; a copied clone gets a new id."""
    clone = clone_id(common_dir)
    if _recorded_inode(common_dir) == (clone, _inode(common_dir)):
        return clone
    files, directory = WritableLocalFiles(), os.path.join(common_dir, "clia")
    with suppress(FileError), locks.hold(_LOCK):  # read-only: nothing of it reaches others
        new, inode, recorded = clone_id(common_dir), _inode(common_dir), _recorded_inode(common_dir)
        if recorded is not None and recorded[0] == new and recorded[1] != inode:
            new = str(uuid4())
            # The id is written before the inode: a crash between is harmless.
            files.replace(os.path.join(directory, "clone"), new.encode("ascii"))
        files.replace(os.path.join(directory, "clone-place"), f"{new} {inode}".encode("ascii"))
        return new
    return clone


def _inode(common_dir: str) -> str:
    """The inode of the directory: unchanged by a move, different in a copy."""
    return str(os.stat(os.path.join(common_dir, "clia")).st_ino)


def _recorded_inode(common_dir: str) -> tuple[str, str] | None:
    """Return the recorded clone id and its inode."""
    content = WritableLocalFiles().read(os.path.join(common_dir, "clia", "clone-place"), _MAX_BYTES)
    words = (content or b"").decode("ascii", "replace").split()
    return (words[0], words[1]) if len(words) == 2 else None
