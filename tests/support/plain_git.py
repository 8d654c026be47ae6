"""Commits, refs and objects written by stock git, behind the library's back."""

from __future__ import annotations

import subprocess
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from clia.git import ref_files
from support import git
from support.session_spaces import root_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    import clia

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def rev(repo: Path, name: str) -> str:
    return git("rev-parse", name, cwd=repo).strip()


def commit_file(repo: Path, path: str, text: str, message: str = "") -> str:
    """Commit a file on the branch that is checked out, and return the commit's id."""
    (repo / path).write_text(text)
    git("add", path, cwd=repo)
    git("commit", "-qm", message or f"{path}: {text.strip()}", cwd=repo)
    return rev(repo, "HEAD")


def git_with_input(repo: Path, stdin: str | bytes, *words: str) -> str:
    """Run git with this standard input, and return its output."""
    command = ["git", "-c", "user.name=Tess", "-c", "user.email=tess@example.org", *words]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(command, cwd=repo, input=data, capture_output=True, check=True).stdout.decode().strip()


def commit_tree(repo: Path, message: str, *parents: str, tree: str = EMPTY_TREE) -> str:
    """Write a commit object that no ref points to."""
    git_with_input(repo, "", "hash-object", "-t", "tree", "-w", "--stdin")
    options = [word for parent in parents for word in ("-p", parent)]
    return git_with_input(repo, message, "commit-tree", tree, *options, "-F", "-")


def fast_import(repo: Path, ref: str, files: dict[bytes, bytes], parent: str | None = None) -> None:
    """Point a ref at a new commit with these files; a path may be any bytes."""
    lines = [b"commit " + ref.encode(), b"committer Tess <tess@example.org> 1790000000 +0000", b"data 5", b"made\n"]
    lines += [b"from " + parent.encode()] if parent else []
    for path, data in files.items():
        lines += [b"M 100644 inline " + path, b"data %d" % len(data), data]
    git_with_input(repo, b"\n".join(lines) + b"\n", "fast-import", "--quiet", "--force")


def all_recorded_bytes(repo: Path) -> bytes:
    """The content of every blob and commit, unpacked, and of the store's files."""
    listing = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", "--unordered", cwd=repo)
    ids = [line.split()[0] for line in listing.splitlines() if line.endswith(("blob", "commit"))]
    command = ["git", "cat-file", "--batch"]
    batch = subprocess.run(command, cwd=repo, input="\n".join(ids).encode(), capture_output=True, check=True).stdout
    return batch + b"".join(file.read_bytes() for file in sorted((repo / ".git/clia").glob("space.db*")))


def git_in(space: clia.Space, *words: str) -> str:
    """Run git in the repository of a space, and return its output."""
    return git(*words, cwd=root_of(space)).strip()


def trust_new_packed_refs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a ``packed-refs`` file as old at once, so that a scan of it is trusted."""
    monkeypatch.setattr(ref_files, "time", SimpleNamespace(**vars(time) | {"time_ns": lambda: time.time_ns() + 10**10}))
