"""Contexts: the directories on the way to a working path that hold an agent, and the documents picked in each.

Invariant: one context is one real directory, found once; which file is read for each kind depends only on the names
in the directory, never on their order on disk.

=====

Root directives: the document that every active agent of a repository builds on.

=====

Root chains: which contexts an agent asks for, and which it gets.

Invariant: the final chain runs global to local and ends with the local context; no context of the default chain ever
loses its guardrails; a root that does not contain the working path is refused before anything is merged.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import FileError, InvalidInput
from clia.identities.diagnostics import diagnostic
from clia.identities.files import DIRECTORY, FILE, LINK, MISSING
from clia.identities.working_path import below, depth, find_target, inside, is_owned_by
from clia.values.documents import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.files import DirectoryEntry, LocalFiles
    from clia.identities.layers import DocumentReader
    from clia.identities.working_path import WorkingPath

AGENT, AGENDA, AGENCY = KINDS = ("agent", "agenda", "agency")
AGENTS = ".clia/agents"
ARCHIVE = "legacy-imports"  # below the directory of the identity that another one was consolidated into


class IdentityContext(NamedTuple):
    """One layer of lineage: a directory with documents of the agent."""

    directory: str  # the domain directory, which holds `.clia`
    home: str  # <directory>/.clia/agents/<slug>
    real_home: str
    prefix: str
    reasons: tuple[str, ...]
    documents: Mapping[str, str | None]  # kind -> path as found, or None

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "prefix": self.prefix,
            "path": self.directory,
            "reasons": list(self.reasons),
            "documents": dict(self.documents),
        }
        if self.real_home != self.home:
            shown["link"] = self.home
            shown["realPath"] = self.real_home
        return shown


class ExcludedPath(NamedTuple):
    """What was met on the way and does not count."""

    path: str
    reason: str


class ContextSearch:
    """Looks for one agent; collects what it found out of place on the way."""

    def __init__(self, files: LocalFiles, place: WorkingPath, slug: str) -> None:
        self.files = files
        self.place = place
        self.slug = slug
        self.diagnostics: list[Diagnostic] = []
        self.excluded: list[ExcludedPath] = []

    def default_chain(self) -> list[IdentityContext]:
        """Contexts by containment, outermost first. A directory reached twice keeps its inner place."""
        by_home: dict[str, IdentityContext] = {}
        for ancestor in self.place.ancestors:
            reasons = ["ancestor"]
            if ancestor in self.place.submodules:
                reasons.append("submodule-root")
            found = self.at(ancestor, reasons)
            if found is not None:
                by_home.pop(found.real_home, None)
                by_home[found.real_home] = found
        self.excluded.extend(ExcludedPath(each, "not-containing") for each in self.place.siblings)
        return list(by_home.values())

    def at(self, directory: str, reasons: Iterable[str]) -> IdentityContext | None:
        """The agent's context in one directory, or None."""
        home = below(directory, f"{AGENTS}/{self.slug}")
        # Before anything is read: what a stranger planted may neither count nor make a read fail.
        if not self._is_trusted(directory, home, ()):
            message = f"{home} belongs neither to the caller nor to root, and no repository encloses it"
            self._refuse(home, "untrusted-owner", "untrusted-owner", message)
            return None
        try:
            entries = self.files.entries(home)
            if entries is None:
                self._check_directory(home)
                return None
            linked = self._linked(directory)
            real_home = self.files.real(home) if linked else home
        except FileError as err:
            self.diagnostics.append(diagnostic("unreadable", home, err.message))
            return None
        boundary = self.boundary(directory)
        if not inside(real_home, boundary) or (linked and any(inside(real_home, each) for each in self.place.siblings)):
            self._refuse(home, "symlink-outside", "symlink-escape", f"{home} leads to {real_home}, outside {boundary}")
            return None
        documents = self._pick(home, entries, boundary)
        if not self._is_trusted(directory, home, documents.values()):
            message = f"{home} belongs neither to the caller nor to root, and no repository encloses it"
            self._refuse(home, "untrusted-owner", "untrusted-owner", message)
            return None
        if not any(documents.values()):
            self.excluded.append(ExcludedPath(home, "no-documents"))
            return None
        shown = (*reasons, "symlink") if linked else tuple(reasons)
        return IdentityContext(directory, home, real_home, self._prefix(directory, documents), shown, documents)

    def boundary(self, directory: str) -> str:
        """What a link may not leave: the repository it stands in, else the directory itself."""
        return next((root for root in reversed(self.place.repositories) if inside(directory, root)), directory)

    def _refuse(self, home: str, reason: str, code: str, message: str) -> None:
        self.excluded.append(ExcludedPath(home, reason))
        self.diagnostics.append(diagnostic(code, home, message))

    def _check_directory(self, home: str) -> None:
        kind = self.files.kind(home)
        if kind == LINK:
            self.diagnostics.append(diagnostic("not-a-directory", home, f"{home} is a symlink that leads to no directory"))
        elif kind not in (MISSING, DIRECTORY):
            self.diagnostics.append(diagnostic("not-a-directory", home, f"{home} is not a directory"))

    def _linked(self, directory: str) -> bool:
        clia = below(directory, ".clia")
        return any(self.files.kind(each) == LINK for each in (clia, f"{clia}/agents", f"{clia}/agents/{self.slug}"))

    def _is_trusted(self, directory: str, home: str, documents: Iterable[str | None]) -> bool:
        if any(inside(directory, root) for root in self.place.repositories):
            return True
        clia = below(directory, ".clia")
        if self.files.owner(clia) is None:
            return True  # nothing is there
        looked_at = [directory, clia, f"{clia}/agents", home, *(each for each in documents if each)]
        return is_owned_by(self.files, self.place.trusted, *looked_at)

    def _pick(self, home: str, entries: Sequence[DirectoryEntry], boundary: str) -> dict[str, str | None]:
        return {kind: self._pick_kind(home, entries, boundary, kind) for kind in KINDS}

    def _pick_kind(self, home: str, entries: Sequence[DirectoryEntry], boundary: str, kind: str) -> str | None:
        names, legacy = candidates(entries, kind)
        usable = [name for name, entry_kind in names if self._usable(f"{home}/{name}", entry_kind, boundary)]
        if not usable:
            return None
        first = f"{home}/{usable[0]}"
        if len(usable) > 1:
            listed = ", ".join(usable)
            self.diagnostics.append(diagnostic("ambiguous-triad", first, f"{home} holds several {kind} documents: {listed}"))
        if legacy:
            self.diagnostics.append(diagnostic("legacy-name", first, f"{first} has the old name of {kind} documents"))
        return first

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

    def _prefix(self, directory: str, documents: Mapping[str, str | None]) -> str:
        first = next((path for path in documents.values() if path), None)
        if first is None:
            return f"{self.slug}@{directory.rpartition('/')[2]}"
        return first.rpartition("/")[2].partition(".")[0]


