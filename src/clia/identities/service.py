"""Identities as seen from the directory of a space: ``space.identities``. Read only.

Invariant: clients are on other machines, so paths are relative to the space's directory. An unusable document is reported with its
location and never hides the others.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from clia.errors import AgentNotFound, CliaError, Conflict, InvalidInput, NotFound
from clia.identities import checks
from clia.identities.contexts import AGENCY, AGENDA, AGENT
from clia.identities.diagnostics import ERROR
from clia.identities.lineage import lineage
from clia.identities.merge import same
from clia.identities.working_path import parents
from clia.values.records import json_form
from clia.values.slugs import SLUG_MAX, check_slug, is_slug
from clia.verbs import VIEWER, Hint, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from clia.facade.components import Components
    from clia.identities.contexts import IdentityContext
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lineage import Lineage
    from clia.identities.origins import Explanation, ValueOrigin
    from clia.identities.roster import ListedIdentity, Roster

PROFILE, PLAN = "profile", "plan"
DOCUMENTS = {PROFILE: AGENT, PLAN: AGENDA, AGENCY: AGENCY}
"""Kinds of merged documents by public name."""
LINES_BYTES = 4_000_000
"""Maximum bytes read to find line numbers."""

Slug = Annotated[str, Hint((("pattern", "^[a-z0-9]+(-[a-z0-9]+)*$"), ("maxLength", SLUG_MAX)))]
Document = Annotated[str, Hint((("enum", tuple(DOCUMENTS)),))]
Pointer = Annotated[str, "a JSON pointer into the merged document: /title, /guardrails/0"]


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

    severity: str  # `error`, `warning` or `info`
    code: str  # one of the codes of diagnostics
    message: str  # one sentence for a person
    hint: str  # what to do
    path: str | None  # the file or directory that it is about
    line: int | None  # line of the value, from 1; null: unknown
    pointer: str | None  # JSON pointer into the file; null: the whole file


class VisibleIdentities(NamedTuple):
    """The identities that are visible from the space's directory."""

    agents: tuple[ListedIdentity, ...]  # the identities, by slug
    diagnostics: tuple[DocumentFinding, ...]  # problems of their documents


@json_form(more_journals="moreJournals?", link="link?", real_path="realPath?")
class ContextView(NamedTuple):
    """A directory with documents of the identity."""

    prefix: str  # short name: the first part of the names of its files
    path: str  # the domain directory, with `.clia`
    reasons: tuple[str, ...]  # why it counts: `ancestor`, `submodule-root`, `symlink`, `root-chain` or `local`
    documents: Mapping[str, str | None]  # path of the document of each kind
    more_journals: tuple[str, ...] | None = None  # further agency documents in the directory, by name; all of them are merged
    link: str | None = None  # the directory of the identity, if it is behind a link
    real_path: str | None = None  # where the link leads


class MergedView(NamedTuple):
    """A merged document."""

    slug: str  # the identity
    kind: str  # `agent`, `agenda` or `agency`
    chain: tuple[ContextView, ...]  # the contexts that it was merged from, outermost first
    document: Mapping[str, Any]  # the merged document
    diagnostics: tuple[DocumentFinding, ...]  # problems of its files


class IdentityService:
    """The identities that are visible from the space's directory."""

    def __init__(self, components: Components) -> None:
        self._path = components.options.place
        self._paths = RelativePaths(self._path)

    @verb("GET", "/lineage", VIEWER, "lineage", "lineage")
    def __call__(self, all_: bool = False) -> VisibleIdentities:
        """The identities visible from the space's directory."""
        roster = roster_at(self._path, everything=all_)
        agents = [agent._replace(directory=self._paths.short(agent.directory)) for agent in roster.agents]
        return VisibleIdentities(tuple(agents), findings(self._paths, roster.diagnostics))

    @verb("GET", "/lineage/{slug}/{document}", VIEWER, "lineage", "lineage_document")
    def document(self, slug: Slug, document: Document) -> MergedView:
        """A merged document, its chain, and the problems of its files."""
        kind = kind_of(document)
        merged = lineage_at(self._path, slug).merged(kind)
        chain = tuple(self._context(context) for context in merged.chain)
        return MergedView(slug, kind, chain, merged.document, findings(self._paths, merged.diagnostics))

    @verb("GET", "/lineage/{slug}/{document}/explain", VIEWER, "lineage", "lineage_explain")
    def explain(self, slug: Slug, document: Document, at: Pointer) -> Explanation:
        """Where one value of a merged document comes from; an empty pointer stands for the whole document."""
        kind = kind_of(document)
        explanation = lineage_at(self._path, slug).merged(kind).explain(at)
        return explanation._replace(
            winner=explanation.winner and self._origin(explanation.winner),
            contributors=tuple(map(self._origin, explanation.contributors)),
            shadowed=tuple(map(self._origin, explanation.shadowed)),
            diagnostics=(),
        )

    def _context(self, context: IdentityContext) -> ContextView:
        fields = (context.prefix, context.directory, context.reasons, context.documents, context.more_journals or ())
        prefix, path, reasons, documents, journals = self._paths.in_json(fields)
        link, real_path = self._paths.in_json((context.link, context.real_path))
        return ContextView(prefix, path, tuple(reasons), documents, tuple(journals) or None, link, real_path)

    def _origin(self, origin: ValueOrigin) -> ValueOrigin:
        return origin._replace(path=self._paths.short(origin.path))


