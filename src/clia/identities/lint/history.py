"""The lossless-merge policy: a triad that was removed is archived, or it is a finding.

Invariant: a removal is forgiven only where the directory has a document of that kind again, or where a file with the
very same content stands under some ``legacy-imports/`` of the tree.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from clia.errors import CliaError
from clia.identities.contexts import AGENTS, candidates, kind_of
from clia.identities.diagnostics import diagnostic
from clia.identities.directives import ROOT
from clia.identities.file_interface import DIRECTORY, FILE
from clia.identities.places import below, inside
from clia.identities.roster import domains_below, is_reserved
from clia.values import documents
from clia.values.names import is_slug

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Entry, Files
    from clia.identities.history_interface import History, RemovedDocument
    from clia.identities.places import Place
    from clia.identities.roster import AgentTree

ARCHIVES = "legacy-imports"


def removed(files: Files, history: History, tree: AgentTree, slugs: Collection[str] = ()) -> Iterator[Diagnostic]:
    """Findings for every repository of a tree; ``slugs`` narrows them to some agents."""
    if not tree.repositories:
        yield diagnostic("history-unavailable", tree.top.path, f"{tree.top.path} lies in no repository")
    for root in tree.repositories:
        past = history.removed_documents(root)
        if past is None:
            yield diagnostic("history-unavailable", root, f"the git history of {root} cannot be read")
            continue
        if history.is_shallow(root):
            yield diagnostic("history-shallow", root, f"{root} is a shallow clone")
        lost = [each for each in past if _is_gone(files, tree.top, root, each, slugs)]
        archived = _archived(files, history, tree.top, root) if lost else frozenset()
        for each in lost:
            if each.content not in archived:
                path = f"{root}/{each.path}"
                yield diagnostic("removed-without-archive", path, f"{path} was removed, and no {ARCHIVES}/ holds its last content")


def _is_gone(files: Files, top: Place, root: str, document: RemovedDocument, slugs: Collection[str]) -> bool:
    """Whether a removed document concerns us, and nothing of its kind has taken its place."""
    home, _, name = f"{root}/{document.path}".rpartition("/")
    domain, _, slug = home.rpartition(f"/{AGENTS}/")
    kind = kind_of(name)
    if kind is None or not is_slug(slug) or (slugs and slug not in slugs) or (is_reserved(slug) and slug != ROOT):
        return False
    if not inside(domain, top.path) and domain not in top.ancestors:
        return False
    try:
        return not candidates(files.entries(home) or (), kind)[0]
    except CliaError:
        return False  # nobody can tell; that it cannot be read is a finding of its own


def _archived(files: Files, history: History, top: Place, root: str) -> frozenset[str]:
    """Content ids of every archived file of the tree, also of the form it had before line endings were converted."""
    base = top.repositories[-1] if top.repositories else top.path
    found: set[str] = set()
    for domain in domains_below(files, base):
        agents = below(domain, AGENTS)
        for agent in _entries(files, agents):
            for data in _contents(files, f"{agents}/{agent.name}/{ARCHIVES}"):
                found.update((history.content_id(root, data), history.content_id(root, data.replace(b"\r\n", b"\n"))))
    return frozenset(found)


def _contents(files: Files, directory: str) -> Iterator[bytes]:
    """The content of every file below a directory."""
    waiting = [directory]
    while waiting:
        here = waiting.pop()
        for name, kind in _entries(files, here):
            if kind == DIRECTORY:
                waiting.append(f"{here}/{name}")
            elif kind == FILE:
                with suppress(CliaError):  # what cannot be read archives nothing
                    yield files.read(f"{here}/{name}", documents.MAX_BYTES) or b""


def _entries(files: Files, directory: str) -> Sequence[Entry]:
    with suppress(CliaError):
        return files.entries(directory) or ()
    return ()
