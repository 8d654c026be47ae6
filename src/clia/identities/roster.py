"""Which agents there are: those visible from a place, and those of a whole tree.

Invariant: an agent is a directory whose name is a slug and is not reserved; what is listed, and its order, depends on
names alone, never on the order of a directory listing. Links are not followed on the way down.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import AgentNotFound, CliaError, FileError
from clia.identities.contexts import AGENTS, ROOT, ContextSearch
from clia.identities.diagnostics import CODES, Diagnostic, diagnostic, in_order
from clia.identities.files import DIRECTORY, LINK
from clia.identities.lineage import Lineage
from clia.identities.working_path import below, inside
from clia.values.names import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from clia.identities.contexts import IdentityContext
    from clia.identities.files import LocalFiles
    from clia.identities.working_path import WorkingPath

_RESERVED = frozenset((ROOT, "templates"))
_SKIPPED = frozenset(("node_modules",))  # beside every hidden directory: others' packages are not this tree


class ListedIdentity(NamedTuple):
    """One agent as a list shows it."""

    slug: str
    title: str | None
    role: str | None
    status: str | None
    badge: str | None
    emoji: str | None
    contexts: int
    directory: str  # the innermost domain directory that has it

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Roster(NamedTuple):
    path: str
    agents: tuple[ListedIdentity, ...]
    diagnostics: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "agents": [each.to_json() for each in self.agents],
            "diagnostics": [each.to_json() for each in self.diagnostics],
        }


class IdentityTarget(NamedTuple):
    """One agent to look at, from one place."""

    slug: str
    place: WorkingPath


class IdentityTree(NamedTuple):
    """Every agent visible from a place or declared below it, and the repositories they live in."""

    top: WorkingPath
    targets: tuple[IdentityTarget, ...]
    repositories: tuple[str, ...]  # the innermost that holds the top, and all below it
    diagnostics: tuple[Diagnostic, ...]


def is_reserved(name: str) -> bool:
    """Names in an agents directory that are no agents."""
    return name in _RESERVED or name.startswith("_")


def is_active(status: object) -> bool:
    """Whether an agent with this merged status is at work: `active`, or nothing said."""
    return not isinstance(status, str) or status.strip().lower() in ("", "active")


def roster(files: LocalFiles, place: WorkingPath, *, everything: bool = False) -> Roster:
    """The agents visible from ``place``; with ``everything`` also the names that are no agents."""
    names, found = visible_names(files, place)
    found += place.diagnostics
    agents = []
    for name, directories in names.items():
        if is_reserved(name) and not everything:
            continue
        listed = _listed_identity(files, place, name, directories[-1], found)
        if listed is not None:
            agents.append(listed)
    return Roster(place.path, tuple(agents), tuple(in_order(found)))


def visible_names(files: LocalFiles, place: WorkingPath) -> tuple[dict[str, list[str]], list[Diagnostic]]:
    """Name -> the domain directories that have it, outermost first; sorted by name."""
    names: dict[str, list[str]] = {}
    found: list[Diagnostic] = []
    for ancestor in place.ancestors:
        for name in _names_at(files, place, ancestor, found):
            names.setdefault(name, []).append(ancestor)
    return dict(sorted(names.items())), found


def seen_from(files: LocalFiles, top: WorkingPath) -> IdentityTree:
    """The agents visible from a place."""
    names, found = visible_names(files, top)
    targets = tuple(IdentityTarget(name, top) for name in names if _is_target(name))
    return IdentityTree(top, targets, top.repositories[-1:], tuple(in_order([*found, *top.diagnostics])))


def tree_of(files: LocalFiles, top: WorkingPath, survey_at: Callable[[str], WorkingPath]) -> IdentityTree:
    """The agents visible from a place, and all below it."""
    here = seen_from(files, top)
    targets, repositories, found = list(here.targets), list(here.repositories), list(here.diagnostics)
    for each in _walk(files, top.path, found):
        if each.is_repository:
            repositories.append(each.directory)
        if each.has_agents:
            place = survey_at(each.directory)
            found += place.diagnostics
            targets += [IdentityTarget(name, place) for name in _names_at(files, place, each.directory, found) if _is_target(name)]
    return IdentityTree(top, tuple(targets), tuple(repositories), tuple(in_order(found)))


def domains_below(files: LocalFiles, directory: str) -> list[str]:
    """The directory itself and those below it, as far as they hold agents."""
    here = [directory] if _agents_in(files, directory, []) is not None else []
    return here + [each.directory for each in _walk(files, directory, []) if each.has_agents]


def as_diagnostic(error: CliaError, path: str) -> Diagnostic:
    """An error of one agent's lineage as a finding, so that the others can still be looked at."""
    code = error.code if error.code in CODES else "unreadable"
    fields = error.fields
    return diagnostic(code, str(fields.get("path", path)), error.message, fields.get("pointer"))


