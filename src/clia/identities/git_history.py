"""A repository's past, asked of the stock ``git`` command.

Invariant: asking changes nothing and runs nothing but git itself: no hook, pager, signature check, external diff or file
monitor that a repository's configuration names, no fetch, no lock, and no ``GIT_*`` variable of the caller. A root that
git does not take for a repository of its own has no past, also where a repository around it has one.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess

from clia.identities.history_interface import RemovedDocument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
        # A partial clone would fetch what it lacks, by a program that its own configuration may name. Older git does not
        # know GIT_NO_LAZY_FETCH; no protocol being allowed, not even a configured one, stops it in every version.
        self._environment.update(GIT_NO_LAZY_FETCH="1", GIT_ALLOW_PROTOCOL="none", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
        self._known: dict[str, tuple[bool, str] | None] = {}

    def removed_documents(self, root: str) -> list[RemovedDocument] | None:
        if self._facts(root) is None:
            return None
        if self._run(root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
            return []  # nothing was ever committed
        # The working tree is looked at by us: git would run the filters that a configuration names on what it compares.
        tracked = self._run(root, "ls-files", "--stage", "-z", "--", _DOCUMENTS)
        staged = self._run(root, "diff-index", "--cached", *_DIFF, "HEAD", "--", _DOCUMENTS)
        past = self._run(root, *_LOG, *_DIFF, "HEAD", "--", _DOCUMENTS)
        if tracked is None or staged is None or past is None:
            return None
        last: dict[str, str] = {}
        for path, content in [*_deleted(root, tracked), *_removals(staged), *_removals(past)]:
            last.setdefault(path, content)  # newest first
        return sorted(RemovedDocument(path, content) for path, content in last.items())

    def is_shallow(self, root: str) -> bool:
        facts = self._facts(root)
        return facts is not None and facts[0]

    def content_id(self, root: str, data: bytes) -> str:
        facts = self._facts(root)
        name = facts[1] if facts else "sha1"
        return hashlib.new(name, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def version(self) -> str | None:
        """The version of git, or None where there is none."""
        out = self._run(os.sep, "version")
        return None if out is None else out.decode().strip().removeprefix("git version ")

    def _facts(self, root: str) -> tuple[bool, str] | None:
        """Whether the repository is shallow, and its hash; None where ``root`` is no repository to git."""
        if root not in self._known:
            out = self._run(root, "rev-parse", "--show-toplevel", "--is-shallow-repository", "--show-object-format")
            lines = [] if out is None else os.fsdecode(out).rsplit("\n", 3)
            same = len(lines) == 4 and os.path.realpath(lines[0]) == os.path.realpath(root)
            self._known[root] = (lines[1] == "true", lines[2]) if same else None
        return self._known[root]

    def _run(self, root: str, *words: str) -> bytes | None:
        """What git prints; None where it refuses, or cannot be run at all."""
        try:
            done = subprocess.run(
                ["git", *_QUIET, *words],
                cwd=root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None


def _deleted(root: str, tracked: bytes) -> Iterator[tuple[str, str]]:
    """(path, last content) of each document that git still tracks and that is gone from the working tree."""
    for item in tracked.split(b"\0")[:-1]:
        about, _, name = item.partition(b"\t")
        path = os.fsdecode(name)
        if _DOCUMENT.fullmatch(path) and not os.path.lexists(os.path.join(root, path)):
            yield path, about.split(b" ")[1].decode("ascii")


def _removals(raw: bytes) -> Iterator[tuple[str, str]]:
    """(path, last content) of each document that went, newest first.

    A document of the same agent and kind that came up elsewhere in the same change with the same content is that
    document: its directory moved, and nothing was removed.
    """
    for change in _changes(raw):
        came = {(match.groups(), content) for status, match, content in change if status == "A"}
        for status, match, content in change:
            if status == "D" and (match.groups(), content) not in came:
                yield match.string, content


def _changes(raw: bytes) -> Iterator[list[tuple[str, re.Match[str], str]]]:
    """(status, path, content) of each document, change by change.

    Raw output with -z has a heading for each commit and parent, then ``:modes ids status`` and the path in turns.
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
