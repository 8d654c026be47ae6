"""Directory trees for tests, and the installed program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Tree:
    """A directory tree with agents in it, made for one test."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str = "") -> str:
        return str(self.root / name) if name else str(self.root)

    def directory(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def repository(self, name: str = "", *, as_file: bool = False) -> Path:
        """A repository boundary: `.git` as a folder, or as the file that submodules and worktrees have."""
        root = self.directory(name)
        if as_file:
            (root / ".git").write_text("gitdir: ../.git/modules/x\n")
        else:
            (root / ".git").mkdir(exist_ok=True)
        return root

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def document(self, context: str, slug: str, kind: str, content: dict[str, Any] | None = None, name: str | None = None) -> Path:
        """A triad document of an agent in a domain directory; by default, its name follows the convention."""
        directory = self.root / context
        file = name or f"{slug}@{directory.resolve().name}.{kind}.triad.json"
        body = {"slug": slug} if content is None else content
        base = f"{context}/" if context else ""
        return self.write(f"{base}.clia/agents/{slug}/{file}", json.dumps(body, ensure_ascii=False, indent=2) + "\n")

    def agent(self, context: str, slug: str = "scout", **content: Any) -> Path:
        return self.document(context, slug, "agent", {"slug": slug, **content})

    def agenda(self, context: str, slug: str = "scout", **content: Any) -> Path:
        return self.document(context, slug, "agenda", {"slug": slug, **content})

    def agency(self, context: str, slug: str = "scout", **content: Any) -> Path:
        return self.document(context, slug, "agency", {"slug": slug, **content})

    def snapshot(self) -> dict[str, tuple[str, bytes, int]]:
        """Every name below the root with its mode, content and time, which a read must not change."""
        entries: dict[str, tuple[str, bytes, int]] = {}
        for directory, folders, files in os.walk(self.root):
            for name in sorted([*folders, *files]):
                path = Path(directory, name)
                info = path.lstat()
                content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
                entries[str(path.relative_to(self.root))] = (oct(info.st_mode), content, info.st_mtime_ns)
        return entries


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def program(name: str = "clia") -> str:
    """The installed program of the environment the tests run in."""
    return str(Path(sys.executable).parent / name)


def clia(
    *words: str,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    executable: str | None = None,
    data: bytes = b"",
) -> Ran:
    """Run a command as a user would, with the installed program's code, which is loaded already; or another program."""
    if executable is not None:
        return installed(*words, cwd=cwd, env=env, executable=executable)
    from support import warm  # it is in this package

    code, out, err = warm.run(words, cwd=cwd, env=_users(env), data=data)
    return Ran(code, _as_text(out), _as_text(err))


def installed(*words: str, cwd: str | Path | None = None, env: dict[str, str] | None = None, executable: str | None = None) -> Ran:
    """Run the installed program itself, where its start, its name or its location matters."""
    result = subprocess.run([executable or program(), *words], cwd=cwd, env=_users(env), capture_output=True, check=False)
    return Ran(result.returncode, _as_text(result.stdout), _as_text(result.stderr))


def _users(env: dict[str, str] | None) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))}
    person = {"GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "tess@example.org"}
    return inherited | person | {"COLUMNS": "100", "NO_COLOR": "1"} | (env or {})


def _as_text(written: bytes) -> str:
    return written.decode().replace("\r\n", "\n").replace("\r", "\n")  # as pipes opened for text are read


def git(*words: str, cwd: str | Path) -> str:
    """Run stock git without the user's configuration."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment.update(
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_SYSTEM=os.devnull,
        GIT_AUTHOR_NAME="Tess",
        GIT_AUTHOR_EMAIL="tess@example.org",
        GIT_COMMITTER_NAME="Tess",
        GIT_COMMITTER_EMAIL="tess@example.org",
    )
    result = subprocess.run(["git", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=True)
    return result.stdout
