"""Observations of behaviours: query, update and rebuild, against libgit2's walk over the same commits."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pygit2
from pygit2.enums import SortMode

import clia
from benchmarks.measure import Row, in_turns
from benchmarks.places import place
from benchmarks.works import work_of
from clia.space.model import AGENT, BEHAVIOUR, EVENT, META, TYPE, VALUE
from clia.values import commit_messages as messages
from clia.values import refs
from clia.values.canonical import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENTS, STEPS, GROUP = 100, 1_000, 10
MERGED_EVERY, TAKEN_EVERY, TRACED_EVERY, ENDED_EVERY = 50, 200, 9, 10
START = 1_750_000_000
SETTINGS = clia.Settings(durable=False, person=("Bench", "bench@example.org"))
FLOW = "def main(input):\n    return request('human', {'q': input})\n"
TRACE = {"type": "console-trace", "entries": [{"kind": "model", "data": {"usage": {"input_tokens": 900, "output_tokens": 80}}}] * 5}


def rows(rounds: int) -> Iterator[Row]:
    with place() as top, clia.init(top, settings=SETTINGS) as space:
        first = space.behaviours.add("review", FLOW, "session-flow")
        second = space.behaviours.propose("review", FLOW + "# better\n")
        space.behaviours.adopt("review", second.cid, trial=True)
        commits = GeneratedHistory(top, (first.cid, second.cid)).write()
        yield from _rows(space, pygit2.Repository(str(top)), commits, rounds)


def _rows(space: clia.Space, repo: pygit2.Repository, commits: int, rounds: int) -> Iterator[Row]:
    def walk() -> None:
        walker = repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)
        for name in space.agents():
            walker.push(space.head(name))
        assert sum(1 for _ in walker) >= commits

    assert f"{commits:,} commits" in work_of("stats-rebuild").title
    rebuilt, floor = in_turns([lambda: _rebuilt(space), walk], 2)
    yield Row("stats-rebuild", rebuilt, floor)
    stats = space.behaviours.stats("review")
    assert sum(sum(version.commits.values()) for version in stats) == commits - AGENTS, stats
    count = iter(range(10**9))

    def committed() -> None:
        space.commit("agent-1", "finding", changes={"x": b"%d\n" % next(count)})

    def commit_and_ask() -> None:
        committed()
        space.behaviours.stats("review")

    works = [
        lambda: space.behaviours.stats("review"),
        lambda: space.behaviours.stats(over="week"),
        lambda: space.behaviours.suggest("review"),
        commit_and_ask,
        committed,
        walk,
    ]
    queried, every, suggested, after, alone, floor = in_turns(works, min(rounds, 10))
    yield Row("stats", queried, floor)
    yield Row("stats-weekly", every, floor)
    yield Row("suggest", suggested, floor)
    yield Row("stats-after", after, alone)


def _rebuilt(space: clia.Space) -> None:
    """Rebuild the observations, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task("rebuilding", total=None)
        space.behaviours.observations.rebuild(lambda done, total: shown.update(task, completed=done, total=total))


class Made(NamedTuple):
    """A commit for ``git fast-import``: its ref, mark, time and agent."""

    ref: str
    mark: int
    at: int
    by: str


