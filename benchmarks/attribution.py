"""Attribution of people's lines to agents, and blame, against git."""

from __future__ import annotations

import itertools
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import clia
from benchmarks.measure import Row, attempted, in_turns
from benchmarks.places import place
from clia.git.records import FILE, TreeEntry
from clia.space.model import AGENT, TYPE
from clia.values import refs as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import NotRun

CHANGED, FOUND, LINES, COMMITS, TURN_EVERY = 1_000, 2_000, 5_000, 2_000, 10
BRANCH = "refs/heads/main"


def rows(rounds: int) -> Iterator[Row | NotRun]:
    with place() as quick:
        yield from attempted(["attribute"], lambda: [_attribute(quick / "attribute", rounds)])
        yield from attempted(["blame"], lambda: [_blame(quick / "blame", max(3, rounds // 5))])


def _minutes() -> Callable[[], datetime]:
    """A clock that advances by a minute at each reading: turns take that long."""
    minutes = itertools.count()
    return lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=next(minutes))


class _Work:
    """A person's branch and an agent that writes the same file."""

    def __init__(self, path: Path) -> None:
        self.space = clia.init(path, settings=clia.Settings(durable=False, person=("Bench", "bench@example.org"), clock=_minutes()))
        self.core = self.space.core
        self.tip: str | None = None

    def tree(self, lines: list[bytes]) -> str:
        objects = self.core.objects
        return objects.update_tree(None, {"f": TreeEntry(FILE, objects.write_blob(b"".join(line + b"\n" for line in lines)))})

    def commit(self, tree: str) -> str:
        by = self.core.person_stamp()
        new = self.core.objects.write_commit(tree, [self.tip] if self.tip else [], by, by, "mine\n")
        self.core.refs.move(BRANCH, self.tip, new, "bench")
        self.tip = new
        return new

    def turn(self, name: str, tree: str) -> None:
        head = self.core.require_head(name)
        new = self.core.write_commit(name, tree, [head], "a turn", [(AGENT, name), (TYPE, "finding")], "a turn")
        self.core.refs.move(names.head(name), head, new, "bench")


def _attribute(path: Path, rounds: int) -> Row:
    """What a turn and a person's commit of its lines add to an ingest."""
    work = _Work(path)
    found_lines = [b"found_%d()" % number for number in range(FOUND)]
    work.space.spawn_at("scout", clia.Briefing("bench"), work.commit(work.tree(found_lines)))
    count = itertools.count()

    def record() -> None:
        """A turn, and a commit of a person; measured as the floor."""
        start = next(count)
        tree = work.tree([*found_lines, *(b"new_%d_%d()" % (start, number) for number in range(CHANGED))])
        work.turn("scout", tree)
        work.commit(tree)

    def attribute() -> None:
        assert work.space.history.attribute() > 0

    floor, ours = in_turns([record, attribute], rounds)
    summary = work.space.history.authorship("main", limit=1)
    assert summary.by_agents == CHANGED, summary.by_agents
    return Row("attribute", ours, floor)


def _blame(path: Path, rounds: int) -> Row:
    """Each commit replaces two lines of the file; an agent wrote those of every tenth commit."""
    work = _Work(path)
    lines = [b"line_%d()" % number for number in range(LINES)]
    work.space.spawn_at("scout", clia.Briefing("bench"), work.commit(work.tree(lines)))
    for number in range(COMMITS):
        start = number * 17 % (LINES - 2)
        lines[start : start + 2] = [b"by_%d_%d()" % (number, part) for part in range(2)]
        tree = work.tree(lines)
        if number % TURN_EVERY == 0:
            work.turn("scout", tree)
        work.commit(tree)
        if number % 100 == 0:
            work.space.history.attribute()
    subprocess.run(["git", "gc", "-q"], cwd=path, check=True)
    command = ["git", "blame", "--porcelain", "main", "--", "f"]
    git_blame = partial(subprocess.run, command, cwd=path, check=True, stdout=subprocess.DEVNULL)
    floor, ours = in_turns([git_blame, _blamed(work)], rounds)
    return Row("blame", ours, floor)


def _blamed(work: _Work) -> Callable[[], object]:
    def blame() -> None:
        blamed = work.space.blame("main", "f")
        assert sum(line.agent == "scout" for line in blamed) > COMMITS // TURN_EVERY

    return blame
