"""A git repository as a space sees it: objects, refs, the graph of commits, notes.

Ids are full lower-case hex. Reading changes nothing. Objects may be written at any time; nothing shows until a ref moves,
and a ref only moves from the value the caller expects. What a call has acknowledged survives a power cut, unless the space
was opened otherwise. Failures are ``GitError``; what is not there is ``NoSuchObject`` or None, as each call says.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.verbs import Count


FILE, EXECUTABLE, LINK, SUBMODULE, FOLDER = 0o100644, 0o100755, 0o120000, 0o160000, 0o040000


class Stamp(NamedTuple):
    """Who, and when: seconds since the epoch, UTC."""

    name: str
    email: str
    at: int


class Commit(NamedTuple):
    cid: str
    tree: str
    parents: tuple[str, ...]
    author: Stamp
    committer: Stamp
    message: str


class TreeEntry(NamedTuple):
    """What stands at a path: one of the modes above, and the object's id."""

    mode: int
    cid: str


class PathConflict(NamedTuple):
    """A path that two sides changed differently; None where a side has no such file."""

    path: str
    base: TreeEntry | None
    ours: TreeEntry | None
    theirs: TreeEntry | None


class TreeMerge(NamedTuple):
    """The merged tree, or what stands in its way. ``tree`` holds everything but the conflicts where there are any."""

    tree: str
    conflicts: tuple[PathConflict, ...]


class NoteChange(NamedTuple):
    """One binding in a note's history; ``blob`` is None where the note was taken away."""

    commit: str
    blob: str | None
    by: Stamp
    message: str


class RefScan(NamedTuple):
    """``seen`` is JSON, to be kept and given back next time; None where nothing can be told from it. ``moved`` names all that may
    have another value now than then, also those that came or went; None where every ref may. What is read of a ref after the
    look is as new as the look, or newer."""

    seen: Any
    moved: list[str] | None


class Refs(Protocol):
    shared: bool
    """Whether other machines move these refs, too."""

    def get(self, name: str) -> str | None:
        """The commit a ref points at."""

    def under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        """Every ref below a prefix with its target, sorted by name. Refs that cannot be read are left out.

        ``after`` a whole name, and at most ``limit``: costs what the answer costs, not what there is.
        """

    def look(self, prefixes: Sequence[str], since: Any = None) -> RefScan:
        """Which refs below some prefixes have moved since an earlier look: to be asked often, where there are many."""

    def move(self, name: str, old: str | None, new: str | None, why: str) -> None:
        """Compare and swap: None for ``old`` creates, None for ``new`` deletes. ``StaleRef`` names the actual value."""

    def move_together(self, moves: Sequence[tuple[str, str | None, str | None]], why: str) -> bool:
        """Moves that belong together: whoever shares these refs sees all of them or none. ``StaleRef`` where one is lost.

        False where nobody shares them, or nobody can be told now: nothing has moved then, and each is to be moved by itself.
        """

    def told(self, name: str, cid: str) -> bool:
        """Whether whoever shares these refs was told that one points at a commit, whatever it does here."""

    def followed_by(self, name: str) -> str | None:
        """The worktree of people that has this branch checked out, if any."""

    def busy(self, name: str) -> str | None:
        """Why a branch must not be moved now: someone is in the middle of something with it; None where nobody is."""

    def forget_past(self, name: str) -> None:
        """Removes the ref's own log of where it was."""


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
    added: Count | None  # None for binary files
    removed: Count | None


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


class TransferLimits(NamedTuple):
    """What one transfer may take."""

    bytes: int = 1024 * 1024 * 1024
    seconds: float = 600.0


class FetchResult(NamedTuple):
    """What became of the ids that were asked for; those ``refused`` with code and reason."""

    arrived: tuple[str, ...]
    refused: Mapping[str, tuple[str, str]]


class UploadCommand(NamedTuple):
    """A program that answers whoever fetches, over its standard input and output; and all that it sees of the environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
