"""A git repository with a porcelain, for the tests of ``clia.git``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.git.porcelain import GitPorcelain
from support import git

if TYPE_CHECKING:
    from pathlib import Path

UNUSUAL_NAMES = [
    "with space",
    'quo"te',
    "new\nline",
    "tab\there",
    "back\\slash",
    "é",
    "*",
    ":colon",
    "-dash",
    "bell\a\x01",
    "not-utf8-\udcff",
]
MISSING = "0123456789012345678901234567890123456789"


class BenchRepository(NamedTuple):
    """A repository with one commit, and a porcelain on it."""

    root: Path
    home: Path
    git_dir: Path
    bench: GitPorcelain

    def commit(self, message: str = "more", **files: str) -> str:
        for name, text in files.items():
            self.write(name.replace("__", "/"), text)
        git("add", "-A", cwd=self.root)
        git("commit", "-q", "--allow-empty", "-m", message, cwd=self.root)
        return self.head()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def head(self, name: str = "HEAD") -> str:
        return git("rev-parse", name, cwd=self.root).strip()

    def config(self, text: str) -> None:
        """Write the user's ``~/.gitconfig``."""
        (self.home / ".gitconfig").write_text(text)


def open_bench(path: Path, home: Path, **more: str) -> GitPorcelain:
    handle = GitHandle(str(path), durable=False)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **more}
    return GitPorcelain(handle, GitCommand(handle.common_dir, environment, durable=False))


def state(root: Path) -> tuple[object, ...]:
    """The state of a worktree, including the bytes of the index."""
    files = {
        str(path.relative_to(root)): (path.lstat().st_mtime_ns, b"" if path.is_symlink() or path.is_dir() else path.read_bytes())
        for path in sorted(root.rglob("*"))
        if ".git" not in path.relative_to(root).parts
    }
    own = root / ".git"
    return (own / "index").read_bytes(), (own / "HEAD").read_bytes(), (own / "logs/HEAD").read_bytes(), files
