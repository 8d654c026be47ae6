"""Records of the git package, and the interface of refs.

Ids are full lower-case hex. Written objects are invisible until a ref moves, and a ref only moves from the value that the caller
expects. Acknowledged changes survive a power cut, unless the space was opened as not durable. Failures are ``GitError``; a missing
object is ``NoSuchObject`` or None, as each call says.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.git.reflogs import ReflogEntry
    from clia.verbs import Count

NOT_COMMITTED = "0" * 40
"""The commit of lines that are not committed yet, as git blame names it."""
FILE, EXECUTABLE, LINK, SUBMODULE, FOLDER = 0o100644, 0o100755, 0o120000, 0o160000, 0o040000


class Stamp(NamedTuple):
    """Name, email address and time of an author or committer, in seconds since the epoch."""

    name: str  # name
    email: str  # e-mail address
    at: int  # seconds since the epoch


class Commit(NamedTuple):
    cid: str
    tree: str
    parents: tuple[str, ...]
    author: Stamp
    committer: Stamp
    message: str


class TreeEntry(NamedTuple):
    """Mode (one of the above) and object id of a path."""

    mode: int
    cid: str


class PathConflict(NamedTuple):
    """A path that two sides changed differently; None for a side without the file."""

    path: str
    base: TreeEntry | None
    ours: TreeEntry | None
    theirs: TreeEntry | None


class TreeMerge(NamedTuple):
    """A merged tree, without the conflicting paths."""

    tree: str
    conflicts: tuple[PathConflict, ...]


class NoteChange(NamedTuple):
    """One binding in a note's history; ``blob`` is None if the note was removed."""

    commit: str
    blob: str | None
    by: Stamp
    message: str


class RefScan(NamedTuple):
    """Which refs have moved since an earlier scan.

    ``state`` is JSON to pass to the next scan, or None if it cannot be relied on. ``moved`` names every ref that may have
    changed, appeared or disappeared, or is None if any may have. Values read after the scan are at least as new as it.
    """

    state: Any
    moved: list[str] | None


class Refs(Protocol):
    """Refs of one clone (``GitRefs``), or of clones that share a hub (``HubRefs``)."""

    shared: bool
    """Whether other machines also move these refs."""

    def get(self, name: str) -> str | None:
        """Return the commit that a ref points at."""

    def under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        """Return every readable ref below a prefix with its target, sorted by name.

        With ``after`` (a full name) and ``limit`` the cost depends on the result, not on the number of refs.
        """

    def missing(self, prefix: str, names: set[str]) -> set[str]:
        """Return for which of these names, which have no slash, there is no ref here. ``prefix`` ends with a slash."""

    def look(self, prefixes: Sequence[str], since: Any = None) -> RefScan:
        """Report which refs below some prefixes have moved since an earlier scan. Cheap, even with many refs."""

    def move(self, name: str, old: str | None, new: str | None, why: str) -> None:
        """Compare and swap: ``old`` None creates, ``new`` None deletes. ``StaleRef`` has the actual value."""

    def move_together(self, moves: Sequence[tuple[str, str | None, str | None]], why: str) -> bool:
        """Move refs together: those who share them see all moves or none. ``StaleRef`` if one has moved.

        Return False, and move nothing, if the refs are not shared or the hub is unavailable: then move each by itself.
        """

    def is_at_hub(self, name: str, cid: str) -> bool:
        """Return whether a ref pointed at a commit when the hub was last read."""

    def followed_by(self, name: str) -> str | None:
        """Return the user's worktree that has this branch checked out, if any."""

    def busy(self, name: str) -> str | None:
        """Return why a branch must not be moved now (a rebase is in progress), or None."""

    def past(self, name: str) -> list[ReflogEntry]:
        """Return the moves in a ref's reflog, oldest first; none if there is no reflog."""

    def with_past(self, prefix: str) -> list[str]:
        """Return the names below a prefix that have a reflog, sorted; the refs themselves may be missing."""

    def forget_past(self, name: str) -> None:
        """Remove the ref's reflog."""


class MoveObserver(Protocol):
    """Keeps a log of the moves of refs."""

    def batch(self) -> AbstractContextManager[None]:
        """Log the moves that are made inside together."""

    def recover(self) -> None:
        """Log the moves of processes that died before they did."""

    def tidy(self) -> None:
        """Do what is not urgent: part of upkeep."""

    def begin(self, ref: str, old: str | None, new: str | None, why: str, *, at_hub: bool = False) -> str | None:
        """A move is about to happen, ``at_hub`` or here; returns a note for the calls below, or None if it is not logged."""

    def cancel(self, note: str) -> None:
        """The ref was not moved, because it has another value."""

    def end(self, note: str) -> None:
        """The ref was moved."""

    def doubt(self, note: str) -> None:
        """The ref may have been moved at the hub. The caller makes the same move here."""

    def settle(self, at_hub: Callable[[str], str | None]) -> None:
        """Log what dead processes moved at the hub, whose values are known now."""


class LineOrigin(NamedTuple):
    """A line of a file, with the commit that it comes from and its number and path there."""

    commit: str
    number: int
    path: str
    text: str


class FileChange(NamedTuple):
    """A file that changed."""

    status: str  # A, D, M, R, C or T, as in git
    path: str  # the path
    old_path: str | None  # if it was renamed or copied
    added: Count | None  # lines added; null: a binary file
    removed: Count | None  # lines removed; null: a binary file


class Checkout(NamedTuple):
    """An agent's worktree and the commit that its files are based on."""

    agent: str
    base: str
    directory: str
    own: str | None = None  # the program's own commit that the base stands for, if HEAD stayed on it
    pending: tuple[str, str] | None = None  # a commit that is being made on the base, and the HEAD that it stands for
    moving: str | None = None  # the commit that its files are being brought to

    def recorded(self) -> tuple[str, str, str | None, tuple[str, str] | None, str | None]:
        """The fields that are recorded with the worktree, in the order that ``record`` takes."""
        return self.agent, self.base, self.own, self.pending, self.moving


class Prepared(NamedTuple):
    """The files that were put into an agent's worktree for its programs. They are never committed."""

    paths: tuple[str, ...] = ()  # copied or linked paths
    done: tuple[str, ...] = ()  # those of them that are complete
    setup: str = ""  # digest of the setup command that was run
    submodules: Mapping[str, str] = {}  # the commit of each submodule, by path


class WorktreeHead(NamedTuple):
    """Where a worktree is, and which commits were created in it."""

    commit: str | None  # None before the first commit
    can_follow: bool  # HEAD is detached, and no merge, rebase or other operation is in progress
    created: frozenset[str] | None  # commits and stashes that its reflogs name; None: there is no reflog
    branch: str | None = None  # the ref that HEAD points to
    before: Mapping[str, str] | None = None  # where HEAD was before each commit that it gained there
    replayed: frozenset[str] = frozenset()  # those that a rebase or cherry-pick created


class Pushed(NamedTuple):
    """The result of a push for one ref."""

    ref: str  # the ref
    state: str  # new, moved, same, refused
    reason: str  # the server's message, if it refused


class TransferLimits(NamedTuple):
    """Limits of one transfer."""

    bytes: int = 1024 * 1024 * 1024
    seconds: float = 600.0


class FetchResult(NamedTuple):
    """The requested ids that arrived, and those that were refused with code and reason."""

    arrived: tuple[str, ...]
    refused: Mapping[str, tuple[str, str]]


class UploadCommand(NamedTuple):
    """A command that serves a fetch over standard input and output, and its whole environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
