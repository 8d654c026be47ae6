"""Where a history happens: the directories of its space, and what was acknowledged there."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.git import refs as git_refs
from clia.store import private_files, sqlite_store
from support import git
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 0.3
"""Seconds to wait for a lock: only one process runs, so another one that has it is stopped or dead."""
START = datetime(2026, 1, 1, tzinfo=UTC)
FLOW = """\
def main(input):
    answers = []
    for number in range(3):
        answers.append(request("work", {"number": number}))
        answers.append(request("human", {"question": f"Go on after {number}?"}))
    return answers
"""


class Place(NamedTuple):
    """A repository with a space, its remote, and the files of the history."""

    top: str
    step: int = 0
    clock: int = 0  # seconds by which the clock is wrong
    part: int = 0  # of a burst

    @property
    def root(self) -> Path:
        return Path(self.top, "disk", "space")

    @property
    def origin(self) -> Path:
        return Path(self.top, "origin.git")

    @property
    def begun(self) -> Path:
        return Path(self.top, "begun")

    @property
    def token(self) -> str:
        """The text that marks everything that this step records."""
        return f"<s{self.mark}>"

    @property
    def mark(self) -> str:
        """The same for names."""
        return f"{self.step}-{self.part}" if self.part else str(self.step)

    def now(self) -> datetime:
        return START + timedelta(seconds=10 * self.step + self.clock)

    def open(self, reached: Callable[[str], None] | None = None, now: Callable[[], datetime] | None = None) -> clia.Space:
        return clia.open(self.root, settings=settings(clock=now or self.now, reached=reached))

    def git_environment(self) -> dict[str, str]:
        """The environment of a person's git."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        date = self.now().isoformat()
        people = {
            f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in (("NAME", "Pat"), ("EMAIL", "p@x.org"))
        }
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_EDITOR": "true"}
        return {**inherited, **people, **dates, **nobody}

    def git(self, *words: str) -> str:
        """The output of git; empty if it fails."""
        result = subprocess.run(
            ["git", *words], cwd=self.root, env=self.git_environment(), capture_output=True, text=True, check=False
        )
        return "" if result.returncode else result.stdout

    def begin(self, what: str, *words: str) -> None:
        """Note what a verb is about to change, in case that it is killed."""
        handle = os.open(self.begun, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(handle, json.dumps([what, *words]).encode() + b"\n")
        os.close(handle)

    def begun_with(self, what: str) -> Iterator[list[str]]:
        if self.begun.exists():
            for line in self.begun.read_text().splitlines():
                kind, *words = json.loads(line)
                if kind == what:
                    yield words


def be_impatient() -> None:
    """Give up waiting for locks soon, in this process."""
    git_refs.PATIENCE = PATIENCE
    private_files.LOCK_SECONDS = PATIENCE  # type: ignore[assignment]  # a part of a second
    private_files.NOTICE_SECONDS = PATIENCE
    sqlite_store.TIMEOUT = PATIENCE


def make(place: Place) -> None:
    """Create the space of a history: three agents, one with a live session, a person's branch, and an empty remote."""
    root = place.root
    root.mkdir(parents=True)
    git("init", "--quiet", "--bare", "--initial-branch=main", str(place.origin), cwd=place.top)
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=root)
    git("remote", "add", "origin", str(place.origin), cwd=root)
    (root / "README").write_text("people\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=first", cwd=root)
    with clia.init(root, settings=settings(clock=place.now)) as space:
        space.define("flow", FLOW)
        for name in ("ada", "bob", "cyd"):
            space.spawn_at(name, BRIEFING, "main")
        space.start("bob", "flow")


class Outcome(NamedTuple):
    """What a step was answered."""

    state: str  # done, refused, skipped; unknown: it was killed
    facts: tuple[tuple[Any, ...], ...] = ()  # what must be true from now on
    code: str = ""
    message: str = ""
