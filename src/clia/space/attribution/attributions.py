"""Attribution: finds the lines of people's commits that agents wrote.

Invariant: the attribution of a commit follows from the commit, its parents and the commits of agents. It does not depend on the
order in which commits are processed, nor on the attribution of other commits. An agent's commit that descends from a commit cannot
be the source of its lines. The result is a note on the commit; people's branches, files and index are not touched. Nothing is
fetched.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from clia.errors import CliaError, NoSuchObject
from clia.space.attribution.index import FILE_MAX, INDEX, renamed_from
from clia.space.attribution.line_matching import (
    WrittenVersion,
    added_lines,
    bare_lines,
    is_distinctive,
    lines_of,
    match_lines,
    written_lines,
)
from clia.space.attribution.notes import (
    ATTRIBUTION_LOCK,
    CommitAttribution,
    LineAuthor,
    from_bytes,
    merge_notes,
    to_bytes,
)
from clia.space.attribution.running_turns import lines_of_turn
from clia.space.core import UNREADABLE
from clia.space.model import agent_commit
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Any

    from clia.git.line_diff import ChangedFile, GitLineDiffs
    from clia.space.attribution.index import AgentVersion, AttributionIndex, IndexUpdate
    from clia.space.attribution.running_turns import TurnCommit
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit

TIPS, _MARKS_MAX = f"{INDEX}tips", 50
CAPTURE, HEAD = "capture", "head"
"""The open field of a captured turn, and its entry for the commit that people had checked out when the turn started."""
CAUGHT_UP_AT_ONCE, _REPAIRED_AT_ONCE = 500, 10_000
_INDEXED_AT_ONCE = 20_000
_LOOK_BACK = 50
"""Commits to look at again after a turn: people may have committed files that an agent was still writing."""
_WORK_MAX = 20_000_000
"""Lines to compare for one commit; the files beyond are unknown."""
_REMEMBERED, _REMEMBERED_LINES, _READ_ALWAYS = 64, 2_000_000, 3

_Source = tuple[str, "AgentVersion"]


class Attributed(NamedTuple):
    """The attributions of some commits. A commit that is in neither field has only lines of people."""

    commits: Mapping[str, CommitAttribution]
    unknown: frozenset[str]  # commits that could not be compared, because objects or the index are incomplete


class Attributions:
    """``running``: the commits of tools whose turns are still running, so that no commit of an agent has their lines yet."""

    def __init__(
        self,
        core: Core,
        envelope: Envelope,
        diffs: GitLineDiffs,
        index: AttributionIndex,
        running: Callable[[], Mapping[str, TurnCommit]] = dict,
    ) -> None:
        self._core = core
        self._diffs = diffs
        self._running = running
        self._envelope = envelope
        self._index = index
        self._matching = CommitMatching(core, diffs, index)
        self._chains: dict[tuple[str, str], frozenset[str]] = {}

    def agents_own(self, commits: Iterable[AgentCommit]) -> set[str]:
        """The commits that agents made themselves, without copies that people rebased, squashed or amended."""
        by_agent: dict[str, list[str]] = {}
        for commit in commits:
            if commit.agent is not None:
                by_agent.setdefault(commit.agent, []).append(commit.cid)
        return {cid for name, cids in by_agent.items() for cid in self._own(name, cids)}

    def _own(self, name: str, cids: list[str]) -> Iterable[str]:
        core = self._core
        tip = core.refs.get(names.head(name)) or core.refs.get(names.archived(name)) if names.is_name(name) else None
        if tip is None:
            return cids  # the agent is not here: only its trailer is known
        if (name, tip) not in self._chains:
            own: list[AgentCommit] = []
            with suppress(*UNREADABLE):
                own.extend(core.made_by(name, tip))
            self._chains = {(name, tip): frozenset(commit.cid for commit in own)}
        chain = self._chains[name, tip]
        others = [cid for cid in cids if cid not in chain]
        tracked = [cid for ref, cid in core.refs.under(names.REMOTES) if ref.endswith(f"/agents/{name}")] if others else []
        return [cid for cid in cids if cid in chain or any(core.contains(head, cid) for head in tracked)]

    def of(self, commits: Iterable[str]) -> Attributed:
        """The attributions of commits of people. Missing notes are written, but not what running turns add to them."""
        wanted = list(dict.fromkeys(commits))
        return self._with_running(self._recorded(wanted), wanted)

    def _with_running(self, attributed: Attributed, commits: Sequence[str]) -> Attributed:
        running = self._running() if commits else {}
        files: dict[str, CommitAttribution] = {}
        for cid in commits:
            if cid in running:
                note = attributed.commits.get(cid, CommitAttribution({}, frozenset()))
                with suppress(*UNREADABLE):
                    by_turn = lines_of_turn(self._core.objects, self._diffs, cid, running[cid])
                    merged = {path: {**lines, **note.files.get(path, {})} for path, lines in by_turn.items()}
                    files[cid] = note._replace(files={**note.files, **merged})
        return attributed._replace(commits={**attributed.commits, **files}) if files else attributed

    def _recorded(self, wanted: Sequence[str]) -> Attributed:
        attributions = self._noted(wanted)
        missing = [cid for cid in wanted if cid not in attributions]
        if not missing:
            return Attributed(attributions, frozenset())
        if not self._updated().complete:
            return Attributed(attributions, frozenset(missing))
        computed, unknown = self._compute(missing)
        with suppress(CliaError):  # the repository may be read-only, or the hub away
            self._write(computed)
        return Attributed({**attributions, **computed}, unknown)

    def of_worktree_file(self, paths: Sequence[str], data: bytes, new: AbstractSet[int]) -> dict[int, LineAuthor] | None:
        """The agents that wrote lines of a file that are not committed yet: index of the line, author; None: unknown.

        ``paths`` are the path of the file and those that it had in commits.
        """
        return self._matching.match_worktree_file(paths, data, new) if self._updated().complete else None

    def catch_up(self, tips: Sequence[str], limit: int = CAUGHT_UP_AT_ONCE) -> int:
        """Attribute the newest commits of branches that were not looked at yet, at most ``limit``; return how many got a note."""
        core, row = self._core, self._core.store.get(TIPS)
        marks = [] if row is None else [mark for mark in row.value if core.objects.kind(mark) == "commit"]
        update = self._updated(limit)
        new = [tip for tip in tips if not any(core.contains(mark, tip) for mark in marks)]
        if not update.complete or (update.since is None and not new):
            return 0
        commits = self._since(tips, marks, update.since, limit)
        own = self.agents_own(commits)
        people = [commit.cid for commit in commits if commit.cid not in own]
        computed, _ = self._compute(people[::-1])
        written = self._write(computed)
        if new:
            marks = [*(mark for mark in marks if not any(core.contains(tip, mark) for tip in new)), *new]
            with core.store.writing() as transaction:
                transaction.values.put(TIPS, marks[-_MARKS_MAX:])
        return len(computed) if written else 0

    def catch_up_branches(self) -> int:
        """Attribute the newest commits of people's branches; return how many got a note."""
        return self.catch_up(people_tips(self._core))

    def unread(self) -> list[str]:
        """The commits of agents that were not read yet; a partial clone may have to fetch their files."""
        return self._index.unread()

    def repair(self, tips: Sequence[str]) -> None:
        """Compare the commits of branches with the agents' lines again, and add missing lines to their notes."""
        if self._updated().complete and tips:
            commits = list(map(agent_commit, self._core.graph.newest(tips, _REPAIRED_AT_ONCE)))
            own = self.agents_own(commits)
            people = [commit.cid for commit in commits if commit.cid not in own]
            self._write(self._compute(people[::-1])[0])

    def _updated(self, limit: int = _INDEXED_AT_ONCE) -> IndexUpdate:
        update = self._index.update(limit)
        if update.changed:
            self._matching.forget()
        return update

    def _since(self, tips: Sequence[str], marks: Sequence[str], since: int | None, limit: int) -> list[AgentCommit]:
        """The commits to attribute, the newest first."""
        graph = self._core.graph
        commits = list(islice(graph.walk(tips, marks), limit)) if marks else graph.newest(tips, limit)
        if since is not None:
            commits += [commit for commit in graph.newest(tips, _LOOK_BACK) if commit.committer.at >= since]
        return list(map(agent_commit, dict.fromkeys(commits)))

    def _noted(self, commits: Sequence[str]) -> dict[str, CommitAttribution]:
        core = self._core
        blobs = core.notes.among(names.ATTRIBUTION, commits)
        notes = {cid: from_bytes(core.objects.blob(blob)) for cid, blob in blobs.items()}
        return {cid: note for cid, note in notes.items() if note is not None}

    def _compute(self, commits: Sequence[str]) -> tuple[dict[str, CommitAttribution], frozenset[str]]:
        cut_off = self._core.graph.cut_off() if commits else frozenset()
        computed: dict[str, CommitAttribution] = {}
        unknown = set(commits) & cut_off  # their parents are not here, so which lines they add is unknown
        for cid in commits:
            if cid not in unknown:
                try:
                    attribution = self._matching.attribute(cid)
                except UNREADABLE:
                    unknown.add(cid)
                    continue
                if attribution is not None:
                    computed[cid] = attribution
        return computed, frozenset(unknown)

    def _write(self, attributions: Mapping[str, CommitAttribution]) -> bool:
        if not attributions:
            return False
        core = self._core
        notes = {cid: to_bytes(attribution) for cid, attribution in attributions.items()}
        core.fresh(ATTRIBUTION_LOCK)
        with self._envelope.among_others(), core.locks.hold(ATTRIBUTION_LOCK):
            return core.notes.bind_all(names.ATTRIBUTION, notes, core.person_stamp(), "Lines by agents\n", merge_notes)


