"""The peers that clia is compared with: each does the same work, through its own public API.

A peer that cannot run is replaced by the reason and does not affect the others.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from benchmarks.measure import NOT_INSTALLED, command, has_package
from benchmarks.peers.apart import Apart, PeerFailed
from benchmarks.peers.server import NoServer, started
from benchmarks.works import ABSURD, DBOS, LANGGRAPH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    Peers = Mapping[str, Apart | str]

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
NOTE = (
    "a fresh handle of DBOS is a client with a new connection, while the workflow waits in a thread of a running process; "
    "of Absurd it is a worker with a new connection, which runs at once, without the polling delay"
)
_DATABASES = {DBOS: "dbos", ABSURD: "absurd"}


@contextmanager
def opened(top: Path) -> Iterator[Peers]:
    """Every peer with an empty store, or the reason why it is not available. PostgreSQL and SQLite run without fsync."""
    with ExitStack() as stack:
        peers: dict[str, Apart | str] = {LANGGRAPH: open_langgraph(top / "langgraph.db", stack)}
        try:
            server = started(stack) if any(map(_installed, _DATABASES)) else None
        except NoServer as err:
            peers |= dict.fromkeys(_DATABASES, f"no PostgreSQL server: {err}")
        else:
            for name, database in _DATABASES.items():
                peers[name] = _opened(stack, name, server.database(database)) if server and _installed(name) else NOT_INSTALLED
        yield peers


def open_langgraph(path: Path, stack: ExitStack, *, durable: bool = False) -> Apart | str:
    """LangGraph with a separate file."""
    return _opened(stack, LANGGRAPH, path, durable)


def asked(
    peers: Peers, names: Iterable[str], verb: Callable[[Apart], Callable[[], object]]
) -> dict[str, Callable[[], object] | str]:
    """The work of each peer by its name, or the reason why it cannot be prepared."""
    works: dict[str, Callable[[], object] | str] = {}
    for name in names:
        peer = peers[name]
        try:
            works[name] = peer if isinstance(peer, str) else verb(peer)
        except PeerFailed as err:
            works[name] = str(err)
    return works


def import_of(module: str) -> Callable[[], object] | str:
    """The cold start of a peer: a new interpreter that imports it."""
    return command([sys.executable, "-c", f"import {module}"]) if has_package(module) else NOT_INSTALLED


def _opened(stack: ExitStack, name: str, *args: object) -> Apart | str:
    if not _installed(name):
        return NOT_INSTALLED
    try:
        peer = Apart(name, _MAKERS[name], *args)
    except PeerFailed as err:
        return str(err)
    stack.callback(peer.close)
    return peer


def _installed(name: str) -> bool:
    return all(map(has_package, _PACKAGES[name]))
