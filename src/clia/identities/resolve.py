"""Lineage on the local file system.

Invariant: this is where the working directory, the caller's identity and the clock enter; below here they are values.
"""

from __future__ import annotations

import os

from clia.identities.files import LocalFiles
from clia.identities.places import survey
from clia.identities.view import Lineage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.identities.places import Place


def place(path: str | os.PathLike[str] = ".", *, ceiling: str | os.PathLike[str] | None = None) -> Place:
    """The surveyed working path, as the current user."""
    top = None if ceiling is None else os.path.abspath(ceiling)
    return survey(LocalFiles(), os.path.abspath(path), ceiling=top, trusted=trusted_owners())


def lineage(
    path: str | os.PathLike[str],
    slug: str,
    *,
    ceiling: str | os.PathLike[str] | None = None,
    allow_uncontained: bool = False,
) -> Lineage:
    """The lineage of ``slug`` at ``path``.

    ``ceiling`` stops the climb there. ``allow_uncontained`` is the operator's word that a document's
    ``enforceContainment: false`` may be honoured.
    """
    from clia.values.names import check_slug

    check_slug(slug)  # before any path is built or looked at
    return Lineage(LocalFiles(), place(path, ceiling=ceiling), slug, allow_uncontained=allow_uncontained)


def trusted_owners() -> frozenset[int] | None:
    """The caller and root: whose contexts count outside every repository."""
    return frozenset((os.getuid(), 0)) if hasattr(os, "getuid") else None
