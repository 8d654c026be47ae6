"""Paths inside a tree.

Invariant: an accepted path can be checked out on every system without leaving its directory, touching a ``.git`` directory in any
spelling, or meaning another path; ``git fsck --strict`` agrees.
"""

from __future__ import annotations

import re

from clia.errors import UnsafePath

PATH_MAX, PART_MAX, DEPTH_MAX = 4096, 255, 200
# Characters that HFS+ ignores in a name.
_IGNORED = dict.fromkeys([0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
# NTFS drops blanks and dots at the end of a name, and reads a colon as the start of a stream.
_GIT = re.compile(r"(?:\.git|git~1)(?:[ .]*|[ .]*:.*)", re.IGNORECASE | re.DOTALL)
# An NTFS short name has eight characters; the more digits it needs, the less of the name remains.
_SHORT = "|".join(f"{'gi7eba'[:length]}~[1-9][0-9]{{{6 - length}}}" for length in range(7))
_GITMODULES = re.compile(rf"(?:\.gitmodules|gitmod~[1-4]|{_SHORT})(?:[ .]*|[ .]*:.*)", re.IGNORECASE | re.DOTALL)


def printable(path: str) -> str:
    """Return the path as valid Unicode; a byte that is not UTF-8 becomes ``\\xe9``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check(path: str) -> str:
    """Return the path; ``UnsafePath`` says what is wrong with it."""
    if not isinstance(path, str):
        raise _unsafe(repr(path), "a path must be text")
    if not path:
        raise _unsafe(path, "a path must not be empty")
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise _unsafe(ascii(path), "the path is not valid Unicode") from None
    if size > PATH_MAX:
        raise _unsafe(path[:80] + "…", f"the path is longer than {PATH_MAX} bytes")
    if "\0" in path:
        raise _unsafe(path, "the path contains a NUL character")
    if path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path):
        raise _unsafe(path, "the path is absolute; paths are relative to the top of the tree")
    *folders, _ = parts = path.split("/")
    if len(parts) > DEPTH_MAX:
        raise _unsafe(path[:80] + "…", f"the path is deeper than {DEPTH_MAX} folders")
    for part in parts:
        _check_part(path, part)
    if any(is_gitmodules(folder) or is_gitattributes(folder) for folder in folders):
        raise _unsafe(path, "git reads a file of this name; it cannot be a folder")
    return path


def _check_part(path: str, part: str) -> None:
    if part in ("", ".", ".."):
        raise _unsafe(path, f"{part!r} is not the name of a file or folder")
    if len(part.encode("utf-8")) > PART_MAX:
        raise _unsafe(path[:80] + "…", f"a name is longer than {PART_MAX} bytes, the limit of file systems")
    plain = part.translate(_IGNORED)
    # A backslash separates names on Windows.
    if any(_GIT.fullmatch(name) for piece in (part, plain) for name in piece.split("\\")):
        raise _unsafe(path, "the path names a .git directory, or is equivalent to one on some systems")
    if "\\" in part and any(name in ("", ".", "..") for name in part.split("\\")):
        raise _unsafe(path, "the path leaves its directory on systems where a backslash separates names")


def check_removed(path: object) -> None:
    """Refuse a value that is not a path. A path to remove need not be safe."""
    if not isinstance(path, str) or any(part in ("", ".", "..") for part in path.split("/")):
        raise _unsafe(str(path), "this is not a path inside a tree")


def is_gitmodules(path: str) -> bool:
    """Whether any system reads the path as a ``.gitmodules`` file."""
    name = path.rpartition("/")[2].translate(_IGNORED)
    return any(_GITMODULES.fullmatch(part) for part in name.split("\\"))


def is_gitattributes(path: str) -> bool:
    """Whether git reads the path as a ``.gitattributes`` file."""
    return path.rpartition("/")[2].translate(_IGNORED).lower() == ".gitattributes"


def _unsafe(path: str, problem: str) -> UnsafePath:
    return UnsafePath(f"{path!r}: {problem}", fields={"path": path, "reason": problem})


def clash(path: str, other: str) -> UnsafePath:
    """The error for two paths that cannot be in one tree."""
    return UnsafePath(f"{path!r} and {other!r} cannot be in one tree", code="path-clash", fields={"path": path, "other": other})
