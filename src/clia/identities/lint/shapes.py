"""Documents against their schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.identities.contexts import kind_of
from clia.identities.diagnostics import diagnostic
from clia.identities.schemas import problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.identities.diagnostics import Diagnostic


def shape(path: str, kind: str, document: Any) -> Iterator[Diagnostic]:
    """A file whose name claims no kind is a fragment to inherit from, and has no schema."""
    if kind_of(path) == kind:
        for pointer, problem in problems(kind, document):
            yield diagnostic("schema", path, f"{path}: {pointer or 'the document'} {problem}", pointer)
