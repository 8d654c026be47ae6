"""Slugs in documents: each is the name of its agent's directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.identities.contexts import KINDS
from clia.identities.diagnostics import diagnostic
from clia.identities.layers import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint.subject import Subject


def slugs(subject: Subject) -> Iterator[Diagnostic]:
    """Root directives may be called as they like, and so may what is inherited: both are read under another's slug."""
    if subject.is_directives():
        return
    # A directory linked under a second name answers to both.
    names = {context.directory: {subject.slug, _name(context.real_home)} for context in subject.contexts}
    for layer in (each for kind in KINDS for each in subject.layers[kind]):
        slug = layer.document.get("slug")
        expected = names.get(layer.directory, {subject.slug})
        if layer.origin == CONTEXT and isinstance(slug, str) and slug not in expected:
            message = f"{layer.path}: the slug is {slug!r}, the directory is {subject.slug!r}"
            yield diagnostic("slug-mismatch", layer.path, message, "/slug")


def _name(path: str) -> str:
    return path.rpartition("/")[2]
