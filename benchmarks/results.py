"""The results of a run: every work of the registry, with its numbers and verdicts, or the reason why there are none.

A run has one result per work, in the order of the registry, and for each peer a cost or a reason. A bar is met only if it was
measured. A run stored as JSON can be shown again without measuring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measure import NotRun
from benchmarks.works import COST, FLOOR, TABLE, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.measure import Row
    from benchmarks.works import Bar

MET, NOT_MET, NOT_RUN, FAILED, MEASURED = "met", "not met", "not run", "failed", "measured"
SILENT = "no result"


class Judged(NamedTuple):
    """A bar and its verdict."""

    bar: Bar
    value: float | None  # the ratio or cost that it limits; None if not measured
    verdict: str


class Result(NamedTuple):
    part: str
    work: Work
    ours: float | None = None
    floor: float | None = None
    peers: Mapping[str, float | str] = {}
    note: str = ""
    reason: str = ""  # why there are no numbers
    failed: bool = False

    @property
    def ratio(self) -> float | None:
        return self.ours / self.floor if self.ours is not None and self.floor else None

    @property
    def bars(self) -> list[Judged]:
        return [self._judged(bar) for bar in self.work.bars]

    @property
    def status(self) -> str:
        """The worst verdict of its bars; a bar that was not run is not met."""
        if self.ours is None:
            return FAILED if self.failed else NOT_RUN
        verdicts = [bar.verdict for bar in self.bars]
        return next((verdict for verdict in (NOT_MET, NOT_RUN, MET) if verdict in verdicts), MEASURED)

    def _judged(self, bar: Bar) -> Judged:
        value = self.against(bar)
        return Judged(bar, value, NOT_RUN if value is None else MET if value <= bar.most else NOT_MET)

    def against(self, bar: Bar) -> float | None:
        if self.ours is None or bar.against == COST:
            return self.ours
        if bar.against == FLOOR:
            return self.ratio
        peer = self.peers.get(bar.against, SILENT)
        return None if isinstance(peer, str) else self.ours / peer


class BenchmarkRun(NamedTuple):
    """One run: the machine, the options and the results."""

    facts: Mapping[str, str]  # facts about the machine, in the order shown
    date: str
    rounds: int
    command: str
    results: tuple[Result, ...]

    @property
    def is_good(self) -> bool:
        """Whether no bar was missed and nothing failed. A work that was not run is reported, but does not count."""
        return all(result.status not in (NOT_MET, FAILED) for result in self.results)


def joined(measured: Iterable[Row | NotRun], parts: Sequence[str]) -> tuple[Result, ...]:
    """A result for each work of these parts."""
    rows = {row.key: row for row in measured}
    results = tuple(_result(part, work, rows.pop(work.key, None)) for part in parts for work in TABLE[part])
    if rows:
        raise ValueError(f"measured, and not in the registry: {', '.join(rows)}")
    return results


def _result(part: str, work: Work, row: Row | NotRun | None) -> Result:
    if row is None:
        row = NotRun(work.key, SILENT, failed=True)
    if isinstance(row, NotRun):
        return _without_numbers(part, work, row.reason, failed=row.failed)
    if unknown := set(row.peers) - set(work.peers):
        raise ValueError(f"{work.key}: measured, and not in the registry: {', '.join(sorted(unknown))}")
    peers = {name: row.peers.get(name, SILENT) for name in work.peers}
    return Result(part, work, row.ours, row.floor, peers, row.note)


def _without_numbers(part: str, work: Work, reason: str, *, failed: bool = False) -> Result:
    return Result(part, work, peers=dict.fromkeys(work.peers, reason), reason=reason, failed=failed)


def as_json(run: BenchmarkRun) -> dict[str, Any]:
    return {
        "machine": dict(run.facts),
        "date": run.date,
        "rounds": run.rounds,
        "command": run.command,
        "good": run.is_good,
        "rows": [_row_as_json(result) for result in run.results],
    }


def _row_as_json(result: Result) -> dict[str, Any]:
    work = result.work
    return {
        "key": work.key,
        "part": result.part,
        "work": work.title,
        "unit": work.unit,
        "status": result.status,
        "reason": result.reason,
        "ours": result.ours,
        "floor": {"name": work.floor, "cost": result.floor},
        "ratio": result.ratio,
        "peers": [_peer_as_json(name, outcome) for name, outcome in result.peers.items()],
        "bars": [
            {"most": bar.most, "against": bar.against, "value": value, "verdict": verdict} for bar, value, verdict in result.bars
        ],
        "note": result.note,
    }


def _peer_as_json(name: str, outcome: float | str) -> dict[str, Any]:
    cost, reason = (None, outcome) if isinstance(outcome, str) else (outcome, "")
    return {"name": name, "cost": cost, "reason": reason}


def from_json(value: Mapping[str, Any]) -> BenchmarkRun:
    """A stored run, with the current names, bars and verdicts; a work that is newer than the run was not run."""
    rows = {row["key"]: row for row in value["rows"]}
    results = [
        _row_from_json(part, work, rows[work.key]) if work.key in rows else _without_numbers(part, work, "newer than this run")
        for part, works in TABLE.items()
        for work in works
    ]
    return BenchmarkRun(value["machine"], value["date"], value["rounds"], value["command"], tuple(results))


def _row_from_json(part: str, work: Work, row: Mapping[str, Any]) -> Result:
    costs = {peer["name"]: peer["reason"] if peer["cost"] is None else peer["cost"] for peer in row["peers"]}
    peers = {name: costs.get(name, SILENT) for name in work.peers}
    return Result(part, work, row["ours"], row["floor"]["cost"], peers, row["note"], row["reason"], row["status"] == FAILED)
