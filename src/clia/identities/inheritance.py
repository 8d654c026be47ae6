"""Layers: the documents of a merge, lowest precedence first.

Invariant: an inherited document comes directly before the first document that names it, and no document appears twice. A
document of the chain itself keeps its own position.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from clia.errors import CliaError, FileError
from clia.files import FILE, LINK, LocalFiles
from clia.identities.contexts import AGENCY, AGENT, ARCHIVE, IdentityContext, kind_of
from clia.identities.diagnostics import CODES, Diagnostic, diagnostic
from clia.identities.working_path import WorkingPath, find_target, inside
from clia.values import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


CONTEXT, INHERITED, ROOT_RULES = "context", "inherited", "root-rules"
_GUARDRAILS = frozenset(["guardrails"])
_GENERATED_DIRECTORIES = (".clia/exports", ".generated", ARCHIVE)
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|[^/]+@[^/]+:")


class Layer(NamedTuple):
    path: str
    document: dict[str, Any]
    directory: str  # the domain directory of its context
    origin: str  # CONTEXT, INHERITED or ROOT_RULES
    only: frozenset[str] | None  # the fields to merge; None: all
    inherited_by: str | None = None
    data: bytes = b""


class DocumentReader:
    """Loads the documents of one lineage; reads each file once."""

    def __init__(self, files: LocalFiles, place: WorkingPath) -> None:
        self.files = files
        self.place = place
        self.diagnostics: list[Diagnostic] = []
        self._loaded: dict[str, tuple[dict[str, Any], bytes] | None] = {}
        self._roots: dict[str, list[str]] = {}
        self._real: dict[str, str] = {}

    def real(self, path: str) -> str:
        """The real path of a file. Directories are resolved once: links are rare and resolving is slow."""
        if path not in self._real:
            directory, _, name = path.rpartition("/")
            if directory not in self._real:
                self._real[directory] = self.files.real(directory or "/")
            is_link = self.files.kind(path) == LINK
            self._real[path] = self.files.real(path) if is_link else f"{self._real[directory]}/{name}"
        return self._real[path]

    def knows(self, contexts: Iterable[IdentityContext]) -> None:
        """Reuse the paths that discovery has resolved."""
        self._real.update((context.home, context.real_home) for context in contexts)

    def load(self, path: str) -> tuple[dict[str, Any], bytes] | None:
        """The document and its bytes; None, with a diagnostic, if it cannot be used."""
        if path not in self._loaded:
            self._loaded[path] = None
            try:
                data = self.files.read(path, documents.MAX_BYTES)
                if data is None:
                    raise FileError(f"{path} does not exist", fields={"path": path})
                self._loaded[path] = documents.parse(data, path), data
            except FileError as err:
                self.diagnostics.append(diagnostic("unreadable", path, err.message))
            except CliaError as err:
                self.diagnostics.append(Diagnostic(err.code, "error", path, None, err.message, CODES[err.code].hint))
        return self._loaded[path]

    def roots(self, directory: str) -> list[str]:
        """The repository roots that enclose a directory, innermost first."""
        if directory not in self._roots:
            self._roots[directory] = self.place.roots_above(self.files, directory)
        return self._roots[directory]


def build_layers(
    reader: DocumentReader,
    kind: str,
    chain: Sequence[IdentityContext],
    pinned: Sequence[IdentityContext],
    roots: Sequence[IdentityContext] = (),
) -> list[Layer]:
    """The layers of one kind: ``chain`` in full, ``pinned`` contexts and those of ``roots`` with their guardrails only.

    Root directives come directly before the identity's own context at the same place.
    """
    reader.knows([*chain, *pinned, *roots])
    ranks = [reader.place.rank(context.directory) for context in chain]
    copied = _copied(reader.place, kind, chain)
    placements = [_Placement((index, 1, 0, "", 0), context, CONTEXT, index in copied) for index, context in enumerate(chain)]
    for context in pinned:
        rank = reader.place.rank(context.directory)
        before = sum(other <= rank for other in ranks[:-1])
        placements.append(_Placement((before, 0, rank, context.directory, 1), context, CONTEXT, is_pinned=True))
    for context in roots if kind == AGENT else ():
        rank = reader.place.rank(context.directory)
        before = sum(other < rank for other in ranks)
        placements.append(_Placement((before, 0, rank, context.directory, 0), context, ROOT_RULES, is_pinned=True))
    own = {reader.real(path) for context in chain for path in context.paths(kind)}
    builder = _LayerBuilder(reader, kind, own)
    for _, context, origin, is_pinned in sorted(placements):
        for path in context.paths(kind):
            builder.add(path, context.directory, origin, _GUARDRAILS if is_pinned else None)
    return builder.layers


class _Placement(NamedTuple):
    order: tuple[int, int, int, str, int]  # unique: position in the chain, whether it is in it, rank, directory, no root directives
    context: IdentityContext
    origin: str
    is_pinned: bool  # only its guardrails count


def _copied(place: WorkingPath, kind: str, chain: Sequence[IdentityContext]) -> set[int]:
    """The contexts whose document has a copy in the worktree that the path is in: the copy is the document that is worked on.

    Journals are merged by entry, so all of them count.
    """
    if place.local is None or kind == AGENCY:
        return set()
    directories = {context.directory for context in chain if context.documents[kind] is not None}
    return {index for index, context in enumerate(chain) if place.copy_of(context.directory) in directories}


class _LayerBuilder:
    def __init__(self, reader: DocumentReader, kind: str, own: set[str]) -> None:
        self.reader = reader
        self.kind = kind
        self.own = own  # real paths of the chain's own documents
        self.layers: list[Layer] = []
        self.placed: set[tuple[str, bool]] = set()  # (real path, in full)

    def add(self, path: str, directory: str, origin: str, only: frozenset[str] | None) -> None:
        """Add a document after what it inherits, depth first. Iterative, because chains may be long."""
        stack = {self.reader.real(path): self._visit(path, directory, origin, only, None)}  # in the order of the visits
        while stack:
            visit = next(reversed(stack.values()))
            real, by = next(visit, (None, ""))
            if real is None:
                stack.popitem()
            elif real in stack:
                self._report("inherits-cycle", by, f"{by} inherits {real}, which inherits it again", "/inherits")
            elif (real, only is None) not in self.placed and real not in self.own:
                stack[real] = self._visit(real, directory, origin if origin == ROOT_RULES else INHERITED, only, by)

    def _visit(
        self, path: str, directory: str, origin: str, only: frozenset[str] | None, by: str | None
    ) -> Iterator[tuple[str, str]]:
        """Yield what the document inherits, then add the document."""
        loaded = self.reader.load(path)
        if loaded is None:
            return
        document, data = loaded
        for target in self._targets(path, document, directory):
            yield target, path
        self.placed.add((self.reader.real(path), only is None))
        self.layers.append(Layer(path, document, directory, origin, only, by, data))

    def _targets(self, path: str, document: dict[str, Any], directory: str) -> Iterator[str]:
        for pointer, declared in declared_inherits(document):
            if pointer.startswith("/extensions"):
                self._report("inherits-legacy-place", path, f"{path}: `inherits` is inside `extensions`", pointer)
            if not isinstance(declared, str) or not declared.strip():
                self._report("wrong-type", path, f"{path}: {pointer} must be a path, not {documents.type_name(declared)}", pointer)
                continue
            try:
                target = self._resolve(path, pointer, declared.strip(), directory)
            except _UnusableInherit as err:
                code, why = err.args
                self._report(code, path, f"{path} inherits {declared}, {why}", pointer)
            else:
                yield target

    def _resolve(self, path: str, pointer: str, declared: str, directory: str) -> str:
        if _REMOTE.match(declared) or declared.startswith("//"):
            raise _UnusableInherit("inherits-remote", "which is not fetched")
        home = self.reader.real(path).rpartition("/")[0] or "/"
        roots = self.reader.roots(home) or [directory]
        try:
            target = find_target(self.reader.files, roots, declared, FILE)
        except FileError as err:
            raise _UnusableInherit("unreadable", err.message) from None
        if target is None:
            raise _UnusableInherit("inherits-missing", "which does not exist")
        if not any(inside(target, root) for root in roots):
            raise _UnusableInherit("inherits-outside", f"which is outside {roots[-1]}")
        if any(f"/{name}/" in target for name in _GENERATED_DIRECTORIES):
            raise _UnusableInherit("inherits-kind-mismatch", "which is a generated or archived file")
        name = target.rpartition("/")[2]
        kind = kind_of(name)
        if kind not in (None, self.kind):
            raise _UnusableInherit("inherits-kind-mismatch", f"which is not an {self.kind} document")
        if kind is not None and not name.endswith(".triad.json"):
            self._report("inherits-legacy-name", path, f"{path} inherits {declared}, which uses an old name", pointer)
        return target

    def _report(self, code: str, path: str, message: str, pointer: str) -> None:
        self.reader.diagnostics.append(diagnostic(code, path, message, pointer))


class _UnusableInherit(Exception):
    """An inherited path that cannot be used: the code of its diagnostic, and why."""


def declared_inherits(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The pointer and value of each declared inherit, those in ``extensions`` (the old place) first."""
    extensions = document.get("extensions")
    old = extensions.get("inherits") if isinstance(extensions, dict) else None
    for base, value in (("/extensions/inherits", old), ("/inherits", document.get("inherits"))):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield f"{base}/{index}", item
        elif value is not None:
            yield base, value
