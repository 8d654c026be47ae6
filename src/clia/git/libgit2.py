"""libgit2 repository handles and error translation.

Invariant: neither ``GIT_*`` variables nor a search in parent directories decide which repository is opened. Handles are not
shared between threads or across a fork.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from contextlib import contextmanager
from functools import wraps

from clia.errors import CliaError, GitError, NoSuchObject, NotFound, UnsupportedFormat
from clia.git.sharing import SETTING, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ParamSpec, TypeVar

    import pygit2

    P = ParamSpec("P")
    T = TypeVar("T")

_PARTIAL = re.compile(rb"extensions\.partialclone|remote\..*\.(promisor|partialclonefilter)", re.DOTALL)
_SHARED = SETTING.lower()
_durable_spaces = 0


class GitHandle:
    """A repository's directories, and a libgit2 handle for the calling thread."""

    def __init__(self, path: str, *, durable: bool = True) -> None:
        self.path = path
        self.durable = False
        self._local = threading.local()
        repo = self.repo
        self.git_dir = os.path.realpath(repo.path)
        self.common_dir = _common_dir(self.git_dir)
        self.work_dir = None if repo.is_bare else os.path.realpath(repo.workdir)
        self.sharing = parse(repo.config[_SHARED] if _SHARED in repo.config else None)  # noqa: SIM401  # it has no get
        self.set_durable(durable)

    def set_durable(self, durable: bool) -> None:
        """Set libgit2's fsync option, which is global to the process: one durable space makes all of them durable."""
        from pygit2 import option
        from pygit2.enums import Option

        global _durable_spaces  # noqa: PLW0603  # the setting itself is global to the process
        self.durable = durable
        _durable_spaces += durable
        option(Option.ENABLE_FSYNC_GITDIR, _durable_spaces > 0)

    @property
    def repo(self) -> pygit2.Repository:
        """This thread's handle."""
        opened: tuple[int, pygit2.Repository] | None = getattr(self._local, "repo", None)
        if opened is None or opened[0] != os.getpid():
            opened = (os.getpid(), _open(self.path))
            self._local.repo = opened
        return opened[1]

    def share(self, *cids: object) -> None:
        """Give objects that libgit2 has written the permissions of a shared repository, which it ignores."""
        for cid in map(str, cids) if self.sharing.bits else ():
            folder = os.path.join(self.common_dir, "objects", cid[:2])
            self.sharing.apply(folder)
            self.sharing.apply(os.path.join(folder, cid[2:]))

    def is_partial(self) -> bool:
        """Return whether objects may be missing on purpose."""
        entries = (entry for entry in self.repo.config if _PARTIAL.fullmatch(entry.raw_name))
        return any((entry.raw_value or b"").lower() not in (b"false", b"no", b"off", b"0") for entry in entries)

    def renew(self) -> None:
        """Drop this thread's handle. libgit2 assumes that its packed refs changed even if writing them failed."""
        self._local.repo = None


def find_repository(path: str) -> str | None:
    """Return the nearest directory at or above ``path`` that is the top of a repository or a bare repository."""
    at = os.path.realpath(path)
    while True:
        is_bare = os.path.isfile(os.path.join(at, "HEAD")) and all(
            os.path.isdir(os.path.join(at, name)) for name in ("objects", "refs")
        )
        if is_bare or os.path.exists(os.path.join(at, ".git")):
            return at
        above = os.path.dirname(at)
        if above == at:
            return None
        at = above


def repository_at(path: str) -> str | None:
    """Return the common git directory of the repository at a path, as git resolves a local remote."""
    for place in (path, f"{path}.git"):
        if os.path.isdir(place):
            try:
                return _common_dir(os.path.realpath(_open(place).path))
            except CliaError:
                continue
    return None


def create_repository(path: str) -> None:
    """Create a repository on branch ``main``."""
    import pygit2  # 95 ms, and only spaces need it

    try:
        pygit2.init_repository(path, initial_head="main")
    except (pygit2.GitError, OSError) as err:
        raise GitError(f"{path}: {message_of(err)}", fields={"path": path}) from None


def _open(path: str) -> pygit2.Repository:
    import pygit2  # 95 ms, and only spaces need it
    from pygit2.enums import RepositoryOpenFlag

    try:
        # No search: a broken repository must not be mistaken for the one around it.
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, KeyError, OSError, ValueError) as err:
        raise _refusal(path, message_of(err)) from None


