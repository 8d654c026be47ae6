"""Spaces with sessions in them: on either store, opened again and again, with the store lost, with another engine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

import clia
from clia.facade.joining import HubTarget
from clia.facade.setup import set_hub
from clia.testing import components, use_backend
from support import git
from support.git_hubs import bare
from support.space_driver import postgres_url
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    import pytest

    from clia.engine.records import Engine, FlowAnswer, FlowCall, FlowProgram, FlowRun, Problem, Turn

STORES = ("sqlite", "postgresql")
MACHINES = "machines"
"""PostgreSQL, and a hub: what many machines share."""


class Place(NamedTuple):
    """A space's repository and where its store is."""

    root: Path
    store: str | None = None
    config: str | None = None
    hub: str | None = None

    def open(self, **more: Any) -> clia.Space:
        """One more handle on the space, as another process would have."""
        known = self.root.exists()
        return clia.init(
            self.root, settings=settings(store=self.store, config=self.config, **more), hub=None if known else self.hub
        )

    def lose_store(self) -> None:
        """All live state is gone, dumps and journals with it; git is as it was."""
        if self.hub is not None and self.store is not None:
            with psycopg.connect(self.store, autocommit=True) as server:  # it is the space's, and no clone's
                server.execute("TRUNCATE clia_streams, clia_entries, clia_values, clia_edges, clia_retractions")
        directory = self.root / ".git/clia"
        for each in [*directory.glob("space.db*"), *directory.glob("clone")]:
            each.unlink()
        if self.hub is not None and self.store is not None:  # a person has to say that what machines shared is gone
            set_hub(self.root, HubTarget(self.hub, new_store=True), settings=settings(store=self.store)).close()

    def configured(self, text: str) -> Place:
        """With an operator's file."""
        path = self.root.parent / "config.toml"
        path.write_text(text)
        return self._replace(config=str(path))


def place(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> Place:
    """Where a test's space is to be; PostgreSQL is started only for who asks for it."""
    address = None if store == "sqlite" else postgres_url(request.getfixturevalue("postgres_address"))
    hub = str(bare(tmp_path.resolve() / "hub.git")) if store == MACHINES else None
    return Place(tmp_path.resolve() / "repo", address, hub=hub)


def with_agents(space: clia.Space, *names: str, **flows: str) -> clia.Space:
    """Agents, and flows by name."""
    for name in names:
        space.spawn(name, BRIEFING)
    for name, source in flows.items():
        space.define(name, source)
    return space


def root_of(space: clia.Space) -> Path:
    """The repository of a space."""
    return Path(space.running.workplace).parent.parent  # .git; white box: no verb tells


def forget_runs(space: clia.Space) -> None:
    """The process knows no more of the space's runs than the store does, as a fresh one."""
    shelf, place = components(space).session_backend.shelf, components(space).session_backend.place
    shelf.clear(place)


def use_engine(space: clia.Space, wrap: Callable[[Engine], Engine], *, same_place: bool = False) -> Any:
    """From now on the space's sessions run on another engine, made from its own; runs of other engines are not for it."""
    backend = components(space).session_backend
    made = wrap(backend.engine)
    use_backend(space, backend._replace(engine=made, place=backend.place if same_place else object()))
    return made


class Spy:
    """An engine that counts what it is asked for, and passes it on."""

    def __init__(self, engine: Engine, version: str | None = None) -> None:
        self._engine = engine
        self._version = version
        self.started = self.loaded = self.answered = 0

    @property
    def version(self) -> str:
        return self._version or self._engine.version

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        self.started += 1
        return SpiedRun(self._engine.start(program, patient=patient), self)

    def load(self, program: FlowProgram, dump: bytes, pending: Iterable[FlowCall]) -> FlowRun:
        run = self._engine.load(program, dump, list(pending))
        self.loaded += 1
        return SpiedRun(run, self)

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        return self._engine.check(source, types=types)

    def close(self) -> None:
        self._engine.close()

    def counts(self) -> tuple[int, int, int]:
        """Runs started from the beginning, runs loaded from a dump, answers given; counted anew from here."""
        found = self.started, self.loaded, self.answered
        self.started = self.loaded = self.answered = 0
        return found


class SpiedRun:
    def __init__(self, run: FlowRun, spy: Spy) -> None:
        self._run = run
        self._spy = spy

    @property
    def turn(self) -> Turn:
        return self._run.turn

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        self._spy.answered += 1
        return self._run.answer(number, answer)

    def dump(self) -> bytes:
        return self._run.dump()

    def __enter__(self) -> Self:
        self._run.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._run.__exit__(*exc)


class Liar(Spy):
    """An engine that asks for something else from some answer on, as another version of it might; its dumps load no more."""

    def __init__(self, engine: Engine, after: int) -> None:
        super().__init__(engine, version="liar 1")
        self._after = after

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return LyingRun(self._engine.start(program, patient=patient), self, self._after)


class LyingRun(SpiedRun):
    def __init__(self, run: FlowRun, spy: Spy, after: int) -> None:
        super().__init__(run, spy)
        self._after = after
        self._given = 0

    @property
    def turn(self) -> Turn:
        turn = self._run.turn
        if self._given < self._after:
            return turn
        return turn._replace(pending=tuple(call._replace(payload={"not": call.payload}) for call in turn.pending))

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        self._given += 1
        super().answer(number, answer)
        return self.turn


def asked(session: clia.Session) -> list[tuple[str, str, Any, int]]:
    """What a session waits for, without whose it is and since when."""
    return [(each.id.rpartition(".")[2], each.kind, each.payload, each.line) for each in session.pending]


def events(root: Path, agent: str) -> list[dict[str, Any]]:
    """The events of an agent as stock git shows them, oldest first."""
    ref = f"refs/clia/events/{agent}"
    if not git("for-each-ref", ref, cwd=root):
        return []
    lines = git("log", "--reverse", "--format=%(trailers:key=Clia-Event,valueonly)", ref, cwd=root).splitlines()
    return [json.loads(line) for line in lines if line]


def ends(root: Path, agent: str) -> list[tuple[str, str]]:
    """Which sessions ended how, as git tells."""
    return [(each["session"], each["status"]) for each in events(root, agent) if each.get("event") == "session-ended"]


def all_of_git(root: Path) -> bytes:
    """The content of every object there is, reachable or not."""
    words = ["git", "cat-file", "--batch-all-objects", "--batch"]
    return subprocess.run(words, cwd=root, capture_output=True, check=True).stdout
