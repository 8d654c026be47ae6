"""The working path and what encloses it: ancestors, repositories and the submodules of ``.gitmodules`` files.

Invariant: every path is real (links resolved) and every list is ordered outermost first. Submodule paths stay below the
directory that declares them. A submodule that does not contain the working path is listed, never read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clia.errors import CliaError, FileError, InvalidInput, NotFound
from clia.files import DIRECTORY, FILE, LINK, MISSING, LocalFiles
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.values import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class WorkingPath(NamedTuple):
    """A surveyed working path, shared by every identity that is resolved from it."""

    path: str
    ancestors: tuple[str, ...]  # outermost first, the path itself last
    repositories: tuple[str, ...]  # ancestors with a `.git`
    submodules: frozenset[str]  # ancestors that an outer `.gitmodules` declares
    siblings: tuple[str, ...]  # declared submodules that do not contain the path
    trusted: frozenset[int] | None  # owners trusted outside repositories; None: everybody
    diagnostics: tuple[Diagnostic, ...]


def inside(path: str, root: str) -> bool:
    """Whether ``path`` is ``root`` or lies below it."""
    return root in (path, "/") or path.startswith(root + "/")


def depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


def below(directory: str, name: str) -> str:
    return f"/{name}" if directory == "/" else f"{directory}/{name}"


def parents(path: str) -> list[str]:
    """The path and its ancestors, innermost first."""
    paths = [path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        paths.append(path)
    return paths


def survey(files: LocalFiles, path: str, *, ceiling: str | None = None, trusted: frozenset[int] | None = None) -> WorkingPath:
    """Survey ``path`` (absolute) and every directory above it, up to and including ``ceiling``."""
    start = files.real(path)
    kind = files.kind(start)
    if kind not in (DIRECTORY, FILE):
        raise NotFound(f"{path} does not exist", code="no-such-path", fields={"path": path})
    if kind == FILE:
        start = start.rpartition("/")[0] or "/"
    ancestors = parents(start)[::-1]
    if ceiling is not None:
        top = files.real(ceiling)
        if not inside(start, top):
            fields = {"ceiling": ceiling, "path": path}
            raise InvalidInput(f"the ceiling {ceiling} does not contain {path}", code="invalid-ceiling", fields=fields)
        ancestors = [ancestor for ancestor in ancestors if inside(ancestor, top)]
    diagnostics: list[Diagnostic] = []
    submodules: set[str] = set()
    siblings: set[str] = set()
    repositories = _trusted_repositories(files, [ancestor for ancestor in ancestors if is_repository(files, ancestor)], trusted)
    for ancestor in ancestors:
        outside = not repositories or not inside(ancestor, repositories[0])
        if outside and not is_owned_by(files, trusted, below(ancestor, ".gitmodules")):
            continue
        for root in _submodule_roots(files, ancestor, diagnostics):
            (submodules if inside(start, root) else siblings).add(root)
    return WorkingPath(
        start, tuple(ancestors), tuple(repositories), frozenset(submodules), tuple(sorted(siblings)), trusted, tuple(diagnostics)
    )


def is_repository(files: LocalFiles, directory: str) -> bool:
    """Whether a directory has a `.git`: a directory, or a file in submodules and worktrees."""
    try:
        return files.kind(below(directory, ".git")) in (DIRECTORY, FILE, LINK)
    except FileError:
        return False


def domain_name(files: LocalFiles, directory: str) -> str:
    """The short name of a domain directory: the repository's name, also in a linked worktree, or the directory's own."""
    name = directory.rpartition("/")[2] or "root"
    try:
        main = _main_git_directory(files, directory)
    except FileError:
        return name
    if main is None:
        return name
    parent, _, last = main.rpartition("/")
    if last == ".git":  # of a repository with a worktree
        return parent.rpartition("/")[2] or "root"
    return last.removesuffix(".git") or name  # a bare repository, or a submodule's git directory


_MAX_LINK = 8192


def _main_git_directory(files: LocalFiles, directory: str) -> str | None:
    """The git directory that a linked worktree belongs to; None for anything else."""
    path = below(directory, ".git")
    if files.kind(path) != FILE:
        return None
    link = (files.read(path, _MAX_LINK) or b"").decode("utf-8", "surrogateescape").strip()
    if not link.startswith("gitdir:"):
        return None
    git_directory = files.real(_joined(directory, link.removeprefix("gitdir:").strip()))
    common = files.read(f"{git_directory}/commondir", _MAX_LINK)
    if common is None:
        return None  # a submodule
    return files.real(_joined(git_directory, common.decode("utf-8", "surrogateescape").strip()))


def _joined(directory: str, path: str) -> str:
    return path if path.startswith("/") else below(directory, path)


def repositories_above(files: LocalFiles, directory: str, trusted: frozenset[int] | None = None) -> list[str]:
    """The repository roots that enclose a directory, innermost first."""
    repositories = [parent for parent in reversed(parents(directory)) if is_repository(files, parent)]
    return _trusted_repositories(files, repositories, trusted)[::-1]


def is_owned_by(files: LocalFiles, trusted: frozenset[int] | None, *paths: str) -> bool:
    """Whether all existing paths belong to trusted owners."""
    return trusted is None or {files.owner(path) for path in paths} <= (trusted | {None})


def _trusted_repositories(files: LocalFiles, repositories: list[str], trusted: frozenset[int] | None) -> list[str]:
    """The repositories that count, outermost first: outer ones must belong to the caller, root or the innermost one's owner.

    Otherwise any user could turn a shared directory into a repository by placing a `.git` in it.
    """
    if trusted is None or not repositories:
        return repositories
    innermost = repositories[-1]
    owner = files.owner(innermost)
    owners = trusted if owner is None else trusted | {owner}
    return [root for root in repositories if root == innermost or is_owned_by(files, owners, root, below(root, ".git"))]


def no_repository(path: str, problem: str, *hints: str) -> NotFound:
    return NotFound(f"{path} {problem}", code="no-repository", hints=list(hints), fields={"path": path})


def find_target(files: LocalFiles, roots: Sequence[str], declared: str, kind: str) -> str | None:
    """The real path of the first match below each root, innermost first; None if nothing exists there.

    A path that leaves every root is returned as it is, for the caller to refuse.
    """
    outside = None
    for root in roots:
        real = files.real(declared if declared.startswith("/") else f"{root}/{declared}")
        if not inside(real, roots[-1]):
            outside = outside or real
        elif files.kind(real) == kind:
            return real
    return outside


def _submodule_roots(files: LocalFiles, directory: str, diagnostics: list[Diagnostic]) -> list[str]:
    path = below(directory, ".gitmodules")
    try:
        kind = files.kind(path)
        if kind in (MISSING, DIRECTORY):
            return []
        if kind == LINK:
            diagnostics.append(diagnostic("unsafe-submodule-path", path, f"{path} is a symlink, which git refuses too"))
            return []
        data = files.read(path, documents.MAX_BYTES)
        documents.check_size(len(data or b""), path)
        text = documents.decode(data or b"", path)
    except CliaError as err:
        code = "unreadable" if isinstance(err, FileError) else "invalid-gitmodules"
        diagnostics.append(diagnostic(code, path, err.message))
        return []
    paths, refused = submodule_paths(text, path)
    diagnostics.extend(refused)
    return [below(directory, path) for path in paths]


# An item of git's configuration files: a section header, a variable with or without a value, a comment, or something else.
_ITEM = re.compile(
    r"""\s*+(?:
      \[(?P<section>[A-Za-z0-9.-]++)(?:[ \t\r\f\v]+"(?P<name>(?:[^"\\\n]++|\\[^\n])*+)")?\]
    | (?P<key>[A-Za-z][A-Za-z0-9-]*+)[ \t]*+(?:
        =(?P<value>(?:[^"\\\#;\n]++|\\["\\ntb\n]|"(?:[^"\\\n]++|\\["\\ntb\n])*+")*+)(?=[\#;\n]|\Z)
      | (?=\n|\Z)
      )
    | [#;][^\n]*+
    | \Z
    | (?P<invalid>.)
    )""",
    re.VERBOSE,
)
# Paths that do not match need no normalization; most do not.
_SUSPICIOUS = re.compile(r"\A(?:[-/]|\Z)|/\Z|//|(?:\A|/)\.|\.git|[\\:\0]", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


def submodule_paths(text: str, path: str) -> tuple[list[str], list[Diagnostic]]:
    """Relative submodule paths, sorted, each once, and a diagnostic for each refused one."""
    text = text.replace("\r\n", "\n")
    declared: dict[str, str] = {}  # the last of several paths wins, as in git
    name: str | None = None
    for item in _ITEM.finditer(text):
        section, quoted, key, value, invalid = item.groups()
        if section is not None:
            name = quoted if section.lower() == "submodule" else None
            if name is not None and "\\" in name:
                name = _ESCAPED.sub(r"\1", name)
        elif value is not None:
            if name is not None and key.lower() == "path":
                declared[name] = _unquoted(value)
        elif invalid is not None:
            line = text.count("\n", 0, item.start("invalid")) + 1
            return [], [diagnostic("invalid-gitmodules", path, f"{path}: line {line} is not git configuration")]
    normalized = {name: _normalized(value) for name, value in declared.items()}
    refused = [
        diagnostic("unsafe-submodule-path", path, f"submodule {name!r}: path {declared[name]!r} is unsafe")
        for name in sorted(name for name, clean in normalized.items() if clean is None)
    ]
    return sorted({clean for clean in normalized.values() if clean is not None}), refused


def _unquoted(value: str) -> str:
    """A value without its quotes, escapes, continued lines and the unquoted blanks at its ends."""
    if '"' not in value and "\\" not in value:
        return value.strip()
    joined = _ESCAPED.sub(lambda escape: "" if escape[1] == "\n" else escape[0], value)
    trimmed = re.sub(r'\A(?:\s|"")+', "", joined).rstrip()
    return re.sub(r'\\(.)|"', lambda mark: _ESCAPES.get(mark[1], mark[1]) if mark[1] else "", trimmed)


def _normalized(path: str) -> str | None:
    if not _SUSPICIOUS.search(path):
        return path
    if not path or path.startswith(("/", "-")) or "\0" in path or re.match(r"[A-Za-z]:|\\", path):
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or any(part == ".." or part.lower() == ".git" for part in parts):
        return None
    return "/".join(parts)
