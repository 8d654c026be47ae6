"""The peers that sessions are measured beside: each does the same work, through its own public API.

Invariant: a peer that cannot be opened is left out with one line that says why, and stops nobody else.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measure import NOT_INSTALLED, Peer, has_package
from benchmarks.peers.apart import Apart, PeerFailed
from benchmarks.peers.server import NoServer, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LANGGRAPH, DBOS, ABSURD = "LangGraph, SQLite", "DBOS, PostgreSQL", "Absurd, PostgreSQL"
_PACKAGES = {
    LANGGRAPH: ("langgraph.graph", "langgraph.checkpoint.sqlite"),
    DBOS: ("dbos", "psycopg"),
    ABSURD: ("absurd_sdk", "absurdctl", "psycopg"),
}
_MAKERS = {
    LANGGRAPH: "benchmarks.peers.langgraph_peer:LangGraph",
    DBOS: "benchmarks.peers.dbos_peer:Dbos",
    ABSURD: "benchmarks.peers.absurd_peer:Absurd",
}
NOTES = {
    DBOS: "a fresh handle is a client that connects anew; the workflow itself waits in a thread of a process that lives on",
    ABSURD: "a fresh handle is a worker that connects anew; its turn is taken at once, without the pause of polling",
}
_DATABASES = {DBOS: "dbos", ABSURD: "absurd"}


class Peers(NamedTuple):
    langgraph: Apart | None
    dbos: Apart | None
    absurd: Apart | None
    missing: tuple[Peer, ...]  # those that are not here, each with the reason

    def all(self) -> list[Apart]:
        return [each for each in (self.langgraph, self.dbos, self.absurd) if each is not None]


@contextmanager
def opened(top: Path) -> Iterator[Peers]:
    """Every peer that can run here, with nothing in it yet. PostgreSQL and SQLite run without fsync."""
    missing = [Peer(name, None, NOT_INSTALLED) for name in _PACKAGES if not _installed(name)]
    with ExitStack() as stack:
        langgraph = _opened(stack, missing, LANGGRAPH, top / "langgraph.db", False)
        on_postgres = [name for name in (DBOS, ABSURD) if _installed(name)]
        made: dict[str, Apart | None] = {}
        try:
            server = started(stack) if on_postgres else None
        except NoServer as err:
            missing += [Peer(name, None, f"not measured: {err}") for name in on_postgres]
        else:
            made = {name: _opened(stack, missing, name, server.database(_DATABASES[name])) for name in on_postgres if server}
        yield Peers(langgraph, made.get(DBOS), made.get(ABSURD), tuple(missing))


def open_langgraph(path: Path, stack: ExitStack, *, durable: bool = False) -> Apart | None:
    """LangGraph over a file of its own; None where it cannot run."""
    return _opened(stack, [], LANGGRAPH, path, durable)


def _opened(stack: ExitStack, missing: list[Peer], name: str, *args: object) -> Apart | None:
    if not _installed(name):
        return None
    try:
        made = Apart(name, _MAKERS[name], *args)
    except PeerFailed as err:
        missing.append(Peer(name, None, f"not measured: {err}"))
        return None
    stack.callback(made.close)
    return made


def _installed(name: str) -> bool:
    return all(map(has_package, _PACKAGES[name]))
