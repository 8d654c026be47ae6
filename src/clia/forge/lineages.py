"""Lineage as a forge tells it, to people and to programs: seen from the directory of a space.

Invariant: whoever reads this is on another machine. A path at, below or above the space's directory is said relative to it; a
document that cannot be used is named with its place, and never hides the others.
"""

from __future__ import annotations

import os
import re
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
"""What people call each merged document, and its kind."""
LINES_BYTES = 4_000_000
"""How much is read at most to find lines."""


class Paths:
    """How paths of this machine are said."""

    def __init__(self, directory: str) -> None:
        self._top = os.path.realpath(directory)
        above = [each for each in parents(self._top) if each != "/"]
        known = "|".join(re.escape(each) for each in above)  # the longest first
        self._known = re.compile(rf"(?<![\w./~-])({known})(/|(?![\w.-]))") if above else None

    def short(self, path: str) -> str:
        return _text(os.path.relpath(path, self._top))

    def whole(self, short: str) -> str:
        """Where a path that was said is on this machine."""
        return os.path.normpath(os.path.join(self._top, short))

    def said(self, text: str) -> str:
        """A sentence with the paths in it."""
        return _text(text if self._known is None else self._known.sub(self._relative, text))

    def _relative(self, match: re.Match[str]) -> str:
        relative = os.path.relpath(match[1], self._top)
        return ("" if match[2] else ".") if relative == "." else relative + match[2]

    def in_json(self, value: Any) -> Any:
        """A report, in all of its strings."""
        if isinstance(value, str):
            return self.said(value)
        if isinstance(value, dict):
            return {key: self.in_json(each) for key, each in value.items()}
        return [self.in_json(each) for each in value] if isinstance(value, (list, tuple)) else value

    def told(self, err: CliaError) -> CliaError:
        """The error, as it is told."""
        hints = [self.said(hint) for hint in err.hints]
        return type(err)(self.said(err.message), hints=hints, fields=self.in_json(err.fields), code=err.code)


class Finding(NamedTuple):
    """Something that is wrong with a document, and where."""

    severity: str
    code: str
    message: str
    hint: str
    path: str | None
    line: int | None
    pointer: str | None


def roster_at(site: Site, *, everything: bool = False) -> Roster:
    """The agents visible from the space's directory; ``everything``: also names that are no agents."""
    try:
        return checks.roster(site.path, everything=everything)
    except CliaError as err:
        raise Paths(site.path).told(err) from None


def lineage_at(site: Site, slug: str) -> Lineage:
    try:
        return lineage(site.path, slug)
    except CliaError as err:
        raise Paths(site.path).told(err) from None


def kind_of(document: str) -> str:
    """The kind of a document that an address names."""
    if document not in DOCUMENTS:
        raise NotFound(
            f"{document!r} is no document of an agent",
            code="no-such-document",
            hints=[f"one of {', '.join(DOCUMENTS)}"],
            fields={"document": document},
        )
    return DOCUMENTS[document]


def findings(paths: Paths, found: Iterable[Diagnostic]) -> list[Finding]:
    """Each with the line that it is about, as far as that costs little to find."""
    listed = list(found)
    lines = checks.lines_of(_cheap(listed))
    return [
        Finding(
            each.severity,
            each.code,
            paths.said(each.message),
            each.hint,
            None if each.path is None else paths.short(each.path),
            lines.get(each),
            each.pointer,
        )
        for each in listed
    ]


def _cheap(found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The first of them: for each line a file is read through, and an agent may write large files with many mistakes."""
    left = LINES_BYTES
    for each in found:
        left -= _size(each.path)
        if left >= 0:
            yield each


def _size(path: str | None) -> int:
    try:
        return 0 if path is None else os.path.getsize(path)
    except OSError:
        return 0


def explained(merged: MergedDocument, pointer: str) -> Explanation:
    """The story of one value, as the library tells it."""
    return explain(merged.document, merged.provenance, merged.layers, pointer)


def explanation_json(paths: Paths, told: Explanation) -> dict[str, Any]:
    """The values themselves are left as they are."""
    made = told.to_json()
    places = [*made["contributors"], *made["shadowed"], *([made["winner"]] if made["winner"] else [])]
    for place in places:
        place["path"] = paths.short(place["path"])
    return made


def _text(path: str) -> str:
    """A name that is no Unicode cannot be sent; its odd bytes are spelled out."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
