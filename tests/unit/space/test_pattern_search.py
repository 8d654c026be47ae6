"""A search with a regular expression ends in time, holds up nobody meanwhile, and finds what it always found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.engine import limited_process as apart
from clia.space import pattern_search
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FOREVER = "(a+)+$"


@pytest.fixture
def scout(tmp_path: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "repo", settings=settings()) as space:
        space.spawn("scout", BRIEFING)
        yield space


def test_a_pattern_that_takes_for_ever_is_refused_and_its_process_is_gone(
    scout: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Seen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            started.append(self)

    scout.trace("scout", "console", "a" * 60 + "!")
    monkeypatch.setattr(pattern_search, "SECONDS", 0.5)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Seen)
        error = refused("pattern-too-slow", lambda: scout.trace_search(FOREVER, regex=True))
    assert "0.5 s" in error.message
    assert error.hints
    assert [each.returncode is not None for each in started] == [True], "one process, and it has ended"
    assert len(scout.trace_search("a!")) == 1


def test_other_threads_go_on_while_a_pattern_takes_for_ever(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the time is over when another thread has searched the same space: a held interpreter would never come to it."""
    found: list[int] = []

    class Meanwhile(threading.Thread):
        def __init__(self, seconds: float, then: Callable[[], None]) -> None:
            super().__init__()
            self._then = then

        def run(self) -> None:
            found.append(len(scout.trace_search("a!")))
            self._then()

        def cancel(self) -> None:
            pass

    scout.trace("scout", "console", "a" * 60 + "!")
    monkeypatch.setattr(apart, "Timer", Meanwhile)
    refused("pattern-too-slow", lambda: scout.trace_search(FOREVER, regex=True))
    assert found == [1]


ENTRIES: list[tuple[str, dict[str, Any]]] = [
    ("Öl\nund Wasser", {}),
    ("nothing", {"n": [1, "ö"]}),
    ("\0 and \U0001f600", {"deep": {"x": "y" * 50}}),
    ("x" * 70_000 + "!", {}),
    ("", {"only": "data"}),
]


def test_entries_that_go_over_in_many_batches_are_found_as_before(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they lie, whatever they hold; and all batches share one time."""
    limits: list[float] = []

    class Noted(threading.Timer):
        def __init__(self, seconds: float, then: Callable[[], None]) -> None:
            limits.append(seconds)
            super().__init__(seconds, then)

    for text, data in ENTRIES:
        scout.trace("scout", "console", text, data=data)
    made = scout.commit_with_trace("scout", "test", {})
    for text, data in ENTRIES:
        scout.trace("scout", "console", text, data=data)
    monkeypatch.setattr(pattern_search, "BATCH_SIZE", 2)
    monkeypatch.setattr(pattern_search, "SECONDS", 60.0)
    monkeypatch.setattr(apart, "Timer", Noted)
    for pattern in (r"(?i)ö", r"^.*\n", r"x{9}!", "\0|data", r"\U0001f600.*y+", "(?s)."):
        limits.clear()
        want = [
            place
            for place, (text, data) in enumerate(ENTRIES)
            if re.search(pattern, text + json.dumps(data or "", ensure_ascii=False))
        ]
        found = scout.trace_search(pattern, regex=True)
        assert want
        assert [(hit.commit, hit.position) for hit in found] == [(commit, place) for commit in (made, None) for place in want]
        assert len(limits) == 6
        assert sorted(set(limits), reverse=True) == limits, "what one batch took, the next does not have"


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 20_000 + ")" * 20_000], ids=["open", "count", "deep"])
def test_what_is_no_pattern_is_refused_even_where_there_is_nothing_to_search(scout: clia.Space, pattern: str) -> None:
    error = refused("invalid-pattern", lambda: scout.trace_search(pattern, regex=True))
    assert "is not a valid regular expression" in error.message


def test_a_pattern_of_which_the_process_dies_is_refused(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that needs more memory than there is."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert "died" in refused("pattern-too-slow", lambda: scout.trace_search("a", regex=True)).message


def test_what_lies_in_the_directory_is_not_run_by_a_search(
    scout: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People stand in the repository, where agents write."""
    for name in ("json.py", "clia.py", "re.py", "resource.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    scout.trace("scout", "console", "needle")
    assert len(scout.trace_search("^ne+dle", regex=True)) == 1
    assert not (tmp_path / "ran").exists()
