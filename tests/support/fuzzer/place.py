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
from clia.hub import remote
from clia.store import postgres_locks, postgres_store, private_files, sqlite_store
from clia.trust import move_log
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


class World(NamedTuple):
    """What a history has besides git and a disk."""

    postgres: bool = False  # else SQLite
    hub: bool = False
    peer: bool = False  # another space that follows this one

    @property
    def machines(self) -> int:
        """With a hub and a store that they share, two machines work on the same agents."""
        return 2 if self.postgres and self.hub else 1


WORLDS = {
    "alone": World(),
    "server": World(postgres=True),
    "hub": World(hub=True),
    "fleet": World(postgres=True, hub=True),
    "peers": World(peer=True),
}


class Place(NamedTuple):
    """A repository with a space, its remote, and the files of the history."""

    top: str
    step: int = 0
    clock: int = 0  # seconds by which the clock is wrong
    part: int = 0  # of a burst
    machine: int = 0
    world: World = World()
    store: str | None = None  # the address of a store on a server

    @property
    def root(self) -> Path:
        return self.beside("space")

    def beside(self, name: str) -> Path:
        """A directory of this machine, on the disk of the history."""
        return Path(self.top, "disk", f"{name}{'-of-2' if self.machine else ''}")

    @property
    def origin(self) -> Path:
        return Path(self.top, "origin.git")

    @property
    def hub(self) -> Path:
        return Path(self.top, "hub.git")

    def settings(self, **more: Any) -> clia.Settings:
        return settings(**{"store": self.store, "clock": self.now, **more})

    @property
    def on_all_machines(self) -> list[Place]:
        return [self._replace(machine=machine) for machine in range(self.world.machines)]

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
        return clia.open(self.root, settings=self.settings(clock=now or self.now, reached=reached))

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


def be_impatient(place: Place) -> None:
    """Give up waiting for locks soon, in this process. After an outage the hub is left alone in every other step."""
    git_refs.PATIENCE = PATIENCE
    private_files.LOCK_SECONDS = PATIENCE  # type: ignore[assignment]  # a part of a second
    private_files.NOTICE_SECONDS = PATIENCE
    sqlite_store.TIMEOUT = PATIENCE
    move_log.LOCK_SECONDS = PATIENCE  # type: ignore[assignment]
    remote.TRIES = 2
    remote.LOCKED_SECONDS = PATIENCE
    remote.BACKOFF_SECONDS = 0 if place.step % 2 else 3600
    limits: tuple[tuple[Any, dict[str, float]], ...] = (
        (postgres_store.PostgresStore, {"timeout": 5 * PATIENCE}),
        (postgres_locks.PostgresLocks, {"timeout": 5 * PATIENCE, "patience": 2 * PATIENCE}),
    )
    for owner, defaults in limits:
        owner.__init__.__kwdefaults__.update(defaults)


def make(place: Place) -> None:
    """Create the space of a history: three agents, one with a live session, a person's branch, an empty remote, and its hub."""
    root = place.root
    root.mkdir(parents=True)
    git("init", "--quiet", "--bare", "--initial-branch=main", str(place.origin), cwd=place.top)
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=root)
    git("remote", "add", "origin", str(place.origin), cwd=root)
    (root / "README").write_text("people\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=first", cwd=root)
    if place.world.hub:
        git("push", "--quiet", "origin", "main", cwd=root)
        git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(place.hub), cwd=place.top)
    with clia.init(root, settings=place.settings(), hub=str(place.hub) if place.world.hub else None) as space:
        space.define("flow", FLOW)
        for name in ("ada", "bob", "cyd"):
            space.spawn_at(name, BRIEFING, "main")
        space.start("bob", "flow")
    for other in place.on_all_machines[1:]:
        git("clone", "--quiet", "--template=", str(place.origin), str(other.root), cwd=place.top)
        with clia.init(other.root, settings=other.settings(), hub=str(place.hub)) as joined, place.open() as space:
            space.trust.enrol("two", joined.trust.statements.machine.make().text, "machine")


class Outcome(NamedTuple):
    """What a step was answered."""

    state: str  # done, refused, skipped; unknown: it was killed
    facts: tuple[tuple[Any, ...], ...] = ()  # what must be true from now on
    code: str = ""
    message: str = ""
