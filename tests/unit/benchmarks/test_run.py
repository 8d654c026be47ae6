"""``make bench``: every row appears, and the report shows the measured numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the benchmarks are not installed

from benchmarks import page, plot, run
from benchmarks.measure import NotRun, Row, beside
from benchmarks.results import FAILED, MEASURED, MET, NOT_MET, NOT_RUN, BenchmarkRun, as_json, from_json, joined
from benchmarks.works import COST, FLOOR, TABLE, work_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(run.__file__).resolve().parent.parent
SVG = "{http://www.w3.org/2000/svg}"
_ENGINES = {"LangGraph, SQLite", "DBOS, PostgreSQL", "Absurd, PostgreSQL"}
# Every promised number: the row that measures it, its floor, its bars and its peers.
NUMBERS: dict[str, tuple[str, dict[str, float], set[str]]] = {
    "commit": ("libgit2, incremental", {FLOOR: 1.5, "git add -A && git commit": 0.5}, {"libgit2, rewriting every file"}),
    "commit-durable": ("libgit2, incremental", {FLOOR: 1.5, "git add -A && git commit": 0.5}, {"libgit2, rewriting every file"}),
    "note": ("one-level writer on libgit2", {FLOOR: 1.5}, {"libgit2 create_note"}),
    "note-many": ("ours at 1,000", {FLOOR: 1.5}, set()),
    "lost-each": ("nothing", {COST: 0}, {"git notes add"}),
    "lost-one": ("nothing", {COST: 0}, {"git notes add"}),
    "round-trip": ("Monty + SQLite", {FLOOR: 1.5, "LangGraph, SQLite": 1 / 3}, _ENGINES),
    "resumes": ("Monty + SQLite", {FLOOR: 1.5}, _ENGINES),
    "resumes-flat": ("our first 100", {FLOOR: 1.3}, _ENGINES),
    "fork": ("the branch", {COST: 3}, {"LangGraph, in the same thread only", "DBOS, until the fork waits"}),
    "pending": ("SELECT and json.loads", {COST: 60}, {"LangGraph, SQLite", "Absurd, PostgreSQL"}),
    "profile": ("json.loads of the same files", {COST: 5}, set()),
    "profile-all": ("json.loads of the same files", {COST: 35}, set()),
    "cold-hook": ("python -c pass", {FLOOR: 2.5}, {"import langgraph"}),
    "mcp-start": ("import of the MCP SDK", {COST: 400, FLOOR: 0.5}, set()),
    "cold-profile": ("python -c pass", {FLOOR: 5}, {"import langgraph"}),
    "graph": ("libgit2's walk over them, packed", {COST: 150}, set()),
    "descendants": ("recursive SQL in memory", {COST: 60}, set()),
    "hub-commit": ("git fetch, git push --atomic of one ref", {FLOOR: 1.5}, set()),
    "hub-trace": ("git fetch, git push --atomic of two refs", {FLOOR: 1.5}, set()),
    "hub-spawn": ("git fetch, git push --atomic of two refs", {FLOOR: 1.5}, set()),
    "git-graph-packed": ("the same repository without clia", {FLOOR: 1.2}, set()),
    "git-graph-between": ("the same repository without clia", {FLOOR: 2}, set()),
    "git-clone": ("the same repository without clia", {FLOOR: 1.05}, set()),
    "workers-1": ("one process without workers", {}, set()),
    "workers-2": ("1 worker", {}, set()),
    "workers-3": ("1 worker", {}, set()),
}


@pytest.fixture(scope="module")
def stored() -> BenchmarkRun:
    return from_json(json.loads((ROOT / "tests/fixtures/benchmarks.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("key", NUMBERS)
def test_every_promised_number_is_measured_against_its_floor_and_peers(key: str) -> None:
    work = work_of(key)
    floor, bars, peers = NUMBERS[key]
    assert (work.floor, {bar.against: bar.most for bar in work.bars}) == (floor, bars)
    assert set(work.peers) == peers | (set(bars) - {FLOOR, COST})


def test_every_work_has_a_unique_key_and_every_part_a_step_and_a_heading() -> None:
    keys = [work.key for works in TABLE.values() for work in works]
    assert len(keys) == len(set(keys))
    assert {part for part, _ in run.STEPS} == set(TABLE)
    assert all((ROOT / f"benchmarks/{part}.py").is_file() for part in TABLE)
    assert all(part in page.TITLES for part in TABLE)


def test_a_failing_part_leaves_its_rows_as_failed_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One part fails after one row, another cannot be imported, and a third yields nothing."""

    def rows(rounds: int) -> Iterator[Row]:
        yield Row("profile", rounds, 1.0)
        raise OSError("no room\nleft")

    def part(name: str) -> Any:
        if name == "benchmarks.hooks":
            raise ImportError("no such part")
        if name == "benchmarks.sessions":  # in two steps
            both = [Row("round-trip", 1.0, 1.0)], [Row("round-trip-durable", 2.0, 1.0)]
            return SimpleNamespace(rows=lambda _: both[0], durable_rows=lambda _: both[1])
        return SimpleNamespace(rows=rows if name == "benchmarks.lineage" else lambda _: ())

    monkeypatch.setattr(run, "import_module", part)
    monkeypatch.setattr(run, "facts", dict)
    monkeypatch.setattr(sys, "argv", ["run.py", "--json", "--rounds", "4"])
    assert run.main() == 1
    rows_by_key = {row["key"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows_by_key) == [work.key for works in TABLE.values() for work in works]
    assert (rows_by_key["profile"]["status"], rows_by_key["profile"]["ours"]) == (MET, 4)
    assert (rows_by_key["cold-profile"]["status"], rows_by_key["cold-profile"]["reason"]) == (FAILED, "OSError: no room left")
    assert (rows_by_key["cold-hook"]["status"], rows_by_key["cold-hook"]["reason"]) == (FAILED, "ImportError: no such part")
    assert (rows_by_key["graph"]["status"], rows_by_key["resumes"]["status"]) == (FAILED, FAILED)
    assert [rows_by_key[key]["ours"] for key in ("round-trip", "round-trip-durable")] == [1.0, 2.0]


def test_rows_that_were_not_run_are_not_failures_and_unknown_rows_are_refused() -> None:
    parts = ["graph"]
    results = joined([NotRun(work.key, "no time") for work in TABLE["graph"]], parts)
    assert {result.status for result in results} == {NOT_RUN}
    assert BenchmarkRun({}, "", 1, "", results).is_good
    with pytest.raises(ValueError, match="graph-new"):
        joined([Row("graph-new", 1, 1)], parts)
    with pytest.raises(ValueError, match="nobody"):
        joined([Row("graph", 1, 1, {"nobody": 2.0})], parts)


def test_a_failing_peer_loses_only_its_own_measurement() -> None:
    calls: list[str] = []

    def bad() -> None:
        calls.append("bad")
        if len(calls) == 3:
            raise RuntimeError("out of order")

    costs, peers = beside([lambda: None], {"bad": bad, "good": lambda: None, "gone": "not installed"}, 5)
    assert costs[0] < 1000
    assert (peers["bad"], peers["gone"], len(calls)) == ("RuntimeError: out of order", "not installed", 3)
    assert isinstance(peers["good"], float)


def test_verdicts_follow_from_the_numbers(stored: BenchmarkRun) -> None:
    """A bar with a peer that was not run is not met; a row with a missed bar is missed."""
    results = {result.work.key: result for result in stored.results}
    assert [bar.verdict for bar in results["commit"].bars] == [MET, MET]
    assert [bar.verdict for bar in results["round-trip"].bars] == [NOT_MET, NOT_RUN]
    statuses = {key: results[key].status for key in ("commit", "lost-one", "round-trip", "graph", "graph-layout", "hub-commit")}
    assert list(statuses.values()) == [MET, MET, NOT_MET, FAILED, MEASURED, NOT_RUN]
    assert not stored.is_good
    assert from_json(as_json(stored)) == stored


def cells(text: str, title: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_has_every_row_and_every_missed_bar(stored: BenchmarkRun) -> None:
    text = page.page(stored)
    assert text.startswith("<!-- Generated ")
    for result in stored.results:
        assert len(cells(text, result.work.title)) == 7
    work, ours, floor, peers, ratio, bar, verdict = cells(text, "start, suspend, resume on a fresh handle")
    assert (ours, floor, ratio, bar) == ("8.00 ms", "Monty + SQLite: 2.00 ms", "4.00x<br>-", "≤ 1.5x<br>≤ 0.33x LangGraph")
    assert verdict == "not met<br>not run: not installed"
    assert peers == "LangGraph, SQLite: not run: not installed<br>DBOS, PostgreSQL: 15.0 ms<br>Absurd, PostgreSQL: 7.90 ms"
    assert f"Not met or failed: {work}; graph of 5,000 commits, page's server time." in text
    assert cells(text, "40 processes on one ref: lost")[1:] == [
        "0 %", "nothing: 0 %", "git notes add: 87.5 %", "-", "≤ 0 %", "met",
    ]  # fmt: skip
    assert cells(text, "commit, 1,000 files as a value, one changed")[4:] == [
        "1.25x<br>0.10x",
        "≤ 1.5x<br>≤ 0.5x git",
        "met<br>met",
    ]
    assert cells(text, "graph of 5,000 commits, page's server time")[-1] == "failed: GitError: … is no &#60;repository>"
    assert cells(text, "commit over a hub")[-1] == "not run: newer than this run"
    assert "- 40 processes on one ref: lost: none of 400 &#124; 35 of 40" in text
    for fact in (
        "| date | 2026-05-01 |",
        "| rounds | 25 |",
        "| cores | 2 |",
        "| PostgreSQL | 15.9 |",
        'make bench PEERS=1 ARGS="--docs"',
    ):
        assert fact in text


def test_the_plot_has_a_mark_for_each_contender_in_order(stored: BenchmarkRun) -> None:
    svg = ET.fromstring(plot.plot(stored.results))  # noqa: S314  # our own
    titled = [(path.findtext(f"{SVG}title"), path.get("d") or "") for path in svg.iter(f"{SVG}path")]
    marks = [(title, float(path[1:].split()[0])) for title, path in titled if title and ":" in title]
    assert [title for title, _ in marks] == [
        "git: 20.00 ms", "libgit2: 400.00 ms", "floor: 1.60 ms", "clia: 2.00 ms",
        "DBOS: 15.00 ms", "Absurd: 7.90 ms", "floor: 2.00 ms", "clia: 8.00 ms",
        "floor: 7.00 ms", "clia: 14.00 ms",
    ]  # fmt: skip
    by_cost = sorted((float(title.split()[1]), x) for title, x in marks)
    assert [x for _, x in by_cost] == sorted(x for _, x in marks)
    assert by_cost[0][1] < by_cost[-1][1]
    texts = [element.text for element in svg.iter(f"{SVG}text")]
    assert {work.title for works in TABLE.values() for work in works if work.unit == "ms"} <= set(texts)
    assert texts.count("not run") == sum(result.status == NOT_RUN and result.work.unit == "ms" for result in stored.results)
    assert "8.00 ms, not met" in texts
