"""``make bench``: no row vanishes, and what is told of a run is what it showed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the benchmarks are no part of what is installed

from benchmarks import page, plot, run
from benchmarks.measure import NotRun, Row, beside
from benchmarks.results import FAILED, MEASURED, MET, NOT_MET, NOT_RUN, Run, as_json, from_json, joined
from benchmarks.works import COST, FLOOR, TABLE, work_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(run.__file__).resolve().parent.parent
SVG = "{http://www.w3.org/2000/svg}"
_ENGINES = {"LangGraph, SQLite", "DBOS, PostgreSQL", "Absurd, PostgreSQL"}
# Every number that the design promises: the row that measures it, its floor, its bars, and whom it is measured beside.
NUMBERS: dict[str, tuple[str, dict[str, float], set[str]]] = {
    "commit": ("libgit2, incremental", {FLOOR: 1.5, "git add -A && git commit": 0.5}, {"libgit2, every file anew"}),
    "commit-durable": ("libgit2, incremental", {FLOOR: 1.5, "git add -A && git commit": 0.5}, {"libgit2, every file anew"}),
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
    "cold-profile": ("python -c pass", {FLOOR: 5}, {"import langgraph"}),
    "graph": ("libgit2's walk over them, packed", {COST: 150}, set()),
    "descendants": ("recursive SQL in memory", {COST: 60}, set()),
    "hub-commit": ("git fetch, git push --atomic of one ref", {FLOOR: 1.5}, set()),
    "hub-trace": ("git fetch, git push --atomic of two refs", {FLOOR: 1.5}, set()),
    "hub-spawn": ("git fetch, git push --atomic of two refs", {FLOOR: 1.5}, set()),
    "workers-1": ("one process that answers by itself", {}, set()),
    "workers-2": ("1 worker", {}, set()),
    "workers-3": ("1 worker", {}, set()),
}


@pytest.fixture(scope="module")
def stored() -> Run:
    return from_json(json.loads((ROOT / "tests/fixtures/benchmarks.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("key", NUMBERS)
def test_every_promised_number_is_measured_against_its_floor_and_peers(key: str) -> None:
    work = work_of(key)
    floor, bars, peers = NUMBERS[key]
    assert (work.floor, {bar.against: bar.most for bar in work.bars}) == (floor, bars)
    assert set(work.peers) == peers | (set(bars) - {FLOOR, COST})


def test_every_work_has_a_key_of_its_own_and_every_part_a_step_and_a_heading() -> None:
    keys = [work.key for works in TABLE.values() for work in works]
    assert len(keys) == len(set(keys))
    assert {part for part, _ in run.STEPS} == set(TABLE)
    assert all((ROOT / f"benchmarks/{part}.py").is_file() for part in TABLE)
    assert all(part in page.TITLES for part in TABLE)


def test_a_part_that_fails_leaves_a_line_for_each_of_its_rows_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row comes, then the part fails; another part is not there at all; a third has nothing to say about its rows."""

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
    told = {row["key"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(told) == [work.key for works in TABLE.values() for work in works]
    assert (told["profile"]["status"], told["profile"]["ours"]) == (MET, 4)
    assert (told["cold-profile"]["status"], told["cold-profile"]["reason"]) == (FAILED, "OSError: no room left")
    assert (told["cold-hook"]["status"], told["cold-hook"]["reason"]) == (FAILED, "ImportError: no such part")
    assert (told["graph"]["status"], told["resumes"]["status"]) == (FAILED, FAILED)
    assert [told[key]["ours"] for key in ("round-trip", "round-trip-durable")] == [1.0, 2.0]


def test_what_was_not_run_is_no_fault_and_what_is_in_no_registry_is_refused() -> None:
    parts = ["graph"]
    idle = joined([NotRun(work.key, "no time") for work in TABLE["graph"]], parts)
    assert {each.status for each in idle} == {NOT_RUN}
    assert Run({}, "", 1, "", idle).is_good
    with pytest.raises(ValueError, match="graph-new"):
        joined([Row("graph-new", 1, 1)], parts)
    with pytest.raises(ValueError, match="nobody"):
        joined([Row("graph", 1, 1, {"nobody": 2.0})], parts)


def test_a_peer_that_fails_loses_its_own_place_only() -> None:
    calls: list[str] = []

    def bad() -> None:
        calls.append("bad")
        if len(calls) == 3:
            raise RuntimeError("out of order")

    costs, peers = beside([lambda: None], {"bad": bad, "good": lambda: None, "gone": "not installed"}, 5)
    assert costs[0] < 1000
    assert (peers["bad"], peers["gone"], len(calls)) == ("RuntimeError: out of order", "not installed", 3)
    assert isinstance(peers["good"], float)


def test_verdicts_follow_from_the_numbers(stored: Run) -> None:
    """A bar about a peer that was not run is not met; a row with one bar missed is missed."""
    found = {each.work.key: each for each in stored.results}
    assert [each.verdict for each in found["commit"].bars] == [MET, MET]
    assert [each.verdict for each in found["round-trip"].bars] == [NOT_MET, NOT_RUN]
    statuses = {key: found[key].status for key in ("commit", "lost-one", "round-trip", "graph", "graph-layout", "hub-commit")}
    assert list(statuses.values()) == [MET, MET, NOT_MET, FAILED, MEASURED, NOT_RUN]
    assert not stored.is_good
    assert from_json(as_json(stored)) == stored


def cells(text: str, title: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_tells_every_row_and_hides_no_bar_that_was_missed(stored: Run) -> None:
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
    assert cells(text, "commit over a hub")[-1] == "not run: it came after this run"
    assert "- 40 processes on one ref: lost: none of 400 &#124; 35 of 40" in text
    for fact in (
        "| date | 2026-05-01 |",
        "| rounds | 25 |",
        "| cores | 2 |",
        "| PostgreSQL | 15.9 |",
        'make bench PEERS=1 ARGS="--docs"',
    ):
        assert fact in text


def test_the_plot_has_a_mark_for_each_contender_in_its_place(stored: Run) -> None:
    drawn = ET.fromstring(plot.plot(stored.results))  # noqa: S314  # our own
    titled = [(each.findtext(f"{SVG}title"), each.get("d") or "") for each in drawn.iter(f"{SVG}path")]
    marks = [(said, float(way[1:].split()[0])) for said, way in titled if said and ":" in said]
    assert [said for said, _ in marks] == [
        "git: 20.00 ms", "libgit2: 400.00 ms", "floor: 1.60 ms", "clia: 2.00 ms",
        "DBOS: 15.00 ms", "Absurd: 7.90 ms", "floor: 2.00 ms", "clia: 8.00 ms",
        "floor: 7.00 ms", "clia: 14.00 ms",
    ]  # fmt: skip
    by_cost = sorted((float(said.split()[1]), x) for said, x in marks)
    assert [x for _, x in by_cost] == sorted(x for _, x in marks)
    assert by_cost[0][1] < by_cost[-1][1]
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert {work.title for works in TABLE.values() for work in works if work.unit == "ms"} <= set(texts)
    assert texts.count("not run") == sum(each.status == NOT_RUN and each.work.unit == "ms" for each in stored.results)
    assert "8.00 ms, not met" in texts
