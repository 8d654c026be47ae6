"""The index of observations, derived from git.

Invariant: the index agrees with git at the tips that were read, whether incrementally or at once, and can be rebuilt if the
store is lost. Sources are read outside transactions and written in short ones. A source with objects missing from this clone is
read again when they arrive. Readers wait while another process rebuilds the index.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import NamedTuple

from clia.behaviours import sources
from clia.behaviours.measures import ObservationSum, add_sum, contains_commits, sum_from_json, sum_observations, totals
from clia.behaviours.observing import GAP, UNKNOWN_BEHAVIOUR, HistoryReader, gap_of
from clia.behaviours.sources import READ, ObservationSource, SourceReading
from clia.errors import CliaError, GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from clia.space.core import Core
    from clia.store.interface import Transaction

if TYPE_CHECKING:
    Progress = Callable[[int, int], None]

PART, SUM = "behaviours/part/", "behaviours/sum/"
FORMAT_KEY, FORMAT = "behaviours/format", 2
"""The format of the index. An index without one has no observations of profiles, and is rebuilt."""
_PARTIAL = "in part"
BATCH_SIZE = 4000
"""Observations written per transaction."""
_ATTEMPTS = 20
"""Attempts to read a consistent index while other processes rebuild it."""


class SourceUpdate(NamedTuple):
    """The result of reading a source. ``replaces``: drop its previous observations; ``previous_mark``: where reading started."""

    source: ObservationSource
    previous_mark: Any
    mark: Any  # the new mark; None if the source no longer exists
    part: SourceReading
    sums: dict[str, ObservationSum]
    replaces: bool


class ObservationIndex:
    def __init__(self, core: Core) -> None:
        self._core = core

    def sums(self, cids: Iterable[str], progress: Progress | None = None) -> dict[str, ObservationSum]:
        """The current observations of some behaviours."""
        with self._settled(progress) as view:
            rows = {cid: view.values.get(SUM + cid) for cid in cids}
        return {cid: sum_from_json(None if row is None else row.value) for cid, row in rows.items()}

    def every(self, progress: Progress | None = None) -> dict[str, ObservationSum]:
        """The current observations of every behaviour."""
        with self._settled(progress) as view:
            return {key.removeprefix(SUM): sum_from_json(row) for key, row in view.values.scan(SUM)}

    @contextmanager
    def _settled(self, progress: Progress | None) -> Iterator[Transaction]:
        """A transaction that reads the up-to-date index; retried while another process rebuilds it."""
        for turn in range(_ATTEMPTS):
            source_names = self.catch_up(progress)
            with self._core.store.reading() as view:
                marks = dict(view.values.scan(READ))
                reverts = marks.get(READ + sources.PEOPLE_NAME, {})
                if (all(READ + name in marks for name in source_names) and "stale" not in reverts) or turn == _ATTEMPTS - 1:
                    yield view
                    return

    @staticmethod
    def nothing() -> ObservationSum:
        """The sum of a behaviour that was never observed."""
        return ObservationSum({}, {})

    def gaps(self) -> int:
        """The number of gaps: things that this clone cannot see, as of the last update."""
        row = self._core.store.get(SUM + UNKNOWN_BEHAVIOUR)
        return 0 if row is None else totals(sum_from_json(row.value).days).get(GAP, 0)

    def catch_up(self, progress: Progress | None = None) -> Iterable[str]:
        """Update the index from git, reverts last because they refer to landings; returns the names of the sources."""
        self._drop_older_format()
        marks = {key.removeprefix(READ): row for key, row in self._core.store.scan(READ)}
        agent_sources = {source.name: source for source in sources.of_agents(self._core)}
        behind = [source for source in agent_sources.values() if self._is_behind(marks.get(source.name), source.tip)]
        removed = sorted(marks.keys() - agent_sources.keys() - {sources.PEOPLE_NAME})
        self._read(behind + [ObservationSource(*name.partition("/")[::2], None) for name in removed], marks, progress)
        self.catch_up_reverts()
        return agent_sources

    def _is_behind(self, mark: Any, tip: Any) -> bool:
        if mark == tip:
            return False
        if not isinstance(mark, dict) or mark.get(_PARTIAL) != tip or not mark["lacks"]:
            return True
        cut = self._core.graph.cut_off()
        return not all(cid in cut or self._is_missing(cid) for cid in mark["lacks"])

    def _is_missing(self, cid: str) -> bool:
        try:
            return self._core.objects.kind(cid) is None
        except GitError:  # damaged
            return True

    def catch_up_reverts(self) -> None:
        """Update the reverts on people's branches, which refer to landings."""
        core = self._core
        row = core.store.get(READ + sources.PEOPLE_NAME)
        if row is None:
            return  # nothing has landed yet
        tips = row.value.get(_PARTIAL, row.value).get("tips")
        if tips is None or self._is_behind(row.value, {"tips": sources.tips_of(core, tips)}):
            landings = {key.removeprefix(sources.LANDINGS): rows for key, rows in core.store.scan(sources.LANDINGS)}
            part = core.store.get(PART + sources.PEOPLE_NAME)
            people = sources.of_people(core, landings, None if part is None else part.value["memo"])
            self._read([people], {people.name: row.value}, None)

    def _read(self, behind: list[ObservationSource], marks: Mapping[str, Any], progress: Progress | None) -> None:
        if not behind:
            return
        waiting: list[SourceUpdate] = []
        record, size = HistoryReader(self._core), 0
        if progress:
            progress(0, len(behind))  # the first source may take long
        for number, source in enumerate(behind, 1):
            waiting.append(self._read_source(record, source, marks.get(source.name)))
            size += len(waiting[-1].part.observations)
            if size >= BATCH_SIZE or number == len(behind):
                self.write(waiting)
                waiting, size = [], 0
            if progress:
                progress(number, len(behind))

    def _read_source(self, record: HistoryReader, source: ObservationSource, previous_mark: Any) -> SourceUpdate:
        """Read a source, incrementally if possible."""
        row = None if previous_mark is None else self._core.store.get(PART + source.name)
        if source.tip is None:
            return SourceUpdate(source, previous_mark, None, SourceReading([], None), {}, replaces=True)
        memo = None if row is None else row.value.get("memo")
        part = None if row is None else _read_since(record, source, previous_mark, memo)
        replaces = part is None
        if part is None:
            part = _read_all(record, source)
        missing = part.missing
        mark = source.tip if missing is None else {_PARTIAL: source.tip, "lacks": missing}
        return SourceUpdate(source, previous_mark, mark, part, sum_observations(part.observations), replaces)

    def write(self, updates: list[SourceUpdate]) -> None:
        with self._core.store.writing() as transaction:
            sums: dict[str, ObservationSum] = {}
            stale: set[str] = set()
            for update in updates:
                row = transaction.values.get(READ + update.source.name)
                if (None if row is None else row.value) != update.previous_mark:
                    continue  # another process has read it
                self._replace(transaction, update, sums, stale)
            if stale:
                self._recompute_commits(transaction, {cid: sums[cid] for cid in stale})
            for cid, total in sums.items():
                if total.days:
                    transaction.values.put(SUM + cid, total.to_json())
                else:
                    transaction.values.delete(SUM + cid)

    def _replace(self, transaction: Transaction, update: SourceUpdate, sums: dict[str, ObservationSum], stale: set[str]) -> None:
        values, name = transaction.values, update.source.name
        row = values.get(PART + name)
        before = {} if row is None else {cid: sum_from_json(data) for cid, data in row.value["sums"].items()}
        if update.replaces:
            for cid, subtotal in before.items():
                add_sum(_sum_of(transaction, cid, sums), subtotal, -1)
                if not contains_commits(subtotal.commits, update.sums[cid].commits if cid in update.sums else {}):
                    stale.add(cid)
            before = {}
        for cid, subtotal in update.sums.items():
            add_sum(_sum_of(transaction, cid, sums), subtotal)
            add_sum(before.setdefault(cid, ObservationSum({}, {})), subtotal)
        if update.mark is None:
            values.delete(PART + name)
            values.delete(READ + name)
        else:
            values.put(
                PART + name, {"sums": {cid: subtotal.to_json() for cid, subtotal in before.items()}, "memo": update.part.memo}
            )
            values.put(READ + name, update.mark)
        sources.keep_landings(values, update.source, update.part.memo if update.mark is not None else None)

    def _recompute_commits(self, transaction: Transaction, sums: Mapping[str, ObservationSum]) -> None:
        """Recompute the newest commits of sums that lost some."""
        for total in sums.values():
            total.commits.clear()
        for _, row in transaction.values.scan(PART):
            for cid in row["sums"].keys() & sums.keys():
                add_sum(sums[cid], ObservationSum({}, row["sums"][cid]["seen"]))

    def rebuild(self, progress: Progress | None = None) -> int:
        """Rebuild the index; returns the number of observed behaviours."""
        with self._core.store.writing() as transaction:
            _clear(transaction)
        return len([cid for cid in self.every(progress) if cid != UNKNOWN_BEHAVIOUR])

    def _drop_older_format(self) -> None:
        row = self._core.store.get(FORMAT_KEY)
        if row is not None and row.value == FORMAT:
            return
        with self._core.store.writing() as transaction:
            row = transaction.values.get(FORMAT_KEY)
            if row is None or row.value != FORMAT:
                _clear(transaction)
                transaction.values.put(FORMAT_KEY, FORMAT)


def _clear(transaction: Transaction) -> None:
    for prefix in (READ, PART, SUM, sources.LANDINGS):
        for key, _ in transaction.values.scan(prefix):
            transaction.values.delete(key)


def _sum_of(transaction: Transaction, cid: str, sums: dict[str, ObservationSum]) -> ObservationSum:
    if cid not in sums:
        row = transaction.values.get(SUM + cid)
        sums[cid] = sum_from_json(None if row is None else row.value)
    return sums[cid]


def _read_since(record: HistoryReader, source: ObservationSource, mark: Any, memo: Any) -> SourceReading | None:
    try:
        return source.read_since(record, mark, memo)
    except CliaError:
        return None


def _read_all(record: HistoryReader, source: ObservationSource) -> SourceReading:
    try:
        return source.read_all(record)
    except CliaError as err:
        return SourceReading([gap_of(err)], None)
