"""Contexts: the directories that hold an identity's documents, and the chain of contexts that are merged.

Invariant: a context is one real directory, found once; which file is read for a kind depends only on the names in the directory.
The final chain is ordered outermost first and ends with the local context. No context of the default chain loses its
guardrails, and a root that does not contain the working path is refused before anything is merged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import FileError, InvalidInput
from clia.files import DIRECTORY, FILE, LINK, MISSING, DirectoryEntry, LocalFiles
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.working_path import WorkingPath, below, find_target, inside, is_owned_by
from clia.values.documents import type_name
from clia.values.records import fields_json, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.identities.inheritance import DocumentReader

AGENT, AGENDA, AGENCY = KINDS = ("agent", "agenda", "agency")
AGENTS = ".clia/agents"
ARCHIVE = "legacy-imports"  # holds the files of consolidated identities


_CONTEXT_KEYS = {"directory": "path", "more_journals": "moreJournals?", "link": "link?", "real_path": "realPath?"}


@json_form("prefix", "directory", "reasons", "documents", "more_journals", "link", "real_path", **_CONTEXT_KEYS)
class IdentityContext(NamedTuple):
    """A directory with documents of the identity."""

    directory: str  # the domain directory, with `.clia`
    home: str  # <directory>/.clia/agents/<slug>
    real_home: str
    prefix: str  # short name: the first part of the names of its files
    reasons: tuple[str, ...]  # why it counts: `ancestor`, `submodule-root`, `agents-dir`, `symlink`, `root-chain` or `local`
    documents: Mapping[str, str | None]  # path of the document of each kind, as found
    more_journals: tuple[str, ...] | None = None  # further agency documents in the directory, by name; all of them are merged

    def paths(self, kind: str) -> tuple[str, ...]:
        """The documents of one kind. Only the agency can have several."""
        path = self.documents[kind]
        more = self.more_journals if kind == AGENCY else None
        return () if path is None else (path, *(more or ()))

    @property
    def link(self) -> str | None:
        """The directory of the identity, if it is behind a link."""
        return self.home if self.real_home != self.home else None

    @property
    def real_path(self) -> str | None:
        """Where the link leads."""
        return self.real_home if self.real_home != self.home else None

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


class ExcludedPath(NamedTuple):
    """A path that was found but does not count."""

    path: str  # the directory or file
    reason: str  # `not-containing`, `not-in-root-chain`, `no-documents`, `symlink-outside` or `untrusted-owner`


class ContextSearch:
    """Finds the contexts of one identity; collects diagnostics on the way."""

    def __init__(self, files: LocalFiles, place: WorkingPath, slug: str) -> None:
        self.files = files
        self.place = place
        self.slug = slug
        self.diagnostics: list[Diagnostic] = []
        self.excluded: list[ExcludedPath] = []

    def default_chain(self) -> list[IdentityContext]:
        """The contexts that contain the working path, outermost first; a directory reached twice keeps its inner position."""
        by_home: dict[str, IdentityContext] = {}
        for ancestor in self.place.ancestors:
            reasons = ["ancestor"]
            if ancestor in self.place.submodules:
                reasons.append("submodule-root")
            context = self.at(ancestor, reasons)
            if context is not None:
                by_home.pop(context.real_home, None)
                by_home[context.real_home] = context
        named = self.place.agents_dir
        if named is not None:
            context = self.at(named.removesuffix(f"/{AGENTS}") or "/", ["agents-dir"], below(named, self.slug))
            if context is not None:
                by_home.pop(context.real_home, None)
                by_home[context.real_home] = context
        self.excluded.extend(ExcludedPath(sibling, "not-containing") for sibling in self.place.siblings)
        return list(by_home.values())

    def at(self, directory: str, reasons: Iterable[str], home: str | None = None) -> IdentityContext | None:
        """The identity's context in one directory, or None. ``home``: where its documents are, if not below ``.clia/agents``."""
        home = home or below(directory, f"{AGENTS}/{self.slug}")
        # Check the owner first: another user's files must neither count nor make a read fail.
        if not self._check_owner(directory, home, ()):
            return None
        try:
            entries = self.files.entries(home)
            if entries is None:
                kind = self.files.kind(home)
                if kind not in (MISSING, DIRECTORY):
                    problem = "a symlink that does not lead to a directory" if kind == LINK else "not a directory"
                    self.diagnostics.append(diagnostic("not-a-directory", home, f"{home} is {problem}"))
                return None
            clia = below(directory, ".clia")
            linked = any(self.files.kind(path) == LINK for path in (clia, f"{clia}/agents", home))
            real_home = self.files.real(home) if linked else home
        except FileError as err:
            self.diagnostics.append(diagnostic("unreadable", home, err.message))
            return None
        boundary = self.boundary(directory)
        if not inside(real_home, boundary) or (linked and any(inside(real_home, sibling) for sibling in self.place.siblings)):
            self._refuse(home, "symlink-outside", "symlink-escape", f"{home} leads to {real_home}, outside {boundary}")
            return None
        usable = {kind: self._usable_documents(home, entries, boundary, kind) for kind in KINDS}
        if not self._check_owner(directory, home, [path for paths in usable.values() for path in paths]):
            return None
        documents = {kind: paths[0] if paths else None for kind, paths in usable.items()}
        first = next((path for path in documents.values() if path), None)
        if first is None:
            self.excluded.append(ExcludedPath(home, "no-documents"))
            return None
        shown = (*reasons, "symlink") if linked else tuple(reasons)
        prefix, journals = first.rpartition("/")[2].partition(".")[0], tuple(usable[AGENCY][1:])
        return IdentityContext(directory, home, real_home, prefix, shown, documents, journals or None)

    def boundary(self, directory: str) -> str:
        """The directory that links must stay in: the enclosing repository, or the directory itself."""
        return next((root for root in reversed(self.place.repositories) if inside(directory, root)), directory)

    def _refuse(self, home: str, reason: str, code: str, message: str) -> None:
        self.excluded.append(ExcludedPath(home, reason))
        self.diagnostics.append(diagnostic(code, home, message))

    def _check_owner(self, directory: str, home: str, documents: Sequence[str]) -> bool:
        """Whether the context is in a repository or belongs to a trusted user; otherwise it is refused."""
        if any(inside(directory, root) for root in self.place.repositories):
            return True
        clia = below(directory, ".clia")
        paths = (directory, clia, f"{clia}/agents", home, *documents)
        if self.files.owner(clia) is None or is_owned_by(self.files, self.place.trusted, *paths):
            return True
        message = f"{home} is outside every repository and belongs to another user"
        self._refuse(home, "untrusted-owner", "untrusted-owner", message)
        return False

    def _usable_documents(self, home: str, entries: Sequence[DirectoryEntry], boundary: str, kind: str) -> list[str]:
        """The documents of one kind that count: all journals, or the first document of another kind."""
        names, legacy = candidates(entries, kind)
        usable = [name for name, entry_kind in names if self._usable(f"{home}/{name}", entry_kind, boundary)]
        paths = [f"{home}/{name}" for name in usable]
        if len(usable) > 1 and kind != AGENCY:
            message = f"{home} has several {kind} documents: {', '.join(usable)}"
            self.diagnostics.append(diagnostic("ambiguous-triad", paths[0], message))
            paths = paths[:1]
        if legacy and paths:
            self.diagnostics.append(diagnostic("legacy-name", paths[0], f"{paths[0]} uses the old name for {kind} documents"))
        return paths

    def _usable(self, path: str, kind: str, boundary: str) -> bool:
        if kind == LINK:
            real = self.files.real(path)
            if not inside(real, boundary):
                self._refuse(path, "symlink-outside", "symlink-escape", f"{path} leads to {real}, outside {boundary}")
                return False
            kind = self.files.kind(real)
        if kind != FILE:
            self.diagnostics.append(diagnostic("not-a-file", path, f"{path} is not a file"))
        return kind == FILE


