"""What lineage asks of a repository's past."""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class RemovedDocument(NamedTuple):
    """A triad document that a commit, or the working tree since the last commit, took away."""

    path: str  # relative to the repository root, with '/'
    content: str  # id of its last content, as ``History.content_id`` gives it


class History(Protocol):
    def removed_documents(self, root: str) -> Sequence[RemovedDocument] | None:
        """Every triad document that was removed, sorted; None where the past cannot be read."""

    def is_shallow(self, root: str) -> bool:
        """Whether part of the past is cut off, so that removals may be missed."""

    def content_id(self, root: str, data: bytes) -> str:
        """The id this repository gives to a file's content."""
