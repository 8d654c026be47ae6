"""A git repository as a space sees it: objects, refs, the graph of commits, notes.

Ids are full lower-case hex. Reading changes nothing. Objects may be written at any time; nothing shows until a ref moves,
and a ref only moves from the value the caller expects. What a call has acknowledged survives a power cut, unless the space
was opened otherwise. Failures are ``GitError``; what is not there is ``NoSuchObject`` or None, as each call says.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import Any

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


class Entry(NamedTuple):
    """What stands at a path: one of the modes above, and the object's id."""

    mode: int
    cid: str


class PathConflict(NamedTuple):
    """A path that two sides changed differently; None where a side has no such file."""

    path: str
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None


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


class Look(NamedTuple):
    """``seen`` is JSON, to be kept and given back next time; None where nothing can be told from it. ``moved`` names all that may
    have another value now than then, also those that came or went; None where every ref may. What is read of a ref after the
    look is as new as the look, or newer."""

    seen: Any
    moved: list[str] | None


class Objects(Protocol):
    def kind(self, cid: str) -> str | None:
        """``blob``, ``tree``, ``commit`` or ``tag``; None where there is no such object."""

    def expand(self, text: str) -> str | None:
        """The full id of an abbreviated one, or what a revision such as ``main~2`` names; None: nothing, ``Ambiguous``: several."""

    def blob(self, cid: str) -> bytes: ...

    def size(self, cid: str) -> int:
        """How many bytes an object has; only its header is read."""

    def write_blob(self, data: bytes) -> str: ...

    def blob_id(self, data: bytes) -> str:
        """The id that the data would have; nothing is written."""

    def commit(self, cid: str) -> Commit: ...

    def write_commit(self, tree: str, parents: Sequence[str], author: Stamp, committer: Stamp, message: str) -> str:
        """A new commit, signed where the repository's owner signs commits."""

    def entries(self, tree: str) -> dict[str, Entry]:
        """Every path below a tree."""

    def below(self, tree: str, known: Container[str] = ()) -> set[str]:
        """A tree's own id and those of everything below it, without trees that are known."""

    def entry(self, tree: str, path: str) -> Entry | None: ...

    def update_tree(self, tree: str | None, changes: Mapping[str, Entry | None]) -> str:
        """Another tree: paths set or, with None, removed. Costs what the changed folders cost.

        ``UnsafePath`` where a file and a folder would share a name, ``NotFound`` where a path to remove is not there.
        """

    def config_entries(self, data: bytes) -> list[tuple[str, str]] | None:
        """Keys and values of a file in git's configuration format; None where git cannot read it."""


class Refs(Protocol):
    shared: bool
    """Whether other machines move these refs, too."""

    def get(self, name: str) -> str | None:
        """The commit a ref points at."""

    def under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        """Every ref below a prefix with its target, sorted by name. Refs that cannot be read are left out.

        ``after`` a whole name, and at most ``limit``: costs what the answer costs, not what there is.
        """

    def look(self, prefixes: Sequence[str], since: Any = None) -> Look:
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


class Graph(Protocol):
    def merge_base(self, one: str, other: str) -> str | None: ...

    def descends(self, cid: str, ancestor: str) -> bool:
        """Whether a commit is another or has it in its past."""

    def first_parents(self, cid: str) -> Iterator[Commit]:
        """A commit, its first parent, and so on to the root. Ends early where history is cut off."""

    def cut_off(self) -> frozenset[str]:
        """Where a shallow clone ends: commits whose parents it does not show. Whoever asks sees history as it is from now on."""

    def walk(self, starts: Iterable[str], hidden: Iterable[str] = ()) -> Iterator[Commit]:
        """Commits in topological order, newest first, without what is reachable from ``hidden``."""

    def newest(self, starts: Iterable[str], limit: int) -> list[Commit]:
        """The first commits of such a walk, at the cost of so many: by date, and no parent before its child.

        Where clocks were far apart, a commit may be missing that the whole walk would have here.
        """

    def ranges(self) -> Callable[[str, Sequence[str]], list[str]]:
        """A question for one thread to ask many times: which commits one has in its past, itself included, and others have not.

        What was read for one answer is there for the next.
        """

    def merge(self, ours: str, theirs: str, base: str | None = None) -> TreeMerge:
        """Three ways, from the commits' own merge base or, where given, from another commit."""


class Notes(Protocol):
    """Notes as git has them: a ref whose tree maps commits to blobs."""

    def get(self, ref: str, commit: str) -> str | None:
        """The blob bound to a commit. Where git has several spellings, the first by path."""

    def all(self, ref: str) -> dict[str, str]:
        """Commit to blob, for every note."""

    def bind(self, ref: str, commit: str, blob: str, by: Stamp, message: str) -> bool:
        """Binds a blob to a commit; False where that very blob is bound already."""

    def prepared(self, ref: str, commit: str, blob: str, by: Stamp, message: str) -> tuple[str | None, str] | None:
        """The ref's tip and what it would be with the blob bound; None where that very blob is bound already."""

    def history(self, ref: str, commit: str) -> list[NoteChange]:
        """Every binding the commit ever had, newest first."""

    def remade(self, ref: str, replaced: Mapping[str, str]) -> str | None:
        """Makes the whole history of the ref anew with blobs replaced; its tip, which the ref does not point at yet."""

    def unite(self, ref: str, theirs: str, by: Stamp) -> str:
        """Merges a diverged notes history into the ref: every note of both, ours where they disagree; the new tip."""
