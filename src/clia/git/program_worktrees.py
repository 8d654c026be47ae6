"""The worktrees that a program creates beside the agent's worktree that it runs in, and what it commits there.

Invariant: a worktree is the program's if it appeared while the program ran and is inside the agent's worktree, or started at a
commit that HEAD of the agent's worktree was at. Only what its reflog gained while a program of the agent ran is the program's. The
record is in the git directory of the agent's worktree.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

from clia.git.reflogs import Reflogs, read_reflog
from clia.git.worktree_links import LOGS, RECORD, admin_dirs, link_back

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from clia.git.reflogs import ReflogEntry

_LOG = os.path.join("logs", "HEAD")


class ProgramLogs(NamedTuple):
    """The sizes of the reflogs of other worktrees when a program started, by the names of their git directories."""

    sizes: Mapping[str, int] = {}
    own: tuple[str, ...] = ()  # those that programs of the agent created
    since: int | None = None  # when the program started, in seconds since the epoch; None: none is running

    @classmethod
    def read(cls, admin: str) -> ProgramLogs:
        """Read the record in the git directory of an agent's worktree; without one, no program is running."""
        try:
            with open(os.path.join(admin, LOGS), encoding="utf-8") as file:
                record = dict(json.load(file))
            since = record["since"]
            return cls({str(name): int(size) for name, size in record["sizes"].items()}, tuple(map(str, record["own"])), since)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def started(self, common_dir: str) -> ProgramLogs:
        """The record for a program that starts now."""
        sizes = dict(_sizes(common_dir))
        return ProgramLogs(sizes, tuple(name for name in self.own if name in sizes), int(time.time()))

    def ended(self, common_dir: str, top: str, admin: str) -> ProgramLogs:
        """The record after a program, with the worktrees that it created."""
        visited = {entry.new for entry in read_reflog(os.path.join(admin, _LOG))}
        own = [name for name, _ in self._of_program(common_dir, top, visited)]
        return ProgramLogs({}, tuple(dict.fromkeys((*self.own, *own))), None)

    def entries(self, common_dir: str, top: str, visited: Collection[str]) -> list[ReflogEntry]:
        """The moves of HEAD in the program's worktrees, and those of branches that it created in worktrees that are gone.

        ``top``: the agent's worktree. ``visited``: the commits that its HEAD was at.
        """
        if self.since is None:
            return []
        moves = [entry for _, entries in self._of_program(common_dir, top, visited) for entry in entries]
        known_commits = {*visited, *(entry.new for entry in moves)}
        for log in Reflogs(common_dir).without_worktree(self.since):
            moves += log if log[0].new in known_commits else []
        return moves

    def _of_program(self, common_dir: str, top: str, visited: Collection[str]) -> Iterator[tuple[str, list[ReflogEntry]]]:
        for name, size in _sizes(common_dir) if self.since is not None else ():
            admin = os.path.join(common_dir, "worktrees", name)
            log = os.path.join(admin, _LOG)
            if name in self.own:
                yield name, read_reflog(log, self.sizes.get(name, 0), size)
            elif name not in self.sizes:
                entries = read_reflog(log, 0, size)
                place = os.path.dirname(os.path.realpath(link_back(admin) or ""))
                if f"{place}/".startswith(f"{os.path.realpath(top)}/") or (entries and entries[0].new in visited):
                    yield name, entries


def _sizes(common_dir: str) -> Iterator[tuple[str, int]]:
    """The sizes of the reflogs of HEAD in all linked worktrees but those of agents."""
    for admin in admin_dirs(common_dir):
        if not os.path.lexists(os.path.join(admin, RECORD)):
            try:
                size = os.stat(os.path.join(admin, _LOG)).st_size
            except OSError:
                size = 0
            yield os.path.basename(admin), size
