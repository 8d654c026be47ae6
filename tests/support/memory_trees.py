"""Git trees in memory, from paths and contents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.git.records import FILE, FOLDER, LINK, SUBMODULE, TreeEntry
from clia.space.model import Link, Submodule
from clia.values.canonical import text_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class MemoryTrees(NamedTuple):
    """Trees and blobs by id."""

    trees: dict[str, list[tuple[str, TreeEntry]]]
    blobs: dict[str, bytes]

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        return iter(self.trees[tree])

    def blob(self, cid: str) -> bytes:
        return self.blobs[cid]

    def tree(self, files: Mapping[str, Any]) -> str:
        """The id of a tree with these files: bytes, text, JSON documents, links or submodules."""
        folders: dict[str, dict[str, Any]] = {}
        entries: list[tuple[str, TreeEntry]] = []
        for path, content in files.items():
            name, slash, inner = path.partition("/")
            if slash:
                folders.setdefault(name, {})[inner] = content
            else:
                entries.append((name, self._entry(content)))
        entries += [(name, TreeEntry(FOLDER, self.tree(inner))) for name, inner in folders.items()]
        cid = text_digest(repr(sorted(entries)))[:40]
        self.trees[cid] = sorted(entries)
        return cid

    def _entry(self, content: Any) -> TreeEntry:
        if isinstance(content, Submodule):
            return TreeEntry(SUBMODULE, content.commit)
        text = content.target if isinstance(content, Link) else content
        data = text if isinstance(text, bytes) else text.encode() if isinstance(text, str) else json.dumps(text).encode()
        cid = text_digest(repr(data))[:40]
        self.blobs[cid] = data
        return TreeEntry(LINK if isinstance(content, Link) else FILE, cid)


def memory_trees() -> MemoryTrees:
    return MemoryTrees({}, {})


def document(slug: str, *guardrails: Any, at: str = "", **fields: Any) -> dict[str, Any]:
    """An identity's agent document, by its path."""
    place = f"{at}/" if at else ""
    return {f"{place}.clia/agents/{slug}/{slug}.agent.triad.json": {"slug": slug, "guardrails": list(guardrails), **fields}}
