"""Lineage seen from the directory of a space, for pages and the API.

Invariant: clients are on other machines, so paths are relative to the space's directory. An unusable document is reported with its
location and never hides the others.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError, NotFound
from clia.identities import checks
from clia.identities.contexts import AGENCY, AGENDA, AGENT
from clia.identities.lineage import lineage
from clia.identities.origins import explain
from clia.identities.working_path import parents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from clia.forge.forge import Site
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lineage import Lineage, MergedDocument
    from clia.identities.origins import Explanation
    from clia.identities.roster import Roster

PROFILE, PLAN = "profile", "plan"
DOCUMENTS = {PROFILE: AGENT, PLAN: AGENDA, AGENCY: AGENCY}
"""Kinds of merged documents by public name."""
LINES_BYTES = 4_000_000
"""Maximum bytes read to find line numbers."""


class RelativePaths:
    """Converts local paths to paths relative to a space."""

    def __init__(self, directory: str) -> None:
        self._top = os.path.realpath(directory)
        above = [parent for parent in parents(self._top) if parent != "/"]
        pattern = "|".join(re.escape(parent) for parent in above)  # longest first
        self._known = re.compile(rf"(?<![\w./~-])({pattern})(/|(?![\w.-]))") if above else None

    def short(self, path: str) -> str:
        return _text(os.path.relpath(path, self._top))

    def whole(self, short: str) -> str:
        """The local path for a relative one."""
        return os.path.normpath(os.path.join(self._top, short))

    def in_text(self, text: str) -> str:
        """A message with its paths made relative."""
        return _text(text if self._known is None else self._known.sub(self._relative, text))

    def _relative(self, match: re.Match[str]) -> str:
        relative = os.path.relpath(match[1], self._top)
        return ("" if match[2] else ".") if relative == "." else relative + match[2]

    def in_json(self, value: Any) -> Any:
        """A JSON value with the paths in all its strings made relative."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, dict):
            return {key: self.in_json(item) for key, item in value.items()}
        return [self.in_json(item) for item in value] if isinstance(value, (list, tuple)) else value

    def in_error(self, err: CliaError) -> CliaError:
        """An error with its paths made relative."""
        hints = [self.in_text(hint) for hint in err.hints]
        return type(err)(self.in_text(err.message), hints=hints, fields=self.in_json(err.fields), code=err.code)


class DocumentFinding(NamedTuple):
    """A problem in a document and its location."""

    severity: str
    code: str
    message: str
    hint: str
    path: str | None
    line: int | None
    pointer: str | None


def roster_at(site: Site, *, everything: bool = False) -> Roster:
    """The agents visible from the space's directory; ``everything`` includes names that are not agents."""
    try:
        return checks.roster(site.path, everything=everything)
    except CliaError as err:
        raise RelativePaths(site.path).in_error(err) from None


def lineage_at(site: Site, slug: str) -> Lineage:
    try:
        return lineage(site.path, slug)
    except CliaError as err:
        raise RelativePaths(site.path).in_error(err) from None


def kind_of(document: str) -> str:
    """The document kind for a name in a URL."""
    if document not in DOCUMENTS:
        raise NotFound(
            f"unknown document {document!r}",
            code="no-such-document",
            hints=[f"one of {', '.join(DOCUMENTS)}"],
            fields={"document": document},
        )
    return DOCUMENTS[document]


def findings(paths: RelativePaths, diagnostics: Iterable[Diagnostic]) -> list[DocumentFinding]:
    """Findings with line numbers, as far as they are cheap to compute."""
    listed = list(diagnostics)
    lines = checks.lines_of(_cheap(listed))
    return [
        DocumentFinding(
            diagnostic.severity,
            diagnostic.code,
            paths.in_text(diagnostic.message),
            diagnostic.hint,
            None if diagnostic.path is None else paths.short(diagnostic.path),
            lines.get(diagnostic),
            diagnostic.pointer,
        )
        for diagnostic in listed
    ]


def _cheap(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The first diagnostics within the read limit: each line number costs a read of the file, and files may be large."""
    left = LINES_BYTES
    for diagnostic in diagnostics:
        with suppress(OSError):
            left -= os.path.getsize(diagnostic.path) if diagnostic.path is not None else 0
        if left >= 0:
            yield diagnostic


def explained(merged: MergedDocument, pointer: str) -> Explanation:
    return explain(merged.document, merged.provenance, merged.layers, pointer)


def explanation_json(paths: RelativePaths, explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON with relative paths."""
    document = explanation.to_json()
    places = [*document["contributors"], *document["shadowed"], *([document["winner"]] if document["winner"] else [])]
    for place in places:
        place["path"] = paths.short(place["path"])
    return document


def _text(path: str) -> str:
    """A name with invalid Unicode escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
