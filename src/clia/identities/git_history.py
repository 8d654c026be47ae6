"""Removed documents in a repository's git history, and the check that each of them is archived.

Invariant: the queries run git alone, read-only: no hook, pager, signature check, external diff or file monitor from the
repository's configuration, no fetch, no lock, and no ``GIT_*`` variable of the caller. A removal is accepted only if the
directory has a document of that kind again, or a file with the same content is under a ``legacy-imports/`` of the tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import CliaError
from clia.files import DIRECTORY, FILE, DirectoryEntry, LocalFiles
from clia.identities.contexts import AGENTS, ARCHIVE, ROOT, candidates, kind_of
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.roster import IdentityTree, domains_below, is_reserved
from clia.identities.working_path import WorkingPath, below, inside
from clia.values import documents
from clia.values.slugs import is_slug

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


class RemovedDocument(NamedTuple):
    """An identity document that was removed by a commit or in the working tree."""

    path: str  # relative to the repository root
    content: str  # id of its last content, as ``History.content_id`` gives it


_DOCUMENTS = ":(glob)**/.clia/agents/*/*.json"
_DOCUMENT = re.compile(r"(?:.*/)?\.clia/agents/([^/]+)/[^/]+\.(agent|agenda|agency)(?:\.triad)?\.json", re.DOTALL)
_QUIET = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_DIFF = ("-r", "--raw", "-z", "--no-abbrev", "--no-renames", "--diff-filter=AD", "--no-ext-diff", "-O", os.devnull)
_LOG = (
    "log", "--topo-order", "--full-history", "-m", "--format=%H", "--no-decorate", "--no-show-signature", "--no-notes",
    "--no-follow",
)  # fmt: skip


class GitHistory:
    """``History`` through the ``git`` on the caller's path."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {key: value for key, value in environment.items() if not key.startswith("GIT_")}
        # A partial clone would fetch missing objects with a program that its configuration names. Older versions of git
        # ignore GIT_NO_LAZY_FETCH; allowing no protocol stops every version.
        self._environment.update(GIT_NO_LAZY_FETCH="1", GIT_ALLOW_PROTOCOL="none", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
        self._known: dict[str, tuple[bool, str] | None] = {}

    def removed_documents(self, root: str) -> list[RemovedDocument] | None:
        """Every removed document, sorted; None if ``root`` has no readable history."""
        if self._facts(root) is None:
            return None
        if self._run(root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
            return []  # no commits yet
        # Compare the working tree here: git would run the filters that the configuration names.
        tracked = self._run(root, "ls-files", "--stage", "-z", "--", _DOCUMENTS)
        staged = self._run(root, "diff-index", "--cached", *_DIFF, "HEAD", "--", _DOCUMENTS)
        log = self._run(root, *_LOG, *_DIFF, "HEAD", "--", _DOCUMENTS)
        if tracked is None or staged is None or log is None:
            return None
        last: dict[str, str] = {}
        for path, content in [*_deleted(root, tracked), *_removals(staged), *_removals(log)]:
            last.setdefault(path, content)  # newest first
        return sorted(RemovedDocument(path, content) for path, content in last.items())

    def is_shallow(self, root: str) -> bool:
        """Whether history is cut off, so that removals may be missed."""
        facts = self._facts(root)
        return facts is not None and facts[0]

    def content_id(self, root: str, data: bytes) -> str:
        """The id that this repository gives to a file's content."""
        facts = self._facts(root)
        name = facts[1] if facts else "sha1"
        return hashlib.new(name, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def version(self) -> str | None:
        """The version of git; None if it is not installed."""
        out = self._run(os.sep, "version")
        return None if out is None else out.decode().strip().removeprefix("git version ")

    def _facts(self, root: str) -> tuple[bool, str] | None:
        """Whether the repository is shallow, and its hash algorithm; None if ``root`` is not the root of a repository."""
        if root not in self._known:
            out = self._run(root, "rev-parse", "--show-toplevel", "--is-shallow-repository", "--show-object-format")
            lines = [] if out is None else os.fsdecode(out).rsplit("\n", 3)
            same = len(lines) == 4 and os.path.realpath(lines[0]) == os.path.realpath(root)
            self._known[root] = (lines[1] == "true", lines[2]) if same else None
        return self._known[root]

    def _run(self, root: str, *words: str) -> bytes | None:
        """The output of git; None if it fails or cannot be run."""
        try:
            process = subprocess.run(
                ["git", *_QUIET, *words],
                cwd=root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError:
            return None
        return process.stdout if process.returncode == 0 else None


def _deleted(root: str, tracked: bytes) -> Iterator[tuple[str, str]]:
    """(path, last content) of each tracked document that is missing in the working tree."""
    for item in tracked.split(b"\0")[:-1]:
        about, _, name = item.partition(b"\t")
        path = os.fsdecode(name)
        if _DOCUMENT.fullmatch(path) and not os.path.lexists(os.path.join(root, path)):
            yield path, about.split(b" ")[1].decode("ascii")


def _removals(raw: bytes) -> Iterator[tuple[str, str]]:
    """(path, last content) of each removed document, newest first.

    A document that reappears in the same change with the same slug, kind and content was moved, not removed.
    """
    for change in _changes(raw):
        additions = {(match.groups(), content) for status, match, content in change if status == "A"}
        for status, match, content in change:
            if status == "D" and (match.groups(), content) not in additions:
                yield match.string, content


def _changes(raw: bytes) -> Iterator[list[tuple[str, re.Match[str], str]]]:
    """(status, path, content) of each document, by change.

    Raw output with -z has a header per commit and parent, then ``:modes ids status`` and the path alternately.
    """
    change: list[tuple[str, re.Match[str], str]] = []
    parts = iter(raw.split(b"\0"))
    for part in parts:
        text = part.lstrip(b"\n")
        if text.startswith(b":"):
            _, _, before, after, status = text.decode("ascii").split(" ")
            path = _DOCUMENT.fullmatch(os.fsdecode(next(parts)))
            if path is not None:
                change.append((status, path, before if status == "D" else after))
        else:
            yield change
            change = []
    yield change


def removal_findings(
    files: LocalFiles, history: GitHistory, tree: IdentityTree, slugs: Collection[str] = ()
) -> Iterator[Diagnostic]:
    """Findings for every repository of a tree, limited to ``slugs`` if any are given."""
    if not tree.repositories:
        yield diagnostic("history-unavailable", tree.top.path, f"{tree.top.path} is not inside a repository")
    for root in tree.repositories:
        removed = history.removed_documents(root)
        if removed is None:
            yield diagnostic("history-unavailable", root, f"the git history of {root} cannot be read")
            continue
        if history.is_shallow(root):
            yield diagnostic("history-shallow", root, f"{root} is a shallow clone")
        lost = [document for document in removed if _is_removed(files, tree.top, root, document, slugs)]
        archived = _archived_content(files, history, tree.top, root) if lost else frozenset()
        for document in lost:
            if document.content not in archived:
                path = f"{root}/{document.path}"
                message = f"{path} was removed, and its last content is not in any {ARCHIVE}/"
                yield diagnostic("removed-without-archive", path, message)


def _is_removed(files: LocalFiles, top: WorkingPath, root: str, document: RemovedDocument, slugs: Collection[str]) -> bool:
    """Whether a removed document is in scope and has not been replaced by another of its kind."""
    home, _, name = f"{root}/{document.path}".rpartition("/")
    domain, _, slug = home.rpartition(f"/{AGENTS}/")
    kind = kind_of(name)
    if kind is None or not is_slug(slug) or (slugs and slug not in slugs) or (is_reserved(slug) and slug != ROOT):
        return False
    if not inside(domain, top.path) and domain not in top.ancestors:
        return False
    try:
        return not candidates(files.entries(home) or (), kind)[0]
    except CliaError:
        return False  # unreadable, which is reported separately


def _archived_content(files: LocalFiles, history: GitHistory, top: WorkingPath, root: str) -> frozenset[str]:
    """Content ids of every archived file of the tree, with and without converted line endings."""
    base = top.repositories[-1] if top.repositories else top.path
    ids: set[str] = set()
    for domain in domains_below(files, base):
        agents = below(domain, AGENTS)
        for agent in _readable_entries(files, agents):
            for data in _contents_below(files, f"{agents}/{agent.name}/{ARCHIVE}"):
                ids.update((history.content_id(root, data), history.content_id(root, data.replace(b"\r\n", b"\n"))))
    return frozenset(ids)


def _contents_below(files: LocalFiles, directory: str) -> Iterator[bytes]:
    """The content of every file below a directory."""
    waiting = [directory]
    while waiting:
        current = waiting.pop()
        for name, kind in _readable_entries(files, current):
            if kind == DIRECTORY:
                waiting.append(f"{current}/{name}")
            elif kind == FILE:
                with suppress(CliaError):  # unreadable files do not count
                    yield files.read(f"{current}/{name}", documents.MAX_BYTES) or b""


def _readable_entries(files: LocalFiles, directory: str) -> Sequence[DirectoryEntry]:
    with suppress(CliaError):
        return files.entries(directory) or ()
    return ()
