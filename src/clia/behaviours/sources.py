"""The sources of observations: each agent's branch, events and traces, and the branches that its work landed on.

Invariant: a source is read incrementally only if nothing that was read has changed meaning; otherwise ``read_since`` returns
None, and the whole source is read. ``memo`` holds what incremental reading needs: ended sessions, refused merges, landings.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from clia.behaviours.observing import (
    GAP,
    LANDED,
    LANDED_AFTER,
    REVERTED,
    SESSION,
    HistoryReader,
    LandedWork,
    Observation,
    check_complete_history,
    ended_of,
    gap,
    gap_of,
    landing_of,
    of_commit,
    of_refusal,
    of_trace,
    subjects_between,
    subjects_of,
)
from clia.behaviours.statistics import rounded
from clia.errors import CliaError
from clia.space.events import event_of
from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.git.records import Commit
    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.store.interface import Values

BRANCH, EVENTS, TRACES, PEOPLE = "branch", "events", "traces", "people"
PEOPLE_NAME = f"{PEOPLE}/branches"
_FETCHED = "refs/remotes/origin/"
READ, LANDINGS = "behaviours/read/", "behaviours/landings/"
_LOOK_BACK = 20
"""Earlier landings to check per branch: a head usually contains all before it, and there may be thousands."""
_NOTHING_YET: Mapping[str, Any] = {"ended": [], "refused": [], "landed": []}
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40})\b", re.MULTILINE)


class SourceReading(NamedTuple):
    """The result of reading a source."""

    observations: list[Observation]
    memo: Any

    @property
    def missing(self) -> list[str] | None:
        """The ids of missing objects, if known; None if nothing is missing."""
        missing = sorted({observation.origin for observation in self.observations if observation.key == GAP})
        return ([] if missing[0] == "" else missing) if missing else None


class ObservationSource:
    """A source and its tip; without a tip it no longer exists."""

    def __init__(self, kind: str, of: str, tip: Any) -> None:
        self.kind = kind
        self.of = of
        self.tip = tip

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.of}"

    def read_since(self, record: HistoryReader, mark: Any, memo: Any) -> SourceReading | None:
        """Read what was added after ``mark``; None if that is not possible. May fail where ``read_all`` does not."""
        del record, mark, memo
        return None

    def read_all(self, record: HistoryReader) -> SourceReading:
        """Read everything; ``CliaError`` if nothing can be read."""
        raise NotImplementedError


def of_agents(core: Core) -> list[ObservationSource]:
    """The sources of every agent, active or archived."""
    sources: dict[str, ObservationSource] = {}
    for kind, prefix in (
        (_AgentBranch, names.ARCHIVE),
        (_AgentBranch, names.HEADS),
        (_AgentEvents, names.EVENTS),
        (_AgentTraces, names.TRACES),
    ):
        for ref, tip in core.refs.under(prefix):
            name = ref.removeprefix(prefix)
            if names.is_name(name):
                source = kind(name, tip)
                sources[source.name] = source
    return list(sources.values())


class _AgentBranch(ObservationSource):
    """An agent's own commits."""

    def __init__(self, name: str, tip: str) -> None:
        super().__init__(BRANCH, name, tip)

    def read_since(self, record: HistoryReader, mark: Any, memo: Any) -> SourceReading | None:
        del memo
        return self._read(record, mark) if names.is_id(mark) else None

    def read_all(self, record: HistoryReader) -> SourceReading:
        return self._read(record, None) or SourceReading([], None)

    def _read(self, record: HistoryReader, until: str | None) -> SourceReading | None:
        """The agent's own commits down to ``until`` (None if it is not an ancestor), or to the first."""
        observations: list[Observation] = []
        last = None
        for last in record.core.graph.first_parents(self.tip):
            if last.cid == until:
                return SourceReading(observations, None)
            commit = record.read(last)
            if commit.agent == self.of and commit.kind is not None:
                observations += of_commit(record, commit)
                if commit.kind == SPAWN:
                    return None if until else SourceReading(observations, None)
        if until:
            return None
        # A branch created by plain git has no spawn commit but is complete.
        if last is not None and (last.parents or last.cid in record.cut_off):
            observations.append(gap(last.parents[0] if last.parents else last.cid))
        return SourceReading(observations, None)


