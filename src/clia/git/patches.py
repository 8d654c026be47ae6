"""Who wrote what, and what changed, through git's plumbing.

Invariant: what comes out depends on the objects alone, not on how a person likes to see diffs; any path and any bytes
come through.
"""

from __future__ import annotations

import os
import re

from clia.errors import NotFound
from clia.git.command import GitPart
from clia.git.workbench_records import FileChange, LineOrigin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_PLAIN = (
    "--literal-pathspecs",
    *("-c", f"core.attributesFile={os.devnull}", "-c", "diff.algorithm=default", "-c", "diff.renameLimit=1000"),
    *(
        "-c",
        "diff.suppressBlankEmpty=false",
        "-c",
        "diff.orderFile=",
        "-c",
        "diff.noprefix=false",
        "-c",
        "diff.mnemonicPrefix=false",
    ),
)
_DIFF = (
    *_PLAIN,
    *("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--submodule=short"),
    *("--diff-algorithm=default", "--indent-heuristic", "--src-prefix=a/", "--dst-prefix=b/", "--no-relative"),
)
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_AT_ONCE = 1000  # commits whose patches are in memory together


class GitReview(GitPart):
    """The calls of ``Workbench`` that read history."""

    def blame(self, commit: str, path: str) -> list[LineOrigin]:
        # The option forgets the lists of the configuration; the setting, emptied, does not: git sorts it to the front.
        words = (*_PLAIN, "blame", "--porcelain", "--no-textconv", "--ignore-revs-file=", commit, "--", path)
        # At the worktree's top: a list of revisions to ignore may be named relative to it, and git must find it.
        done = self._command.attempt(*words, cwd=self._handle.work_dir)
        if done.code and "no such path" in done.err:
            raise NotFound(f"there is no file {path!r} in {commit}", code="no-such-path", fields={"path": path, "commit": commit})
        if done.code:
            raise done.failure(*words)
        return list(_origins(done.out))

    def patch(self, old: str | None, new: str, paths: Sequence[str] = ()) -> bytes:
        return self._command.run(*_DIFF, "-p", "-M", old or _EMPTY_TREE, new, "--", *paths)

    def changes(self, old: str | None, new: str, paths: Sequence[str] = ()) -> list[FileChange]:
        out = self._command.run(*_DIFF, "-z", "-M", "--raw", "--numstat", old or _EMPTY_TREE, new, "--", *paths)
        return _changes(iter([os.fsdecode(each) for each in out.split(b"\0")[:-1]]))

    def patch_ids(self, commits: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(commits), _AT_ONCE):
            ids = "".join(f"{each}\n" for each in commits[start : start + _AT_ONCE]).encode("ascii")
            # A merge has no patch of its own: without -m or -c git shows none.
            patches = self._command.run(*_DIFF, "--stdin", "--root", "-p", "--no-renames", data=ids)
            lines = self._command.run("patch-id", "--stable", data=patches).decode("ascii").splitlines()
            found |= {commit: patch for patch, commit in (line.split() for line in lines)}
        return found


def _origins(out: bytes) -> Iterator[LineOrigin]:
    """Reads `git blame --porcelain`: facts on a commit stand where it first comes up, and its path again when that differs."""
    paths: dict[str, str] = {}
    commit, number = "", 0
    at_start = True
    for line in out.split(b"\n")[:-1]:
        if at_start:
            words = line.decode("ascii").split()
            commit, number = words[0], int(words[1])
            at_start = False
        elif line.startswith(b"\t"):
            yield LineOrigin(commit, number, paths[commit], line[1:].decode("utf-8", "replace"))
            at_start = True
        elif line.startswith(b"filename "):
            paths[commit] = os.fsdecode(_unquoted(line.removeprefix(b"filename ")))


def _unquoted(name: bytes) -> bytes:
    """A path as git writes it where it cannot end it with NUL: in quotes and with escapes where it has odd characters."""
    if not name.startswith(b'"'):
        return name
    return _ESCAPED.sub(_unescaped, name[1:-1])


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else _ESCAPES.get(code, code)


def _changes(parts: Iterator[str]) -> list[FileChange]:
    """Reads `--raw --numstat -z`: first what happened to each path, then how many lines."""
    happened: list[tuple[str, str, str | None]] = []
    counts: dict[str, tuple[int | None, int | None]] = {}
    for part in parts:
        if part.startswith(":"):
            status = part.rpartition(" ")[2][0]
            first = next(parts)
            happened.append((status, next(parts), first) if status in "RC" else (status, first, None))
            continue
        added, removed, path = part.split("\t", 2)
        if not path:  # a rename: old and new path follow
            next(parts)
            path = next(parts)
        counts[path] = (_count(added), _count(removed))
    return [FileChange(status, path, old, *counts.get(path, (None, None))) for status, path, old in happened]


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)
