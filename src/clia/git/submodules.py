"""Submodules of agents' worktrees.

Each worktree has its own clones of the submodules. They are cloned from the repository's copies (``.git/modules``), without
network; only commits that these copies lack are fetched from the submodule's server. Invariant: the user's repository and its
configuration stay as they are, and no program other than git and its transports runs (``ext::`` is never allowed). A submodule that
cannot be cloned is reported and left empty.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.git import worktree_links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.git.command import GitCommand

_LOCAL = {"GIT_ALLOW_PROTOCOL": "file"}
_REMOTE = {"GIT_ALLOW_PROTOCOL": "git:http:https:ssh"}
_CLONE = ("clone", "--quiet", "--no-checkout", "--template=", "--no-recurse-submodules", "--separate-git-dir")
_GITLINK = "160000"


class _WorktreeSubmodule(NamedTuple):
    """A submodule of a worktree; ``place`` is its directory, and ``git_dir`` where its repository is or will be."""

    name: str
    path: str
    commit: str
    url: str
    place: str
    git_dir: str


class Submodules:
    """The submodules of the worktree at ``top``. ``sources``: git directories of repositories that have the same submodules."""

    def __init__(self, command: GitCommand, top: str, git_dir: str, sources: list[str], user_top: str | None) -> None:
        self._command = command
        self._top = top
        self._git_dir = git_dir
        self._sources = sources
        self._user_top = user_top

    def update(self, last: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Check out missing submodules, and update those that are still at their last commit (``last``, by path).

        Returns the commit of each submodule that is checked out, and warnings.
        """
        commits, warnings = {}, []
        for module in self._listed():
            problem = self._update(module, last.get(module.path))
            if problem is None:
                commits[module.path] = self._head(module.place)
                sources = [os.path.join(source, "modules", module.name) for source in self._sources]
                user = os.path.join(self._user_top, module.path) if self._user_top is not None else None
                inner = Submodules(self._command, module.place, module.git_dir, sources, user)
                warnings += inner.update({})[1]
            else:
                warnings.append(f"submodule {module.path} is not checked out: {problem}")
        return commits, warnings

    def keep(self, agent: str) -> None:
        """Keep the commits of submodules in the repository's copies, so that they outlive the worktree."""
        for module in self._listed():
            for source in self._sources:
                copy = os.path.join(source, "modules", module.name)
                if os.path.isdir(copy) and os.path.lexists(os.path.join(module.place, ".git")):
                    rule = f"+HEAD:refs/clia/own/{agent}"
                    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", module.git_dir, rule)
                    self._command.attempt("--git-dir", copy, *words, cwd=copy, variables=_LOCAL)

    def _listed(self) -> Iterator[_WorktreeSubmodule]:
        """The submodules that ``.gitmodules`` and the index name. Unsafe names and paths are left out, as git refuses them."""
        if not os.path.isfile(os.path.join(self._top, ".gitmodules")):
            return
        words = ("config", "--file", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.(path|url)$")
        values: dict[str, dict[str, str]] = {}
        for item in self._command.attempt(*words, cwd=self._top).out.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            key, _, value = item.partition("\n")
            name, _, field = key.removeprefix("submodule.").rpartition(".")
            values.setdefault(name, {})[field] = value
        names = {fields["path"]: name for name, fields in values.items() if "path" in fields}
        for line in os.fsdecode(self._command.attempt("ls-files", "-s", "-t", "-z", cwd=self._top).out).split("\0")[:-1]:
            facts, _, path = line.partition("\t")
            tag, mode, commit = facts.split(" ")[:3]
            name = names.get(path, "")
            place = os.path.join(self._top, path)
            unsafe = ".." in name.split("/") or os.path.realpath(place) != os.path.join(os.path.realpath(self._top), path)
            if mode == _GITLINK and tag != "S" and name and not unsafe:
                git_dir = os.path.join(self._git_dir, "modules", name)
                yield _WorktreeSubmodule(name, path, commit, values[name].get("url", ""), place, git_dir)

    def _update(self, module: _WorktreeSubmodule, last: str | None) -> str | None:
        """Check out a submodule; return why it is not possible."""
        if not os.path.lexists(os.path.join(module.place, ".git")):
            problem = self._clone(module)
            if problem is not None:
                return problem
        elif self._head(module.place) != last:
            return None  # the agent works on it
        if not self._has(module):
            for remote in (*self._copies(module), "origin"):
                words = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", remote, module.commit)
                self._command.attempt(*words, cwd=module.place, variables=_REMOTE if remote == "origin" else _LOCAL)
        result = self._command.attempt("checkout", "--quiet", "--detach", module.commit, "--", cwd=module.place)
        return None if not result.code else result.err or f"git checkout ends with {result.code}"

    def _clone(self, module: _WorktreeSubmodule) -> str | None:
        """Clone a submodule without checking it out; return why it is not possible."""
        if os.path.isdir(module.place) and os.listdir(module.place):
            return f"{module.place} is not empty"
        if not os.path.isdir(module.git_dir):
            os.makedirs(os.path.dirname(module.git_dir), exist_ok=True)
            problem = self._clone_from(module, module.url, _REMOTE) if not self._clone_copy(module) else ""
            if problem:
                return problem
        worktree_links.link(module.place, module.git_dir)
        return None

    def _clone_copy(self, module: _WorktreeSubmodule) -> bool:
        """Clone one of the repository's copies of a submodule, with the copy's address; return whether there is one."""
        for copy in self._copies(module):
            if not self._clone_from(module, copy, _LOCAL):
                url = self._command.attempt("--git-dir", copy, "config", "remote.origin.url", cwd=copy).out
                address = url.decode("utf-8", "surrogateescape").strip() or module.url
                self._command.attempt("config", "remote.origin.url", address, cwd=module.place)
                return True
        return False

    def _clone_from(self, module: _WorktreeSubmodule, address: str, protocols: Mapping[str, str]) -> str:
        """Clone a submodule; return git's message if that fails."""
        result = self._command.attempt(*_CLONE, module.git_dir, "--", address, module.place, cwd=self._top, variables=protocols)
        return result.err or f"git clone ends with {result.code}" if result.code else ""

    def _copies(self, module: _WorktreeSubmodule) -> list[str]:
        """The repository's copies of a submodule, the user's first."""
        places = [os.path.join(source, "modules", module.name) for source in self._sources]
        places += [os.path.join(self._user_top, module.path, ".git")] if self._user_top is not None else []
        return [place for place in places if os.path.isdir(place)]

    def _has(self, module: _WorktreeSubmodule) -> bool:
        return not self._command.attempt("cat-file", "-e", f"{module.commit}^{{commit}}", cwd=module.place).code

    def _head(self, place: str) -> str:
        return self._command.attempt("rev-parse", "--verify", "--quiet", "HEAD", cwd=place).out.decode("ascii").strip()