class GeneratedHistory:
    """The history of groups of agents. The first of each group and the others merge each other's work; some merges are refused.

    Written by ``git fast-import``, packed. One version of the behaviour is slightly better than the other.
    """

    def __init__(self, top: Path, versions: tuple[str, str]) -> None:
        self._top = top
        self._versions = versions
        self._chance = random.Random(8)  # noqa: S311  # the same history every time
        self._heads: dict[int, int] = {}
        self._traced: list[tuple[int, int]] = []
        self._mark = 0

    def write(self) -> int:
        """The number of commits of the agents."""
        stream = [*self._work()]
        commits, marks = self._mark, self._top / "marks"
        self._import(stream, f"--export-marks={marks}")
        ids = dict(line[1:].split() for line in marks.read_text().splitlines())
        self._import([*self._events(ids), *self._notes(ids)])
        return commits

    def _import(self, stream: list[bytes], *words: str) -> None:
        command = ["git", "-C", str(self._top), "fast-import", "--quiet", *words]
        subprocess.run(command, input=b"".join(stream), check=True)

    def _commit(self, commit: Made, text: str, parents: list[str]) -> bytes:
        message = text.encode()
        by = b"%s <%s@agents.clia.invalid> %d +0000" % (commit.by.encode(), commit.by.encode(), commit.at)
        lines = [b"commit %s" % commit.ref.encode(), b"mark :%d" % commit.mark, b"author " + by, b"committer " + by]
        lines += [b"data %d" % len(message), message]
        lines += [b"%s %s" % (word, parent.encode()) for word, parent in zip((b"from", b"merge"), parents, strict=False)]
        return b"\n".join(lines) + b"\n\n"

    def _work(self) -> Iterator[bytes]:
        for step in range(STEPS + 1):
            for agent in range(AGENTS):
                self._mark += 1
                yield self._step(agent, step)
                self._heads[agent] = self._mark
                if step and step % TRACED_EVERY == 0:
                    self._traced.append((agent, self._mark))

    def _step(self, agent: int, step: int) -> bytes:
        name, which = f"agent-{agent}", step % 2
        commit = Made(refs.head(name), self._mark, START + step * 3600 + agent, name)
        parents = [f":{self._heads[agent]}"] if step else []
        kind, extra = ("finding" if step else "spawn"), []
        lead, turn = agent - agent % GROUP, (step + agent) % (MERGED_EVERY if agent % GROUP == 0 else TAKEN_EVERY)
        if step and turn == 0:
            other = lead if agent != lead else lead + 1 + step // MERGED_EVERY % (GROUP - 1)
            kind, parents = "session-merge", [*parents, f":{self._heads[other]}"]
        elif step % 7 == 3:
            kind, extra = "decision", [(VALUE, json.dumps(self._well(which)))]
        elif step % 3 == 1:
            kind, extra = "test", [(META, json.dumps({"outcome": "pass" if self._well(which) else "fail"}))]
        ran = [(BEHAVIOUR, self._versions[which])] if step else []
        text = messages.compose(f"{kind} {step}", [(AGENT, name), (TYPE, kind), *ran, *extra], kind)
        return self._commit(commit, text, parents)

    def _well(self, which: int) -> bool:
        return self._chance.random() < (0.7, 0.8)[which]

    def _events(self, ids: dict[str, str]) -> Iterator[bytes]:
        for agent in range(AGENTS):
            name, last = f"agent-{agent}", 0
            heads = {"ours": ids[str(agent + 1)], "theirs": ids[str(AGENTS + (agent + 1) % AGENTS + 1)]}
            ended = [
                {"event": "session-ended", "session": str(ending), "status": "finished" if self._well(ending % 2) else "failed"}
                | {"flow": self._versions[ending % 2], "agent": name}
                for ending in range(STEPS // ENDED_EVERY)
            ]
            for number, body in enumerate([*ended, {"event": "merge-refused", **heads}]):
                self._mark += 1
                commit = Made(refs.EVENTS + name, self._mark, START + number * 36000, name)
                text = messages.compose("event", [(EVENT, canonical_bytes(body).decode())], "event")
                yield self._commit(commit, text, [f":{last}"] if last else [])
                last = self._mark

    def _notes(self, ids: dict[str, str]) -> Iterator[bytes]:
        trace = json.dumps(TRACE).encode()
        self._mark += 1
        blob = self._mark
        yield b"blob\nmark :%d\ndata %d\n%s\n" % (blob, len(trace), trace)
        by_agent: dict[int, list[int]] = {}
        for agent, mark in self._traced:
            by_agent.setdefault(agent, []).append(mark)
        for agent, marks in by_agent.items():
            self._mark += 1
            commit = Made(refs.TRACES + f"agent-{agent}", self._mark, START, f"agent-{agent}")
            notes = b"".join(b"N :%d %s\n" % (blob, ids[str(mark)].encode()) for mark in marks)
            yield self._commit(commit, "notes", [])[:-1] + notes + b"\n"
