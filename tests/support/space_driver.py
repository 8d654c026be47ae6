"""Writers of one space: acknowledged changes are written to a paper before the process can be killed, and checked later."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pygit2

import clia
from clia.errors import NoSuchAgent
from clia.testing import components

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSON = ("Tess", "tess@example.org")
BRIEFING = clia.Briefing(title="Look at it")


def settings(**more: Any) -> clia.Settings:
    """Fast settings, independent of the user's configuration."""
    return clia.Settings(**{"durable": False, "person": PERSON, "environment": _environment(), **more})


def _environment() -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**inherited, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


class Paper(NamedTuple):
    """Acknowledged changes, one per line, in a file that survives its writers."""

    path: str

    def note(self, kind: str, *words: str) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(handle, json.dumps([kind, *words]).encode() + b"\n")
        os.close(handle)

    def read(self, wanted_kind: str) -> list[tuple[str, ...]]:
        return [tuple(words) for kind, *words in self._lines() if kind == wanted_kind]

    def _lines(self) -> Iterator[list[str]]:
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                yield from map(json.loads, file)


class Writer:
    """The verbs of a space, each written to the paper after its acknowledgement."""

    def __init__(self, space: clia.Space, paper: Paper) -> None:
        self.space = space
        self.paper = paper

    def spawn(self, name: str, parent: str | None = None) -> None:
        agent = self.space.spawn_from(name, BRIEFING, parent) if parent else self.space.spawn(name, BRIEFING)
        self.paper.note("commit", name, agent.genesis)
        if parent:
            self.paper.note("edge", parent, "sub-agent-of", name)

    def trace(self, name: str, text: str) -> None:
        self.space.trace(name, "console", text)
        self.paper.note("entry", text)

    def commit(self, name: str, path: str, text: str, *, with_trace: bool = False, base: str | None = None) -> None:
        """Commit a delta; with ``base``, the full tree."""
        verb = self.space.commit_with_trace if with_trace else self.space.commit
        data = text.encode()
        if base is None:
            cid = verb(name, "finding", changes={path: data})
        else:
            cid = verb(name, "finding", {**self.space.files(base), path: data}, base=base)
        self.paper.note("commit", name, cid)
        self.paper.note("file", name, path, text)

    def merge(self, into: str, from_: str) -> None:
        merge = self.space.merge(into, from_)
        if isinstance(merge, clia.Merged):
            self.paper.note("commit", into, merge.cid)
            self.paper.note("edge", into, "merges", from_)

    def relate(self, src: str, kind: str, dst: str) -> None:
        self.space.relate(src, kind, dst)
        self.paper.note("edge", src, kind, dst)


def trace_texts(space: clia.Space, kind: str | None = None) -> Counter[str]:
    """How often each text is in a trace entry, bound or pending; ``kind``: only of entries of this kind."""
    parts = components(space)
    agents = sorted({*space.agents(), *space.agents(archived=True)})
    entries = (hit.entry for hit in parts.traces.search(lambda _: True, agents))
    return Counter(entry["text"] for entry in entries if kind in (None, entry["kind"]))


def check_nothing_lost(root: Path, paper: Paper, space: clia.Space) -> None:
    """Every acknowledged commit is in its agent's history, every trace entry exists once, and the space is sound."""
    report = space.verify()
    assert report.clean, report.findings
    assert not components(space).envelope.unfinished()
    check_commits(root, paper)
    texts = trace_texts(space)
    duplicates = {text: count for text, count in texts.items() if count != 1}
    assert not duplicates, duplicates
    missing = {text for (text,) in paper.read("entry")} - texts.keys()
    assert not missing, missing


def check_commits(root: Path, paper: Paper) -> None:
    """Every acknowledged commit is in its agent's history."""
    acknowledged: dict[str, set[str]] = {}
    for name, cid in paper.read("commit"):
        acknowledged.setdefault(name, set()).add(cid)
    repository = pygit2.Repository(str(root))
    for name, cids in acknowledged.items():
        history = {str(commit.id) for commit in repository.walk(head_of(repository, name))}
        assert cids <= history, f"{name} lost {cids - history}"


def head_of(repository: pygit2.Repository, name: str) -> pygit2.Oid:
    """The head of an agent, active or archived, in the repository or in that of idle agents."""
    archive = os.path.join(repository.path, "clia/archive.git")
    for place in (repository, *([pygit2.Repository(archive)] if os.path.exists(archive) else [])):
        for prefix in ("refs/heads/agents/", "refs/clia/archive/agents/"):
            reference = place.references.get(prefix + name)
            if reference is not None:
                return reference.peel(pygit2.Commit).id
    raise NoSuchAgent(f"{name} is gone")


def postgres_url(address: str) -> str:
    """The address of a test's PostgreSQL as a store URL."""
    server, _, options = address.partition(" options=")
    words = dict(word.split("=", 1) for word in server.split())
    schema = options.strip("'")
    return f"postgresql://{words['user']}@/{words['dbname']}?host={quote(words['host'], safe='')}&options={quote(schema, safe='')}"
