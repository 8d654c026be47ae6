"""Spaces with sessions: on either store, opened several times, with the store lost, or with another engine."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

import clia
from clia import errors
from clia.facade.setup import set_hub
from clia.hub.joining import HubTarget
from clia.testing import components, use_backend
from support import git
from support.joined_spaces import joined
from support.space_driver import postgres_url
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from clia.engine.records import Engine, FlowAnswer, FlowCall, FlowProgram, FlowRun, Problem, Turn

_numbers = itertools.count()

STORES = ("sqlite", "postgresql")
MACHINES = "machines"
"""PostgreSQL and a hub, as several machines share them."""


class SessionSpace(NamedTuple):
    """A space's repository and where its store is."""

    root: Path
    store: str | None = None
    config: str | None = None
    hub: str | None = None

    def open(self, **more: Any) -> clia.Space:
        """Open another handle on the space, as another process would."""
        hub = None if self.root.exists() else self.hub
        return clia.init(self.root, settings=settings(store=self.store, config=self.config, **more), hub=hub)

    def lose_store(self, *, rebuild: bool = True) -> None:
        """Delete all live state, including dumps and journals; git is unchanged. ``rebuild``: accept the loss, as a person does."""
        if self.hub is not None and self.store is not None:
            with psycopg.connect(self.store, autocommit=True) as server:  # the store belongs to the space, not to a clone
                server.execute("TRUNCATE clia_streams, clia_entries, clia_values, clia_edges, clia_retractions")
        directory = self.root / ".git/clia"
        for file in [*directory.glob("space.db*"), *directory.glob("clone")]:
            file.unlink()
        if self.hub is not None and self.store is not None:  # a person must confirm that the shared store is lost
            set_hub(self.root, HubTarget(self.hub, new_store=True), settings=settings(store=self.store)).close()
        if rebuild:
            with self.open() as space:
                space.doctor(repair=True)

    def configured(self, text: str) -> SessionSpace:
        """The place with a configuration file of this text."""
        path = self.root.parent / "config.toml"
        path.write_text(text)
        return self._replace(config=str(path))


