"""Kills hooks at every named step: an event is stored completely or not at all, and each event and commit is recorded once."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.capture import hook as hook_program
from clia.capture import spool, spool_reader
from support import git
from support.captured import check_once, new_space, rehearse, rejected_codes, run_ingest, waiting
from support.crashes import KILLED, exit_code_of, kill_self, run_all
from support.space_driver import settings
from support.tool_turns import adopted_turns, agents_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

STORING = ("input-read", "draft-created", "draft-written", "event-stored")
INGESTING = ("ingest-started", "ingest-awaited")
SCRIPT: list[dict[str, Any]] = [
    {"prompt": "Write."},
    {"think": "How?"},
    {"write": "main.txt", "text": "main\n"},
    {
        "subagent": "explorer",
        "task": "Help.",
        "steps": [{"write": "sub.txt", "text": "sub\n"}, {"fail": "exit 3"}, {"say": "Helped."}],
    },
    {"say": "Written."},
    {"stop": True},
]
AFTERWARDS: list[dict[str, Any]] = [{"resume": 1}, {"prompt": "Go on."}, {"say": "Done."}, {"stop": True}, {"end": "other"}]


def run_hook(root: Path, payload: bytes, kill_at: str | None = None, **variables: str) -> int | None:
    """Run a hook in a separate process, which is killed at a step; return its exit code."""

    def reached(step: str) -> None:
        if step == kill_at:
            kill_self()

    def run() -> None:
        os.environ.update(variables)
        os.chdir(root)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        assert os.write(writer, payload) == len(payload)
        os.close(writer)
        os.dup2(reader, 0)
        spool.reached = reached
        hook_program.record("claude-code")

    code = exit_code_of(run)
    assert code in (0, KILLED), code
    return code


class KilledHooks:
    """Sends the events of a rehearsal through hooks, of which some are killed."""

    def __init__(self, root: Path, is_killed: Callable[[int], bool], step: str, **variables: str) -> None:
        self._root, self._is_killed, self._step, self._variables = root, is_killed, step, variables
        self.count = self.killed = 0

    def __call__(self, payload: bytes) -> int:
        step = self._step if self._is_killed(self.count) else None
        code = run_hook(self._root, payload, step, **self._variables)
        self.count += 1
        self.killed += code == KILLED
        return code or 0


def test_the_steps_of_a_hook_are_those_that_are_tested(tmp_path: Path) -> None:
    root = new_space(tmp_path / "space")
    payload = json.dumps({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "Go."}).encode()
    for step in spool.STEPS:
        assert run_hook(root, payload, step) == KILLED
    assert (*STORING, *INGESTING) == spool.STEPS


def _is_recorded_once(root: Path, is_killed: Callable[[int], bool], step: str) -> None:
    new_space(root)
    hooks = KilledHooks(root, is_killed, step, CLIA_HOOK_INGEST="off")
    first = rehearse(root, SCRIPT, send=hooks)
    assert hooks.killed
    drafts = os.listdir(root / ".git/clia/spool/tmp")
    assert len(drafts) == (hooks.killed if step.startswith("draft-") else 0)
    assert len(waiting(root)) == hooks.count - (0 if step == "event-stored" else hooks.killed)
    second = rehearse(root, AFTERWARDS)
    assert not run_ingest(root).trouble
    check_once(root, first, second)
    with clia.open(root, settings=settings()) as space:
        (session,) = (name for name in space.agents() if space.parent_agent(name) is None)
        assert {"main.txt", "sub.txt"} <= space.files(session).keys()
        assert space.trace_pending(session) == []


def test_a_session_is_recorded_once_although_hooks_are_killed(tmp_path: Path, soak: bool) -> None:
    """Every other hook of the session is killed, at each step that stores the event; in a soak, also each hook alone."""
    choices = [lambda number, rest=rest: number % 2 == rest for rest in (0, 1)]
    choices += [lambda number, only=only: number == only for only in range(10)] if soak else []
    cases = [(step, choice) for step in STORING for choice in choices]
    run_all([partial(_is_recorded_once, tmp_path / str(number), choice, step) for number, (step, choice) in enumerate(cases)])


@pytest.mark.parametrize("step", INGESTING)
def test_an_ingest_continues_although_its_hook_is_killed(tmp_path: Path, step: str) -> None:
    root = new_space(tmp_path / "space")
    hooks = KilledHooks(root, lambda _: True, step)
    report = rehearse(root, [*SCRIPT, {"end": "other"}], send=hooks)
    assert hooks.killed
    assert not run_ingest(root).trouble
    check_once(root, report)


def test_the_draft_of_a_killed_hook_is_set_aside_after_an_hour(tmp_path: Path) -> None:
    root = new_space(tmp_path / "space")
    assert run_hook(root, b'{"session_id": "s"}', "draft-written") == KILLED
    run_ingest(root)
    (draft,) = (root / ".git/clia/spool/tmp").iterdir()
    os.utime(draft, (0, time.time() - spool_reader.STALE_DRAFT - 60))
    assert run_ingest(root).done.rejected == 1
    assert list(rejected_codes(root).values()) == ["unfinished-event"]


# Commits that the tool makes itself


class ToolStep(NamedTuple):
    """An event of a turn that commits, and what the tool does after its hook."""

    event: str
    fields: dict[str, Any]
    commands: Sequence[tuple[str, ...]] = ()


CALL = {"tool_name": "Bash", "tool_use_id": "t1"}
COMMIT = (("add", "-A"), ("commit", "-qm", "Add a"))
TURN = (
    ToolStep("SessionStart", {"source": "startup"}),
    ToolStep("UserPromptSubmit", {"prompt": "Add a.", "prompt_id": "p1"}),
    ToolStep("PreToolUse", {**CALL, "tool_input": {"command": "git commit -am 'Add a'"}}, COMMIT),
    ToolStep("PostToolUse", {**CALL, "tool_response": ""}),
    ToolStep("Stop", {"last_assistant_message": "Added."}),
)


def _commit_is_adopted_once(root: Path, killed: int, step: str) -> None:
    new_space(root)

    def hook(event: str, fields: dict[str, Any], at: str | None = None) -> None:
        body = {"session_id": "abcdef12-9", "hook_event_name": event, "cwd": str(root), **fields}
        run_hook(root, json.dumps(body).encode(), at, CLIA_HOOK_INGEST="off")

    for number, (event, fields, commands) in enumerate(TURN):
        hook(event, fields, step if number == killed else None)
        if event in ("SessionStart", "UserPromptSubmit", "Stop"):
            run_ingest(root)
        if commands:
            (root / "a.txt").write_text("1\n")
        for words in commands:
            git(*words, cwd=root)
    (root / "b.txt").write_text("a person's\n")
    for words in (("add", "-A"), ("commit", "-qm", "A person's")):
        git(*words, cwd=root)
    hook("UserPromptSubmit", {"prompt": "More.", "prompt_id": "p2"})
    hook("Stop", {"last_assistant_message": "Done."})
    run_ingest(root)
    with clia.open(root, settings=settings()) as space:
        originals = [own for _, own in adopted_turns(space) if own]
        assert originals == [git("rev-parse", "HEAD~1", cwd=root).strip()], (TURN[killed].event, step, adopted_turns(space))
        assert agents_lines(space, "a.txt") == ["1"]
        assert agents_lines(space, "b.txt") == []
        assert space.verify().clean


def test_a_commit_of_the_tool_is_adopted_once_although_a_hook_is_killed(tmp_path: Path, soak: bool) -> None:
    """One hook of the turn is killed, before its event is stored or after."""
    steps = STORING if soak else ("draft-written", "event-stored")
    cases = [(killed, step) for killed in range(len(TURN)) for step in steps]
    run_all([partial(_commit_is_adopted_once, tmp_path / str(number), *case) for number, case in enumerate(cases)])
