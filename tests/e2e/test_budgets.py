"""Budgets: counting, the refusal, and the question that lifts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from clia.capture.service import CapturedSession
from clia.errors import Conflict, InvalidDocument, NotAllowed
from clia.facade.config import read_config
from clia.workers.rule_checks import check_rules
from support import clia as command
from support.effects import asked, context_for, made_space, tools_for

if TYPE_CHECKING:
    from pathlib import Path

    import clia

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def space_with(tmp_path: Path, config: str, now: list[datetime] | None = None) -> clia.Space:
    file = tmp_path / "config.toml"
    file.write_text(config, "utf-8")
    clock = {} if now is None else {"clock": lambda: now[0]}
    return made_space(tmp_path / "space", "scout", "other", config=str(file), **clock)


def state_of(space: clia.Space, limit: str, agent: str = "scout") -> tuple[float, str]:
    (state,) = [state for state in space.budgets(agent) if state.limit == limit]
    return state.used, state.state


def refused(space: clia.Space, agent: str = "scout") -> Conflict:
    with pytest.raises(Conflict) as caught:
        space.budgets.check(agent)
    assert caught.value.code == "budget-used-up"
    return caught.value


def test_several_processes_ask_once(tmp_path: Path) -> None:
    with space_with(tmp_path, "[budget.agent.scout]\ncommits = 1\n") as space:
        questions: list[str] = []
        threads = [threading.Thread(target=lambda: questions.append(str(refused(space).fields["request"]))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(questions) == 8
        assert len(set(questions)) == len(space.pending("scout")) == 1


def test_everything_is_counted_from_the_record_and_the_transcripts(tmp_path: Path) -> None:
    now = [NOON]
    limits = "tokens = 1000\ncost = 9.0\nseconds = 9000\ncalls = 10\ncommits = 10\ntoken_price = 1000000\n"
    with space_with(tmp_path, f"[budget.agent.scout]\n{limits}", now) as space:
        before = {state.limit: state.used for state in space.budgets("scout")}
        space.trace("scout", "tool-call", "Bash: ls")
        space.trace("scout", "llm", "answered", data={"usage": {"prompt_tokens": 2, "completion_tokens": 1}})
        space.commit_with_trace("scout", "finding", {"a": b"1"})
        space.trace("scout", "tool-call", "Bash: ls")
        transcript = tmp_path / "transcript.jsonl"
        line = {"timestamp": "2026-05-01T12:00:00Z", "message": {"id": "m", "usage": {"output_tokens": 4}}}
        transcript.write_text(json.dumps(line) + "\n", "utf-8")
        captured = CapturedSession("claude-code", "s1", "", "scout", "/x", transcript=str(transcript))
        space.captures.keep(captured._replace(started="2026-05-01T11:59:00Z", last="2026-05-01T12:00:30Z"))
        used = {state.limit: state.used - before[state.limit] for state in space.budgets("scout")}
        assert used == {"tokens": 7, "cost": 7.0, "seconds": 90.0, "calls": 2, "commits": 1}
        assert space.budgets("other") == []
        now[0] += timedelta(days=1)
        assert {state.used for state in space.budgets("scout")} == {0.0}


def test_the_first_refusal_asks_people_and_their_answer_lifts_it_for_the_day(tmp_path: Path) -> None:
    now = [NOON]
    with space_with(tmp_path, "[budget.space]\ncalls = 2\n", now) as space:
        space.trace("other", "tool-call", "x")
        space.budgets.check("scout")
        space.trace("scout", "tool-call", "x")
        error = refused(space)
        assert "2 of 2 calls per day" in error.message
        refused(space)
        refused(space, "other")
        (question,) = space.pending()
        assert question.id == error.fields["request"]
        space.decide("scout", "lift", request_id=question.id)
        space.budgets.check("scout")
        space.budgets.check("other")
        assert state_of(space, "calls") == (2, "lifted")
        now[0] += timedelta(days=1)
        space.budgets.check("scout")
        for _ in range(2):
            space.trace("scout", "tool-call", "x")
        refused(space)


def test_a_person_may_refuse_to_lift_it(tmp_path: Path) -> None:
    with space_with(tmp_path, "[budget.agent.scout]\ncalls = 1\n") as space:
        space.trace("scout", "tool-call", "x")
        space.decide("scout", "stop", request_id=refused(space).fields["request"])
        with pytest.raises(NotAllowed, match="refused to lift"):
            space.budgets.check("scout")
        assert space.pending() == []


def test_most_of_a_budget_is_noted_once(tmp_path: Path) -> None:
    with space_with(tmp_path, "[budget.agent.scout]\ncalls = 4\nwarn = 0.5\n") as space:
        for _ in range(2):
            space.trace("scout", "tool-call", "x")
        for _ in range(2):
            space.budgets.check("scout")
        notes = [entry for entry in space.traces.pending("scout") if entry["kind"] == "note"]
        assert [note["text"] for note in notes] == ["most of a budget (agent scout) is used: 2 of 4 calls per day"]


def test_a_budget_of_a_session_begins_with_it(tmp_path: Path) -> None:
    now = [NOON]
    with space_with(tmp_path, '[budget.agent.scout]\nper = "session"\ncalls = 1\n', now) as space:
        space.trace("scout", "tool-call", "x")
        refused(space)
        now[0] += timedelta(minutes=1)
        space.captures.keep(CapturedSession("claude-code", "s2", "", "scout", "/x", started="2026-05-01T12:01:00Z"))
        space.budgets.check("scout")


def test_a_worker_puts_requests_off_and_a_hook_refuses_calls(tmp_path: Path) -> None:
    with space_with(tmp_path, "[budget.agent.scout]\ncalls = 1\n") as space:
        space.trace("scout", "tool-call", "x")
        with pytest.raises(Conflict) as caught:
            check_rules(context_for(space, asked("timer", {"seconds": 1}), space.local.config, tools_for()))
        assert caught.value.code == "budget-used-up"
        root = tmp_path / "space"
        event = {
            "session_id": "s",
            "cwd": str(root),
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": "ls"},
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLIA_", "GIT_"))}
        (root / ".git/clia/config.toml").write_bytes((tmp_path / "config.toml").read_bytes())
        (tmp_path / "lax.toml").write_text("", "utf-8")  # the environment of an agent chooses no policy
        variables = {**kept, "CLIA_AGENT": "scout", "CLIA_HOOK_INGEST": "off", "CLIA_CONFIG": str(tmp_path / "lax.toml")}
        words = [sys.executable, "-P", "-m", "clia", "hook", "claude-code", "600"]
        done = subprocess.run(words, cwd=root, env=variables, input=json.dumps(event).encode(), capture_output=True, check=True)
        answer = json.loads(done.stdout)["hookSpecificOutput"]
        assert answer["permissionDecision"] == "deny"
        assert "used up" in answer["permissionDecisionReason"]


def test_a_run_keeps_the_configuration_that_a_person_chose(tmp_path: Path) -> None:
    with space_with(tmp_path, "[budget.agent.scout]\ncalls = 7\n"):
        root, strict, lax = tmp_path / "space", str(tmp_path / "config.toml"), tmp_path / "lax.toml"
    lax.write_text("", "utf-8")
    shown = f"{sys.executable} -P -m clia budget scout --path {root} --json"
    for change in (f"CLIA_CONFIG={lax}", "env -u CLIA_CONFIG", f"CLIA_RUN_SECRET=x CLIA_AGENT=other CLIA_CONFIG={lax}"):
        ran = command("run", "scout", "--", "sh", "-c", f"{change} {shown}", cwd=root, env={"CLIA_CONFIG": strict})
        (state,) = json.loads(ran.out[ran.out.index("[") : ran.out.rindex("]") + 1])
        assert state["allowed"] == 7, change
        assert ("is ignored, because the agent" in ran.out + ran.err) == ("lax" in change)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[budget]\ntokens = 5\n", "budget.tokens is unknown"),
        ("[budget.space]\n", "limits nothing"),
        ('[budget.space]\nper = "session"\ncalls = 1\n', "only an agent has sessions"),
        ('[budget.agent.x]\nper = "week"\ncalls = 1\n', "budget.agent.x.per must be day or session"),
        ("[budget.agent.x]\ncalls = 0\n", "budget.agent.x.calls must be a whole number"),
        ("[budget.agent.x]\ncalls = 1\nwarn = 2\n", "budget.agent.x.warn"),
        ('[budget.agent.x]\ncalls = 1\nscope = "space"\n', "scope is unknown"),
    ],
)
def test_a_wrong_budget_is_refused_with_its_field(tmp_path: Path, config: str, words: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config, "utf-8")
    with pytest.raises(InvalidDocument) as caught:
        read_config(str(file))
    assert words in str(caught.value)