def session_space_on(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> SessionSpace:
    """The place for a test's space; PostgreSQL is started only if the test uses it."""
    address = None if store == "sqlite" else postgres_url(request.getfixturevalue("postgres_address"))
    hub = joined(tmp_path.resolve(), address) if store == MACHINES else None
    return SessionSpace(tmp_path.resolve() / "repo", address, hub=hub)


def with_agents(space: clia.Space, *names: str, **flows: str) -> clia.Space:
    """Spawn agents and define flows by name."""
    for name in names:
        space.spawn(name, BRIEFING)
    for name, source in flows.items():
        space.define(name, source)
    return space


def root_of(space: clia.Space) -> Path:
    """The repository of a space."""
    return Path(space.home).parent  # .git; internal, because no verb returns it


def forget_runs(space: clia.Space) -> None:
    """Drop the runs that this process keeps, as in a new process."""
    backend = components(space).session_backend
    backend.shelf.clear(backend.place)


def use_engine(space: clia.Space, wrap: Callable[[Engine], Engine], *, same_place: bool = False) -> Any:
    """Run the space's sessions on an engine that wraps its own; runs kept from other engines are not reused."""
    backend = components(space).session_backend
    engine = wrap(backend.engine)
    use_backend(space, backend._replace(engine=engine, place=backend.place if same_place else object()))
    return engine


class EngineSpy:
    """An engine that counts starts, loads and answers, and delegates them."""

    def __init__(self, engine: Engine, version: str | None = None) -> None:
        self._engine = engine
        self._version = version
        self.started = self.loaded = self.answered = 0

    @property
    def version(self) -> str:
        return self._version or self._engine.version

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        self.started += 1
        return SpiedRun(self._engine.start(program, patience=patience), self)

    def load(self, program: FlowProgram, dump: bytes, pending: Iterable[FlowCall]) -> FlowRun:
        run = self._engine.load(program, dump, list(pending))
        self.loaded += 1
        return SpiedRun(run, self)

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        return self._engine.check(source, types=types)

    def close(self) -> None:
        self._engine.close()

    def counts(self) -> tuple[int, int, int]:
        """Runs started from the beginning, runs loaded from a dump, and answers given, since the last call."""
        counts = self.started, self.loaded, self.answered
        self.started = self.loaded = self.answered = 0
        return counts


class SpiedRun:
    def __init__(self, run: FlowRun, spy: EngineSpy) -> None:
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


class Liar(EngineSpy):
    """An engine whose requests differ after some answer, as another version's might; it cannot load the dumps of others."""

    def __init__(self, engine: Engine, after: int) -> None:
        super().__init__(engine, version="liar 1")
        self._after = after

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return LyingRun(self._engine.start(program, patience=patience), self, self._after)


class LyingRun(SpiedRun):
    def __init__(self, run: FlowRun, spy: EngineSpy, after: int) -> None:
        super().__init__(run, spy)
        self._after = after
        self._answers = 0

    @property
    def turn(self) -> Turn:
        turn = self._run.turn
        if self._answers < self._after:
            return turn
        return turn._replace(pending=tuple(call._replace(payload={"not": call.payload}) for call in turn.pending))

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        self._answers += 1
        super().answer(number, answer)
        return self.turn


class Tally(EngineSpy):
    """An engine that counts unreleased runs."""

    begun = ended = 0

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return TalliedRun(super().start(program, patience=patience), self)

    def load(self, program: FlowProgram, dump: bytes, pending: Iterable[FlowCall]) -> FlowRun:
        return TalliedRun(super().load(program, dump, pending), self)

    @property
    def open(self) -> int:
        return self.begun - self.ended


class TalliedRun(SpiedRun):
    _spy: Tally

    def __init__(self, run: FlowRun, tally: Tally) -> None:
        super().__init__(run, tally)
        tally.begun += 1

    def __exit__(self, *exc: object) -> None:
        self._spy.ended += 1
        super().__exit__(*exc)


def pending_requests(session: clia.Session) -> list[tuple[str, str, Any, int]]:
    """The pending requests of a session, without its agent and their times."""
    return [(request.id.rpartition(".")[2], request.kind, request.payload, request.line) for request in session.pending]


def events(root: Path, agent: str) -> list[dict[str, Any]]:
    """The events of an agent as stock git shows them, oldest first."""
    ref = f"refs/clia/events/{agent}"
    if not git("for-each-ref", ref, cwd=root):
        return []
    lines = git("log", "--reverse", "--format=%(trailers:key=Clia-Event,valueonly)", ref, cwd=root).splitlines()
    return [json.loads(line) for line in lines if line]


def ends(root: Path, agent: str) -> list[tuple[str, str]]:
    """The sessions that ended, with their status, from the events in git."""
    return [(event["session"], event["status"]) for event in events(root, agent) if event.get("event") == "session-ended"]


def all_of_git(root: Path) -> bytes:
    """The content of every object, reachable or not."""
    command = ["git", "cat-file", "--batch-all-objects", "--batch"]
    return subprocess.run(command, cwd=root, capture_output=True, check=True).stdout


def count_up(space: clia.Space, resumes: int, of: int = 20, agent: str = "scout") -> clia.Session:
    """Start the flow ``counting`` and resume it this often, with 0, 1, 2, …"""
    session = space.start(agent, "counting", of)
    for value in range(resumes):
        session = space.resume(agent, value)
    return session


def commit_change(space: clia.Space, agent: str = "scout") -> str:
    """Commit a file that differs each time."""
    return space.commit(agent, "finding", changes={"n": str(next(_numbers)).encode()})


def diverge(space: clia.Space) -> None:
    """End the session of ``scout`` with an engine that diverges from its record."""
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 99)


def stored(space: clia.Space, key: str) -> Any:
    """The store's value of a key, or None."""
    with space.local.store.reading() as view:
        entry = view.values.get(key)
    return None if entry is None else entry.value


def put_value(space: clia.Space, key: str, value: Any) -> None:
    with space.local.store.writing() as transaction:
        transaction.values.put(key, value)


def checkpoint(place: SessionSpace, commit: str, agent: str = "scout") -> dict[str, Any]:
    """The checkpoint that is noted at a commit."""
    return dict(json.loads(git("notes", f"--ref=clia/session/{agent}", "show", commit, cwd=place.root)))


def put_checkpoint(place: SessionSpace, commit: str, content: Any) -> None:
    """Replace a checkpoint by a text, or by the canonical JSON of a value."""
    file = place.root.parent / "note"
    file.write_text(content if isinstance(content, str) else canonical(content))
    blob = git("hash-object", "-w", str(file), cwd=place.root).strip()
    git("notes", "--ref=clia/session/scout", "add", "-f", "-C", blob, commit, cwd=place.root)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
