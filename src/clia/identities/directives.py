"""Root directives: the document that every active agent of a repository builds on."""

from __future__ import annotations

from typing import NamedTuple

from clia.identities.contexts import AGENT, Search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.identities.file_interface import Files
    from clia.identities.places import Place

ROOT = "root"  # their slug


class Directives(NamedTuple):
    repository: str
    path: str


def root_directives(files: Files, place: Place) -> Directives | None:
    """The agent document of slug ``root`` at the outermost repository root that has one."""
    search = Search(files, place, ROOT)
    for repository in place.repositories:
        context = search.at(repository, ())
        path = context.documents[AGENT] if context else None
        if path is not None:
            return Directives(repository, path)
    return None
