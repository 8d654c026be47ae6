"""Files as lineage sees them: a tree of small documents that other programs edit too.

Reading never changes anything. Writing is one verb per promise: ``replace`` swaps a whole file atomically and
durably, ``create`` never overwrites, ``exclusive`` keeps two processes out of one directory.
Every failure is a ``FileError`` that names the path; "not there" is a value, not an error.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

FILE, DIRECTORY, LINK, OTHER, MISSING = "file", "directory", "link", "other", "missing"


class Entry(NamedTuple):
    """One name in a directory; ``kind`` is that of the name itself, a link is not followed."""

    name: str
    kind: str


class Files(Protocol):
    """Reading."""

    def real(self, path: str) -> str:
        """The path with every link resolved."""

    def kind(self, path: str) -> str:
        """The kind of the name itself (a link is ``LINK``)."""

    def entries(self, directory: str) -> Sequence[Entry] | None:
        """What is in a directory, in no particular order; None where there is no directory."""

    def read(self, path: str, limit: int) -> bytes | None:
        """At most ``limit + 1`` bytes of a regular file, so that a caller sees when it is too large; None: no file."""

    def owner(self, path: str) -> int | None:
        """Who owns the name itself; None where the system has no owners or the name is gone."""


class WritableFiles(Files, Protocol):
    """Reading and writing."""

    def exclusive(self, directory: str) -> AbstractContextManager[None]:
        """Holds the directory against every other writer; the kernel frees it when the process dies."""

    def make_directory(self, path: str) -> None:
        """Creates the directory and its missing parents."""

    def replace(self, path: str, data: bytes) -> None:
        """Old content or new content, never a mixture, whatever happens; durable on return."""

    def create(self, path: str, data: bytes) -> None:
        """As ``replace``, but ``AlreadyExists`` where the name is taken."""

    def remove_tree(self, path: str) -> None:
        """Removes a directory and all below it; links are removed, not followed."""
