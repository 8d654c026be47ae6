"""The links between a linked worktree and its git directory.

A worktree's ``.git`` file names its git directory (``<common dir>/worktrees/NAME``), whose file ``gitdir`` names the ``.git`` file.
Moving either end breaks a link; ``relocate`` and ``relink`` keep them consistent. ``git worktree move`` and ``repair`` do less: the
first refuses submodules and other file systems, the second takes over the worktrees of a copied repository.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress

from clia.errors import FileError
from clia.git.records import Checkout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = "clia.json"
"""The file in the git directory of an agent's worktree that names the agent."""
LOGS = "clia-logs.json"
"""The file beside it with the state of other worktrees when a program started (``clia.git.program_worktrees``)."""
_BACK = "gitdir"
_PREFIX = "gitdir: "


def pointed_at(file: str, before: str = "") -> str | None:
    """Return the path in a one-line file of git's; it may be relative to the file."""
    try:
        with open(file, "rb") as content:
            line = os.fsdecode(content.read(8192).rstrip(b"\n"))
    except OSError:
        return None
    return os.path.join(os.path.dirname(file), line.removeprefix(before)) if line.startswith(before) else None


def git_dir_of(top: str) -> str | None:
    """Return the git directory that the ``.git`` file of a directory names; None if there is no such file."""
    return pointed_at(os.path.join(top, ".git"), _PREFIX)


def link_back(admin: str) -> str | None:
    """Return the ``.git`` file that the git directory of a linked worktree names."""
    return pointed_at(os.path.join(admin, _BACK))


def read_record(admin: str, place: str) -> Checkout | None:
    """Return the record of the agent in the git directory of a worktree."""
    try:
        with open(os.path.join(admin, RECORD), encoding="utf-8") as file:
            record = dict(json.load(file))
        own, pending, moving = record.get("own"), record.get("pending"), record.get("moving")
        return Checkout(
            str(record["agent"]),
            str(record["base"]),
            place,
            None if own is None else str(own),
            None if pending is None else (str(pending[0]), str(pending[1])),
            None if moving is None else str(moving),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def admin_dirs(common_dir: str) -> Iterator[str]:
    """Yield the git directories of all linked worktrees of a repository."""
    folder = os.path.join(common_dir, "worktrees")
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            yield os.path.join(folder, name)


def relink(top: str, admin: str, old_top: str | None = None) -> None:
    """Let a directory and a git directory name each other, and the submodules too. ``old_top``: where the directory was."""
    old_top = old_top or os.path.dirname(link_back(admin) or os.path.join(top, ".git"))
    old_admin = git_dir_of(top) or admin
    if (old_top, old_admin) == (top, admin):
        return
    _write(os.path.join(admin, _BACK), os.path.join(top, ".git"))
    for module in _modules(admin):
        _relink_module(module, old_admin + module.removeprefix(admin), old_top, top)
    _write(os.path.join(top, ".git"), _PREFIX + admin)


def link(place: str, module: str) -> None:
    """Let the directory of a submodule and its git directory name each other."""
    import pygit2

    os.makedirs(place, exist_ok=True)
    pygit2.Config(os.path.join(module, "config"))["core.worktree"] = place
    _write(os.path.join(place, ".git"), _PREFIX + module)


def relocate(top: str, admin: str, new: str) -> None:
    """Move a worktree to a directory that does not exist, in any file system.

    A crash leaves the worktree at one of both places, and ``relink`` completes the move.
    """
    try:
        os.makedirs(os.path.dirname(new), mode=0o700, exist_ok=True)
        try:
            os.rename(top, new)
        except OSError as err:
            if err.errno != errno.EXDEV:
                raise
            _copy(top, admin, new)
    except OSError as err:
        message = f"cannot move the worktree {top} to {new}: {err.strerror}"
        raise FileError(message, fields={"path": top, "reason": str(err.strerror)}) from None
    relink(new, admin, top)


def _copy(top: str, admin: str, new: str) -> None:
    """Copy a worktree and remove the original."""
    draft = f"{new}.moving"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(top, draft, symlinks=True)
    _write(os.path.join(admin, _BACK), os.path.join(new, ".git"))
    os.rename(draft, new)
    shutil.rmtree(top)


def _modules(admin: str) -> Iterator[str]:
    """Yield the git directories of the submodules of a worktree, outer ones first."""
    for folder, directories, files in os.walk(os.path.join(admin, "modules")):
        if "HEAD" in files and "config" in files:
            yield folder
            directories[:] = [name for name in directories if name == "modules"]


def _relink_module(module: str, old_module: str, old_top: str, top: str) -> None:
    """Let a submodule's git directory and its worktree name each other after one of them moved."""
    import pygit2

    config = pygit2.Config(os.path.join(module, "config"))
    worktree = config["core.worktree"] if "core.worktree" in config else None  # noqa: SIM401  # it has no get
    if worktree is None:
        return
    old_place = os.path.normpath(os.path.join(old_module, worktree))
    place = os.path.join(top, os.path.relpath(old_place, old_top))
    if old_place.startswith(old_top + "/") and os.path.isdir(place):
        link(place, module)


def _write(path: str, line: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(os.fsencode(line) + b"\n")
        os.replace(temporary, path)
    except OSError as err:
        with suppress(OSError):
            os.unlink(temporary)
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": str(err.strerror)}) from None