class _AgentEvents(ObservationSource):
    """An agent's event chain: ended sessions, refused merges, landings."""

    def __init__(self, name: str, tip: str) -> None:
        super().__init__(EVENTS, name, tip)

    def read_since(self, record: HistoryReader, mark: Any, memo: Any) -> SourceReading | None:
        core = record.core
        if not _is_ancestor(core, self.tip, mark) or not isinstance(memo, dict):
            return None
        new = list(core.graph.walk([self.tip], [mark]))
        if any(len(commit.parents) > 1 for commit in new):
            return None  # chains were merged: new events may be older than those already read
        return self._read(record, new, memo)

    def read_all(self, record: HistoryReader) -> SourceReading:
        core = record.core
        commits = list(core.graph.walk([self.tip]))
        reading = self._read(record, commits, _NOTHING_YET) or SourceReading([], _NOTHING_YET)
        cut = sorted(record.cut_off.intersection(commit.cid for commit in commits))
        return reading._replace(observations=[*reading.observations, *map(gap, cut)])

    def _read(self, record: HistoryReader, commits: Sequence[Commit], memo: Mapping[str, Any]) -> SourceReading | None:
        """Read events; None if a session that ended before was reopened and ended again."""
        before, refused = frozenset(memo["ended"]), set(memo["refused"])
        landed = [_landing(row) for row in memo["landed"]]
        recorded = {(landing.cid, landing.head, landing.onto) for landing in landed}
        observations: list[Observation] = []
        last: dict[str, list[Observation]] = {}
        profile = _profile_of(record.core, self.of) if commits else None
        for commit in reversed(commits):
            body = event_of(commit) or {}
            at, origin = commit.committer.at, commit.cid
            end = ended_of(body)
            if end is not None and end.session in before:
                return None
            if end is not None:
                subjects = (end.behaviour,) if profile is None else (end.behaviour, profile)
                last[end.session] = [Observation(subject, SESSION + end.status, at, origin) for subject in subjects]
            if body.get("event") == "merge-refused":
                heads = body.get("ours"), body.get("theirs")
                pair = f"{heads[0]}..{heads[1]}"
                if all(map(names.is_id, heads)) and pair not in refused:  # a repeated attempt is not a new observation
                    refused.add(pair)
                    observations += of_refusal(record, body, at, origin)
            landing = landing_of(body, at)
            if landing is not None and (landing.cid, landing.head, landing.onto) not in recorded:
                recorded.add((landing.cid, landing.head, landing.onto))
                landed.append(self._landed(record, landing, landed, observations))
        observations += [observation for ends in last.values() for observation in ends]
        after = {
            "ended": sorted(before.union(last)),
            "refused": sorted(refused),
            "landed": [[*landing[:5], list(landing.subjects)] for landing in landed],
        }
        return SourceReading(observations, after)

    def _landed(
        self, record: HistoryReader, landing: LandedWork, before: Sequence[LandedWork], observations: list[Observation]
    ) -> LandedWork:
        """The landing with the subjects of what was new in it: a squash does not show what earlier ones brought."""
        hidden = [earlier.head for earlier in before if earlier.onto == landing.onto][-_LOOK_BACK:]
        try:
            hidden += [] if landing.base is None else [landing.base, *_squashed(record, self.of, landing.head, landing.base)]
            oldest = subjects_between(record, landing.head, hidden)
        except CliaError as err:
            observations.append(gap_of(err))
            return landing
        for subject, began in oldest.items():
            observations.append(Observation(subject, LANDED, landing.at, landing.cid))
            observations.append(Observation(subject, LANDED_AFTER + str(rounded(landing.at - began)), landing.at, landing.cid))
        return landing._replace(subjects=tuple(sorted(oldest)))


def _profile_of(core: Core, agent: str) -> str | None:
    """The profile in an agent's record; None if it works under no identity, or the record is not here."""
    try:
        tip = core.refs.get(names.record(agent))
        entry = None if tip is None else core.objects.entry(core.objects.commit(tip).tree, "profile.json")
    except CliaError:
        return None
    return None if entry is None else entry.cid


def _squashed(record: HistoryReader, agent: str, head: str, base: str) -> list[str]:
    """The heads of other agents that were squashed onto a branch since it diverged from ``head``; git does not record them."""
    check_complete_history(record, head, base)
    squashes = (record.squashed(cid) for cid in record.between(base, [head]))
    return [squash[1] for squash in squashes if squash is not None and squash[0] != agent]


