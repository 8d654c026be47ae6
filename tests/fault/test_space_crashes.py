"""Processes killed at every crash point of every verb of a space, while they recover, and in any system call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from support.crashes import KILLED, apart, run_all
from support.space_crashes import (
    VERBS,
    WITH_INTENT,
    CrashSpace,
    copied,
    crash_at_each_point,
    crash_each_recovery,
    make_template,
    race_twice,
)
from support.space_driver import check_nothing_lost

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = str(tmp_path_factory.mktemp("template") / "home")
    make_template(home)
    return home


@pytest.mark.parametrize("name", VERBS)
def test_verb_killed_at_any_step_is_either_done_or_undone(template: str, tmp_path: Path, name: str, soak: bool) -> None:
    apart(crash_at_each_point, template, str(tmp_path), name, soak)


@pytest.mark.parametrize("name", WITH_INTENT)
def test_recovery_that_is_killed_is_finished_by_the_next_process(template: str, tmp_path: Path, name: str, soak: bool) -> None:
    apart(crash_each_recovery, template, str(tmp_path), name, soak)


def test_racing_processes_killed_at_random_lose_and_duplicate_nothing(template: str, tmp_path: Path, life: int) -> None:
    """The number in the test's name is the seed."""
    apart(race_twice, template, str(tmp_path / "race"), life)


KINDS = ("openat", "write", "pwrite64", "fsync", "fdatasync", "rename", "link", "unlink", "ftruncate", "mkdir")
BEGIN = "/the-verb-begins"
STRACED = f"""
import os, sys
import clia
from support.space_driver import settings
space = clia.open(sys.argv[1], settings=settings(durable=True))
try:
    os.unlink("{BEGIN}")
except FileNotFoundError:
    pass
space.commit_with_trace("scout", "finding", changes={{"verb.txt": b"verb"}})
"""


def strace(place: CrashSpace, *words: str) -> int:
    """Commit with its trace in a process whose system calls are traced; return its exit code."""
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["strace", "-f", *words, sys.executable, "-c", STRACED, str(place.root)]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def calls_of(place: CrashSpace, out: Path) -> dict[str, tuple[int, int]]:
    """By kind: the number of calls before the verb, and in total."""
    assert strace(place, "-o", str(out), "-e", f"trace={','.join(KINDS)}") == 0
    lines = out.read_text(errors="replace").splitlines()
    calls = [line.split(maxsplit=1)[1] for line in lines if "(" in line]
    begin = next(number for number, call in enumerate(calls) if BEGIN in call)
    before, whole = (Counter(call.partition("(")[0] for call in part) for part in (calls[: begin + 1], calls))
    return {kind: (before[kind], whole[kind]) for kind in KINDS if whole[kind] > before[kind]}


def crash_in_call(place: CrashSpace, kind: str, number: int) -> bool:
    """Kill a commit in the nth system call of a kind; return whether it came that far."""
    code = strace(place, "-o", os.devnull, "-e", f"trace={kind}", "-e", f"inject={kind}:signal=KILL:when={number}")
    assert code in (KILLED, 0)
    verb = VERBS["commit with trace"]
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
        assert bool(space.traces.pending("scout")) != verb.done(space)
        space.trace("scout", "console", "after")
        space.commit_with_trace("scout", "finding", changes={"after.txt": b"after"})
        assert space.traces.pending("scout") == []
        check_nothing_lost(place.root, place.paper, space)
    return code == KILLED


def test_commit_killed_in_any_system_call_is_either_done_or_undone(template: str, tmp_path: Path, soak: bool) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    if strace(copied(template, tmp_path / "can"), "-o", os.devnull, "-e", "inject=unlink:signal=KILL:when=1") != KILLED:
        pytest.skip("strace may not kill here")
    calls = calls_of(copied(template, tmp_path / "alive"), tmp_path / "calls")
    assert {"openat", "rename", "fsync"} <= calls.keys()
    chosen = [
        (kind, number)
        for kind, (before, whole) in calls.items()
        for number in range(before + 1, whole + 1)
        if soak or number in (before + 1, (before + whole) // 2 + 1, whole)
    ]
    places = [copied(template, tmp_path / f"{kind}{number}") for kind, number in chosen]
    killed = run_all([partial(crash_in_call, place, *call) for place, call in zip(places, chosen, strict=True)])
    assert sum(killed) >= 0.9 * len(chosen), "the calls before the verb differ too much from run to run"