def default_chain(files: LocalFiles, place: WorkingPath, slug: str) -> tuple[tuple[IdentityContext, ...], list[Diagnostic]]:
    """An agent's contexts by containment, with what stood in the way: refused links, files in the wrong place."""
    search = ContextSearch(files, place, slug)
    try:
        return tuple(search.default_chain()), search.diagnostics
    except CliaError as error:
        return (), [*search.diagnostics, as_diagnostic(error, place.path)]


def _is_target(name: str) -> bool:
    return name == ROOT or not is_reserved(name)


def _listed_identity(
    files: LocalFiles, place: WorkingPath, name: str, innermost: str, found: list[Diagnostic]
) -> ListedIdentity | None:
    if not is_slug(name):  # a reserved name such as `_drafts`: nothing can be resolved by it
        return ListedIdentity(name, None, None, None, None, None, 0, innermost)
    try:
        lineage = Lineage(files, place, name)
        profile = lineage.profile()
    except AgentNotFound:
        found += default_chain(files, place, name)[1]
        return ListedIdentity(name, None, None, None, None, None, 0, innermost) if is_reserved(name) else None
    except CliaError as error:
        found.append(as_diagnostic(error, innermost))
        return ListedIdentity(name, None, None, None, None, None, len(default_chain(files, place, name)[0]), innermost)
    found += profile.diagnostics
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


def _names_at(files: LocalFiles, place: WorkingPath, directory: str, found: list[Diagnostic]) -> list[str]:
    """The names in one domain directory that are agents or reserved, sorted."""
    names = []
    for entry in sorted(_agents_in(files, directory, found) or ()):
        if is_slug(entry.name) or (is_reserved(entry.name) and entry.kind in (DIRECTORY, LINK)):
            names.append(entry.name)
        elif entry.kind in (DIRECTORY, LINK) and not entry.name.startswith(".") and _is_trusted(files, place, directory):
            home = below(directory, f"{AGENTS}/{entry.name}")
            found.append(diagnostic("invalid-slug", home, f"{entry.name!r} is no slug; the directory was skipped"))
    return names


def _is_trusted(files: LocalFiles, place: WorkingPath, directory: str) -> bool:
    """Whether what stands in a directory may make anybody's check fail."""
    if place.trusted is None or any(inside(directory, root) for root in place.repositories):
        return True
    return files.owner(below(directory, AGENTS)) in place.trusted


def _agents_in(files: LocalFiles, directory: str, found: list[Diagnostic]) -> Iterable[Any] | None:
    path = below(directory, AGENTS)
    try:
        return files.entries(path)
    except FileError as err:
        found.append(diagnostic("unreadable", path, err.message))
        return None


class _DomainDirectory(NamedTuple):
    directory: str
    has_agents: bool
    is_repository: bool


def _walk(files: LocalFiles, top: str, found: list[Diagnostic]) -> list[_DomainDirectory]:
    """The directories below ``top`` that hold agents or are repositories, sorted."""
    met: list[_DomainDirectory] = []
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            entries = files.entries(directory) or ()
        except FileError as err:
            found.append(diagnostic("unreadable", directory, err.message))
            continue
        names = {each.name for each in entries}
        if directory != top and names & {".clia", ".git"}:
            has_agents = ".clia" in names and _agents_in(files, directory, found) is not None
            met.append(_DomainDirectory(directory, has_agents, ".git" in names))
        waiting += [
            below(directory, name)
            for name, kind in entries
            if kind == DIRECTORY and not name.startswith(".") and name not in _SKIPPED
        ]
    return sorted(met)
