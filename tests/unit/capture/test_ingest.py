"""Ingest in one process: hand-made and rehearsed events become agents, traces, sub-agents and commits, exactly once."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import BackendError
from support import hook_payloads
from support.captured import (
    END,
    TURN,
    Script,
    agent_of,
    check_once,
    check_sound,
    event,
    put,
    recorded_entries,
    rehearse,
    rejected_codes,
    run_ingest,
    subjects,
    texts_of_kind,
    waiting,
)
from support.space_driver import settings
from support.spaces import trace_texts

if TYPE_CHECKING:
    from pathlib import Path


# The spool


def test_invalid_events_are_rejected_with_a_reason(root: Path, space: clia.Space) -> None:
    """A valid event beside them is recorded; a file that a hook is still writing is left alone."""
    good = put(root, event("UserPromptSubmit", prompt="Hello."))
    expected = {put(root, payload): "invalid-event" for payload in hook_payloads.broken("claude-code").values()}
    expected[put(root, event("Stop"), tool="cursor")] = "unknown-tool"
    expected[put(root, event("Stop", "elsewhere", cwd="/"), cwd="/")] = "foreign-event"
    home = root / ".git/clia/spool"
    large, newer, truncated = (f"{time.time_ns():020d}-1-0000000{number}" for number in range(3))
    (home / "new" / large).write_bytes(b"clia-hook 1\ntool=codex\n\n")
    os.truncate(home / "new" / large, 70 * 2**20)
    (home / "new" / newer).write_bytes(b"clia-hook 2\ntool=codex\n\n{}")
    (home / "new" / truncated).write_bytes(b"clia-hook 1\ntool=codex\n")
    expected |= {large: "event-too-large", newer: "invalid-spool-file", truncated: "invalid-spool-file"}
    for name, age in (("old", 4000), ("young", 60)):
        (home / "tmp" / name).write_bytes(b"clia-hook 1\n")
        os.utime(home / "tmp" / name, (time.time() - age,) * 2)
    expected["old"] = "unfinished-event"
    sizes = {name: path.stat().st_size for name in expected if (path := home / "new" / name).exists()}
    report = run_ingest(root)
    assert (report.trouble, report.done.rejected, report.done.events) == ((), len(expected), 1)
    assert rejected_codes(root) == expected
    assert {name: (home / "rejected" / name).stat().st_size for name in sizes} == sizes
    assert waiting(root) == []
    assert os.listdir(home / "tmp") == ["young"]
    assert recorded_entries(space) == Counter({("claude-5f0c1f6e", "prompt", "Hello."): 1})
    assert good not in rejected_codes(root)
    assert run_ingest(root).done == run_ingest(root).done._replace(events=0, rejected=0)


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_unusual_events_are_recorded_and_block_nothing(root: Path, space: clia.Space, tool: str) -> None:
    """Unknown events, wrong types, invalid paths and ids: each is an entry, and the turn after it is committed."""
    result = hook_payloads.tool_result(tool)
    variations: list[dict[str, Any]] = [
        {"tool_use_id": "a b\n\ud83d"},
        {"tool_input": {"number": float("nan"), "large": 10**40, "\ud83d": "\0"}, "duration_ms": float("inf")},
        {"cwd": "/a\0b", "transcript_path": "/x\0y"},
        {"cwd": "\ud83d", "transcript_path": "\ud83d", "agent_transcript_path": "\ud83d"},
        {"agent_id": "\0 x", "agent_type": "\0\n\ud83d"},
        {"hook_event_name": "SubagentStop", "agent_id": "../../x"},
        {"hook_event_name": "SubagentStop", "agent_id": None, "last_assistant_message": "\ud83d"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "\0\ud83d---", "prompt_id": "ü ü"},
        {"hook_event_name": "BeforeAgent", "prompt": "\0\ud83d---"},
        {"hook_event_name": "Stop", "last_assistant_message": "\0\ud83d"},
        {"hook_event_name": "AfterAgent", "prompt_response": "\0\ud83d"},
        {"hook_event_name": "SessionStart", "source": "\0", "model": "\ud83d"},
        {"hook_event_name": "SessionEnd", "reason": "\0"},
    ]
    payloads = [*hook_payloads.odd(tool).values(), *(json.dumps(result | variation).encode() for variation in variations)]
    for payload in payloads:
        put(root, payload, tool)
        put(root, event("UserPromptSubmit" if tool != "gemini" else "BeforeAgent", "another", prompt="Hello."), tool)
        report = run_ingest(root)
        assert (report.trouble, rejected_codes(root), waiting(root)) == ((), {}, []), payload
    put(root, event("SessionEnd", str(result["session_id"]), reason="other"), tool)
    assert not run_ingest(root).trouble
    session = agent_of(space, tool, result["session_id"])
    assert not space.traces.pending(session)
    assert sum(number for (_, kind, text), number in recorded_entries(space).items() if (kind, text) == ("prompt", "Hello.")) >= 1
    check_sound(root, space)


def test_an_event_that_fails_is_kept_and_other_sessions_continue(root: Path, space: clia.Space) -> None:
    """The transcript is read again from before the failure; the reason is kept for doctor until the event succeeds."""
    script: Script = [{"prompt": "Write."}, {"think": "How?"}, *TURN[1:]]
    first, second = rehearse(root, script, seed=1), rehearse(root, TURN, seed=2)
    steps: list[str] = []

    def fail_at_second_entry(step: str) -> None:
        steps.append(step)
        if step == "entries-made" and steps.count(step) == 2:  # the first is for the start, the second for the turn
            raise BackendError("the disk is full", code="disk-full")

    report = run_ingest(root, fail_at_second_entry)
    assert [failure.code for failure in report.trouble] == ["disk-full"]
    assert report.done.left == len(waiting(root)) > 0
    assert agent_of(space, "claude-code", second["session"]) in {agent for agent, _, _ in recorded_entries(space)}
    error_file = root / ".git/clia/spool/last-error.json"
    assert json.loads(error_file.read_text())["code"] == "disk-full"
    assert not run_ingest(root).trouble
    assert not error_file.exists()
    check_once(root, first, second)


# Sessions


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_each_event_counts_once_despite_missed_hooks_and_late_lines(root: Path, tool: str) -> None:
    """Missed, truncated and unknown events, unknown and late lines, a compaction, and repeated texts."""
    script: Script = [
        {"prompt": "Go on."},
        {"miss": 2},
        {"write": "a.txt", "text": "a\n"},
        {"say": "Done."},
        {"unknown-event": "EventOfTomorrow", "fields": {"deep": [1, None]}},
        {"truncated": 2},
        {"bash": "echo hello"},
        {"unknown-line": {"type": "line-of-tomorrow"}},
        {"unknown-line": "broken{\r"},
        {"lag": 3},
        {"think": "Hm."},
        {"say": "Done."},
        {"stop": True},
        {"prompt": "Go on."},
        {"lag": 2},
        {"say": "Done."},
        {"stop": True},
        {"compact": "auto", "summary": "All was done."},
        {"prompt": "Go on."},
        {"think": "Hm."},
        {"say": "Done."},
        {"stop": "rate_limit"},
        {"end": "other"},
    ]
    rehearsal = rehearse(root, script, tool)
    report = run_ingest(root)
    assert report.done.rejected == sum(1 for step in rehearsal["events"] if step["sent"] == "truncated") == 2
    assert not report.trouble
    check_once(root, rehearsal)
    with clia.open(root, settings=settings()) as space:
        assert "EventOfTomorrow" in texts_of_kind(space, "note")
        assert not space.traces.pending(agent_of(space, tool, rehearsal["session"]))


def _random_script(chance: random.Random) -> Script:
    """A script of steps and failures in random order."""

    def step(*, by_sub: bool = False) -> dict[str, Any]:
        steps: Script = [
            {"say": chance.choice(["Done.", "I look."])},
            {"think": chance.choice(["Hm.", "So."])},
            {"write": f"{chance.choice('abc')}.txt", "text": f"{chance.random()}\n"},
            {"bash": f"echo {chance.random()} > {chance.choice('de')}.txt"},
            {"fail": "exit 2"},
            {chance.choice(["miss", "lag", "truncated"]): chance.randint(1, 3)},
        ]
        if not by_sub:
            team = [step(by_sub=True) for _ in range(chance.randint(0, 3))]
            more: Script = [
                {"prompt": chance.choice(["Go on.", "Write."])},
                {"stop": True},
                {"subagent": "helper", "task": "Help.", "steps": team, "parallel": chance.random() < 0.7},
                {"compact": "auto"},
            ]
            steps += [*more, *more]
        return chance.choice(steps)

    return [{"prompt": "Begin."}, *(step() for _ in range(chance.randint(3, 14)))]


def _ingest_sometimes(root: Path, chance: random.Random) -> None:
    if chance.random() < 0.06:
        assert not run_ingest(root).trouble


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_any_session_ingested_at_any_moment_is_recorded_once(root: Path, tool: str, soak: bool) -> None:
    """Ingest runs at random moments; each session is interrupted, resumed and ended."""
    rehearsals = []
    for seed in range(1, 60 if soak else 6):
        chance = random.Random(f"{tool} {seed}")  # noqa: S311  # a script, not a secret
        for script in (_random_script(chance), [{"resume": 1}, *_random_script(chance), *END]):
            rehearsals.append(rehearse(root, script, tool, seed=seed, after=partial(_ingest_sometimes, root, chance)))
    assert not run_ingest(root).trouble
    assert waiting(root) == []
    check_once(root, *rehearsals)


def test_each_turn_is_a_commit_with_its_own_trace(root: Path, space: clia.Space) -> None:
    """Even if everything is ingested afterwards; the files are then those of the last turn."""
    more: Script = [{"prompt": "More."}, {"write": "more.txt", "text": "more\n"}, {"say": "Done again."}, {"stop": True}]
    report = rehearse(root, [*TURN, *more, *END])
    run_ingest(root)
    agent = agent_of(space, "claude-code", report["session"])
    assert agent == f"claude-{report['session'][:8]}"
    assert subjects(space, agent)[1:] == ["Write.", "More."]
    second, first = (commit for commit in space.log(agent) if commit.kind == "turn")
    assert {"Write.", "Done."} <= set(trace_texts(space, first.cid))
    assert {"More.", "Done again."} <= set(trace_texts(space, second.cid))
    assert not {"More.", "Done again."} & set(trace_texts(space, first.cid))
    assert second.message == "More.\n\nDone again."
    assert set(space.files(agent)) == {"README.md", "main.txt", "more.txt"}


def test_work_of_a_session_is_committed_with_its_turn_even_if_hooks_were_missed(root: Path, space: clia.Space) -> None:
    """No hook reported the call, but the transcript has it, so the files are committed at the end of the turn."""
    rehearse(root, [{"prompt": "Go."}, {"miss": 2}, {"write": "late.txt", "text": "late\n"}, {"say": "Done."}, {"stop": True}])
    run_ingest(root)
    (agent,) = space.agents()
    log = [
        (commit.message.splitlines()[0], sorted(file.path for file in space.history.changed(commit.cid)))
        for commit in space.history.own(agent)
    ]
    assert log[0] == ("Go.", ["late.txt"])
    assert [subject for subject, _ in log[1:]] == [f"spawn: claude-code session {agent.removeprefix('claude-')}"]
