"""The identities visible from a working path, and those of a whole tree.

Invariant: an identity is a directory whose name is a slug and is not reserved. What is listed, and in which order, depends on names
alone. Links are not followed downwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import AgentNotFound, CliaError, FileError, InvalidInput
from clia.files import DIRECTORY, LINK, LocalFiles
from clia.identities.contexts import AGENTS, KINDS, ROOT, ContextSearch, IdentityContext
from clia.identities.diagnostics import CODES, Diagnostic, diagnostic, in_order
from clia.identities.lineage import Lineage
from clia.identities.merge_rules import projected_text
from clia.identities.working_path import WorkingPath, below, inside
from clia.values.pointer import leaves, token
from clia.values.records import fields_json
from clia.values.slugs import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping


_RESERVED = frozenset((ROOT, "templates"))
_SKIPPED = frozenset(("node_modules",))  # third-party packages; hidden directories are skipped too


class ListedIdentity(NamedTuple):
    """An identity as shown in a list."""

    slug: str  # the identity
    title: str | None  # merged title
    role: str | None  # merged role
    status: str | None  # merged status
    badge: str | None  # `extensions.x-badge`
    emoji: str | None  # `extensions.x-emoji`, else `emoji`
    contexts: int  # number of its contexts
    directory: str  # the innermost domain directory that has it


class Roster(NamedTuple):
    """The identities that are visible at a path."""

    path: str  # the working path
    agents: tuple[ListedIdentity, ...]  # the identities, by slug
    diagnostics: tuple[Diagnostic, ...]  # problems of their documents

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


class SearchHit(NamedTuple):
    """A value in an identity's merged documents that contains a text."""

    slug: str  # the identity
    document: str  # `agent`, `agenda` or `agency`
    pointer: str  # JSON pointer into the merged document
    text: str  # the value, as text
    path: str | None  # the file that provides it


class IdentityTarget(NamedTuple):
    """An identity, seen from a working path."""

    slug: str
    place: WorkingPath


class IdentityTree(NamedTuple):
    """Every identity visible from a path or declared below it, and their repositories."""

    top: WorkingPath
    targets: tuple[IdentityTarget, ...]
    repositories: tuple[str, ...]  # the innermost that encloses the top, and all below
    diagnostics: tuple[Diagnostic, ...]


def search(files: LocalFiles, place: WorkingPath, text: str, slugs: Collection[str] = ()) -> list[SearchHit]:
    """The values that contain a text, in any case, in the documents of the identities visible from ``place``."""
    wanted = text.casefold()
    if not wanted.strip():
        raise InvalidInput("the text to search must not be empty", code="empty-value", fields={"field": "text"})
    hits: list[SearchHit] = []
    for name in visible_names(files, place)[0]:
        if not is_slug(name) or (slugs and name not in slugs):
            continue
        try:
            identity = Lineage(files, place, name)
        except CliaError:  # nothing to search; `agents lint` reports it
            continue
        for kind in KINDS:
            merged = identity.merged(kind)
            matches = [(at, shown) for at, shown in _texts(merged.document) if wanted in shown.casefold()]
            origins = merged.origins() if matches else {}
            hits += [SearchHit(name, kind, at, shown, _file_of(origins, at)) for at, shown in matches]
    return hits