def candidates(entries: Iterable[DirectoryEntry], kind: str) -> tuple[list[DirectoryEntry], bool]:
    """The candidates for this kind's document, best first, and whether they use the old name form.

    Old names count only if no new one exists.
    """
    visible = sorted([entry for entry in entries if entry.name.endswith(".json") and entry.name[0] != "."])
    current = [entry for entry in visible if entry.name.endswith(f".{kind}.triad.json")]
    legacy = [] if current else [entry for entry in visible if entry.name.endswith(f".{kind}.json")]
    return current or legacy, bool(legacy)


def kind_of(name: str) -> str | None:
    """The kind that a file name stands for, or None."""
    return next((kind for kind in KINDS if name.endswith((f".{kind}.triad.json", f".{kind}.json"))), None)


ROOT = "root"  # slug of the root directives


def root_contexts(files: LocalFiles, place: WorkingPath) -> tuple[list[IdentityContext], list[Diagnostic]]:
    """The contexts of the root directives that enclose a path, outermost first: their guardrails hold for every identity."""
    search = ContextSearch(files, place, ROOT)
    roots = search.default_chain()
    for context in roots:
        above = [below(context.directory, name) for name in (".clia", AGENTS)] if context.home.startswith(context.directory) else []
        for path in (*above, context.home, *context.paths(AGENT)):
            if files.kind(path) == LINK:
                search.diagnostics.append(diagnostic("root-symlink", path, f"{path} is a symlink to {files.real(path)}"))
    # Another user's directory without root directives matters only to the identities that are in it.
    findings = (item for item in search.diagnostics if item.code != "untrusted-owner" or files.owner(item.path or "") is not None)
    return roots, list(findings)


