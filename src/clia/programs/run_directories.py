"""Where programs work: the worktrees that ``clia run`` and workers create.

Invariant: they are outside of the git directory, because tools treat files below ``.git`` as sensitive or do not see them: in
``PARENT/REPOSITORY-ID/AGENT``, those of workers in ``PARENT/REPOSITORY-ID-worker/AGENT``. The id belongs to the clone: it stays
when the repository is renamed or moved, and a copy of the repository gets another one. A directory in another place, such as the
git directory in earlier versions, is moved when no program uses it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from clia.errors import CliaError, FileError
from clia.files import WritableLocalFiles
from clia.store import private_files
from clia.store.clone_ids import clone_id
from clia.store.private_files import FileLocks
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.facade.components import Components

_SUFFIX = {False: "", True: "-worker"}
_NAME_MAX, _ID_LENGTH, _FILE_MAX = 40, 8, 16 * 1024
_HINTS = ('name another directory in the configuration: [run] with directory = "…"',)


class MovedDirectories(NamedTuple):
    """Worktrees that were moved to their present place, and those that are in use or could not be moved."""

    moved: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class RunDirectories:
    def __init__(self, components: Components) -> None:
        self._components = components
        self._common = components.git.handle.common_dir
        self._porcelain = components.porcelain

    def lock(self, agent: str, *, worker: bool = False) -> str:
        """The lock file that a program holds while it works in the agent's directory."""
        return os.path.join(self._inside(worker), f"{agent}.lock")

    def directory(self, agent: str, *, worker: bool = False) -> str:
        """The agent's directory, which may not exist. The caller holds the lock: a directory elsewhere is moved to its place."""
        directory = os.path.join(self._root(worker), agent)
        self._porcelain.repair(directory, agent)
        if not os.path.lexists(directory):
            for old in self._elsewhere(agent, worker, directory):
                self._porcelain.relocate(old, directory)
                self._components.captures.relocate(old, directory)
                break
        return directory

    def write_instructions(self, agent: str, text: str) -> str:
        """Write what an agent must know to a file beside its directory; return the file."""
        path = os.path.join(self._root(worker=False), f"{agent}.instructions.md")
        WritableLocalFiles().replace(path, text.encode("utf-8"))
        os.chmod(path, 0o600)
        return path

    def is_running(self, agent: str) -> bool:
        """Whether ``clia run`` runs a program as the agent."""
        with FileLocks(self._inside(worker=False)).attempt(f"{agent}.lock") as free:
            return not free

    def _inside(self, worker: bool) -> str:
        """The directory of the locks and, in earlier versions, of the worktrees."""
        return os.path.join(self._components.home, "work" if worker else "run")

    def move_all(self) -> MovedDirectories:
        """Move every directory that is in another place and that no program uses."""
        moved: list[str] = []
        left: list[str] = []
        for worker in _SUFFIX:
            locks = FileLocks(self._inside(worker))
            for agent in self._agents_elsewhere(worker):
                with locks.attempt(f"{agent}.lock") as free:
                    try:
                        (moved if free else left).append(self.directory(agent, worker=worker) if free else agent)
                    except CliaError:
                        left.append(agent)
        return MovedDirectories(tuple(moved), tuple(left))

    def _agents_elsewhere(self, worker: bool) -> list[str]:
        """The agents that have such a directory in the git directory."""
        try:
            names = os.listdir(self._inside(worker))
        except OSError:
            return []
        return [name for name in sorted(names) if is_name(name) and any(self._elsewhere(name, worker, ""))]

    def _elsewhere(self, agent: str, worker: bool, directory: str) -> Iterator[str]:
        """The agent's such worktrees in other places: in the git directory, or below another parent."""
        ending = f"-{self._id()}{_SUFFIX[worker]}"
        for checkout in self._porcelain.worktrees_of(agent):
            folder, name = os.path.split(checkout.directory)
            is_ours = folder == self._inside(worker) or folder.endswith(ending)
            if is_ours and name == agent and checkout.directory != directory and self._porcelain.checkout_of(checkout.directory):
                yield checkout.directory

    def _root(self, worker: bool) -> str:
        """The directory of all worktrees, created if missing. The name of a renamed repository stays."""
        parent, ending = self._parent(), f"-{self._id()}{_SUFFIX[worker]}"
        try:
            private_files.make_directory(parent)
            names = [name for name in sorted(os.listdir(parent)) if name.endswith(ending)]
            root = os.path.join(parent, names[0] if names else f"{self._name()}{ending}")
            private_files.make_directory(root)
            if not os.access(root, os.W_OK | os.X_OK):
                raise PermissionError(0, "Permission denied")
        except OSError as err:
            message = f"cannot create a directory for worktrees in {parent}: {err.strerror}"
            fields = {"path": parent, "reason": str(err.strerror)}
            raise FileError(message, code="no-run-directory", hints=_HINTS, fields=fields) from None
        private_files.tighten(root)
        return root

    def _parent(self) -> str:
        configured = self._components.config.run.directory
        environment = self._components.git.command.environment
        home, state = environment.get("HOME", ""), environment.get("XDG_STATE_HOME", "")
        if configured is not None:
            return os.path.realpath(os.path.join(home, configured.removeprefix("~/")))
        if not os.path.isabs(state):
            state = os.path.join(home, ".local", "state")
        if not os.path.isabs(state):
            message = "no directory for worktrees: neither XDG_STATE_HOME nor HOME is an absolute path"
            raise FileError(message, code="no-run-directory", hints=_HINTS, fields={"path": "", "reason": "not set"})
        return os.path.realpath(os.path.join(state, "clia", "worktrees"))

    def _name(self) -> str:
        """The repository's name, as a part of a path."""
        path = os.path.dirname(self._common) if os.path.basename(self._common) == ".git" else self._common.removesuffix(".git")
        return re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(path))[:_NAME_MAX].strip("-") or "repository"

    def _id(self) -> str:
        """The id of this clone's directories. The file beside it names the clone, so that a copy is noticed."""
        path = os.path.join(self._components.home, "worktrees")
        recorded_id, place = _read(path)
        if place == self._common and recorded_id:
            return recorded_id
        new = sha256(clone_id(self._common).encode()).hexdigest()[:_ID_LENGTH]
        if recorded_id and place != self._common:
            original = os.path.join(place, "clia", "worktrees")
            is_copy = _read(original)[0] == recorded_id and not os.path.samefile(original, path)
            new = sha256(f"{recorded_id} {self._common}".encode()).hexdigest()[:_ID_LENGTH] if is_copy else recorded_id
        WritableLocalFiles().replace(path, f"{new}\n{self._common}".encode("utf-8", "surrogateescape"))
        return new


def _read(path: str) -> tuple[str, str]:
    """The id and the git directory in a file; empty if it is missing."""
    content = b""
    with suppress(CliaError):
        content = WritableLocalFiles().read(path, _FILE_MAX) or b""
    clone, _, place = content.decode("utf-8", "surrogateescape").partition("\n")
    return clone, place