def _texts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pointer and text of each item of a list, and of each other string."""
    for field, value in document.items():
        at = f"/{token(field)}"
        if isinstance(value, list):
            for index, item in enumerate(value):
                lines = [projected_text(item), *(leaf for _, leaf in leaves(item) if isinstance(leaf, str))]
                yield f"{at}/{index}", "\n".join(dict.fromkeys(lines))
        else:
            yield from ((at + below_it, leaf) for below_it, leaf in leaves(value) if isinstance(leaf, str))


def _file_of(origins: Mapping[str, Any], at: str) -> str | None:
    return next((origin["path"] for pointer, origin in origins.items() if pointer == at or pointer.startswith(f"{at}/")), None)


def is_reserved(name: str) -> bool:
    """Whether a name in an agents directory is not an identity."""
    return name in _RESERVED or name.startswith("_")


def is_active(status: object) -> bool:
    """Whether a merged status means active: `active`, or no status."""
    return not isinstance(status, str) or status.strip().lower() in ("", "active")


def roster(files: LocalFiles, place: WorkingPath, *, everything: bool = False) -> Roster:
    """The identities visible from ``place``; with ``everything`` also reserved names."""
    names, diagnostics = visible_names(files, place)
    diagnostics += place.diagnostics
    listed = [
        _listed_identity(files, place, name, directories[-1], diagnostics)
        for name, directories in names.items()
        if everything or not is_reserved(name)
    ]
    return Roster(place.path, tuple(identity for identity in listed if identity), tuple(in_order(diagnostics)))


def visible_names(files: LocalFiles, place: WorkingPath) -> tuple[dict[str, list[str]], list[Diagnostic]]:
    """Name -> the domain directories that have it, outermost first; sorted by name."""
    names: dict[str, list[str]] = {}
    diagnostics: list[Diagnostic] = []
    for ancestor in place.ancestors:
        for name in _names_at(files, place, ancestor, diagnostics):
            names.setdefault(name, []).append(ancestor)
    if place.agents_dir is not None:
        directory = place.agents_dir.removesuffix(f"/{AGENTS}") or "/"
        for name in sorted(entry.name for entry in files.entries(place.agents_dir) or () if is_slug(entry.name)):
            names.setdefault(name, []).append(directory)
    return dict(sorted(names.items())), diagnostics


def seen_from(files: LocalFiles, top: WorkingPath) -> IdentityTree:
    """The identities visible from a path."""
    names, diagnostics = visible_names(files, top)
    targets = tuple(IdentityTarget(name, top) for name in names if _is_target(name))
    return IdentityTree(top, targets, top.repositories[-1:], tuple(in_order([*diagnostics, *top.diagnostics])))


def tree_of(files: LocalFiles, top: WorkingPath, survey_at: Callable[[str], WorkingPath]) -> IdentityTree:
    """The identities visible from a path, and all below it."""
    visible = seen_from(files, top)
    targets, repositories, diagnostics = list(visible.targets), list(visible.repositories), list(visible.diagnostics)
    for directory, has_agents, is_repository in _walk(files, top.path, diagnostics):
        if is_repository:
            repositories.append(directory)
        if has_agents:
            place = survey_at(directory)
            diagnostics += place.diagnostics
            names = _names_at(files, place, directory, diagnostics)
            targets += [IdentityTarget(name, place) for name in names if _is_target(name)]
    return IdentityTree(top, tuple(targets), tuple(repositories), tuple(in_order(diagnostics)))


def domains_below(files: LocalFiles, directory: str) -> list[str]:
    """A directory and those below it that have an agents directory."""
    own = [directory] if _agents_in(files, directory, []) is not None else []
    return own + [domain for domain, has_agents, _ in _walk(files, directory, []) if has_agents]


def as_diagnostic(error: CliaError, path: str) -> Diagnostic:
    """An error of one identity as a finding, so that the others can still be checked."""
    code = error.code if error.code in CODES else "unreadable"
    return diagnostic(code, str(error.fields.get("path", path)), error.message, error.fields.get("pointer"))


def default_chain(files: LocalFiles, place: WorkingPath, slug: str) -> tuple[tuple[IdentityContext, ...], list[Diagnostic]]:
    """The contexts that contain the path, with diagnostics for refused links and misplaced files."""
    search = ContextSearch(files, place, slug)
    try:
        return tuple(search.default_chain()), search.diagnostics
    except CliaError as error:
        return (), [*search.diagnostics, as_diagnostic(error, place.path)]


def _is_target(name: str) -> bool:
    return name == ROOT or not is_reserved(name)


def _listed_identity(
    files: LocalFiles, place: WorkingPath, name: str, innermost: str, diagnostics: list[Diagnostic]
) -> ListedIdentity | None:
    unresolved = ListedIdentity(name, None, None, None, None, None, 0, innermost)
    if not is_slug(name):  # a reserved name such as `_drafts` cannot be resolved
        return unresolved
    try:
        profile = Lineage(files, place, name).profile()
    except AgentNotFound:
        diagnostics += default_chain(files, place, name)[1]
        return unresolved if is_reserved(name) else None
    except CliaError as error:
        diagnostics.append(as_diagnostic(error, innermost))
        return unresolved._replace(contexts=len(default_chain(files, place, name)[0]))
    diagnostics += profile.diagnostics
    extensions = profile.get("extensions") or {}
    return ListedIdentity(
        name,
        _text(profile.get("title")),
        _text(profile.get("role")),
        _text(profile.get("status")),
        _text(extensions.get("x-badge")),
        _text(extensions.get("x-emoji")) or _text(profile.get("emoji")),
        len(profile.chain),
        profile.chain[-1].directory,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _names_at(files: LocalFiles, place: WorkingPath, directory: str, diagnostics: list[Diagnostic]) -> list[str]:
    """The valid and reserved names in one domain directory, sorted."""
    names = []
    for entry in sorted(_agents_in(files, directory, diagnostics) or ()):
        if is_slug(entry.name) or (is_reserved(entry.name) and entry.kind in (DIRECTORY, LINK)):
            names.append(entry.name)
        elif entry.kind in (DIRECTORY, LINK) and not entry.name.startswith(".") and _is_trusted(files, place, directory):
            home = below(directory, f"{AGENTS}/{entry.name}")
            diagnostics.append(diagnostic("invalid-slug", home, f"{entry.name!r} is not a valid slug; the directory was skipped"))
    return names


def _is_trusted(files: LocalFiles, place: WorkingPath, directory: str) -> bool:
    """Whether a directory may cause findings: it is in a repository, or its owner is trusted."""
    if place.trusted is None or any(inside(directory, root) for root in place.repositories):
        return True
    return files.owner(below(directory, AGENTS)) in place.trusted


def _agents_in(files: LocalFiles, directory: str, diagnostics: list[Diagnostic]) -> Iterable[Any] | None:
    path = below(directory, AGENTS)
    try:
        return files.entries(path)
    except FileError as err:
        diagnostics.append(diagnostic("unreadable", path, err.message))
        return None


def _walk(files: LocalFiles, top: str, diagnostics: list[Diagnostic]) -> list[tuple[str, bool, bool]]:
    """(directory, has identities, is a repository) of each directory below ``top`` with a ``.clia`` or ``.git``, sorted."""
    directories: list[tuple[str, bool, bool]] = []
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            entries = files.entries(directory) or ()
        except FileError as err:
            diagnostics.append(diagnostic("unreadable", directory, err.message))
            continue
        names = {entry.name for entry in entries}
        if directory != top and names & {".clia", ".git"}:
            has_agents = ".clia" in names and _agents_in(files, directory, diagnostics) is not None
            directories.append((directory, has_agents, ".git" in names))
        waiting += [
            below(directory, name)
            for name, kind in entries
            if kind == DIRECTORY and not name.startswith(".") and name not in _SKIPPED
        ]
    return sorted(directories)
