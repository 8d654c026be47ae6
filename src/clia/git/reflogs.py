"""Reflogs, as git writes them: one line for each move of a ref."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from clia.git.worktree_links import RECORD, admin_dirs

# The reasons in a reflog for commits that git creates. A fast-forward and the start and end of a rebase create none.
_CREATED = re.compile(r"(commit|cherry-pick|revert|am|rebase|pull|merge)\b")
_MOVED = re.compile(r"fast-forward|\((start|finish|abort)\)|: (checkout|updating|returning)\b", re.IGNORECASE)
_REPLAYED = re.compile(r"(cherry-pick|commit \(cherry-pick\):|am|rebase|pull)(?!\w)")
_LINE = re.compile(r"(?P<old>[0-9a-f]{40}) (?P<new>[0-9a-f]{40}) .*?> (?P<at>\d+) [-+]\d+(\t(?P<why>.*))?")


class ReflogEntry(NamedTuple):
    """One move of a ref."""

    old: str
    new: str
    at: int
    why: str

    @property
    def created(self) -> bool:
        """Whether git created the new commit."""
        return is_creation(self.why)

    @property
    def replayed(self) -> bool:
        """Whether the new commit repeats another one with its author and date, unless it is a merge or an amended commit."""
        return is_replay(self.why)


def is_creation(why: str) -> bool:
    """Whether a reason in a reflog is that of a commit that git created."""
    return bool(_CREATED.match(why)) and not _MOVED.search(why)


def is_replay(why: str) -> bool:
    """Whether a reason in a reflog is that of a commit that repeats another one, unless it is a merge or amends one."""
    return bool(_REPLAYED.match(why))


def read_reflog(path: str, start: int = 0, end: int | None = None) -> list[ReflogEntry]:
    """The entries between two offsets, oldest first; none if the file is gone, or was rewritten so that they no longer fit."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, start - 1))
            data = file.read() if end is None else file.read(end - max(0, start - 1))
    except OSError:
        return []
    if start and not data.startswith(b"\n"):
        return []
    matches = (_LINE.fullmatch(line) for line in data.decode("utf-8", "replace").strip("\n").split("\n"))
    return [ReflogEntry(match["old"], match["new"], int(match["at"]), match["why"] or "") for match in matches if match]


class Reflogs:
    """The reflogs of people's worktrees and branches in a repository."""

    def __init__(self, common_dir: str) -> None:
        self._common_dir = common_dir

    def part(self, log: str, start: int, end: int) -> list[ReflogEntry]:
        """Return the entries between two offsets of a reflog below the git directory; none if it is that of an agent's worktree."""
        path = os.path.join(self._common_dir, log)
        admin = os.path.dirname(os.path.dirname(path))
        return [] if os.path.lexists(os.path.join(admin, RECORD)) else read_reflog(path, start, end)

    def in_removed_worktrees(self, start: int, end: int) -> list[ReflogEntry]:
        """Return the moves of branches between two times, in seconds, without commits that the reflog of a worktree created."""
        logged = self._created()
        moves = [entry for log in self._of_branches(start) for entry in read_reflog(log)]
        return [entry for entry in moves if start <= entry.at <= end and entry.new not in logged]

    def without_worktree(self, since: int) -> list[list[ReflogEntry]]:
        """Return the reflogs of branches that were created since a time, without commits that the reflog of a worktree created.

        The first entry of each is the creation of the branch.
        """
        created = self._created()
        logs = [log for path in self._of_branches(since) if (log := read_reflog(path)) and log[0].at >= since]
        return [[log[0], *(entry for entry in log[1:] if entry.new not in created)] for log in logs if not log[0].old.strip("0")]

    def _created(self) -> set[str]:
        """The commits that were created in a worktree. One that is only merged there may be from a worktree that is gone."""
        admins = (self._common_dir, *admin_dirs(self._common_dir))
        logs = (read_reflog(os.path.join(admin, "logs", "HEAD")) for admin in admins)
        return {entry.new for log in logs for entry in log if entry.created}

    def stashes(self) -> list[str]:
        """Return the stashes, which all worktrees share."""
        return [entry.new for entry in read_reflog(os.path.join(self._common_dir, "logs", "refs", "stash"))]

    def fetched(self) -> list[str]:
        """Return the commits that the last ``git fetch`` or ``git pull`` in the main worktree got."""
        try:
            with open(os.path.join(self._common_dir, "FETCH_HEAD"), encoding="utf-8", errors="replace") as file:
                return [line[:40] for line in file if re.match(r"[0-9a-f]{40}\t", line)]
        except OSError:
            return []

    def _of_branches(self, since: int) -> list[str]:
        """The reflogs of people's branches that were written to since a time."""
        top = os.path.join(self._common_dir, "logs", "refs", "heads")
        agents = os.path.join(top, "agents")
        walk = (entry for entry in os.walk(top) if not f"{entry[0]}/".startswith(f"{agents}/"))
        paths = sorted(os.path.join(folder, name) for folder, _, names in walk for name in names)
        return [path for path in paths if _modified(path) >= since]


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
