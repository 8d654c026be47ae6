"""``clia run`` of a program with hooks: the run, its hooks and their ingests work on one agent at the same time."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import clia
from clia.capture.ingest import ingest
from support import git, program, scripted_tool
from support.captured import event, put, rejected_codes, run_ingest, texts_of_kind
from support.crashes import crash, crash_points
from support.effects import made_space
from support.programs import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from support.crashes import CrashHook


TURNS, CALLS = 2, 3


def tool_words(turns: int = TURNS, calls: int = CALLS) -> Sequence[str]:
    return (sys.executable, scripted_tool.__file__, program(), "11112222-3333", str(turns), str(calls))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "shop"
    with made_space(root, "parent"):
        git("config", "clia.durable", "false", cwd=root)
    return root


def changed_files(space: clia.Space) -> list[tuple[str, list[str]]]:
    """The subject and the changed files of each commit of the agent, oldest first, without those that changed none."""
    commits = [commit for commit in space.history.own("scout") if commit.parents][::-1]
    changed = [
        (commit.subject, sorted(file.path for file in space.history.changed(commit.parents[0], commit.cid))) for commit in commits
    ]
    return [(subject, files) for subject, files in changed if files]


def check_entries(space: clia.Space, turns: int = TURNS, calls: int = CALLS) -> None:
    """Each event is in the trace once."""
    traces = [space.traces.of(commit.cid) for commit in space.history.own("scout")]
    entries = [entry for trace in traces if trace for entry in trace.entries] + list(space.traces.pending("scout"))
    keys = Counter((entry["kind"], entry["key"]) for entry in entries if entry.get("key"))
    assert set(keys.values()) == {1}, keys
    kinds = Counter(entry["kind"] for entry in entries)
    assert (kinds["tool-call"], kinds["tool-result"], kinds["prompt"]) == (turns * calls, turns * calls, turns), kinds


def expected_files(turns: int = TURNS, calls: int = CALLS) -> list[tuple[str, list[str]]]:
    found = [("the files when the session started", ["before.txt"])]
    return found + [(f"turn {turn}", [f"t{turn}-{call}.txt" for call in range(calls)]) for turn in range(1, turns + 1)]


def test_each_turn_of_a_tool_in_a_run_is_a_commit_with_its_files_and_the_rest_is_the_run_s(root: Path, life: int) -> None:
    del life
    with clia.open(root) as space:
        report = run(space, *tool_words())
        assert report.problem is None
        *turns, (subject, files) = changed_files(space)
        assert turns == expected_files()
        assert (subject.startswith(sys.executable), files) == (True, ["after.txt"])
        check_entries(space)
        assert space.verify().findings == ()
        assert git("status", "--porcelain", cwd=report.directory) == ""


def test_events_of_a_session_in_a_run_need_the_secret_of_the_run_while_it_lasts(root: Path) -> None:
    def prompt(text: str) -> bytes:
        return event("UserPromptSubmit", prompt=text, prompt_id=text)

    hook = shlex.join((program(), "hook", "claude-code"))
    steps = (("", event("SessionStart")), ("env -u CLIA_RUN_SECRET ", prompt("forged")), ("", prompt("genuine")))
    script = "; ".join(f"echo {shlex.quote(payload.decode())} | {before}{hook}" for before, payload in steps)
    with clia.open(root) as space:
        assert run(space, "sh", "-c", script).problem is None
        assert texts_of_kind(space, "prompt") == ["genuine"]
        assert list(rejected_codes(root).values()) == ["wrong-run-secret"]
        put(root, prompt("resumed"), agent="scout")
        run_ingest(root)
        assert sorted(texts_of_kind(space, "prompt")) == ["genuine", "resumed"]
        again = f"echo {shlex.quote(prompt('again').decode())} | {hook}"
        assert run(space, "sh", "-c", again).problem is None
        assert sorted(texts_of_kind(space, "prompt")) == ["again", "genuine", "resumed"]


def driver(root: Path, turns: int) -> Callable[[CrashHook], object]:
    """A run whose own process dies at a crash point."""

    def drive(hook: CrashHook) -> None:
        with clia.open(root, settings=clia.Settings(durable=False, reached=hook)) as space:
            hook.armed = True
            run(space, *tool_words(turns, 1))

    return drive


def test_after_a_run_was_killed_at_any_step_the_next_run_records_the_rest_once(root: Path, tmp_path: Path, soak: bool) -> None:
    shutil.copytree(root, tmp_path / "whole" / "shop")
    points = crash_points(driver(tmp_path / "whole" / "shop", 1))
    own = [point for point in points if point.step in ("run-started", "program-ended", "events-drained")]
    last_move = [point for point in points if point.step == "committed"][-1]
    chosen = points if soak else [*own, last_move]
    assert len(chosen) >= 3
    ended = [point.step for point in points].index("program-ended")
    for number, point in enumerate(chosen):
        copy = tmp_path / str(number) / "shop"
        shutil.copytree(root, copy)
        crash(driver(copy, 1), point)
        with clia.open(copy) as space:
            wait_until_free(space)
            assert run(space, "true").problem is None
            committed = changed_files(space)
            listed = [file for _, files in committed for file in files]
            assert len(listed) == len(set(listed))
            assert space.verify().findings == ()
            if points.index(point) >= ended:  # before, the guard ends the program with the run
                check_entries(space, 1, 1)
                assert [files for _, files in committed] == [["before.txt"], ["t1-0.txt"], ["after.txt"]]


def wait_until_free(space: clia.Space) -> None:
    """Wait until the guard of a killed run has ended its program."""
    pause = threading.Event()
    while space.captures.is_running("scout"):
        pause.wait(0.05)


def test_a_killed_hook_or_ingest_does_not_disturb_the_run(root: Path) -> None:
    """The tool kills a hook that is reading, and an ingest that is recording; the run records what the spool has."""
    script = (
        f"{program()} hook claude-code < /dev/zero & hook=$!; kill -9 $hook; wait $hook; "
        f"CLIA_HOOK_INGEST=off {shlex.join(tool_words(1, 2))}; "
        f"{program()} ingest & ingest=$!; kill -9 $ingest; echo more > more.txt"
    )
    with clia.open(root) as space:
        report = run(space, "sh", "-c", script)
        assert report.problem is None
        assert {file for _, files in changed_files(space) for file in files} == {
            *("before.txt", "t1-0.txt", "t1-1.txt", "after.txt", "more.txt")
        }
        check_entries(space, 1, 2)
        assert ingest(space, clia.Settings(), os.environ).done.events == 0


def test_a_sub_agent_s_work_in_a_run_is_merged_and_the_run_continues_on_it(root: Path) -> None:
    """The merge moves the agent's head, and the worktree already has the files."""
    with clia.open(root) as space:
        report = run(space, *tool_words(2, 1), "sub-agent")
        assert report.problem is None
        assert space.files("scout").keys() >= {"t1-0.txt", "sub.txt", "t2-0.txt", "after.txt"}
        subs = space.relations.sub_agents("scout")
        assert len(subs) == 1
        assert "sub.txt" in space.files(subs[0])
        assert git("status", "--porcelain", cwd=report.directory) == ""
