"""Refs: read from git's files, moved by compare and swap.

Invariant: of several writers that expect the same old value, one wins and the others get ``StaleRef``. A lock file of git is waited
for; it is removed only if a process of clia made it and is dead (``lock_files``). Reads cache nothing. A ref that the repository
lacks may be in the archive repository (``clia.git.archive``); before a ref moves, its agent's refs are brought back from there.
"""

from __future__ import annotations

import errno
import os
import random
import re
import time
from contextlib import ExitStack
from itertools import islice

from clia.errors import Conflict, GitError, InvalidInput, StaleRef
from clia.git.libgit2 import git_error, is_lock_failure, message_of
from clia.git.lock_files import CannotProve
from clia.git.records import RefScan
from clia.git.ref_files import RefFiles, loose_names, packed_state, read_loose, read_packed
from clia.values.refs import LOCAL, LOGS, TRACKING, agent_of, of_agent, own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.git.archive import RefArchive
    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle
    from clia.git.records import MoveObserver
    from clia.git.reflogs import ReflogEntry

_FIRST_PAUSE, _LONGEST_PAUSE, PATIENCE = 0.0005, 0.05, 30.0
_OURS = ("refs/heads/agents/", "refs/clia/", "refs/notes/clia/", TRACKING, LOCAL)
"""Refs that clia moves itself. Users' branches are moved by the git command."""
_NOTHING = "0" * 40
_LOCK_FILE = re.compile(r"/[^':]+\.lock")
_LISTINGS = 10
"""A list of refs is read again up to this number of times while refs move to the archive repository or back."""
_FEW = 20
"""Up to this number of refs are looked up one by one; listing directories is faster for more."""