class _AgentTraces(ObservationSource):
    """The traces that are bound to an agent's commits."""

    def __init__(self, name: str, tip: str) -> None:
        super().__init__(TRACES, name, tip)

    def read_since(self, record: HistoryReader, mark: Any, memo: Any) -> SourceReading | None:
        del memo
        core = record.core
        if not names.is_id(mark) or core.objects.kind(mark) != "commit":
            return None
        before, now = self._notes(core, mark), self._notes(core, self.tip)
        if any(now.get(commit) != blob for commit, blob in before.items()):
            return None  # a trace was replaced or removed
        return self._of(record, {commit: blob for commit, blob in now.items() if commit not in before})

    def read_all(self, record: HistoryReader) -> SourceReading:
        return self._of(record, self._notes(record.core, self.tip))

    def _notes(self, core: Core, tip: str) -> dict[str, str]:
        entries = core.objects.entries(core.objects.commit(tip).tree)
        return {path.replace("/", ""): entry.cid for path, entry in entries.items() if names.is_id(path.replace("/", ""))}

    def _of(self, record: HistoryReader, notes: Mapping[str, str]) -> SourceReading:
        observations = [observation for commit, blob in notes.items() for observation in of_trace(record, commit, blob)]
        return SourceReading(observations, None)


# Reverts


def of_people(core: Core, landings: Mapping[str, list[Any]], memo: Any) -> ObservationSource:
    """The branches that work landed on, with all landings: both determine what a revert refers to."""
    by_agent = {agent: [_landing(row) for row in rows] for agent, rows in landings.items()}
    return _PeopleBranches(tips_of(core, sorted({landing.onto for rows in by_agent.values() for landing in rows})), by_agent, memo)


def tips_of(core: Core, refs: Iterable[str]) -> dict[str, str | None]:
    """The tips of branches; for missing ones, the tip at the last fetch."""
    return {ref: _tip(core, ref) or _tip(core, _FETCHED + ref.removeprefix(names.BRANCHES)) for ref in refs}


def _tip(core: Core, ref: str) -> str | None:
    try:
        return core.refs.get(ref)
    except CliaError:  # an event can contain an invalid branch name
        return None