def roster_at(path: str, *, everything: bool = False) -> Roster:
    """The identities visible from a space's directory; ``everything`` includes names that are not identities."""
    try:
        return checks.roster(path, everything=everything)
    except CliaError as err:
        raise RelativePaths(path).in_error(err) from None


def lineage_at(path: str, slug: str) -> Lineage:
    try:
        return lineage(path, slug)
    except CliaError as err:
        raise RelativePaths(path).in_error(err) from None


def kind_of(document: str) -> str:
    """The document kind for a name in a URL."""
    if document not in DOCUMENTS:
        hints, fields = [f"one of {', '.join(DOCUMENTS)}"], {"document": document}
        raise NotFound(f"unknown document {document!r}", code="no-such-document", hints=hints, fields=fields)
    return DOCUMENTS[document]


def findings(paths: RelativePaths, diagnostics: Iterable[Diagnostic]) -> tuple[DocumentFinding, ...]:
    """Findings with line numbers, as far as they are cheap to compute."""
    listed = list(diagnostics)
    lines = checks.lines_of(_cheap(listed))
    return tuple(
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
    )


def _cheap(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The first diagnostics within the read limit: each line number costs a read of the file, and files may be large."""
    left = LINES_BYTES
    for diagnostic in diagnostics:
        with suppress(OSError):
            left -= os.path.getsize(diagnostic.path) if diagnostic.path is not None else 0
        if left >= 0:
            yield diagnostic


def _text(path: str) -> str:
    """A name with invalid Unicode escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


# Profiles of new agents: an agent gets all guardrails of its identity, or is not spawned, unless a person accepts the loss. A
# sub-agent without an identity of its own works under its parent's, and never has fewer guardrails than the parent.


def spawn_profile(
    path: str, name: str, slug: str | None, parent: Mapping[str, Any] | None, accept: str | None
) -> dict[str, Any] | None:
    """The profile of the identity ``slug``, else of the one with the agent's name, else of the parent's identity.

    ``parent`` is the profile that the parent was spawned with. ``accept`` is the reason to spawn with an incomplete profile.
    """
    if accept is not None and not accept.strip():
        raise InvalidInput("the reason for an incomplete profile must not be empty", code="empty-value")
    if slug is not None:
        return _resolved(path, check_slug(slug), accept)
    if is_slug(name):
        try:
            return _resolved(path, name, accept)
        except AgentNotFound:
            pass
    return None if parent is None else _of_parent(path, parent)


def _resolved(path: str, slug: str, accept: str | None) -> dict[str, Any]:
    merged = lineage_at(path, slug).profile()
    paths = RelativePaths(path)
    wrong = [paths.in_text(item.message) for item in merged.diagnostics if item.severity == ERROR]
    profile: dict[str, Any] = {"slug": slug, "document": merged.document}
    if not wrong:
        return profile
    if accept is not None:
        return {**profile, "incomplete": {"reason": accept, "findings": wrong}}
    raise Conflict(
        f"the profile of {slug} is incomplete, so guardrails could be missing: {wrong[0]}",
        code="incomplete-profile",
        hints=[*wrong[1:], "fix the document, then check it: clia agents lint", "or accept it: --accept-incomplete REASON"],
        fields={"slug": slug, "findings": wrong},
    )


def _of_parent(path: str, parent: Mapping[str, Any]) -> dict[str, Any]:
    """The current profile of the parent's identity, if it is complete and has all guardrails of the parent's; else the parent's."""
    frozen = {key: value for key, value in parent.items() if key != "type"}
    try:
        current = _resolved(path, check_slug(str(parent.get("slug"))), None)
    except (AgentNotFound, Conflict, InvalidInput):
        return frozen
    kept = current["document"].get("guardrails") or []
    before = (parent.get("document") or {}).get("guardrails") or []
    return current if all(any(same(item, other) for other in kept) for item in before) else frozen
