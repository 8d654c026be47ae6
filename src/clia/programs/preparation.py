"""Preparation of an agent's worktree: submodules, files of the user, and a setup command (``[run]`` in the configuration).

Invariant: files are copied and linked from inside the user's worktree to inside the agent's one, and are never committed. The
setup command runs once in each worktree, and only if a person has approved exactly this command on this clone.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from clia.errors import BackendError, FileError, NotAllowed, UnsafePath
from clia.programs.runner import ProgramCommand, ProgramRunner
from clia.programs.worktree import ProgramWorktree, TracedOutput
from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clia.facade.config import RunRules
    from clia.facade.space import Space

SETUP = "setup"
"""The kind of trace entries about the preparation."""
_APPROVED, _SECONDS = "approved-setup", 3600.0


def check_setup(space: Space, setup: str | None, approve: Callable[[str], bool]) -> None:
    """``NotAllowed`` unless a setup command was approved before, or is approved now. The approval is recorded."""
    path, digest = os.path.join(space.home, _APPROVED), _digest(setup or "")
    if setup is None:
        return
    with suppress(FileNotFoundError), open(path, encoding="ascii", errors="replace") as file:
        if digest in file.read().split():
            return
    if not approve(setup):
        raise NotAllowed(
            f"the setup command of the configuration is not approved: {setup}",
            code="setup-not-approved",
            hints=["read it, then approve it with --yes, or answer yes in a terminal"],
            fields={"setup": setup},
        )
    with open(path, "a", encoding="ascii", opener=private_files.open_file) as file:
        file.write(f"{digest}\n")


def prepare_checkout(
    space: Space,
    agent: str,
    directory: str,
    environment: Mapping[str, str],
    approve: Callable[[str], bool],
    tell: Callable[[str], None],
) -> str:
    """Check out an agent's files, prepare the worktree, and return the commit."""
    rules = space.local.config.run
    check_setup(space, rules.setup, approve)
    commit, programs = space.checkout(agent, directory), ProgramRunner()
    lock = f"{space.local.run_directories.lock(agent).removesuffix('.lock')}.checkout.lock"
    with programs.alone(lock, lambda: False):
        work = ProgramWorktree(space, agent, directory, lock, programs, environment)
        WorktreePreparation(work, rules, environment, tell).run()
    return commit


class WorktreePreparation(NamedTuple):
    """Prepares one worktree, whose lock is held. A new worktree needs everything, an old one what is missing."""

    work: ProgramWorktree
    rules: RunRules
    environment: Mapping[str, str]  # of the setup command
    tell: Callable[[str], None]  # shows a line to the user

    def run(self) -> None:
        for warning in self.work.space.captures.update_submodules(self.work.directory):
            self._note(warning)
        paths = [(path, False) for path in self.rules.copy] + [(path, True) for path in self.rules.link]
        for path, is_link in paths:
            self._provide(path, is_link)
        if self.rules.setup is not None:
            self._set_up(self.rules.setup)

    def _note(self, text: str) -> None:
        self.tell(text)
        self._trace(text)

    def _trace(self, text: str, kind: str = SETUP, **data: str) -> None:
        with suppress(NotAllowed):  # an agent of another clone is read-only, and its files can be checked out
            self.work.space.trace(self.work.agent, kind, text, data=data or None)

    def _provide(self, path: str, is_link: bool) -> None:
        """Copy or link a path of the user's worktree, unless the agent's worktree has it."""
        captures, directory = self.work.space.captures, self.work.directory
        user, prepared = captures.user_worktree(), captures.prepared(directory)
        source, target = os.path.join(user or "", path), os.path.join(directory, path)
        if os.path.lexists(target):
            if path not in prepared.paths or path in prepared.done:
                return
            _remove(target)  # half of a copy
        if user is None or not os.path.exists(source):
            self._note(f"not copied or linked: {path} does not exist in {user or 'a bare repository'}")
            return
        for inner, top in ((source, user), (os.path.dirname(target), directory)):
            if not f"{os.path.realpath(inner)}/".startswith(f"{os.path.realpath(top)}/"):
                raise UnsafePath(f"{path!r} leads out of {top}", fields={"path": path})
        prepared = prepared._replace(paths=tuple(dict.fromkeys((*prepared.paths, path))))
        captures.record_prepared(directory, prepared)  # first: never committed, even if we die now
        try:
            _put(source, target, is_link)
        except (OSError, shutil.Error) as err:
            raise FileError(f"cannot copy {path} to {target}: {err}", fields={"path": target, "reason": str(err)}) from None
        captures.record_prepared(directory, prepared._replace(done=tuple(dict.fromkeys((*prepared.done, path)))))

    def _set_up(self, setup: str) -> None:
        """Run the setup command, unless it was run in this worktree."""
        work = self.work
        prepared = work.space.captures.prepared(work.directory)
        if prepared.setup == _digest(setup):
            return
        self._note(f"$ {setup}")
        output = TracedOutput(lambda text: self._trace(text, "console", stream="stdout"), lambda _, state: ("", state))
        command = ProgramCommand(("sh", "-c", setup), work.directory, self.environment, b"", _SECONDS)
        result = work.programs.run(command, work.place, output.add, work.cancelled)
        output.end()
        self._trace(f"exit code {result.code}")
        if result.code:
            raise BackendError(
                f"the setup command failed with exit code {result.code} in {work.directory}",
                code="setup-failed",
                hints=[f"see its output with: clia trace pending {work.agent}", "it is run again at the next use of the worktree"],
                fields={"directory": work.directory, "exit_code": result.code},
            )
        work.space.captures.record_prepared(work.directory, prepared._replace(setup=_digest(setup)))


def _put(source: str, target: str, is_link: bool) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if is_link:
        os.symlink(source, target)
    elif os.path.isdir(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _digest(setup: str) -> str:
    return sha256(setup.encode("utf-8", "surrogatepass")).hexdigest()
