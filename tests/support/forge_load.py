"""A forge under load: many listeners, many deciders, over real sockets.

Invariant: a listener from before the first decision counts every decision; an acknowledged decision that some listener did not
see counts as lost.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.users.service import users_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM = Path(sys.executable).parent / "clia"
_PATIENCE = 60.0


class Load(NamedTuple):
    """The load on the forge."""

    listeners: int
    deciders: int
    seconds: float = 0.0  # 0: until each decider has made its decisions
    decisions: int = 0


class Outcome(NamedTuple):
    decided: int
    lost: int  # decisions that a listener did not see, over all listeners
    twice: int
    errors: list[str]
    latencies: list[float]  # of decisions, in milliseconds

    def percentile(self, part: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]

    @property
    def median(self) -> float:
        return statistics.median(self.latencies)


@contextmanager
def served(place: Path, *words: str) -> Iterator[str]:
    """Run a forge in a separate process; yield its address for programs."""
    command = [str(PROGRAM), "serve", "--port", "0", "--json", "--quiet", "--path", str(place), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the forge ended with {process.wait()}")
            text += line
        yield json.loads(text)["api"]
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def prepared(place: Path, deciders: int, *, durable: bool = True, store: str | None = None) -> str:
    """A space with an agent for each decider; return an admin's token."""
    settings = clia.Settings(durable=durable, person=("Load", "load@example.org"), store=store)
    with clia.init(place, settings=settings) as space:
        for number in range(deciders):
            space.spawn(f"agent-{number}", clia.Briefing("load"))
        users = users_of(space)
        users.add("load", "admin")
        return users.make_token("load")[0]


def run(address: str, token: str, space: str, load: Load, listening: str | None = None) -> Outcome:
    """``listening``: the address for listeners, if it differs from the one for deciders."""
    return _run(address, token, space, load, _Listening(listening or address, token, space, load.listeners))


def _run(address: str, token: str, space: str, load: Load, listening: _Listening) -> Outcome:
    listening.start()
    try:
        work = [_Decider(address, token, space, number) for number in range(load.deciders)]
        end = time.monotonic() + load.seconds if load.seconds else None
        threads = [threading.Thread(target=decider.run, args=(end, load.decisions)) for decider in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        decided = [cid for decider in work for cid in decider.decided]
        listening.wait_for(len(decided))
    finally:
        listening.stop()
    lost, twice = listening.compared(decided)
    errors = [text for decider in work for text in decider.errors] + listening.errors
    return Outcome(len(decided), lost, twice, errors, [latency for decider in work for latency in decider.latencies])


class _Decider:
    """Asks a question and answers it, one after the other."""

    def __init__(self, address: str, token: str, space: str, number: int) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._connection = HTTPConnection(host, int(port), timeout=_PATIENCE)
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._base = f"/api/v1/spaces/{space}/agents/agent-{number}"
        self.decided: list[str] = []
        self.latencies: list[float] = []
        self.errors: list[str] = []

    def run(self, end: float | None, count: int) -> None:
        try:
            self._decide(end, count)
        finally:
            self._connection.close()

    def _decide(self, end: float | None, count: int) -> None:
        while time.monotonic() < end if end is not None else len(self.decided) < count:
            request = self._post("/asks", {"payload": {"question": "Go on?", "choices": ["yes", "no"]}})
            started = time.perf_counter()
            decision = request and self._post("/decisions", {"value": "yes", "rationale": "load", "request_id": request["id"]})
            if not decision:
                return
            self.latencies.append((time.perf_counter() - started) * 1000)
            self.decided.append(decision["cid"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            self._connection.request("POST", self._base + path, json.dumps(body), self._headers)
            answer = self._connection.getresponse()
            data = answer.read()
        except OSError as err:
            self.errors.append(f"{path}: {err}")
            return None
        if answer.status != 200:
            self.errors.append(f"{path}: {answer.status} {data[:200]!r}")
            return None
        parsed: dict[str, Any] = json.loads(data)
        return parsed


class _Listening:
    """All listeners, in a separate event loop."""

    def __init__(self, address: str, token: str, space: str, count: int) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._where = (host, int(port))
        path = f"/api/v1/spaces/{space}/events"
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        self._seen: list[list[str]] = [[] for _ in range(count)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self.errors: list[str] = []

    def start(self) -> None:
        """Returns when every listener is connected."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(_PATIENCE)

    async def _open(self) -> None:
        greeted = [asyncio.Event() for _ in self._seen]
        for cids, event in zip(self._seen, greeted, strict=True):
            self._tasks.append(asyncio.ensure_future(self._listen(cids, event)))
        await asyncio.gather(*(event.wait() for event in greeted))

    async def _listen(self, cids: list[str], greeted: asyncio.Event) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self._where)
            with closing(writer):
                writer.write(self._request)
                async for line in reader:
                    if line.startswith(b"event: hello"):
                        greeted.set()
                    elif line.startswith(b"data: ") and b'"answered"' in line:
                        decision = json.loads(line[6:])["answered"].get("decision")
                        cids += [decision] if decision else []
            self.errors.append("a stream ended")
        except (OSError, ValueError, KeyError) as err:
            self.errors.append(f"a stream: {err!r}")
        finally:
            greeted.set()

    def wait_for(self, count: int) -> None:
        """Wait until every listener has this number of decisions, or none arrives any more."""
        before, still = -1, 0
        while any(len(cids) < count for cids in self._seen) and still < 50:
            now = sum(map(len, self._seen))
            still = still + 1 if now == before else 0
            before = now
            threading.Event().wait(0.1)

    def compared(self, decided: Sequence[str]) -> tuple[int, int]:
        expected = set(decided)
        lost = sum(len(expected - set(cids)) for cids in self._seen)
        return lost, sum(len(cids) - len(set(cids)) for cids in self._seen)

    def stop(self) -> None:
        async def cancel() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()
