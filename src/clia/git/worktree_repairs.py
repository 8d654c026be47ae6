"""Repair of agents' worktrees that a program damaged or removed.

A program can delete the ``.git`` of its worktree, the worktree, or its git directory (``git worktree remove``), which has the only
reflog that names the commits it made. So before a program starts, a second link to that reflog and a copy of the records are put
into the repository (``saved_dir``). git appends to a reflog, so the link has what the program did until the end.

Invariant: a worktree is restored only at commits that exist, and a directory that exists keeps its files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress

from clia.git import worktree_links
from clia.git.reflogs import read_reflog
from clia.git.worktree_links import LOGS, RECORD, saved_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle
    from clia.git.worktree_updates import WorktreeUpdates

_HEAD_LOG = os.path.join("logs", "HEAD")
_SAVED_LOG = "HEAD-log"


class WorktreeRepairs:
    """Repairs in one repository. Places are absolute paths."""

    def __init__(self, handle: GitHandle, command: GitCommand, updates: WorktreeUpdates) -> None:
        self._handle = handle
        self._command = command
        self._updates = updates
        self._common = handle.common_dir

    def repair(self, place: str, agent: str, *, replaced: bool) -> str | None:
        """Restore the links of a worktree whose git directory exists; return what was wrong."""
        admin = self._registered_at(place, agent)
        if admin is None or not os.path.isdir(place):
            return None
        pointer = os.path.join(place, ".git")
        named = worktree_links.git_dir_of(place)
        if named is not None and os.path.realpath(named) == admin:
            worktree_links.relink(place, admin)
            return None
        if named is None and os.path.lexists(pointer):
            if not replaced:
                return None
            moved_to = os.path.join(tempfile.mkdtemp(prefix="replaced-", dir=admin), "git")
            shutil.move(pointer, moved_to)  # another file system, maybe
            problem = f"the .git of the worktree was replaced by another repository, which is kept as {moved_to}"
        elif named is not None and os.path.isdir(named) and not replaced:
            return None  # the worktree of a repository that this one is a copy of
        else:
            problem = f"the .git of the worktree {'was deleted' if named is None else 'named a missing repository'}"
        worktree_links.relink(place, admin)
        return problem

    def _registered_at(self, place: str, agent: str) -> str | None:
        """Return the git directory that is registered for an agent's worktree at a path.

        If only its name fits, the directory or the repository was moved.
        """
        moved = None
        for admin in worktree_links.admin_dirs(self._common):
            link = worktree_links.link_back(admin)
            record = None if link is None else worktree_links.read_record(admin, place)
            if link is None or record is None or record.agent != agent:
                continue
            if os.path.realpath(os.path.dirname(link)) == os.path.realpath(place):
                return admin
            if not os.path.lexists(link) and os.path.basename(os.path.dirname(link)) == os.path.basename(place):
                moved = admin
        return moved

    def save(self, place: str, admin: str | None) -> None:
        """Save the reflog of HEAD and the records of a worktree. ``admin`` None: drop what was saved."""
        folder = saved_dir(self._common, place)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # a file system without hard links: a removed worktree is not restored
            if admin is not None:
                os.makedirs(folder, mode=0o700)
                for name in (LOGS, RECORD):
                    with suppress(FileNotFoundError):
                        shutil.copyfile(os.path.join(admin, name), os.path.join(folder, name))
                os.link(os.path.join(admin, _HEAD_LOG), os.path.join(folder, _SAVED_LOG))

    def restore(self, place: str, agent: str) -> bool:
        """Restore a worktree that is missing, or whose git directory is; return whether that was possible."""
        folder = saved_dir(self._common, place)
        admin = self._registered_at(place, agent)
        record = worktree_links.read_record(admin or folder, place)
        moves = read_reflog(os.path.join(folder if admin is None else admin, _SAVED_LOG if admin is None else _HEAD_LOG))
        heads = [move.new for move in moves if self._is_commit(move.new)]
        if record is None or record.agent != agent or not heads:
            return False
        if admin is None:
            admin = self._with_new_admin(place, folder, heads[-1])
        if not os.path.isdir(place):
            os.makedirs(place, mode=0o700)
            worktree_links.relink(place, admin)
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(admin, "index"))  # else the files that it has would count as deleted
            self._updates.check_out(place, admin, heads[-1], resumes=True)
        return True

    def _is_commit(self, cid: str) -> bool:
        return self._command.attempt("cat-file", "-e", f"{cid}^{{commit}}").code == 0  # git gc may have removed it

    def _with_new_admin(self, place: str, folder: str, head: str) -> str:
        """Create the git directory of a worktree from what was saved; return it. A worktree that the program registered is used."""
        named = worktree_links.git_dir_of(place)
        parent = os.path.join(self._common, "worktrees")
        own = named is not None and os.path.isdir(named) and os.path.dirname(os.path.realpath(named)) == parent
        admin = os.path.realpath(named) if named is not None and own else _free_name(parent, os.path.basename(place))
        os.makedirs(os.path.join(admin, "logs"), exist_ok=True)
        added = _read(os.path.join(admin, _HEAD_LOG))
        _write(os.path.join(admin, _HEAD_LOG), _read(os.path.join(folder, _SAVED_LOG)) + added)
        if not own:
            _write(os.path.join(admin, "commondir"), b"../..\n")
            _write(os.path.join(admin, "HEAD"), f"{head}\n".encode("ascii"))
            _write(os.path.join(admin, "gitdir"), os.fsencode(os.path.join(place, ".git")) + b"\n")
        for name in (LOGS, RECORD):  # the record last: it makes this the agent's worktree
            if os.path.lexists(os.path.join(folder, name)):
                shutil.copyfile(os.path.join(folder, name), os.path.join(admin, name))
        for parent, _, files in os.walk(admin) if self._handle.sharing.bits else ():
            for path in (parent, *(os.path.join(parent, name) for name in files)):
                self._handle.sharing.apply(path)
        return admin


def _free_name(parent: str, name: str) -> str:
    """A path in a folder that does not exist: the name, or with a number, as ``git worktree add`` chooses it."""
    number, path = 0, os.path.join(parent, name)
    while os.path.lexists(path):
        number += 1
        path = os.path.join(parent, f"{name}{number}")
    return path


def _read(path: str) -> bytes:
    with suppress(FileNotFoundError), open(path, "rb") as file:
        return file.read()
    return b""


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
