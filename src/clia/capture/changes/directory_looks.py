"""Looks at the directory of a captured session: what it may commit of its files.

Invariant: a look takes the tracked files, those that are recorded already, and the untracked ones that the session touched: its
calls name them, or they appeared or changed since the last look. Any other untracked file is as the session found it, and no
content of it is read into the repository. Sizes and secrets are limited by the configuration (``clia.capture.changes.file_rules``).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from clia.capture.changes.file_rules import FileRules, reasons, shown_path
from clia.capture.changes.found_files import LINES_MAX, FoundFiles, found_lines, moved_lines, state_of, with_lines, with_missing
from clia.capture.service import paths_inside
from clia.git.records import EXECUTABLE, FILE, TreeEntry
from clia.space.attribution.line_matching import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from clia.capture.changes.found_files import FoundFile
    from clia.capture.service import CapturedSession
    from clia.facade.components import Components
    from clia.git.staging import LeftOut


class Moment(NamedTuple):
    """The event that a look is for."""

    stored: int  # when its hook wrote it, in nanoseconds, by the clock of the file system
    is_past: bool = False  # whether later events of the session wait: the directory may have changed since
    later_paths: tuple[str, ...] = ()  # files that later calls name


class DirectoryLook(NamedTuple):
    """The files of a directory."""

    tree: str  # those that may be committed
    left_out: tuple[LeftOut, ...]
    found: Mapping[str, FoundFile]  # the untracked ones that were not touched
    unchanged: Collection[str]  # those of them that the last look found, too
    taken: Mapping[str, str]  # files that were not taken before: digests of the lines that they had

    def unrecorded(self, before: Mapping[str, str]) -> dict[str, str]:
        """The files that are left out, and those left out ``before`` that did not change: the reasons, by the path to show."""
        same = {shown_path(path) for path in self.unchanged}
        return {path: reason for path, reason in before.items() if path in same} | reasons(self.left_out)


class _TurnRules(FileRules):
    def __init__(self, looks: DirectoryLooks, captured: CapturedSession, tree: str, moment: Moment, *, as_found: bool) -> None:
        super().__init__(looks.components.config.capture)
        self._objects = looks.components.core.objects
        self._tree = tree
        self._place = captured.place
        self._takes_all = looks.components.run_directories.is_running(captured.agent)
        self._named = frozenset(captured.paths)
        self._moment = moment
        self._later = frozenset(paths_inside(captured.place, moment.later_paths))
        self._as_found = as_found
        self._before = looks.found_by(captured)
        self._begun = captured.begun  # 0 for a session of an older version, whose agent has the files that it found
        self.found: dict[str, FoundFile] = {}

    def wants(self, path: str, status: os.stat_result) -> bool:
        if stat.S_ISDIR(status.st_mode):  # a repository: a commit in it writes to its git directory
            status = os.lstat(os.path.join(self._place, path, ".git"))
        if self._takes_all or self._objects.entry(self._tree, path) is not None:
            return True
        before = None if self._before is None else self._before.get(path)
        if self._as_found:
            if not self._is_newer(path, status):
                self.found[path] = state_of(status)
            return False
        if before is not None:
            is_touched = not before.is_same(os.path.join(self._place, path), status)
        else:
            is_touched = self._before is not None or status.st_ctime_ns >= self._begun
        self.found[path] = state_of(status)  # in case it is left out
        return is_touched or path in self._named

    def _is_newer(self, path: str, status: os.stat_result) -> bool:
        """Whether a file may have appeared after the event. The times of both files are those of the file system."""
        return self._moment.is_past and (status.st_ctime_ns >= self._moment.stored or path in self._later)


class DirectoryLooks:
    """The looks of one space at the directories of its sessions."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self._records = FoundFiles(os.path.join(components.home, "found"))

    def look(self, captured: CapturedSession, moment: Moment, *, as_found: bool = False) -> DirectoryLook:
        """Stage the directory of a session. ``as_found``: nothing untracked was touched yet."""
        core = self.components.core
        tree = core.objects.commit(core.require_head(captured.agent)).tree
        rules = _TurnRules(self, captured, tree, moment, as_found=as_found)
        staged = self.components.porcelain.staged(captured.place, tree, rules)
        entry = core.objects.entry
        found_files = {path: file for path, file in rules.found.items() if entry(staged.tree, path) is None}
        before = self.found_by(captured) or {}
        unchanged = [path for path, file in before.items() if path in found_files and found_files[path][:4] == file[:4]]
        fresh = {path: file for path, file in before.items() if entry(staged.tree, path) is not None and entry(tree, path) is None}
        taken = {path: file.lines for path, file in fresh.items()}
        missing = [file for path, file in before.items() if file.lines and path not in found_files and path not in taken]
        taken |= self._moved(tree, staged.tree, missing, before) if missing else {}
        return DirectoryLook(staged.tree, staged.left_out, found_files, unchanged, taken)

    def _moved(self, tree: str, now: str, missing: list[FoundFile], before: Collection[str]) -> dict[str, str]:
        """For each new file that was one of the missing ones: digests of the lines that it had."""
        objects, moved = self.components.core.objects, dict[str, str]()
        present = objects.entries(tree)
        for path, entry in objects.entries(now).items():
            is_new = path not in present and path not in before and entry.mode in (FILE, EXECUTABLE)
            if is_new and objects.size(entry.cid) <= LINES_MAX and (lines := moved_lines(objects.blob(entry.cid), missing)):
                moved[path] = lines
        return moved

    def found_by(self, captured: CapturedSession) -> Mapping[str, FoundFile] | None:
        """The untracked files at a session's last look; None if they are not known."""
        return self._records.read(captured.key)

    def has_found(self, captured: CapturedSession) -> bool:
        return self.found_by(captured) is not None

    def keep(self, captured: CapturedSession, look: DirectoryLook) -> None:
        """Remember what the directory has besides the committed files. Files that are not committed yet stay remembered."""
        core, before = self.components.core, self.found_by(captured) or {}
        tree = core.objects.commit(core.require_head(captured.agent)).tree
        found_files = with_missing(look.found, before, lambda path: core.objects.entry(tree, path) is None)
        self._records.write(captured.key, with_lines(captured.place, found_files, before))

    def inherit(self, sub: CapturedSession, session: CapturedSession) -> None:
        """Let a sub-agent find what its session found."""
        before = self.found_by(session)
        if before is not None and sub.place == session.place:
            self._records.write(sub.key, before)

    def lines_found(self, captured: CapturedSession, path: str) -> Callable[[bytes], set[int] | None] | None:
        """A function from a file's content to the lines that the session found in it; None if it found no such file.

        The function returns None for all lines: the session did not touch the file.
        """
        found_files = self.found_by(captured) or {}
        file = found_files.get(path)
        if file is None:
            missing = [
                old for name, old in found_files.items() if old.lines and not os.path.lexists(os.path.join(captured.place, name))
            ]
            objects, tree = self.components.core.objects, captured.tree
            is_known = bool(tree) and objects.kind(tree) == "tree"  # else it was pruned
            is_new = bool(missing) and is_known and objects.entry(tree, path) is None
            return (lambda data: found_lines(data, moved_lines(data, missing))) if is_new else None
        with suppress(OSError):
            place = os.path.join(captured.place, path)
            if file.is_same(place, os.lstat(place)):
                return lambda _: None
        return partial(found_lines, lines=file.lines)

    def purge(self, captured: CapturedSession, text: str) -> None:
        self._records.purge(captured.key, text)

    def found_parts(self, look: DirectoryLook, tree: str, only: Collection[str] | None) -> dict[str, TreeEntry]:
        """For each file that was found untracked and is taken now: the lines that it had, without those of the session."""
        objects, parts = self.components.core.objects, dict[str, TreeEntry]()
        for path, lines in look.taken.items():
            entry = objects.entry(tree, path) if lines and (only is None or path in only) else None
            if entry is not None and entry.mode in (FILE, EXECUTABLE):
                data = objects.blob(entry.cid)
                known_lines = found_lines(data, lines)
                all_lines = lines_of(data)
                end = b"" if len(all_lines) - 1 in known_lines and not data.endswith(b"\n") else b"\n"
                if known_lines:
                    text = b"\n".join(line for number, line in enumerate(all_lines) if number in known_lines) + end
                    parts[path] = TreeEntry(entry.mode, objects.write_blob(text))
        return parts