def candidates(entries: Iterable[DirectoryEntry], kind: str) -> tuple[list[DirectoryEntry], bool]:
    """The names that can be this kind's document, first choice first, and whether they are of the old form.

    The old form counts only where no name of the new form is there.
    """
    new, old = f".{kind}.triad.json", f".{kind}.json"
    visible = [each for each in entries if each.name.endswith(".json") and each.name[0] != "."]
    current = sorted([each for each in visible if each.name.endswith(new)])
    if current:
        return current, False
    legacy = sorted([each for each in visible if each.name.endswith(old)])
    return legacy, bool(legacy)


def kind_of(name: str) -> str | None:
    """The kind a file's name claims, or None."""
    for kind in KINDS:
        if name.endswith((f".{kind}.triad.json", f".{kind}.json")):
            return kind
    return None


ROOT = "root"  # their slug


class RootDirectives(NamedTuple):
    repository: str
    path: str


def root_directives(files: LocalFiles, place: WorkingPath) -> RootDirectives | None:
    """The agent document of slug ``root`` at the outermost repository root that has one."""
    search = ContextSearch(files, place, ROOT)
    for repository in place.repositories:
        context = search.at(repository, ())
        path = context.documents[AGENT] if context else None
        if path is not None:
            return RootDirectives(repository, path)
    return None


MODES = DEFAULT, EXPLICIT, HYBRID = ("default", "explicit", "hybrid")


class RootChainRequest(NamedTuple):
    """A document's ``rootChain``, checked."""

    source: str
    directory: str  # the domain directory it stands in
    mode: str
    roots: tuple[str, ...]
    contained: bool


