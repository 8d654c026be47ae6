"""An index of the files that agents wrote, in the store.

Invariant: the index is derived from the commits of agents and can be rebuilt. The row of a path names the agents' own commits that
changed it, the oldest first. Each agent is read once, up to its head.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import suppress
from heapq import nsmallest
from itertools import takewhile
from typing import NamedTuple
from zlib import crc32

from clia.space.attribution.line_matching import bare_lines, is_distinctive, lines_of
from clia.space.attribution.notes import quoted, unquoted
from clia.space.core import UNREADABLE
from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from clia.git.line_diff import ChangedFile, GitLineDiffs
    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.store.interface import Transaction, Values

INDEX = "attribution/"
_SEEN, _READ = f"{INDEX}seen", f"{INDEX}read/"
_PATHS, _RENAMES, _SKETCHES = f"{INDEX}path/", f"{INDEX}renamed/", f"{INDEX}sketch/"
_VERSIONS_MAX = 500
"""Versions of one path that are remembered, the newest."""
_RENAMES_MAX, _DEPTH = 8, 5
_SKETCH = 16
"""Number of lines that represent a file: those with the smallest digests, so that similar files have many of them in common."""
FILE_MAX = 32 * 1024 * 1024
"""Larger files are not compared, in bytes."""


class AgentVersion(NamedTuple):
    """An agent's commit that wrote to a path."""

    at: int  # seconds since the epoch
    agent: str
    commit: str


class IndexUpdate(NamedTuple):
    complete: bool  # every commit of every agent is in the index
    since: int | None  # when the work on the commits that are new in the index started, in seconds since the epoch
    changed: bool  # the index changed since the last update by this object, also if another process changed it


class _Reading(NamedTuple):
    """The unread versions, renames and lines of one agent."""

    agent: str
    tip: str
    versions: list[tuple[str, AgentVersion]]  # path and version
    renames: list[tuple[str, str]]  # path and earlier path
    sketches: list[tuple[str, str]]  # digest of a line and path
    since: int | None


class AttributionIndex:
    def __init__(self, core: Core, diffs: GitLineDiffs) -> None:
        self._core = core
        self._diffs = diffs
        self._seen: object = None  # the state of the agents' refs at the last update

    def update(self, limit: int) -> IndexUpdate:
        """Read the agents that moved, at most about ``limit`` commits of them."""
        core, count, starts = self._core, 0, list[int]()
        row = core.store.get(_SEEN)
        look = core.refs.look([names.HEADS, names.ARCHIVE], None if row is None else row.value)
        readings: list[_Reading] = []
        complete = True
        for name in self._names(look.moved):
            if count >= limit:
                complete = False
                break
            try:
                reading, commits = self._read(name)
            except UNREADABLE:  # a partial clone lacks files of the agent
                complete = False
                continue
            if reading is not None:
                readings.append(reading)
                count += commits
                starts += [] if reading.since is None else [reading.since]
        if readings or (complete and look.state is not None and (row is None or row.value != look.state)):
            with core.store.writing() as transaction:
                for reading in readings:
                    _write(transaction, reading)
                if complete and look.state is not None:
                    transaction.values.put(_SEEN, look.state)
        state = look.state if look.state is not None else row and row.value
        changed = bool(readings) or state is None or state != self._seen
        self._seen = state
        return IndexUpdate(complete, min(starts, default=None), changed)

    def _names(self, moved: Sequence[str] | None) -> list[str]:
        prefixes = (names.HEADS, names.ARCHIVE)
        refs = moved if moved is not None else [ref for prefix in prefixes for ref, _ in self._core.refs.under(prefix)]
        agents = {ref.removeprefix(prefix) for ref in refs for prefix in prefixes if ref.startswith(prefix)}
        return sorted(filter(names.is_name, agents))

    def _read(self, name: str) -> tuple[_Reading | None, int]:
        """The unread versions, renames and lines of an agent, and the number of its new commits."""
        core = self._core
        tip = core.refs.get(names.head(name)) or core.refs.get(names.archived(name))
        mark = core.store.get(_READ + name)
        if tip is None or (mark is not None and mark.value == tip):
            return None, 0
        commits = self._new(name, tip, None if mark is None else mark.value)
        reading = _Reading(name, tip, [], [], [], self._started(commits))
        for commit in reversed(commits):
            self._add(reading, commit)
        return reading, len(commits)

    def _new(self, name: str, tip: str, until: str | None) -> list[AgentCommit]:
        """An agent's commits that are not in the index, the newest first."""
        commits: list[AgentCommit] = []
        with suppress(*UNREADABLE):  # a shallow clone, or damage: what is here counts
            commits.extend(takewhile(lambda commit: commit.cid != until, self._work(name, tip)))
        return commits

    def unread(self) -> list[str]:
        """The commits of agents that are not in the index."""
        core, commits = self._core, list[str]()
        for name in self._names(None):
            tip, mark = core.refs.get(names.head(name)) or core.refs.get(names.archived(name)), core.store.get(_READ + name)
            until = None if mark is None else mark.value
            if tip is not None and tip != until:
                commits += [commit.cid for commit in self._new(name, tip, until)]
        return commits

    def _work(self, name: str, tip: str) -> Iterator[AgentCommit]:
        """An agent's commits down to its genesis, with those that hold files as it found them."""
        for commit in map(agent_commit, self._core.graph.first_parents(tip)):
            yield commit
            yield from self._core.adopted_with(name, commit)
            if commit.agent == name and commit.kind == SPAWN:
                return

    def _started(self, commits: Sequence[AgentCommit]) -> int | None:
        """When the work on the oldest of the commits started: when the one before it was made."""
        if not commits:
            return None
        parents = commits[-1].parents
        try:
            return self._core.objects.commit(parents[0]).committer.at if parents else commits[-1].committer.at
        except UNREADABLE:
            return commits[-1].committer.at

    def _add(self, reading: _Reading, commit: AgentCommit) -> None:
        try:
            files = self._diffs.changed_files(commit.cid)
        except UNREADABLE:
            if self._diffs.is_partial():
                raise
            return
        version = AgentVersion(commit.committer.at, reading.agent, commit.cid)
        for file in files:
            reading.renames.extend((file.path, old) for old in renamed_from(file))
            if commit.agent != reading.agent or commit.kind is None:
                continue
            reading.versions.append((file.path, version))
            reading.sketches.extend((digest, file.path) for digest in self._sketch(file.blob))

    def _sketch(self, blob: str) -> list[str]:
        try:
            if self._core.objects.size(blob) > FILE_MAX:
                return []
            return sketch(self._core.objects.blob(blob))
        except UNREADABLE:
            if self._diffs.is_partial():
                raise
            return []

    # Questions

    def similar(self, data: bytes, is_other: Callable[[str], bool]) -> dict[str, int]:
        """The files of agents that resemble a file, with the number of its representative lines that they share. Lines that also
        represent another existing file are usually shared by accident, and do not count.
        """
        with self._core.store.reading() as view:
            return _similar(view.values, sketch(data), is_other)

    def paths(self, path: str) -> list[str]:
        """The paths that lines of a file may have been written to: its own, and those that it was renamed or moved from."""
        with self._core.store.reading() as view:
            paths = level = {path: None}
            for _ in range(_DEPTH):
                earlier = [old for name in level for old in _paths(view.values, _RENAMES + _digest(name))]
                level = dict.fromkeys(old for old in earlier if old not in paths)
                paths = paths | level
        return list(paths)

    def versions(self, paths: Iterable[str]) -> list[tuple[str, AgentVersion]]:
        """The versions of some paths, the newest first."""
        with self._core.store.reading() as view:
            rows = [(path, view.values.get(_PATHS + _digest(path))) for path in paths]
        versions = [(path, AgentVersion(*version)) for path, row in rows if row is not None for version in row.value]
        # The sort is stable: commits of one agent in one second stay in order.
        return sorted(versions, key=lambda item: (item[1].at, item[1].agent))[::-1]

    def record_renames(self, path: str, earlier: Sequence[str]) -> None:
        """Remember that people renamed or moved a file."""
        with self._core.store.reading() as view:
            missing = set(earlier) - set(_paths(view.values, _RENAMES + _digest(path))) - {path}
        if missing:
            with self._core.store.writing() as transaction:
                for old in sorted(missing):
                    _add_path(transaction, _RENAMES + _digest(path), old)


