"""What stock git does best: worktrees, blame, patches, transfer, checks and packing.

Invariant of every call: the user's own HEAD, index, worktree and hooks are left alone, unless the call says that it is
about them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LineOrigin(NamedTuple):
    """A line of a file: the commit it comes from, and its number and path there."""

    commit: str
    number: int
    path: str
    text: str


class FileChange(NamedTuple):
    status: str  # A, D, M, R, C, T as git says
    path: str
    old_path: str | None
    added: int | None  # None for binary files
    removed: int | None


class Checkout(NamedTuple):
    """A worktree that was made for an agent, and the commit it was made from."""

    agent: str
    base: str
    directory: str
    tree: str | None = None  # what was about to be committed on the base


class Pushed(NamedTuple):
    ref: str
    state: str  # new, moved, same, refused
    reason: str


class Workbench(Protocol):
    def add_worktree(self, directory: str, agent: str, commit: str) -> None:
        """A linked worktree, detached at a commit, its base recorded."""

    def checkout_of(self, directory: str) -> Checkout | None:
        """What was recorded for a directory; None where it is no worktree of ours."""

    def head_of(self, directory: str) -> str | None:
        """The commit that any worktree of this repository stands on; None where a directory is none, or stands on nothing."""

    def top_of(self, path: str) -> str | None:
        """The top of the worktree of this repository that a path lies in; None where it lies in none."""

    def claim_worktree(self, directory: str, agent: str) -> None:
        """Records whose files a detached linked worktree holds; ``Conflict`` where it is one of people."""

    def prepare(self, checkout: Checkout, tree: str) -> None:
        """Records that a checkout's tree is about to be committed on its base."""

    def move_worktree(self, directory: str, agent: str, commit: str) -> None:
        """Brings a worktree of ours to another commit; ``Conflict`` where it would lose uncommitted work."""

    def snapshot(self, directory: str, tree: str) -> str:
        """The tree of a directory's files as ``git add -A`` would stage them, over ``tree``; no shared index is touched."""

    def settle(self, directory: str, agent: str, old: str, new: str) -> None:
        """Tells a worktree of ours that what it holds was committed as ``new``."""

    def can_follow(self, worktree: str, old: str, new: str) -> str | None:
        """Why a worktree of people cannot go from one commit to another without losing work; None where it can."""

    def follow(self, worktree: str, old: str, new: str) -> None:
        """Brings a worktree of people along after its branch was moved, as a fast-forward merge would."""

    def blame(self, commit: str, path: str) -> list[LineOrigin]: ...

    def patch(self, old: str | None, new: str, paths: Sequence[str] = ()) -> bytes:
        """A diff between two commits or trees; None is the empty tree."""

    def changes(self, old: str | None, new: str, paths: Sequence[str] = ()) -> list[FileChange]: ...

    def patch_ids(self, commits: Sequence[str]) -> dict[str, str]:
        """Commit to patch id, for those commits that change something."""

    def check(self, progress: Callable[[str], None] | None = None) -> list[str]:
        """What ``git fsck --strict`` complains about."""

    def is_partial(self) -> bool:
        """Whether objects may be missing on purpose."""

    def is_shallow(self) -> bool: ...

    def pack(self) -> None:
        """Packs objects and refs, with git's own grace period for what nothing reaches."""

    def drop_objects(self, cids: Sequence[str]) -> list[str]:
        """Removes those of the objects that nothing reaches any more, wherever they lie; the ids of those that are still there."""

    def remotes(self) -> list[str]: ...

    def remote_url(self, remote: str) -> str | None: ...

    def add_fetch_rules(self, remote: str, rules: Sequence[str]) -> list[str]:
        """Adds what is missing to a remote's fetch rules; those added."""

    def fetch(self, remote: str, rules: Sequence[str]) -> None: ...

    def push(self, remote: str, refs: Sequence[str]) -> list[Pushed]:
        """All of the refs or none; nothing is forced."""

    def size(self) -> int:
        """What the repository's objects take on disk, in bytes."""
