"""``make growth``: arguments are checked, and the measured spaces have what the rows say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the benchmarks are not installed

from benchmarks import growth, growth_page, growth_space, growth_works

import clia


def main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["growth.py", *words])
    return growth.main()


@pytest.mark.parametrize("sizes", ["50", "0", "50,200", "-100", "99", "100,100", "many", "1e3", "100;200", "100,", ""])
def test_invalid_sizes_are_refused_in_one_line(
    sizes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, f"--sizes={sizes}") == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.startswith("growth: --sizes takes ")
    assert output.err.endswith(f" at least 100 each, separated by commas, not {sizes!r}\n")


@pytest.mark.parametrize("option", ["--at", "--from"])
@pytest.mark.parametrize("name", ["gone", "file"])
def test_a_missing_directory_or_run_is_refused_in_one_line(
    option: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no run")
    assert main(monkeypatch, "--sizes", "100", option, str(tmp_path / name)) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.startswith(f"growth: {option} takes ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_smallest_space_has_every_record_and_the_requested_number_of_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth_works, "WAITING", 30)
    (size,) = growth.sizes_of("100")
    growth_space.generate(tmp_path / "space", size)
    path = str(tmp_path / "space")
    for waiting in (30, size + 5, 30):  # more than the number of agents, then fewer than are waiting
        assert growth_works.ask(path, size, waiting)["waiting"] == waiting
    with clia.open(path, settings=growth_works.SETTINGS) as space:
        for count in range(3):
            for work in growth_works.works():
                work.does(space, size, count)
    growth_works.ask(path, size, size // growth.CROWD)
    with clia.open(path, settings=growth_works.SETTINGS) as space:
        assert len({request.agent for request in space.pending()}) == len(space.pending()) == 10
        assert space.verify().clean


class RecordedRuns(NamedTuple):
    """A fake that takes no time and records what was run."""

    path: Path
    size: int
    runs: list[tuple[Any, ...]]

    def run(self, *words: Any) -> Any:
        self.runs.append(words)
        return {"milliseconds": 1.0, "waiting": words[-1]} if words[0] == "ask" else {"seconds": 1.0, "fsck": 1.0, "first": 1.0}

    def git(self, *words: str, rounds: int = 1) -> float:
        del words, rounds
        return 1.0

    def disk(self, *folders: str) -> int:
        del folders
        return 1_000_000


@pytest.mark.parametrize(("size", "cell"), [(1_000, "10.0 µs of 100"), (10_000, "1.0 µs of 1,000")])
def test_one_agent_in_ten_waits_at_every_size(size: int, cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "generate", lambda *_: None)
    place = RecordedRuns(tmp_path, size, [])
    results = growth.prepared(place, str) | growth.kept_up(place, str)  # type: ignore[arg-type]
    assert [run for run in place.runs if run[0] == "ask"] == [("ask", size, 500), ("ask", size, size // 10)]
    rows = dict(growth_page.upkeep({"sizes": [size], "results": [results]}))
    assert rows["the complete inbox if one agent in ten waits, per question"] == cell