def renamed_from(file: ChangedFile) -> list[str]:
    return [old.path for old in file.previous if old.blob is not None and old.path != file.path]


def sketch(data: bytes) -> list[str]:
    """The digests of the lines that represent a file."""
    lines = bare_lines(lines_of(data))
    digests = dict(zip(map(crc32, lines), lines, strict=True))
    smallest = nsmallest(4 * _SKETCH, digests)  # blank lines and brackets are left out below, which is faster
    return [f"{digest:08x}" for digest in smallest if is_distinctive(digests[digest])][:_SKETCH]


def _similar(values: Values, digests: Sequence[str], is_other: Callable[[str], bool]) -> dict[str, int]:
    """The files that share a quarter of a file's representative lines, and at least three of them (two if there are only two)."""
    holders = [list(_paths(values, _SKETCHES + digest)) for digest in digests]
    shared = Counter(path for paths in holders if not any(map(is_other, paths)) for path in paths)
    return {path: count for path, count in shared.items() if count >= max(2, min(3, len(digests))) and 4 * count >= len(digests)}


def _digest(path: str) -> str:
    return hashlib.sha1(path.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def _write(transaction: Transaction, reading: _Reading) -> None:
    versions: dict[str, list[AgentVersion]] = {}
    for path, version in reading.versions:
        versions.setdefault(path, []).append(version)
    for path, new in versions.items():
        key = _PATHS + _digest(path)
        row = transaction.values.get(key)
        present = [] if row is None else [AgentVersion(*version) for version in row.value]
        missing = [version for version in new if version not in present]
        merged = sorted([*present, *missing], key=lambda version: (version.at, version.agent))
        transaction.values.put(key, [list(version) for version in merged[-_VERSIONS_MAX:]])
    for path, old in reading.renames:
        _add_path(transaction, _RENAMES + _digest(path), old)
    for digest, path in reading.sketches:
        _add_path(transaction, _SKETCHES + digest, path)
    transaction.values.put(_READ + reading.agent, reading.tip)


def _add_path(transaction: Transaction, key: str, path: str) -> None:
    present = list(_paths(transaction.values, key))
    if path not in present:
        transaction.values.put(key, [*map(quoted, present), quoted(path)][-_RENAMES_MAX:])


def _paths(values: Values, key: str) -> Iterator[str]:
    row = values.get(key)
    yield from () if row is None else map(unquoted, row.value)
