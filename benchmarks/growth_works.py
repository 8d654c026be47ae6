"""Measurements of a large space, one process per call; run by ``growth.py``.

Each measurement does what a command or page does and checks the answer, so that an empty one cannot pass as fast. In a new process
the time is from opening the space to the answer, otherwise of the verb alone; the start of Python and imports are excluded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import clia
from benchmarks.growth_space import FAMILY, PERSON, name_of
from clia.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE, LOG, WINDOW, WAITING = 50, 10, 200, 500
SETTINGS = clia.Settings(durable=False, person=PERSON)
QUESTION = {"question": "Go on?", "choices": ["yes", "no"]}


class GrowthWork(NamedTuple):
    key: str
    said: str
    does: Callable[[clia.Space, int, int], object]  # takes the space, its size and the number of the call
    per: str = ""  # what the answer has once per agent; "": its length does not depend on the size


def works() -> list[GrowthWork]:
    return [
        GrowthWork("list", f"list, first {PAGE} agents", _list),
        GrowthWork("inbox", f"inbox, {WAITING} pending questions", _inbox),
        GrowthWork("head", "head of one agent", _head),
        GrowthWork("log", f"log of one agent, first {LOG}", _log),
        GrowthWork("graph", f"graph window, newest {WINDOW}", _graph),
        GrowthWork("descendants", f"descendants of one agent, {FAMILY - 1}", _descendants),
        GrowthWork("trace", "trace of a commit", _trace),
        GrowthWork("spawn", "spawn", _spawn),
        GrowthWork("commit", "trace and commit_with_trace", _commit),
        GrowthWork("names", "names of all agents", _names, "agent"),
    ]


def _some(size: int, count: int) -> int:
    """A different agent each time, spread over the space; never the last ones, which are cached."""
    return (count * 7919 + size // 3) % size


def _list(space: clia.Space, size: int, count: int) -> None:
    assert len(space.states(after=name_of(_some(size // 2, count)), limit=PAGE)) == PAGE


def _inbox(space: clia.Space, size: int, count: int) -> None:
    del size, count
    assert len(space.pending()) == WAITING


def _head(space: clia.Space, size: int, count: int) -> None:
    assert len(space.head(name_of(_some(size, count)))) == 40


def _log(space: clia.Space, size: int, count: int) -> None:
    assert len(space.log(name_of(_some(size, count)), limit=LOG)) == LOG


def _graph(space: clia.Space, size: int, count: int) -> None:
    del size, count
    assert len(space.history.window(limit=WINDOW)) == WINDOW


def _descendants(space: clia.Space, size: int, count: int) -> None:
    first = _some(size // FAMILY, count) * FAMILY
    assert len(space.relations.tree(name_of(first))) >= FAMILY - 1


def _trace(space: clia.Space, size: int, count: int) -> None:
    traced = next((commit for commit in space.log(name_of(_some(size, count)), limit=LOG) if space.traces.of(commit.cid)), None)
    assert traced is not None


def _spawn(space: clia.Space, size: int, count: int) -> None:
    space.spawn(f"new-{size}-{time.time_ns()}-{count}", clia.Briefing("Look into one more part"))


def _commit(space: clia.Space, size: int, count: int) -> None:
    name = name_of(_some(size, count))
    space.trace(name, "console", f"looked at {count}")
    space.commit_with_trace(name, "finding", changes={"more.md": b"%d %d\n" % (count, time.time_ns())}, message="One more")


def _names(space: clia.Space, size: int, count: int) -> None:
    del count
    assert len(space.agents()) >= size


# The kinds of runs, one process each


def cold(path: str, size: int, key: str, count: int) -> float:
    """The time from opening the space to the answer in milliseconds, in a process that has imported its packages."""
    with clia.open(path, settings=SETTINGS) as space:
        space.head(name_of(0))
    work = next(candidate for candidate in works() if candidate.key == key)
    started = time.perf_counter()
    with clia.open(path, settings=SETTINGS) as space:
        work.does(space, size, count)
        return (time.perf_counter() - started) * 1000


def warm(path: str, size: int, rounds: int) -> dict[str, float]:
    """The median of each work in a warm process, alternating between works; and of two pages of the forge."""
    with clia.open(path, settings=SETTINGS) as space:
        times: dict[str, list[float]] = {}
        for count in range(rounds + 1):
            for work in works():
                seconds = _timed(lambda work=work, count=count: work.does(space, size, count))  # type: ignore[misc]
                times.setdefault(work.key, []).append(seconds)
        pages = _pages(path, space, rounds)
    return {key: statistics.median(samples[1:]) for key, samples in times.items()} | pages


def _pages(path: str, space: clia.Space, rounds: int) -> dict[str, float]:
    from starlette.testclient import TestClient

    from clia.facade.config import ForgeOptions
    from clia.forge.app import create_app
    from clia.forge.forge import forge_of

    forge = forge_of([(path, space)], ForgeOptions(per_minute=10**9))
    with suppress(AlreadyExists):
        forge.users.add("bench", "admin")
    client = TestClient(create_app(forge), base_url="http://127.0.0.1")
    client.headers["authorization"] = f"Bearer {forge.users.make_token('bench')[0]}"
    site = f"/s/{next(iter(forge.sites))}"
    return {OVERVIEW: _page(client, f"{site}/", rounds), INBOX: _page(client, f"{site}/inbox", rounds)}


OVERVIEW, INBOX = "page-overview", "page-inbox"
PAGES = {OVERVIEW: "the forge's overview, server time", INBOX: "the forge's inbox, server time"}


def _page(client: Any, address: str, rounds: int) -> float:
    def get() -> None:
        answer = client.get(address)
        assert answer.status_code == 200, answer.text

    return statistics.median([_timed(get) for _ in range(rounds + 1)][1:])


def _timed(does: Callable[[], object]) -> float:
    started = time.perf_counter()
    does()
    return (time.perf_counter() - started) * 1000


def index(path: str) -> dict[str, float]:
    """The time to rebuild the index from git in seconds, and its number of edges."""
    with clia.open(path, settings=SETTINGS) as space:
        started = time.perf_counter()
        edges = space.rebuild()
        return {"seconds": time.perf_counter() - started, "edges": edges}


def ask(path: str, size: int, waiting: int) -> dict[str, float]:
    """Make exactly this many questions pending, of different agents if possible; return the milliseconds to list them all.

    Surplus questions are answered, newest first, so that the others are still spread over the space.
    """
    with clia.open(path, settings=SETTINGS) as space:
        before = space.pending()
        for request in before[waiting:]:
            space.decide(request.agent, "yes", request_id=request.id)
        for count in range(len(before), waiting):
            space.ask(name_of(_some(size, count)), QUESTION)
        pending = space.pending()
        assert (len(pending), len({request.agent for request in pending})) == (waiting, min(size, waiting))
        return {"milliseconds": statistics.median([_timed(space.pending) for _ in range(5)]), "waiting": waiting}


def work(path: str, size: int, commits: int) -> dict[str, float]:
    """Make commits with traces, one per agent; return the time in seconds."""
    with clia.open(path, settings=SETTINGS) as space:
        started = time.perf_counter()
        for count in range(commits):
            _commit(space, size, count)
        return {"seconds": time.perf_counter() - started}


def maintain(path: str) -> dict[str, float]:
    """The time in seconds, the size of objects before and after, and the time of the first query, which reads all refs again."""
    with clia.open(path, settings=SETTINGS) as space:
        started = time.perf_counter()
        result = space.maintain()
        seconds = time.perf_counter() - started
        time.sleep(2.5)  # until the packed file is old enough to be trusted
        return {
            "seconds": seconds,
            "before": result.before,
            "after": result.after,
            "first": _timed(lambda: space.relations(name_of(0))),
        }


def verify(path: str) -> dict[str, float]:
    """The time in seconds, and the part of ``git fsck``."""
    began: dict[str, float] = {}

    def note(text: str) -> None:
        began.setdefault(text, time.perf_counter())

    with clia.open(path, settings=SETTINGS) as space:
        started = time.perf_counter()
        report = space.verify(progress=note)
        ended = time.perf_counter()
    assert report.clean, report.findings[:3]
    return {"seconds": ended - started, "fsck": ended - began["git fsck"], "commits": report.commits, "traces": report.traces}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind")
    parser.add_argument("path")
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    runs: dict[str, Callable[..., Any]] = {
        function.__name__: function for function in (cold, warm, index, ask, work, maintain, verify)
    }
    words: Iterator[Any] = (int(word) if word.isdigit() else word for word in args.words)
    print(json.dumps(runs[args.kind](args.path, *words)))


if __name__ == "__main__":
    main()
