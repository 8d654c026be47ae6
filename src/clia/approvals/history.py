"""The commits and trees of a space, as evidence reads them."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.records import TreeEntry
    from clia.space.core import Core
    from clia.space.model import AgentCommit

_FOLDER = 0o040000


class CoreHistory(NamedTuple):
    """The commits and trees of a space."""

    core: Core

    def commit(self, cid: str) -> AgentCommit:
        return self.core.read(cid)

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        return self.core.objects.listing(tree)

    def entry(self, tree: str, path: str) -> TreeEntry | None:
        folders, _, name = path.rpartition("/")
        at: str | None = tree
        for folder in folders.split("/") if folders else ():
            below = dict(self.core.objects.listing(at)).get(folder) if at is not None else None
            at = below.cid if below is not None and below.mode == _FOLDER else None
        return None if at is None else dict(self.core.objects.listing(at)).get(name)
