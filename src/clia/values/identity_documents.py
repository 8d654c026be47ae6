"""Versions of an identity's documents: the text of one file at a path of the repository.

A behaviour of kind ``identity-document`` has the text as its body and the path in ``meta``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.values import documents
from clia.values.slugs import is_slug
from clia.values.typed_objects import IDENTITY_DOCUMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.values.typed_objects import Behaviour

DOCUMENT = "document"
_PATH = re.compile(r"(?:[^/]+/)*\.clia/agents/([^/]+)/[^/.][^/]*\.(?:agent|agenda)(?:\.triad)?\.json")


class DocumentVersion(NamedTuple):
    """A version of a document: the behaviour version, where the document is, and its text."""

    version: str
    path: str
    text: str

    @property
    def slug(self) -> str:
        """The identity that the document belongs to."""
        return document_slug(self.path)

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def document_slug(path: str) -> str:
    """The identity of the agent or agenda document at a path; ``InvalidInput`` if the path is another one."""
    match = _PATH.fullmatch(path)
    if match is None or not is_slug(match[1]) or {".", "..", ".git"} & set(path.split("/")):
        raise InvalidInput(
            f"{path!r} is not the path of an identity's document",
            code="invalid-document-path",
            hints=["paths in the repository look like this: .clia/agents/SLUG/NAME.agent.triad.json, or NAME.agenda.triad.json"],
            fields={"field": DOCUMENT, "path": path},
        )
    return match[1]


def check_document(path: str, text: str) -> None:
    """``CliaError`` unless a text can replace the document at a path."""
    slug = document_slug(path)
    content = documents.parse(text.encode("utf-8", "surrogatepass"), path)
    if content.get("slug", slug) != slug:
        message = f"{path}: slug is {content['slug']!r}, but the document belongs to {slug!r}"
        raise InvalidInput(message, code="wrong-identity", fields={"field": "slug", "path": path})


def document_path(behaviour: Behaviour) -> str | None:
    """The path that a behaviour names; None if it is not a version of a document."""
    path = (behaviour.meta or {}).get(DOCUMENT)
    return path if behaviour.kind == IDENTITY_DOCUMENT and isinstance(path, str) else None


def document_of_profile(profile: Mapping[str, Any] | None) -> DocumentVersion | None:
    """The version of a document that a recorded profile was resolved with, if any."""
    value = (profile or {}).get("proposal")
    if not isinstance(value, dict):
        return None
    fields = [value.get(name) for name in DocumentVersion._fields]
    texts = [field for field in fields if isinstance(field, str)]
    return DocumentVersion(*texts) if len(texts) == len(fields) and _PATH.fullmatch(texts[1]) else None
