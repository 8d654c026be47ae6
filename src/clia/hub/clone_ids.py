"""What tells one clone of a space from another.

Invariant: an id is made once for a clone, and machines that share a store never go by the same one. A clone that was copied with
all its files, as an image of a machine is, has the id of the clone that it was copied from; where a store is shared it gets one of
its own. Where nothing is shared the id stays: what the clone keeps on a server is found by it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from uuid import uuid4

from clia.errors import AlreadyExists, FileError
from clia.identities.files import WritableLocalFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.store.lock_interface import Locks

_LOCK = "@clone"
_MOST = 64


def clone_id(common_dir: str) -> str:
    """The id of the clone; made once."""
    path = os.path.join(common_dir, "clia", "clone")
    files = WritableLocalFiles()
    found = files.read(path, _MOST)
    if found is None:
        files.make_directory(os.path.dirname(path))
        clone = str(uuid4())
        with suppress(AlreadyExists):  # another process was quicker
            files.create(path, clone.encode("ascii"))
            files.replace(f"{path}-place", f"{clone} {_place(common_dir)}".encode("ascii"))
        found = files.read(path, _MOST)
    return (found or b"").decode("ascii")


def clone_among_others(common_dir: str, locks: Locks) -> str:
    """The id of a clone that shares its store: another one than that of the clone it was copied from."""
    clone = clone_id(common_dir)
    if _said(common_dir) == (clone, _place(common_dir)):
        return clone
    try:
        with locks.hold(_LOCK):
            return _settled(common_dir)
    except FileError:
        return clone  # nothing can be written here, so nothing of it gets to others


def _settled(common_dir: str) -> str:
    """Under the lock. An id is written before its place: whoever dies in between leaves a place of no id, which means nothing."""
    files, folder = WritableLocalFiles(), os.path.join(common_dir, "clia")
    clone, place, said = clone_id(common_dir), _place(common_dir), _said(common_dir)
    if said is not None and said[0] == clone and said[1] != place:
        clone = str(uuid4())
        files.replace(os.path.join(folder, "clone"), clone.encode("ascii"))
    files.replace(os.path.join(folder, "clone-place"), f"{clone} {place}".encode("ascii"))
    return clone


def _place(common_dir: str) -> str:
    """What a move keeps and a copy changes."""
    return str(os.stat(os.path.join(common_dir, "clia")).st_ino)


def _said(common_dir: str) -> tuple[str, str] | None:
    """Of which id the place was written down, and which it is."""
    found = WritableLocalFiles().read(os.path.join(common_dir, "clia", "clone-place"), _MOST)
    words = (found or b"").decode("ascii", "replace").split()
    return (words[0], words[1]) if len(words) == 2 else None