def _refusal(path: str, reason: str) -> CliaError:
    fields = {"path": path, "reason": reason}
    if "object format" in reason:
        message = f"{path}: SHA-256 repositories are not supported yet (libgit2: {reason})"
        hints = ["use a repository with SHA-1 objects (git's default)"]
        return UnsupportedFormat(message, code="unsupported-object-format", hints=hints, fields=fields)
    if "refstorage" in reason.lower():
        message = f"{path}: the reftable format is not supported yet (libgit2: {reason})"
        hints = ["git refs migrate --ref-format=files"]
        return UnsupportedFormat(message, code="unsupported-ref-format", hints=hints, fields=fields)
    from clia.git.worktree_links import git_dir_of

    if "not found" in reason and (named := git_dir_of(path)) is not None and not os.path.isdir(named):
        message = f"{path} is a worktree of a missing repository: {named} does not exist"
        hints = [f"run in the repository, if it was moved: git worktree repair {path}"]
        return NotFound(message, code="broken-worktree", hints=hints, fields=fields)
    if "not found" in reason:
        hints = ["git init, then clia init"]
        return NotFound(f"{path} is not a git repository", code="no-such-repository", hints=hints, fields=fields)
    if "not owned" in reason:
        hints = [f"git config --global --add safe.directory {path}"]
        return GitError(f"{path}: {reason}", code="unsafe-repository", hints=hints, fields=fields)
    return GitError(f"{path}: {reason}", fields=fields)


def _common_dir(git_dir: str) -> str:
    """Return the directory that all worktrees of a repository share."""
    try:
        with open(os.path.join(git_dir, "commondir"), encoding="utf-8") as file:
            return os.path.realpath(os.path.join(git_dir, file.read().strip()))
    except FileNotFoundError:
        return git_dir


_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NOT_WRITTEN = "nothing was written; the disk may be full"
_TRANSIENT = (NOT_WRITTEN, "File exists", "No such file or directory")
_TRIES = 10
_LASTING = ("permission denied", "read-only file system", "no space left", "quota exceeded", "operation not permitted")


def message_of(err: BaseException) -> str:
    """Return an exception's message, without the quotes of a KeyError."""
    if isinstance(err, OSError) and err.strerror:
        return err.strerror
    return str(err.args[0]) if err.args else type(err).__name__


def is_lock_failure(err: BaseException) -> bool:
    """Return whether another process holds the lock, so that a retry may help."""
    text = message_of(err).lower()
    if any(reason in text for reason in _LASTING):
        return False  # a retry cannot help
    return "lock" in text or (isinstance(err, OSError) and err.errno in (errno.EEXIST, errno.EAGAIN, errno.EBUSY))


def git_error(doing: str, err: BaseException, **fields: str) -> GitError:
    text = message_of(err)
    hints = ["free some disk space and try again; nothing was recorded"] if "no space left" in text.lower() else []
    return GitError(f"{doing}: {text}", hints=hints, fields={"reason": text, **fields})


@contextmanager
def reading(cid: str) -> Iterator[None]:
    """Translate the errors of reading an object."""
    import pygit2

    try:
        yield
    except CliaError:
        raise
    except KeyError:
        raise NoSuchObject(f"object {cid} not found", fields={"cid": cid}) from None
    except (pygit2.GitError, OSError, ValueError) as err:
        if isinstance(err, ValueError) and not _OBJECT_ID.fullmatch(cid):
            raise NoSuchObject(f"{cid!r} is not an object id", fields={"cid": cid}) from None
        reason = message_of(err)
        hints = ["run git fsck to list damage; restore the object from a clone or a backup"]
        fields = {"cid": cid, "reason": reason}
        raise GitError(f"cannot read object {cid}: {reason}", code="corrupt-object", hints=hints, fields=fields) from None


@contextmanager
def writing(kind: str) -> Iterator[None]:
    """Translate the errors of writing an object. A KeyError here means that a folder vanished."""
    import pygit2

    try:
        yield
    except CliaError:
        raise
    except (pygit2.GitError, OSError, KeyError, ValueError) as err:
        raise git_error(f"cannot write {kind}", err) from None


def tried_again(write: Callable[P, T]) -> Callable[P, T]:
    """Retry writes that fail because ``git gc`` removed an empty folder, or because a process forked from one with
    libgit2 loaded picked the same temporary name.
    """

    @wraps(write)
    def attempt(*args: P.args, **options: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return write(*args, **options)
            except GitError as err:
                if not any(reason in str(err.fields.get("reason")) for reason in _TRANSIENT):
                    raise
        return write(*args, **options)

    return attempt