class ContextChain(NamedTuple):
    mode: str
    contexts: tuple[IdentityContext, ...]
    injected: tuple[IdentityContext, ...]
    pinned: tuple[IdentityContext, ...]
    excluded: tuple[ExcludedPath, ...]
    diagnostics: tuple[Diagnostic, ...]


def resolve_chain(
    search: ContextSearch, reader: DocumentReader, default: Sequence[IdentityContext], *, allow_uncontained: bool
) -> ContextChain:
    """The final chain for the innermost agent document's wishes."""
    asked = _requested_chain(reader, default)
    if asked is None or asked.mode == DEFAULT:
        return ContextChain(DEFAULT, tuple(default), (), (), (), ())
    found: list[Diagnostic] = []
    injected = _requested_contexts(search, reader, asked, found, enforce=asked.contained or not allow_uncontained)
    local = default[-1]
    wanted = {each.real_home: each for each in (default if asked.mode == HYBRID else [local])}
    for root in injected:
        known = next((each for each in default if each.real_home == root.real_home), root)
        wanted[root.real_home] = known._replace(reasons=(*known.reasons, "root-chain"))
    if asked.mode == EXPLICIT:
        wanted[local.real_home] = wanted[local.real_home]._replace(reasons=(*wanted[local.real_home].reasons, "local"))
    contexts = sorted(wanted.values(), key=lambda each: (each.real_home == local.real_home, depth(each.directory), each.directory))
    pinned = tuple(each for each in default if each.real_home not in wanted)
    for each in pinned:
        path = each.documents[AGENT]
        if path is not None:
            found.append(diagnostic("guardrails-pinned", path, f"{each.directory} is left out by the root chain of {asked.source}"))
    excluded = tuple(ExcludedPath(each.directory, "not-in-root-chain") for each in pinned)
    return ContextChain(asked.mode, tuple(contexts), tuple(injected), pinned, excluded, tuple(found))


def _requested_chain(reader: DocumentReader, default: Sequence[IdentityContext]) -> RootChainRequest | None:
    for context in reversed(default):
        path = context.documents[AGENT]
        if path is not None:
            loaded = reader.load(path)
            asked = None if loaded is None else loaded[0].get("rootChain")
            return None if asked is None else parse_root_chain(path, context.directory, asked)
    return None


def parse_root_chain(path: str, directory: str, value: Any) -> RootChainRequest:
    """A checked root chain; ``InvalidInput`` names the file and the place."""
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
    search: ContextSearch, reader: DocumentReader, asked: RootChainRequest, found: list[Diagnostic], *, enforce: bool
) -> list[IdentityContext]:
    files = search.files
    bases = reader.roots(reader.real(asked.source).rpartition("/")[0]) or [asked.directory]
    contexts: dict[str, IdentityContext] = {}
    for index, declared in enumerate(asked.roots):
        at = f"/rootChain/roots/{index}/path"
        directory = find_target(files, bases, declared, DIRECTORY)
        if directory is None or files.kind(directory) != DIRECTORY:
            raise _invalid_root_chain(asked.source, at, f"{declared!r} is no directory below {bases[0]} or an enclosing repository")
        if enforce and directory not in search.place.ancestors:
            hint = "the operator may allow it with --allow-uncontained" if not asked.contained else "name an enclosing directory"
            raise _invalid_root_chain(asked.source, at, f"{directory} does not contain the working path {search.place.path}", hint)
        context = search.at(directory, ["root-chain"])
        if context is None:
            message = f"{directory} is a root of {asked.source}, but has no directory of agent {search.slug}"
            found.append(diagnostic("root-without-agent", asked.source, message, at))
        else:
            contexts[context.real_home] = context
    return sorted(contexts.values(), key=lambda each: (depth(each.directory), each.directory))


def _checked_type(path: str, pointer: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    wanted = {dict: "an object", list: "an array", str: "a string", bool: "true or false"}[kind]
    raise _invalid_root_chain(path, pointer, f"must be {wanted}, not {type_name(value)}")


def _invalid_root_chain(path: str, pointer: str, problem: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(
        f"{path}: {pointer} {problem}",
        code="invalid-root-chain",
        hints=[hint] if hint else [],
        fields={"path": path, "pointer": pointer},
    )