class _PeopleBranches(ObservationSource):
    """Reverts on branches that are not an agent's; recomputed each time because one can undo another. Commits are walked once."""

    def __init__(self, tips: Mapping[str, str | None], landings: Mapping[str, list[LandedWork]], memo: Any) -> None:
        super().__init__(PEOPLE, "branches", {"tips": dict(tips)})
        self._tips = sorted({tip for tip in tips.values() if tip is not None})
        self._landings = landings
        self._memo = memo if isinstance(memo, dict) else {}

    def read_all(self, record: HistoryReader) -> SourceReading:
        core = record.core
        old, cut = self._old(core), record.cut_off
        walked, reverts = self._known(core, old)
        missing: list[str] = []
        for commit in core.graph.walk(self._tips, [*old, *walked]):
            target = _REVERTS.search(commit.message)
            if target is not None:
                reverts.append((commit.cid, target[1], commit.committer.at))
            if commit.cid in cut:
                missing.append(commit.cid)
        observations = [*self._reverted(core, reverts), *map(gap, sorted(missing))]
        return SourceReading(observations, {"tips": self._tips, "old": old, "reverts": sorted(reverts)} if not missing else None)

    def _known(self, core: Core, old: list[str]) -> tuple[list[str], list[tuple[str, str, int]]]:
        """Where the last walk stopped, and its reverts; empty if branches were rewritten."""
        walked = self._memo.get("tips", [])
        if self._memo.get("old") != old or not all(any(_is_ancestor(core, tip, cid) for tip in self._tips) for cid in walked):
            return [], []
        return walked, [(cid, target, at) for cid, target, at in self._memo["reverts"]]

    def _old(self, core: Core) -> list[str]:
        """The tip of each branch before its first landing; older commits cannot revert a landing."""
        first: dict[str, LandedWork] = {}
        for rows in self._landings.values():
            for row in rows:
                if row.onto not in first or row.at < first[row.onto].at:
                    first[row.onto] = row
        bases = [landing.base for landing in first.values()]
        if None in bases or len(set(bases)) > 1:
            return []  # one branch may have been created from another later
        return [cid for cid in bases if cid is not None and core.objects.kind(cid) == "commit"]

    def _reverted(self, core: Core, reverts: Sequence[tuple[str, str, int]]) -> Iterator[Observation]:
        """Reverts, dated by their landing, so that a period shows how much of its work was reverted."""
        latest: dict[tuple[str, str], tuple[int, Observation]] = {}
        effective = effective_reverts({cid: target for cid, target, _ in reverts})
        for cid, target, at in sorted(reverts):
            for landing, subject in self._about(core, cid, target) if cid in effective else ():
                observation = Observation(subject, REVERTED, landing.at, cid)
                latest[landing.cid, subject] = max(latest.get((landing.cid, subject), (at, observation)), (at, observation))
        return (observation for _, observation in latest.values())

    def _about(self, core: Core, revert: str, target: str) -> list[tuple[LandedWork, str]]:
        """The landings and subjects that a commit reverted."""
        if core.objects.kind(target) != "commit":
            return []
        commit = agent_commit(core.objects.commit(target))
        if commit.landed:
            landed = [landing for landing in self._landings.get(commit.landed, ()) if landing.cid == target]
            reverted = [landing for landing in landed if self._is_reverted(core, landing, revert)]
            return [(landing, subject) for landing in reverted for subject in landing.subjects]
        return [pair for subject in subjects_of(commit) for pair in self._of_subject(core, commit, subject, revert)]

    def _of_subject(self, core: Core, commit: AgentCommit, subject: str, revert: str) -> list[tuple[LandedWork, str]]:
        """The landings of one of a commit's subjects that a revert of the commit took back."""
        first: dict[str, LandedWork] = {}  # by branch; later landings repeat the first
        rows = [landing for landing in self._landings.get(commit.agent or "", ()) if subject in landing.subjects]
        for landing in sorted(rows, key=lambda row: row.at < commit.committer.at):  # usually the first landing after the commit
            if landing.onto not in first and core.graph.descends(landing.head, commit.cid):
                first[landing.onto] = landing
        return [(landing, subject) for landing in first.values() if self._is_reverted(core, landing, revert)]

    def _is_reverted(self, core: Core, landing: LandedWork, revert: str) -> bool:
        """Whether the branch has the revert and the landed work does not: an agent may revert its own commit before landing."""
        tip = self.tip["tips"].get(landing.onto)
        return tip is not None and core.graph.descends(tip, revert) and not core.graph.descends(landing.head, revert)


def effective_reverts(targets: Mapping[str, str]) -> set[str]:
    """The reverts that are not undone by an effective revert. Commits cannot name later ones, so there are no cycles."""
    waiting = Counter(target for target in targets.values() if target in targets)
    ready = [cid for cid in targets if not waiting[cid]]
    undone: set[str] = set()
    for cid in ready:  # grows: a revert is handled after all reverts of it
        target = targets[cid]
        if target in targets:
            undone |= {target} if cid not in undone else set()
            waiting[target] -= 1
            ready += [target] if not waiting[target] else []
    return targets.keys() - undone


def keep_landings(values: Values, source: ObservationSource, memo: Any) -> None:
    """Store the landings of an agent under their own key, to find all of them quickly."""
    if source.kind != EVENTS:
        return
    landed = memo["landed"] if isinstance(memo, dict) else []
    row = values.get(LANDINGS + source.of)
    if landed == ([] if row is None else row.value):
        return
    if landed:
        values.put(LANDINGS + source.of, landed)
    else:
        values.delete(LANDINGS + source.of)
    # Mark the reverts as stale, with a new value each time so that a concurrent reader notices.
    mark = values.get(READ + PEOPLE_NAME)
    values.put(READ + PEOPLE_NAME, {"stale": 1 if mark is None else mark.version + 1})


def _landing(row: Sequence[Any]) -> LandedWork:
    cid, head, onto, base, at, subjects = row
    return LandedWork(cid, head, onto, base, at, tuple(subjects))


def _is_ancestor(core: Core, tip: str, ancestor: Any) -> bool:
    return names.is_id(ancestor) and core.objects.kind(ancestor) == "commit" and core.graph.descends(tip, ancestor)