def root_directives(files: LocalFiles, place: WorkingPath) -> tuple[str, str] | None:
    """The outermost repository with root directives, and their path: the agent document of slug ``root``.

    Every active identity of the repository should inherit it.
    """
    search = ContextSearch(files, place, ROOT)
    for repository in place.repositories:
        context = search.at(repository, ())
        path = context.documents[AGENT] if context else None
        if path is not None:
            return repository, path
    return None


MODES = DEFAULT, EXPLICIT, HYBRID = ("default", "explicit", "hybrid")


class RootChainRequest(NamedTuple):
    """A document's validated ``rootChain``."""

    source: str
    directory: str  # the domain directory of the document
    mode: str
    roots: tuple[str, ...]
    contained: bool


class ContextChain(NamedTuple):
    mode: str
    contexts: tuple[IdentityContext, ...]
    injected: tuple[IdentityContext, ...] = ()
    pinned: tuple[IdentityContext, ...] = ()  # only their guardrails count


def resolve_chain(
    search: ContextSearch, reader: DocumentReader, default: Sequence[IdentityContext], *, allow_uncontained: bool
) -> ContextChain:
    """The final chain, as the innermost agent document requests it; ``search`` collects exclusions and diagnostics."""
    request = _requested_chain(reader, default)
    if request is None or request.mode == DEFAULT:
        return ContextChain(DEFAULT, tuple(default))
    injected = _requested_contexts(search, reader, request, enforce=request.contained or not allow_uncontained)
    by_home = {context.real_home: context for context in default}
    local = default[-1].real_home
    chosen = dict(by_home) if request.mode == HYBRID else {local: default[-1]}
    for root in injected:
        context = by_home.get(root.real_home, root)
        reasons = tuple(dict.fromkeys((*context.reasons, "root-chain")))
        chosen[root.real_home] = context._replace(reasons=reasons)
    if request.mode == EXPLICIT:
        chosen[local] = chosen[local]._replace(reasons=(*chosen[local].reasons, "local"))
    contexts = sorted(
        chosen.values(), key=lambda context: (context.real_home == local, search.place.rank(context.directory), context.directory)
    )
    pinned = tuple(context for context in default if context.real_home not in chosen)
    for context in pinned:
        search.excluded.append(ExcludedPath(context.directory, "not-in-root-chain"))
        path = context.documents[AGENT]
        if path is not None:
            message = f"{context.directory} is not in the root chain of {request.source}"
            search.diagnostics.append(diagnostic("guardrails-pinned", path, message))
    return ContextChain(request.mode, tuple(contexts), tuple(injected), pinned)


