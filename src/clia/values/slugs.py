"""Slugs of identities.

Invariant: a slug is checked before a path is built from it, so no name can leave its directory.
"""

from __future__ import annotations

import re

from clia.errors import InvalidInput

SLUG_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
SLUG_MAX = 64

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_slug(text: object) -> bool:
    return isinstance(text, str) and len(text) <= SLUG_MAX and _SLUG.fullmatch(text) is not None


def check_slug(text: str) -> str:
    """Return the slug; ``InvalidInput`` has a hint on valid slugs."""
    if is_slug(text):
        return text
    raise InvalidInput(
        f"{text!r} is not a slug",
        code="invalid-slug",
        hints=[f"a slug has lower-case letters, digits and single hyphens, at most {SLUG_MAX} characters: release-captain"],
        fields={"slug": text},
    )
