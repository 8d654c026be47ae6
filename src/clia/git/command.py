"""Running stock git.

Invariant: the caller's ``GIT_*`` variables, hooks, pager, prompts and file monitor take no part, whatever the repository's
configuration says; only filters that a command needs for its work (``add`` of a directory) run.
"""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from clia.errors import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.git.handle import GitHandle

# How a person reaches servers is theirs to say; which repository, index or objects are meant is not.
_REACHING = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_PROXY_COMMAND")
_QUIET = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false")


class Done(NamedTuple):
    code: int
    out: bytes
    err: str

    def failure(self, *words: str) -> GitError:
        """What to raise for the git command of these words."""
        verb = _verb(words)
        return GitError(f"git {verb} failed: {self.err or f'exit code {self.code}'}", fields={"command": verb, "reason": self.err})


class GitCommand:
    """Stock git on one repository."""

    def __init__(self, git_dir: str, environment: Mapping[str, str], *, durable: bool = True) -> None:
        self._git_dir = git_dir
        self.given = environment
        self.reaching = {key: environment[key] for key in _REACHING if key in environment}
        self._settings = (*_QUIET, "-c", f"core.fsync={'all' if durable else 'none'}")

    def _environment(self) -> dict[str, str]:
        """What git sees: nothing that would point it to another repository."""
        kept = {key: value for key, value in self.given.items() if not key.startswith("GIT_")}
        return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}

    def whole(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """A command in the repository itself, for whoever runs it in a way of its own; and what it sees of the environment."""
        return ["git", f"--git-dir={self._git_dir}", "--no-optional-locks", *self._settings, *words], self._environment()

    def run(
        self,
        *words: str,
        data: bytes = b"",
        cwd: str | None = None,
        more: Mapping[str, str] | None = None,
        optional_locks: bool = False,
    ) -> bytes:
        """What git prints; ``GitError`` with its complaint where it fails."""
        done = self.attempt(*words, data=data, cwd=cwd, more=more, optional_locks=optional_locks)
        if done.code:
            raise done.failure(*words)
        return done.out

    def attempt(
        self,
        *words: str,
        data: bytes = b"",
        cwd: str | None = None,
        more: Mapping[str, str] | None = None,
        optional_locks: bool = False,
    ) -> Done:
        """In the repository itself, or with ``cwd`` in the worktree there."""
        where = [] if cwd else [f"--git-dir={self._git_dir}"]
        locks = [] if optional_locks else ["--no-optional-locks"]
        try:
            done = subprocess.run(
                ["git", *where, *locks, *self._settings, *words],
                input=data,
                cwd=cwd or self._git_dir,
                env={**self._environment(), **(more or {})},
                capture_output=True,
                check=False,
            )
        except OSError as err:
            raise GitError(f"git cannot be run: {err.strerror}", hints=["install git, and have it on PATH"]) from None
        return Done(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace").strip())


class GitPart:
    """What a part of the workbench works with."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command


def _verb(words: tuple[str, ...]) -> str:
    """The subcommand, behind whatever options of git itself stand before it."""
    at = 0
    while words[at].startswith("-"):
        at += 2 if words[at] in ("-c", "-C") else 1
    return words[at]
