"""The working path and what encloses it: ancestors, repositories, submodules.

Invariant: every path here is real (links resolved) and every list is ordered outer to inner. A submodule that does
not contain the working path is named, never looked into.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError, FileError, InvalidInput, NotFound
from clia.identities.diagnostics import diagnostic
from clia.identities.file_interface import DIRECTORY, FILE, LINK, MISSING
from clia.identities.gitmodules import submodule_paths
from clia.values import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Files


class Place(NamedTuple):
    """A working path, surveyed once and shared by every agent that is looked up from it."""

    path: str
    ancestors: tuple[str, ...]  # outermost first, the path itself last
    repositories: tuple[str, ...]  # those ancestors that hold `.git`
    submodules: frozenset[str]  # those ancestors that an outer `.gitmodules` declares
    siblings: tuple[str, ...]  # declared submodules that do not contain the path
    trusted: frozenset[int] | None  # owners whose contexts count outside every repository; None: all
    diagnostics: tuple[Diagnostic, ...]


def inside(path: str, root: str) -> bool:
    """Whether ``path`` is ``root`` or lies below it."""
    return root in (path, "/") or path.startswith(root + "/")


def depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


def below(directory: str, name: str) -> str:
    return f"/{name}" if directory == "/" else f"{directory}/{name}"


def parents(path: str) -> list[str]:
    """The path and all above it, innermost first."""
    found = [path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return found


def survey(files: Files, path: str, *, ceiling: str | None = None, trusted: frozenset[int] | None = None) -> Place:
    """Looks at ``path`` (absolute) and every directory above it, up to and including ``ceiling``."""
    start = _directory(files, path)
    ancestors = parents(start)[::-1]
    if ceiling is not None:
        top = files.real(ceiling)
        if not inside(start, top):
            raise InvalidInput(
                f"the ceiling {ceiling} does not contain {path}",
                code="invalid-ceiling",
                fields={"ceiling": ceiling, "path": path},
            )
        ancestors = [each for each in ancestors if inside(each, top)]
    found: list[Diagnostic] = []
    submodules: set[str] = set()
    siblings: set[str] = set()
    repositories = _counted(files, [each for each in ancestors if is_repository(files, each)], trusted)
    for ancestor in ancestors:
        outside = not repositories or not inside(ancestor, repositories[0])
        if outside and not belongs(files, trusted, below(ancestor, ".gitmodules")):
            continue
        for root in _submodule_roots(files, ancestor, found):
            (submodules if inside(start, root) else siblings).add(root)
    return Place(
        start, tuple(ancestors), tuple(repositories), frozenset(submodules), tuple(sorted(siblings)), trusted, tuple(found)
    )


def is_repository(files: Files, directory: str) -> bool:
    """Whether the directory holds `.git`, a folder or (in submodules and worktrees) a file."""
    try:
        return files.kind(below(directory, ".git")) in (DIRECTORY, FILE, LINK)
    except FileError:
        return False


def repositories_above(files: Files, directory: str, trusted: frozenset[int] | None = None) -> list[str]:
    """The repository roots that enclose a directory, innermost first."""
    found = [each for each in reversed(parents(directory)) if is_repository(files, each)]
    return _counted(files, found, trusted)[::-1]


def belongs(files: Files, trusted: frozenset[int] | None, *paths: str) -> bool:
    """Whether all of the paths, as far as they exist, belong to somebody who is trusted."""
    return trusted is None or {files.owner(each) for each in paths} <= (trusted | {None})


def _counted(files: Files, found: list[str], trusted: frozenset[int] | None) -> list[str]:
    """The repositories that count, outermost first. A `.git` that a stranger put into a shared folder makes it none:
    an outer repository belongs to the caller, to root, or to whoever owns the innermost one."""
    if trusted is None or not found:
        return found
    owner = files.owner(found[-1])
    known = trusted if owner is None else trusted | {owner}
    return [each for each in found if each == found[-1] or belongs(files, known, each, below(each, ".git"))]


def _directory(files: Files, path: str) -> str:
    real = files.real(path)
    kind = files.kind(real)
    if kind == DIRECTORY:
        return real
    if kind == FILE:
        return real.rpartition("/")[0] or "/"
    raise NotFound(f"{path} does not exist", code="no-such-path", fields={"path": path})


def _submodule_roots(files: Files, directory: str, found: list[Diagnostic]) -> list[str]:
    path = below(directory, ".gitmodules")
    try:
        kind = files.kind(path)
        if kind in (MISSING, DIRECTORY):
            return []
        if kind == LINK:
            found.append(diagnostic("unsafe-submodule-path", path, f"{path} is a symlink; git refuses it, and so do we"))
            return []
        data = files.read(path, documents.MAX_BYTES)
        documents.check_size(len(data or b""), path)
        text = documents.decode(data or b"", path)
    except FileError as err:
        found.append(diagnostic("unreadable", path, err.message))
        return []
    except CliaError as err:
        found.append(diagnostic("invalid-gitmodules", path, err.message))
        return []
    paths, refused = submodule_paths(text, path)
    found.extend(refused)
    return [below(directory, each) for each in paths]
