"""Everything that resolving an agent reports by itself, and links that lead out of its repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.identities.contexts import Search
from clia.identities.diagnostics import diagnostic
from clia.identities.file_interface import LINK
from clia.identities.places import inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint.subject import Subject


def resolving(subject: Subject) -> Iterator[Diagnostic]:
    yield from subject.reading


def links(subject: Subject) -> Iterator[Diagnostic]:
    """Links beside the documents (a persona, an avatar): other tools read those too."""
    search = Search(subject.files, subject.place, subject.slug)
    for context in subject.contexts:
        boundary = search.boundary(context.directory)
        for entry in subject.files.entries(context.home) or ():
            path = f"{context.home}/{entry.name}"
            if entry.kind == LINK:
                real = subject.files.real(path)
                if not inside(real, boundary):
                    yield diagnostic("symlink-escape", path, f"{path} leads to {real}, outside {boundary}")
