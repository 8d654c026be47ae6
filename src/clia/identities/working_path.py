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

    from clia.identities.agent_places import FrozenProfile


class WorkingPath(NamedTuple):
    """A surveyed working path, shared by every identity that is resolved from it."""

    path: str
    ancestors: tuple[str, ...]  # outermost first, the path itself last
    repositories: tuple[str, ...]  # ancestors with a `.git`
    submodules: frozenset[str]  # ancestors that an outer `.gitmodules` declares
    siblings: tuple[str, ...]  # declared submodules that do not contain the path
    trusted: frozenset[int] | None  # owners trusted outside repositories; None: everyone
    diagnostics: tuple[Diagnostic, ...]
    local: WorktreeLayer | None = None  # the path is in a linked worktree that is read as if it were elsewhere
    agents_dir: str | None = None  # a directory of identities that an operator named; it is the innermost one

    def rank(self, directory: str) -> int:
        """The position of a directory among the ancestors, outermost first; its depth if it is none of them."""
        top = self.ancestors[0]
        return self.ancestors.index(directory) + depth(top) if directory in self.ancestors else depth(directory)

    def copy_of(self, directory: str) -> str | None:
        """The copy of a directory of the main worktree in the worktree that the path is in."""
        if self.local is None or self.local.main is None or not inside(directory, self.local.main):
            return None
        return self.local.top + directory.removeprefix(self.local.main)

    def roots_above(self, files: LocalFiles, directory: str) -> list[str]:
        """The repositories that enclose a directory, innermost first. Those around the main worktree also enclose its copies."""
        if self.local is None or not inside(directory, self.local.top):
            return repositories_above(files, directory, self.trusted)
        nested = [root for root in repositories_above(files, directory, self.trusted) if inside(root, self.local.top)]
        return nested + [root for root in reversed(self.repositories) if not inside(root, self.local.top)]


class WorktreeLayer(NamedTuple):
    """A linked worktree whose documents are the innermost layer above those of the main worktree."""

    top: str  # the worktree
    main: str | None  # the main worktree of its repository; None: the repository is bare, or does not count
    frozen: FrozenProfile | None = None  # the record of the agent that works in it


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
        link = git_directory_of(files, directory)
    except FileError:
        return name
    if link is None or link.common is None:
        return name
    parent, _, last = link.common.rpartition("/")
    if last == ".git":  # of a repository with a worktree
        return parent.rpartition("/")[2] or "root"
    return last.removesuffix(".git") or name  # a bare repository, or a submodule's git directory


_MAX_LINK = 8192


class GitDirectory(NamedTuple):
    """What a ``.git`` file names."""

    directory: str
    common: str | None  # the git directory of the repository that a linked worktree belongs to; None: a submodule


def git_directory_of(files: LocalFiles, top: str) -> GitDirectory | None:
    """The git directory that the ``.git`` file of a directory names; None if it has no such file."""
    path = below(top, ".git")
    if files.kind(path) != FILE:
        return None
    link = (files.read(path, _MAX_LINK) or b"").decode("utf-8", "surrogateescape").strip()
    if not link.startswith("gitdir:"):
        return None
    directory = files.real(_joined(top, link.removeprefix("gitdir:").strip()))
    common = files.read(f"{directory}/commondir", _MAX_LINK)
    if common is None:
        return GitDirectory(directory, None)
    return GitDirectory(directory, files.real(_joined(directory, common.decode("utf-8", "surrogateescape").strip())))


def _joined(directory: str, path: str) -> str:
    return path if path.startswith("/") else below(directory, path)


AGENT_FILE = "clia.json"
"""The file in the git directory of an agent's worktree that names the agent: ``clia.git.worktree_links.RECORD``."""
_MAX_FILE = 1024 * 1024


class LinkedWorktree(NamedTuple):
    """A linked worktree, and the agent that works in it."""

    top: str
    common: str  # the git directory of its repository
    agent: str | None  # None: it is a person's

    def main(self, files: LocalFiles) -> str | None:
        """The main worktree of the repository; None if the repository is bare."""
        return main_worktree(files, self.common)


def main_worktree(files: LocalFiles, common: str) -> str | None:
    """The main worktree of the repository with this git directory; None if it is bare or away."""
    if common.rpartition("/")[2] == ".git":
        return common.rpartition("/")[0] or "/"
    for name in ("config.worktree", "config"):  # a submodule's git directory names its worktree
        text = (files.read(below(common, name), _MAX_FILE) or b"").decode("utf-8", "surrogateescape")
        declared = config_value(text, "core", "worktree")
        if declared:
            top = files.real(declared if declared.startswith("/") else below(common, declared))
            return top if files.kind(top) == DIRECTORY else None
    return None


def linked_worktree(files: LocalFiles, path: str) -> LinkedWorktree | None:
    """The innermost agent's worktree that contains a real path; else the innermost linked worktree of a person."""
    persons: LinkedWorktree | None = None
    for top in parents(path):
        try:
            link = git_directory_of(files, top)
            if link is None or link.common is None:
                continue
            agent = _agent_in(files, link.directory)
        except FileError:
            continue
        if agent is not None:
            return LinkedWorktree(top, link.common, agent)
        persons = persons or LinkedWorktree(top, link.common, None)
    return persons


def _agent_in(files: LocalFiles, git_directory: str) -> str | None:
    """The agent that clia's file in the git directory of a worktree names."""
    data = files.read(below(git_directory, AGENT_FILE), _MAX_FILE)
    import json  # only in linked worktrees

    try:
        agent = json.loads(data or b"{}").get("agent")
    except (ValueError, AttributeError):
        return None
    return agent if isinstance(agent, str) else None


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
        if not any(inside(real, enclosing) for enclosing in roots):
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


def config_value(text: str, wanted_section: str, wanted_key: str) -> str | None:
    """The last value of a key in a section without a name of git's configuration; None if there is none."""
    value = section = None
    for item in _ITEM.finditer(text.replace("\r\n", "\n")):
        if item["section"] is not None:
            section = None if item["name"] is not None else item["section"].lower()
        elif item["value"] is not None and section == wanted_section and item["key"].lower() == wanted_key:
            value = _unquoted(item["value"])
    return value


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
