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
from hashlib import sha256

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
_PLACE = "clia.place"
"""The setting of a submodule with its directory; git does not read it."""
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


def saved_dir(common_dir: str, top: str) -> str:
    """Return the folder for what outlives the git directory of a worktree (``clia.git.worktree_repairs``)."""
    return os.path.join(common_dir, "clia", "worktree-logs", sha256(os.fsencode(top)).hexdigest()[:16])


def relink(top: str, admin: str, old_top: str | None = None) -> None:
    """Let a directory and a git directory name each other, and the submodules too. ``old_top``: where the directory was."""
    old_top = old_top or os.path.dirname(link_back(admin) or os.path.join(top, ".git"))
    old_admin = git_dir_of(top) or admin
    has_moved = (old_top, old_admin) != (top, admin) or git_dir_of(top) is None
    if has_moved:
        _write(os.path.join(admin, _BACK), os.path.join(top, ".git"))
    for module in _modules(admin):  # also if nothing else has moved: `git worktree repair` leaves them as they are
        _relink_module(module, old_admin + module.removeprefix(admin), old_top, top)
    if has_moved:
        _write(os.path.join(top, ".git"), _PREFIX + admin)


def link(place: str, module: str) -> None:
    """Let the directory of a submodule and its git directory name each other.

    git follows the ``.git`` file. It would also follow ``core.worktree``, but not when the worktree around it is moved.
    """
    import pygit2

    os.makedirs(place, exist_ok=True)
    config = pygit2.Config(os.path.join(module, "config"))
    config[_PLACE] = place
    if "core.worktree" in config:
        del config["core.worktree"]
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
    recorded = next((config[key] for key in ("core.worktree", _PLACE) if key in config), None)
    if recorded is None:
        return
    old_place = os.path.normpath(os.path.join(old_module, recorded))
    place = os.path.join(top, os.path.relpath(old_place, old_top)) if old_place.startswith(old_top + "/") else None
    if place is None or not os.path.isdir(place):  # the links of the worktree were repaired before
        place = _place_inside(top, old_place, (module, old_module))
    if place is not None and (place, git_dir_of(place)) != (old_place, module):
        link(place, module)


def _place_inside(top: str, old_place: str, modules: tuple[str, str]) -> str | None:
    """Return where the directory of a submodule is in a moved worktree: the longest end of its old path that exists there."""
    parts = old_place.strip("/").split("/")
    places = (os.path.join(top, *parts[start:]) for start in range(1, len(parts)))
    return next((place for place in places if git_dir_of(place) in modules), None)


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