class GitRefs:
    """The refs of one repository. ``reached`` is called when a ref's lock is held: a crash point for tests."""

    shared = False

    def __init__(self, handle: GitHandle, command: GitCommand, reached: Callable[[str], None]) -> None:
        self._handle = handle
        self._command = command
        self._reached = reached
        self._files = RefFiles(handle)
        self._packed_lock = os.path.join(handle.common_dir, "packed-refs.lock")
        self._archive: RefArchive | None = None
        self._archived = os.path.join(handle.common_dir, "clia", "archive.git", "packed-refs")
        self.log: MoveObserver | None = None
        """Is told of every move before and after it happens."""
        self.counted: Callable[[], None] = lambda: None
        """Called for each ref that a move makes loose: upkeep packs them after some."""

    @property
    def archive(self) -> RefArchive:
        """The archive repository; it may not exist yet. Most repositories have none, and do not load its module."""
        if self._archive is None:
            from clia.git.archive import RefArchive

            self._archive = RefArchive(self._handle, self._files.locks)
        return self._archive

    def has_archive(self) -> bool:
        return os.path.exists(self._archived)

    def get(self, name: str) -> str | None:
        cid = self.present(name)
        while cid is None and self.has_archive():
            with self.archive.snapshot() as snapshot:
                cid = self.archive.get(name) or self.present(name)  # it may have been brought back in between
                if snapshot.is_current():
                    break  # otherwise it may also have been put away again
        return cid

    def present(self, name: str) -> str | None:
        """Return the value of a ref in the main repository."""
        import pygit2

        try:
            ref = self._handle.repo.references.get(name)
            return None if ref is None else str(ref.resolve().target)
        except (pygit2.GitError, KeyError, OSError, ValueError) as err:
            raise git_error(f"cannot read ref {name}", err, ref=name) from None

    def under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        if not self.has_archive():
            return self.present_under(prefix, after=after, limit=limit)
        archived: dict[str, str] = {}
        present: dict[str, str] = {}
        for _ in range(_LISTINGS):
            with self.archive.snapshot() as snapshot:
                archived |= self.archive.under(prefix, after=after, limit=limit)
                present = archived | dict(self.present_under(prefix, after=after, limit=limit))
                if snapshot.is_current():
                    break  # otherwise refs may have been put away or brought back in between
        return sorted(present.items())[:limit]

    def present_under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        """Return the refs below a prefix in the main repository."""
        # Loose refs first: git writes the packed file before it removes a loose one.
        loose = dict(islice(read_loose(self._handle.common_dir, prefix, after), limit))
        packed = read_packed(self._handle.common_dir, prefix, after, limit)
        return sorted((dict(packed) | loose).items())[:limit] if loose else packed

    def missing(self, prefix: str, names: set[str]) -> set[str]:
        absent = names
        if len(names) > _FEW:
            loose = list(loose_names(self._handle.common_dir, prefix.rstrip("/")))  # first, as above
            refs = {*loose, *(ref for ref, _ in read_packed(self._handle.common_dir, prefix))}
            absent = {name for name in names if prefix + name not in refs}
        return {name for name in absent if self.get(prefix + name) is None}  # it may be in the archive repository

    def look(self, prefixes: Sequence[str], since: Any = None) -> RefScan:
        loose = {name: cid for prefix in prefixes for name, cid in read_loose(self._handle.common_dir, prefix)}
        packed = packed_state(self._handle.common_dir)
        if packed is not None and self.has_archive():
            archived = self.archive.state()
            packed = None if archived is None else f"{packed} {archived}"
        if packed is None:
            return RefScan(None, None)
        before = since.get("loose") if isinstance(since, dict) and since.get("packed") == packed else None
        state = {"packed": packed, "loose": loose}
        if not isinstance(before, dict):
            return RefScan(state, None)
        return RefScan(state, sorted(name for name in before.keys() | loose.keys() if before.get(name) != loose.get(name)))

    def move(self, name: str, old: str | None, new: str | None, why: str, *, is_logged: bool = False) -> None:
        """``is_logged``: the move has happened at the hub, and was logged then."""
        self.check(name, old, new)
        note = None if self.log is None or is_logged else self.log.begin(name, old, new, why)
        if self.log is None or note is None:
            self._move(name, old, new, why)
            return
        try:
            self._move(name, old, new, why)
        except StaleRef:
            self.log.cancel(note)
            raise
        self.log.end(note)

    def _move(self, name: str, old: str | None, new: str | None, why: str) -> None:
        import pygit2

        swap = self._swap if name.startswith(_OURS) and self._files.is_plain(name) else self._swap_by_git
        # Pauses with jitter keep writers from colliding again and again.
        started, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                swap(name, old, new, why)
            except CannotProve:
                swap = self._swap_by_git
                continue
            except (KeyError, OSError, ValueError, pygit2.GitError) as err:
                # ``git pack-refs`` may remove an empty folder during the write, which libgit2 reports in two ways.
                folder_vanished = isinstance(err, KeyError) or "no such file or directory" in message_of(err).lower()
                if not (folder_vanished or isinstance(err, FileNotFoundError) or is_lock_failure(err)):
                    raise git_error(f"cannot move ref {name}", err, ref=name) from None
                self._handle.renew()
                if time.monotonic() - started > PATIENCE:
                    raise self._locked(name, message_of(err)) from None
            else:
                if not name.startswith(TRACKING):  # fetches move and prune these
                    self._check_moved(name, old, new)
                if not name.startswith(LOGS):  # one ref, which every verb moves
                    self.counted()
                return
            self._break_dead_locks(name)
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311  # jitter, not a secret
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _break_dead_locks(self, name: str) -> None:
        refs = {name, *(self._with_its_agent(name) if self.has_archive() else ())}
        for lock in (*map(self._files.lock_path, sorted(refs)), self._packed_lock, f"{self._archived}.lock"):
            self._files.locks.break_if_dead(lock)

    def _swap(self, name: str, old: str | None, new: str | None, why: str) -> None:
        if self.has_archive():
            self.bring_back(self.archive.among(self._with_its_agent(name)))
        with self._files.hold(name, new) as lock:
            self._reached("ref-locked")
            actual = self.present(name)
            if self.has_archive() and self.archive.get(name) is not None:
                raise BlockingIOError(errno.EAGAIN, f"{name} was put away")
            if actual != old:
                raise stale(name, old, actual)
            if new is None:
                self._files.remove(name)
            else:
                self._files.publish(lock, name, old, new, why)

    def _with_its_agent(self, name: str) -> list[str]:
        agent = agent_of(name)
        return [name] if agent is None else [*of_agent(agent), own(agent)]

    def bring_back(self, refs: Mapping[str, str]) -> None:
        """Bring all refs with these values back from the archive repository before anything else changes them. If the history of
        the value in the main repository does not contain an archived value, that value stays in the archive repository under
        another name.
        """
        if not refs:
            return
        with ExitStack() as stack:
            locks = {ref: stack.enter_context(self._files.hold(ref, refs[ref])) for ref in sorted(refs)}
            if self.archive.among(refs) != refs:
                raise BlockingIOError(errno.EAGAIN, "archived refs have changed")
            absent = {ref: cid for ref, cid in refs.items() if self.present(ref) is None}
            for ref in absent:
                self._files.bring_log(self.archive.logs, ref)
            self._files.create_packed(absent, locks, "clia: from the archive repository")
            self._reached("refs-brought-back")
            removed: dict[str, str | None] = dict.fromkeys(refs)
            self.archive.edit(removed | self._superseded(refs))

    def put_away(self, refs: Mapping[str, str]) -> list[str]:
        """Move refs with these values to the archive repository; return those that are only there now.

        Refs that another process moves meanwhile stay. The caller has put their objects into a pack that git keeps.
        """
        with ExitStack() as stack:
            held = {}
            for ref in sorted(refs):
                # With another value it was moved, and the archive repository may have a newer one already.
                if self._held(stack, ref) and self._files.is_plain(ref) and self.present(ref) == refs[ref]:
                    held[ref] = refs[ref]
            if held:
                older = {ref: cid for ref, cid in self.archive.among(held).items() if cid != held[ref]}
                self._write_archive({**held, **self._superseded(older, held)})
            self._reached("refs-archived")
            self._files.remove_all(list(held), self.archive.logs)
        self._reached("refs-put-away")
        return list(held)

    def _write_archive(self, changes: Mapping[str, str | None]) -> None:
        """Change the archive repository after the others that do: writers give up their locks, so this may wait with its own."""
        started = time.monotonic()
        while True:
            try:
                return self.archive.edit(changes)
            except OSError as err:
                if not is_lock_failure(err) or time.monotonic() - started > PATIENCE:
                    raise
            self._files.locks.break_if_dead(self.archive.lock)
            time.sleep(_FIRST_PAUSE * (0.5 + random.random()))  # noqa: S311  # jitter, not a secret

    def _held(self, stack: ExitStack, ref: str) -> bool:
        """Whether a ref is locked now; not if it is being moved."""
        for _ in range(2):
            try:
                stack.enter_context(self._files.hold(ref, None))
            except OSError:
                self._files.locks.break_if_dead(self._files.lock_path(ref))
            else:
                return True
        return False

    def _superseded(self, refs: Mapping[str, str], new: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return other names for the values of refs that are not part of their history in the main repository."""
        from clia.git.archive import SUPERSEDED

        renamed = {}
        for ref, cid in refs.items():
            actual = self.present(ref) if new is None else new[ref]
            if not ref.startswith(TRACKING) and actual not in (None, cid) and not self._handle.repo.descendant_of(actual, cid):
                renamed[f"{SUPERSEDED}{ref.removeprefix('refs/')}/{cid}"] = cid
        return renamed

    def pack(self) -> int:
        """Move clia's loose refs into the packed file; return how many. Refs of other programs stay as they are."""
        return self._files.pack(_OURS)

    def _check_moved(self, name: str, old: str | None, new: str | None) -> None:
        """Read a ref after its move: another program that ignores locks may have undone it."""
        actual = self.get(name)
        if actual == new or (actual is not None and actual != old):
            return  # or others have moved it on
        message = f"ref {name} was moved and has its old value again: another program removed the new one"
        hints = ["check which programs change this repository, and try again"]
        raise GitError(message, code="ref-lost", hints=hints, fields={"ref": name, "expected": new, "actual": actual})

    def _locked(self, name: str, reason: str) -> GitError:
        lock = _LOCK_FILE.search(reason)  # that of the packed refs or of HEAD may be in the way, too
        path = lock[0] if lock is not None else self._files.lock_path(name)
        message = f"ref {name} is locked by another process: {path} ({self._files.locks.describe(path)})"
        hints = [f"if no git process is running, or only a stopped one that you end, remove {path}"]
        error = GitError(message, code="ref-locked", hints=hints, fields={"ref": name, "lock": path})
        error.retryable = True
        return error

    def _swap_by_git(self, name: str, old: str | None, new: str | None, why: str) -> None:
        """Move a user's branch with the git command: if we are killed, git still finishes and removes its lock."""
        self._bring_back_by_git(name)
        words = ("-d", name, old or _NOTHING) if new is None else (name, new, old or _NOTHING)
        result = self._command.attempt("update-ref", "-m", why, *words)
        actual = self.get(name) if result.code else new
        if actual != new:  # git may fail after the move
            raise stale(name, old, actual) if actual != old else OSError(result.err)

    def _bring_back_by_git(self, name: str) -> None:
        """The same as ``bring_back``, for a file system without hard links."""
        for ref, cid in self.archive.among(self._with_its_agent(name)).items() if self.has_archive() else ():
            self._command.attempt("update-ref", ref, cid, _NOTHING)  # fails if it is there already
            self._command.run(f"--git-dir={self.archive.directory}", "update-ref", "-d", ref, cid)

    def move_together(self, moves: Sequence[tuple[str, str | None, str | None]], why: str) -> bool:
        del moves, why
        return False

    def is_at_hub(self, name: str, cid: str) -> bool:
        del name, cid
        return False

    def check(self, name: str, old: str | None, new: str | None) -> None:
        """Raise if a move is impossible for reasons that libgit2's transaction does not check."""
        import pygit2

        if not pygit2.reference_is_valid_name(name):
            raise InvalidInput(f"{name!r} is not a valid ref name", code="invalid-ref", fields={"ref": name})
        if new is not None and not isinstance(self._handle.repo.get(new), pygit2.Commit):
            raise GitError(f"ref {name} cannot point at {new}: no such commit", fields={"ref": name, "cid": new})
        if old is not None:
            return
        parts = name.split("/")
        parents = ("/".join(parts[:count]) for count in range(3, len(parts)))
        others = [parent for parent in parents if self.get(parent) is not None] or [ref for ref, _ in self.under(f"{name}/")]
        if others:
            raise Conflict(
                f"cannot create {name} while {others[0]} exists",
                code="ref-clash",
                hints=[f"git cannot store both; rename or delete {others[0]}"],
                fields={"ref": name, "other": others[0]},
            )

    def followed_by(self, name: str) -> str | None:
        common = self._handle.common_dir
        config = self._handle.repo.config
        if not ("core.bare" in config and config.get_bool("core.bare")) and _checked_out(common) == name:
            place = config["core.worktree"] if "core.worktree" in config else None  # noqa: SIM401  # it has no get
            return os.path.realpath(os.path.join(common, place)) if place else os.path.dirname(common)
        for worktree in sorted(_entries(os.path.join(common, "worktrees"))):
            if _checked_out(worktree) == name:
                place = _first_line(os.path.join(worktree, "gitdir"))
                return None if place is None else os.path.dirname(place)
        return None

    def checked_out(self) -> str | None:
        """The ref that HEAD of the opened worktree names; None if HEAD is detached."""
        return _checked_out(self._handle.git_dir)

    def busy(self, name: str) -> str | None:
        common = self._handle.common_dir
        for git_dir in (common, *sorted(_entries(os.path.join(common, "worktrees")))):
            for doing in ("rebase-merge", "rebase-apply"):
                if _first_line(os.path.join(git_dir, doing, "head-name")) == name:
                    return "a rebase is in progress"
        return None

    def past(self, name: str) -> list[ReflogEntry]:
        from clia.git.reflogs import read_reflog  # only checks need it

        logs = [os.path.join(self._handle.common_dir, "logs"), *([self.archive.logs] if self.has_archive() else ())]
        paths = (os.path.join(place, *name.split("/")) for place in logs)
        return next((entries for path in paths if (entries := read_reflog(path))), [])

    def with_past(self, prefix: str) -> list[str]:
        places = [self._handle.common_dir, *([self.archive.directory] if self.has_archive() else ())]
        return sorted({name.removeprefix("logs/") for place in places for name in loose_names(place, f"logs/{prefix.rstrip('/')}")})

    def forget_past(self, name: str) -> None:
        if self.has_archive():
            self.archive.remove_log(name)
        try:
            os.unlink(os.path.join(self._handle.common_dir, "logs", *name.split("/")))
        except FileNotFoundError:
            return
        except OSError as err:
            raise git_error(f"cannot remove the reflog of {name}", err, ref=name) from None


def stale(name: str, expected: str | None, actual: str | None) -> StaleRef:
    return StaleRef(
        f"{name} has moved: expected {expected or 'nothing'}, found {actual or 'nothing'}",
        hints=["read the ref again and retry"],
        fields={"ref": name, "expected": expected, "actual": actual},
    )


def _checked_out(git_dir: str) -> str | None:
    line = _first_line(os.path.join(git_dir, "HEAD"))
    return line[5:] if line is not None and line.startswith("ref: ") else None


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline().rstrip("\n")
    except OSError:
        return None


def _entries(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except OSError:
        return []
