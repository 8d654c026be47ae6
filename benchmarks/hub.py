"""Work with a hub, a bare repository at a path, against the git processes that it needs at least.

The floor creates the same objects with libgit2 and moves the same number of refs, with one plain ``git fetch`` and one plain
``git push --atomic --force-with-lease``, at its own hub. fsync is off on both sides.
"""

from __future__ import annotations

import itertools
import subprocess
from typing import TYPE_CHECKING

import pygit2

import clia
from benchmarks.measure import Row, in_turns
from benchmarks.places import place
from clia.values import refs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SETTINGS = clia.Settings(durable=False, person=("Bench", "bench@example.org"))
KEYS = ("hub-commit", "hub-trace", "hub-spawn")
AGENT = "scout"
_SIGNATURE = pygit2.Signature("bench", "bench@example.org", 0, 0)
_GIT = ("git", "-c", "core.fsync=none")


def rows(rounds: int) -> Iterator[Row]:
    with place(disk=True) as top, _sharing(top) as space:
        space.spawn(AGENT, clia.Briefing("bench"))
        at_hub = _said(top / "ours.git", "rev-parse", "--verify", "--quiet", refs.head(AGENT))
        if at_hub != space.head(AGENT):
            raise RuntimeError("no ref of an agent reached the hub: the git setting clia.hub has no effect")
        yield from _rows(space, Bare(top), rounds)


def _sharing(top: Path) -> clia.Space:
    """A space that has a hub."""
    _bare(top / "ours.git")
    clia.init(top / "ours", settings=SETTINGS).close()
    _run(top / "ours", "remote", "add", "hub", str(top / "ours.git"))
    _run(top / "ours", "config", "clia.hub", "hub")
    return clia.open(top / "ours", settings=SETTINGS)


def _rows(space: clia.Space, floor: Bare, rounds: int) -> Iterator[Row]:
    count = itertools.count()

    def commit() -> None:
        space.commit(AGENT, "finding", changes={"x": b"%d\n" % next(count)})

    def commit_with_trace() -> None:
        space.trace(AGENT, "console", "what was said")
        space.commit_with_trace(AGENT, "finding", changes={"x": b"%d\n" % next(count)})

    def spawn() -> None:
        space.spawn(f"a{next(count)}", clia.Briefing("bench"))

    head, note = refs.head(AGENT), refs.TRACES + AGENT
    ours = [commit, commit_with_trace, spawn]
    theirs = [floor.moving([head]), floor.moving([head, note]), floor.making()]
    first, two, three, *floors = in_turns([*ours, *theirs], rounds)
    for key, cost, low in zip(KEYS, (first, two, three), floors, strict=True):
        yield Row(key, cost, low)


class Bare:
    """A repository, its hub, and git."""

    def __init__(self, top: Path) -> None:
        self._path, self._hub = top / "floor", str(top / "floor.git")
        _bare(top / "floor.git")
        self._repo = pygit2.init_repository(str(self._path))
        self._count = itertools.count()

    def moving(self, names: Sequence[str]) -> Callable[[], None]:
        """Move refs, each to a new commit; the commits are created first."""
        return lambda: self._step(names)

    def making(self) -> Callable[[], None]:
        """Create the two refs of an agent."""

        def make() -> None:
            name = f"a{next(self._count)}"
            self._step([refs.RECORDS + name, refs.head(name)])

        return make

    def _step(self, names: Sequence[str]) -> None:
        subprocess.run(
            [*_GIT, "fetch", "--quiet", "--no-tags", self._hub, *(f"+{prefix}*:refs/there/{prefix}*" for prefix in names)],
            cwd=self._path,
            check=True,
        )
        moves = [(name, self._head(name), self._commit(name)) for name in names]
        leases = [f"--force-with-lease={ref}:{old or ''}" for ref, old, _ in moves]
        words = [
            *_GIT,
            "push",
            "--quiet",
            "--atomic",
            "--no-verify",
            *leases,
            self._hub,
            *(f"{new}:{ref}" for ref, _, new in moves),
        ]
        subprocess.run(words, cwd=self._path, check=True)
        for ref, _, new in moves:
            self._repo.references.create(ref, new, force=True)

    def _head(self, ref: str) -> pygit2.Oid | None:
        reference = self._repo.references.get(ref)
        return None if reference is None else reference.peel(pygit2.Commit).id

    def _commit(self, ref: str) -> pygit2.Oid:
        blob = self._repo.create_blob(b"%d\n" % next(self._count))
        index = pygit2.Index()
        index.add(pygit2.IndexEntry("x", blob, pygit2.enums.FileMode.BLOB))
        before = self._head(ref)
        return self._repo.create_commit(
            None, _SIGNATURE, _SIGNATURE, "next", index.write_tree(self._repo), [before] if before else []
        )


def _bare(path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    _run(path, "config", "core.fsync", "none")


def _run(path: Path, *words: str) -> None:
    subprocess.run([*_GIT, *words], cwd=path, check=True)


def _said(path: Path, *words: str) -> str:
    return subprocess.run([*_GIT, *words], cwd=path, check=False, capture_output=True, text=True).stdout.strip()