def people_tips(core: Core) -> list[str]:
    """The heads of people's branches; if there are many, of those that were committed to last."""
    tips = {cid for ref, cid in core.refs.under(names.BRANCHES) if not ref.startswith(names.HEADS)}
    return nlargest(_MARKS_MAX, sorted(tips), key=lambda cid: core.objects.commit(cid).committer.at)


class _PathVersions:
    """The agents' versions of a file, the newest first. They are read only as far as needed, because some files have many."""

    def __init__(self, sources: list[_Source], read: Callable[[_Source], WrittenVersion | None]) -> None:
        self.sources = sources
        self._read = read
        self._count = 0  # versions that were read
        self._exact: set[bytes] = set()
        self._numbers: dict[bytes, list[int]] = {}  # the versions in which a text, without whitespace, was written

    def with_any(self, lines: Sequence[bytes]) -> list[_Source]:
        """The versions in which any of the lines was written; older ones are left out if newer ones have all of the lines."""
        while self._count < len(self.sources) and (self._count < _READ_ALWAYS or self._lacks(lines)):
            version = self._read(self.sources[self._count])
            written = [] if version is None else [version.lines[line] for line in version.written]
            self._exact.update(written)
            for text in set(bare_lines(written)):
                self._numbers.setdefault(text, []).append(self._count)
            self._count += 1
        numbers = {number for text in set(bare_lines(lines)) for number in self._numbers.get(text, ())}
        return [self.sources[number] for number in sorted(numbers)]

    def _lacks(self, lines: Sequence[bytes]) -> bool:
        """Whether some line is in none of the versions that were read. A look-up is faster than the test of a line."""
        return any(line not in self._exact and is_distinctive(line) for line in lines)


