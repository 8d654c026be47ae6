"""Searches with a regular expression: bounded in time, in a separate process, with the results of ``re.search``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from clia.engine import limited_process as apart
from clia.space import pattern_search
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import clia

SLOW_PATTERN = "(a+)+$"


def test_a_pattern_that_takes_too_long_is_refused_and_its_process_ends(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    class RecordedPopen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            processes.append(self)

    scout.trace("scout", "console", "a" * 60 + "!")
    monkeypatch.setattr(pattern_search, "SECONDS", 0.5)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", RecordedPopen)
        error = refused("pattern-too-slow", lambda: scout.traces.search(SLOW_PATTERN, regex=True))
    assert "0.5 s" in error.message
    assert error.hints
    assert [process.returncode is not None for process in processes] == [True], "one process, which has ended"
    assert len(scout.traces.search("a!")) == 1


def test_other_threads_run_while_a_pattern_is_searched(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit fires once another thread has searched the space, which needs the interpreter lock."""
    counts: list[int] = []

    class SearchingTimer(threading.Thread):
        def __init__(self, seconds: float, then: Callable[[], None]) -> None:
            super().__init__()
            self._then = then

        def run(self) -> None:
            counts.append(len(scout.traces.search("a!")))
            self._then()

        def cancel(self) -> None:
            pass

    scout.trace("scout", "console", "a" * 60 + "!")
    monkeypatch.setattr(apart, "Timer", SearchingTimer)
    refused("pattern-too-slow", lambda: scout.traces.search(SLOW_PATTERN, regex=True))
    assert counts == [1]


ENTRIES: list[tuple[str, dict[str, Any]]] = [
    ("Öl\nund Wasser", {}),
    ("nothing", {"n": [1, "ö"]}),
    ("\0 and \U0001f600", {"deep": {"x": "y" * 50}}),
    ("x" * 70_000 + "!", {}),
    ("", {"only": "data"}),
]


def test_entries_sent_in_many_batches_are_found_in_order(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the entries contain; all batches share one time limit."""
    limits: list[float] = []

    class RecordedTimer(threading.Timer):
        def __init__(self, seconds: float, then: Callable[[], None]) -> None:
            limits.append(seconds)
            super().__init__(seconds, then)

    for text, data in ENTRIES:
        scout.trace("scout", "console", text, data=data)
    commit_id = scout.commit_with_trace("scout", "test", {})
    for text, data in ENTRIES:
        scout.trace("scout", "console", text, data=data)
    monkeypatch.setattr(pattern_search, "BATCH_SIZE", 2)
    monkeypatch.setattr(pattern_search, "SECONDS", 60.0)
    monkeypatch.setattr(apart, "Timer", RecordedTimer)
    for pattern in (r"(?i)ö", r"^.*\n", r"x{9}!", "\0|data", r"\U0001f600.*y+", "(?s)."):
        limits.clear()
        positions = [
            position
            for position, (text, data) in enumerate(ENTRIES)
            if re.search(pattern, text + json.dumps(data or "", ensure_ascii=False))
        ]
        hits = scout.traces.search(pattern, regex=True)
        assert positions
        assert [(hit.commit, hit.position) for hit in hits] == [
            (commit, position) for commit in (commit_id, None) for position in positions
        ]
        assert len(limits) == 6
        assert sorted(set(limits), reverse=True) == limits, "each batch has only the time that the earlier ones left"


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 20_000 + ")" * 20_000], ids=["open", "count", "deep"])
def test_an_invalid_pattern_is_refused_even_if_there_is_nothing_to_search(scout: clia.Space, pattern: str) -> None:
    error = refused("invalid-pattern", lambda: scout.traces.search(pattern, regex=True))
    assert "is not a valid regular expression" in error.message


def test_a_pattern_whose_process_dies_is_refused(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, a pattern that needs too much memory."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert "died" in refused("pattern-too-slow", lambda: scout.traces.search("a", regex=True)).message


def test_a_search_does_not_import_modules_from_the_current_directory(
    scout: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People run commands in the repository, and agents write there."""
    for name in ("json.py", "clia.py", "re.py", "resource.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    scout.trace("scout", "console", "needle")
    assert len(scout.traces.search("^ne+dle", regex=True)) == 1
    assert not (tmp_path / "ran").exists()