def _requested_chain(reader: DocumentReader, default: Sequence[IdentityContext]) -> RootChainRequest | None:
    for context in reversed(default):
        path = context.documents[AGENT]
        if path is not None:
            document, _ = reader.load(path) or ({}, b"")
            request = document.get("rootChain")
            return None if request is None else parse_root_chain(path, context.directory, request)
    return None


def parse_root_chain(path: str, directory: str, value: Any) -> RootChainRequest:
    """Validate a root chain; ``InvalidInput`` names the file and the pointer."""
    body = _checked_type(path, "/rootChain", value, dict)
    mode = body.get("mode", DEFAULT)
    if mode not in MODES:
        raise _invalid_root_chain(path, "/rootChain/mode", f"must be one of {', '.join(MODES)}, not {mode!r}")
    roots = []
    for index, root in enumerate(_checked_type(path, "/rootChain/roots", body.get("roots", []), list)):
        at = f"/rootChain/roots/{index}"
        _checked_type(path, at, root, dict)
        if root.get("kind", "path") != "path":
            raise _invalid_root_chain(path, f"{at}/kind", f"must be 'path', not {root['kind']!r}")
        roots.append(_checked_type(path, f"{at}/path", root.get("path"), str))
    policy = _checked_type(path, "/rootChain/policy", body.get("policy", {}), dict)
    contained = _checked_type(path, "/rootChain/policy/enforceContainment", policy.get("enforceContainment", True), bool)
    return RootChainRequest(path, directory, mode, tuple(roots), contained)


def _requested_contexts(
    search: ContextSearch, reader: DocumentReader, request: RootChainRequest, *, enforce: bool
) -> list[IdentityContext]:
    bases = reader.roots(reader.real(request.source).rpartition("/")[0]) or [request.directory]
    contexts: dict[str, IdentityContext] = {}
    for index, declared in enumerate(request.roots):
        at = f"/rootChain/roots/{index}/path"
        directory = find_target(search.files, bases, declared, DIRECTORY)
        if directory is None or search.files.kind(directory) != DIRECTORY:
            problem = f"{declared!r} is not a directory below {bases[0]} or an enclosing repository"
            raise _invalid_root_chain(request.source, at, problem)
        if enforce and directory not in search.place.ancestors:
            hint = "an operator can allow it with --allow-uncontained" if not request.contained else "use an enclosing directory"
            problem = f"{directory} does not contain the working path {search.place.path}"
            raise _invalid_root_chain(request.source, at, problem, hint)
        context = search.at(directory, ["root-chain"])
        if context is None:
            message = f"{directory} is a root of {request.source}, but has no directory for {search.slug}"
            search.diagnostics.append(diagnostic("root-without-agent", request.source, message, at))
        else:
            contexts[context.real_home] = context
    return sorted(contexts.values(), key=lambda context: (search.place.rank(context.directory), context.directory))


def _checked_type(path: str, pointer: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    expected = {dict: "an object", list: "an array", str: "a string", bool: "true or false"}[kind]
    raise _invalid_root_chain(path, pointer, f"must be {expected}, not {type_name(value)}")


def _invalid_root_chain(path: str, pointer: str, problem: str, *hints: str) -> InvalidInput:
    fields = {"path": path, "pointer": pointer}
    return InvalidInput(f"{path}: {pointer} {problem}", code="invalid-root-chain", hints=hints, fields=fields)