class CommitMatching:
    """Matches the lines of commits with the versions of agents."""

    def __init__(self, core: Core, diffs: GitLineDiffs, index: AttributionIndex) -> None:
        self._core = core
        self._diffs = diffs
        self._index = index
        self._changed: dict[str, dict[str, ChangedFile]] = {}
        self._loaded: dict[_Source, WrittenVersion | None] = {}
        self._paths: dict[tuple[str, ...], _PathVersions] = {}

    def forget(self) -> None:
        """Read the index again: agents have new commits."""
        self._paths.clear()

    def attribute(self, cid: str) -> CommitAttribution | None:
        """The attribution of a commit; None if agents wrote to none of its files."""
        files: dict[str, dict[int, LineAuthor]] = {}
        unknown: set[str] = set()
        budget, relevant = _WORK_MAX, False
        changed = self._diffs.changed_files(cid)
        tree = self._core.objects.commit(cid).tree
        for file in changed:
            path_versions = self._versions(file, cid, tree)
            if not path_versions.sources:
                continue
            relevant = True
            contents = self._contents(file)
            if contents is None:
                unknown.add(file.path)
                continue
            data, previous = contents
            # Git may see a renamed file as a new one; then it blames this commit for all of its lines.
            lines, added = lines_of(data), added_lines(data, [] if renamed_from(file) else previous)
            sources = path_versions.with_any([lines[line] for line in added])
            budget -= len(lines) * len(sources)
            if budget < 0:
                unknown.add(file.path)
                continue
            files[file.path] = self._matched(cid, lines, added, sources)
        return CommitAttribution(files, frozenset(unknown)) if relevant else None

    def match_worktree_file(self, paths: Sequence[str], data: bytes, new: AbstractSet[int]) -> dict[int, LineAuthor] | None:
        """The authors of new lines of a file in the worktree; None if they cannot be compared."""
        earlier = [older for path in paths for older in self._index.paths(path)]
        head = self._core.objects.expand("HEAD")
        tree = None if head is None else self._core.objects.commit(head).tree
        if tree is None or self._core.objects.entry(tree, paths[0]) is None:
            earlier += [older for path in self._resembled(data, paths[0], tree) for older in self._index.paths(path)]
        versions = _PathVersions(self._index.versions(dict.fromkeys(earlier)), self._version)
        if not versions.sources:
            return {}
        lines = lines_of(data)
        try:
            sources = versions.with_any([lines[line] for line in sorted(new)])
            if len(data) > FILE_MAX or len(lines) * len(sources) > _WORK_MAX:
                return None
            written = [(source[1], version) for source in sources if (version := self._version(source)) is not None]
        except UNREADABLE:
            return None
        matches = match_lines(lines, new, [version for _, version in written])
        return {line: LineAuthor(written[number][0].agent, written[number][0].commit) for line, number in matches.items()}

    def _matched(self, cid: str, lines: Sequence[bytes], added: set[int], sources: Sequence[_Source]) -> dict[int, LineAuthor]:
        eligible = [source for source in sources if not self._came_later(source[1].commit, cid)]
        versions = [(source, version) for source in eligible if (version := self._version(source)) is not None]
        matches = match_lines(lines, added, [version for _, version in versions])
        authors = [LineAuthor(version.agent, version.commit) for (_, version), _ in versions]
        return {line + 1: authors[number] for line, number in matches.items()}

    def _came_later(self, agents: str, cid: str) -> bool:
        """Whether an agent's commit, or the turn that it records, started when a commit was already there."""
        core = self._core
        capture = core.read(agents).meta.get(CAPTURE)
        head = capture.get(HEAD) if isinstance(capture, dict) else None
        return core.contains(agents, cid) or (names.is_id(head) and core.contains(str(head), cid))

    def _contents(self, file: ChangedFile) -> tuple[bytes, list[bytes | None]] | None:
        """The content of a file now and before; None if it is binary or too large to compare."""
        blobs = [file.blob, *(previous.blob for previous in file.previous)]
        for blob in blobs:
            if blob is not None and self._core.objects.size(blob) > FILE_MAX:
                return None
        data, *previous = [None if blob is None else self._core.objects.blob(blob) for blob in blobs]
        if data is None or b"\0" in data[:8000]:
            return None
        return data, previous

    def _versions(self, file: ChangedFile, cid: str, tree: str) -> _PathVersions:
        """The versions that lines of a file may come from."""
        earlier = renamed_from(file)
        if all(previous.blob is None or previous.path != file.path for previous in file.previous):
            earlier += self._moved_from(file, cid, tree)
        if earlier:
            self._index.record_renames(file.path, earlier)
        paths = tuple(self._index.paths(file.path))
        if paths not in self._paths:
            self._paths[paths] = _PathVersions(self._index.versions(paths), self._version)
        return self._paths[paths]

    def _moved_from(self, file: ChangedFile, cid: str, tree: str) -> list[str]:
        """The paths that a file may have been moved from before it was committed.

        There may be others than the file that git reports, because a file can be moved several times between two commits.
        """
        objects = self._core.objects
        if objects.size(file.blob) > FILE_MAX:
            return []
        return self._resembled(objects.blob(file.blob), file.path, tree, lambda path: self._wrote_before(path, cid))

    def _resembled(self, data: bytes, own: str, tree: str | None, may_be: Callable[[str], bool] = lambda _: True) -> list[str]:
        """The agents' files that a file resembles most, among those that the tree no longer has."""
        exists = cache(lambda path: tree is not None and self._core.objects.entry(tree, path) is not None)
        similar = self._index.similar(data, lambda path: path != own and exists(path))
        gone = [path for path in similar if not exists(path) and may_be(path)]
        most = max((similar[path] for path in gone), default=0)
        return sorted(path for path in gone if similar[path] == most)

    def _wrote_before(self, path: str, cid: str) -> bool:
        """Whether an agent wrote to a path before a commit was made, so that a file of the commit may come from there."""
        return any(not self._came_later(version.commit, cid) for _, version in self._index.versions([path]))

    def _version(self, source: _Source) -> WrittenVersion | None:
        """An agent's version of a file; None if it cannot be read here."""
        if source not in self._loaded:
            version = self._load(*source)
            _make_room(self._loaded)
            lines = sum(len(loaded.lines) for loaded in self._loaded.values() if loaded is not None)
            if version is not None and lines + len(version.lines) > _REMEMBERED_LINES:
                self._loaded.clear()
            self._loaded[source] = version
        return self._loaded[source]

    def _load(self, path: str, version: AgentVersion) -> WrittenVersion | None:
        try:
            if version.commit not in self._changed:
                _make_room(self._changed)
                self._changed[version.commit] = {file.path: file for file in self._diffs.changed_files(version.commit)}
            file = self._changed[version.commit].get(path)
            contents = (b"", []) if file is None else self._contents(file)
        except NoSuchObject:
            if self._diffs.is_partial():
                raise  # the lines may be the agent's: the commit is unknown, and gets no note
            return None  # the version was purged
        if contents is None:
            return None
        data, previous = contents
        return WrittenVersion(lines_of(data), written_lines(data, previous))


def _make_room(cache: dict[Any, Any]) -> None:
    while len(cache) >= _REMEMBERED:
        cache.pop(next(iter(cache)))
