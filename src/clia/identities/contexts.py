"""Contexts: the directories on the way to a working path that hold an agent, and the documents picked in each.

Invariant: one context is one real directory, found once; which file is read for each kind depends only on the names
in the directory, never on their order on disk.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import FileError
from clia.identities.diagnostics import diagnostic
from clia.identities.file_interface import DIRECTORY, FILE, LINK, MISSING
from clia.identities.places import belongs, below, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Entry, Files
    from clia.identities.places import Place

AGENT, AGENDA, AGENCY = KINDS = ("agent", "agenda", "agency")
AGENTS = ".clia/agents"


class Context(NamedTuple):
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


class Excluded(NamedTuple):
    """What was met on the way and does not count."""

    path: str
    reason: str


class Search:
    """Looks for one agent; collects what it found out of place on the way."""

    def __init__(self, files: Files, place: Place, slug: str) -> None:
        self.files = files
        self.place = place
        self.slug = slug
        self.diagnostics: list[Diagnostic] = []
        self.excluded: list[Excluded] = []

    def default_chain(self) -> list[Context]:
        """Contexts by containment, outermost first. A directory reached twice keeps its inner place."""
        by_home: dict[str, Context] = {}
        for ancestor in self.place.ancestors:
            reasons = ["ancestor"]
            if ancestor in self.place.submodules:
                reasons.append("submodule-root")
            found = self.at(ancestor, reasons)
            if found is not None:
                by_home.pop(found.real_home, None)
                by_home[found.real_home] = found
        self.excluded.extend(Excluded(each, "not-containing") for each in self.place.siblings)
        return list(by_home.values())

    def at(self, directory: str, reasons: Iterable[str]) -> Context | None:
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
            self.excluded.append(Excluded(home, "no-documents"))
            return None
        shown = (*reasons, "symlink") if linked else tuple(reasons)
        return Context(directory, home, real_home, self._prefix(directory, documents), shown, documents)

    def boundary(self, directory: str) -> str:
        """What a link may not leave: the repository it stands in, else the directory itself."""
        return next((root for root in reversed(self.place.repositories) if inside(directory, root)), directory)

    def _refuse(self, home: str, reason: str, code: str, message: str) -> None:
        self.excluded.append(Excluded(home, reason))
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
        return belongs(self.files, self.place.trusted, *looked_at)

    def _pick(self, home: str, entries: Sequence[Entry], boundary: str) -> dict[str, str | None]:
        return {kind: self._pick_kind(home, entries, boundary, kind) for kind in KINDS}

    def _pick_kind(self, home: str, entries: Sequence[Entry], boundary: str, kind: str) -> str | None:
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


def candidates(entries: Iterable[Entry], kind: str) -> tuple[list[Entry], bool]:
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
