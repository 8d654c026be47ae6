"""``make growth``: what can be measured is, what cannot is refused in a line, and a row says what was asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the benchmarks are no part of what is installed

from benchmarks import growth, growth_page, growth_space, growth_works

import clia


def main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["growth.py", *words])
    return growth.main()


@pytest.mark.parametrize("sizes", ["50", "0", "50,200", "-100", "99", "100,100", "many", "1e3", "100;200", "100,", ""])
def test_sizes_that_cannot_be_measured_are_refused_in_a_line(
    sizes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, f"--sizes={sizes}") == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("growth: --sizes takes ")
    assert said.err.endswith(f" from 100 on, separated by commas, not {sizes!r}\n")


@pytest.mark.parametrize("option", ["--at", "--from"])
@pytest.mark.parametrize("name", ["gone", "file"])
def test_a_directory_or_run_that_is_not_there_is_refused_in_a_line(
    option: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no run")
    assert main(monkeypatch, "--sizes", "100", option, str(tmp_path / name)) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"growth: {option} takes ")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_the_smallest_size_has_all_that_is_asked_for_and_questions_of_exactly_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth_works, "WAITING", 30)
    (size,) = growth.sizes_of("100")
    growth_space.generate(tmp_path / "space", size)
    path = str(tmp_path / "space")
    for waiting in (30, size + 5, 30):  # more than there are agents; and then fewer than wait
        assert growth_works.ask(path, size, waiting)["waiting"] == waiting
    with clia.open(path, settings=growth_works.SETTINGS) as space:
        for count in range(3):
            for work in growth_works.works():
                work.does(space, size, count)
    growth_works.ask(path, size, size // growth.CROWD)
    with clia.open(path, settings=growth_works.SETTINGS) as space:
        assert len({each.agent for each in space.pending()}) == len(space.pending()) == 10
        assert space.verify().clean


class Asked(NamedTuple):
    """A place where nothing takes any time; what was run there."""

    path: Path
    size: int
    runs: list[tuple[Any, ...]]

    def run(self, *words: Any) -> Any:
        self.runs.append(words)
        return {"milliseconds": 1.0, "waiting": words[-1]} if words[0] == "ask" else {"seconds": 1.0, "fsck": 1.0, "first": 1.0}

    def git(self, *words: str, rounds: int = 1) -> float:
        del words, rounds
        return 1.0

    def disk(self, *below: str) -> int:
        del below
        return 1_000_000


@pytest.mark.parametrize(("size", "cell"), [(1_000, "10.0 µs of 100"), (10_000, "1.0 µs of 1,000")])
def test_where_one_agent_in_ten_waits_it_is_one_in_ten_at_every_size(
    size: int, cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "generate", lambda *_: None)
    place = Asked(tmp_path, size, [])
    found = growth.prepared(place, str) | growth.kept_up(place, str)  # type: ignore[arg-type]
    assert [each for each in place.runs if each[0] == "ask"] == [("ask", size, 500), ("ask", size, size // 10)]
    rows = dict(growth_page.upkeep({"sizes": [size], "results": [found]}))
    assert rows["the whole inbox where one agent in ten waits, a question"] == cell
