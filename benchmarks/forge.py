"""The forge: decisions under load, against a single decider; and the server time of pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import pygit2
from starlette.testclient import TestClient

import clia
from benchmarks.graph import plant
from benchmarks.measure import Row, attempted, in_turns
from benchmarks.places import place
from clia.facade.config import ForgeOptions
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from support.forge_load import Load, prepared, run, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import NotRun

LISTENERS, DECIDERS, SECONDS = 200, 20, 20.0
AGENTS = 100
_QUICK = clia.Settings(durable=False, person=("Bench", "bench@example.org"))


def rows(rounds: int) -> Iterator[Row | NotRun]:
    yield from attempted(["forge-p99", "forge-p50"], _under_load)
    yield from attempted(["page-overview", "page-inbox", "page-graph"], lambda: _pages(rounds))


def _under_load() -> list[Row]:
    """Durable, as in production. Each decider asks and answers without a pause."""
    with place(disk=True) as top:
        token = prepared(top / "repo", DECIDERS)
        with served(top / "repo") as address:
            alone = run(address, token, "repo", Load(0, 1, decisions=30))
            busy = run(address, token, "repo", Load(LISTENERS, DECIDERS, seconds=SECONDS))
    if busy.lost or busy.twice or busy.errors:
        raise RuntimeError(f"{busy.lost} lost, {busy.twice} twice: {busy.errors[:3]}")
    per_second = busy.decided / SECONDS
    note = f"{busy.decided} decisions in {SECONDS:.0f} s ({per_second:.0f} a second), each seen by all {LISTENERS} listeners"
    return [
        Row("forge-p99", busy.percentile(0.99), alone.percentile(0.99)),
        Row("forge-p50", busy.median, alone.median, note=note),
    ]


def _pages(rounds: int) -> list[Row]:
    """Complete pages with their login check, as the server renders them; an empty page is the floor."""
    with place() as top:
        spaces = [(str(top / name), clia.init(top / name, settings=_QUICK)) for name in ("busy", "graph")]
        _fill(spaces[0][1])
        plant(pygit2.Repository(str(top / "graph")))
        forge = forge_of(spaces, ForgeOptions(per_minute=10**9))
        try:
            forge.users.add("bench", "admin")
            client = TestClient(create_app(forge), base_url="http://127.0.0.1")
            client.headers["authorization"] = f"Bearer {forge.users.make_token('bench')[0]}"
            works = [_get(client, path) for path in ("/api/v1/whoami", "/s/busy/", "/s/busy/inbox", "/s/graph/graph")]
            floor, overview, inbox, graph = in_turns(works, rounds)
        finally:
            forge.close()
    return [Row("page-overview", overview, floor), Row("page-inbox", inbox, floor), Row("page-graph", graph, floor)]


def _fill(space: clia.Space) -> None:
    for number in range(AGENTS):
        name = f"agent-{number}"
        space.spawn(name, clia.Briefing("bench"))
        space.ask(name, {"question": f"May agent {number} continue?", "choices": ["yes", "no"]})


def _get(client: TestClient, path: str) -> Callable[[], object]:
    def get() -> None:
        answer = client.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path}: {answer.status_code}")

    return get
