"""Rules on programs and other effects of workers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import Conflict, NotAllowed
from clia.facade.config import Config, ProgramRule
from clia.workers.rule_checks import check_rules
from support import git
from support.effects import QUICK, asked, context_for, made_space, tools_for, worker_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


FLOW = "def main(input):\n    return request(input['kind'], input['payload'])\n"
CONFIG = Config(worker=QUICK, programs={"say": ProgramRule(("echo", "-n")), "py": ProgramRule(("python3", "-"))})


def write_rules(root: Path, *rules: Any) -> None:
    home = root / ".clia" / "agents" / "scout"
    home.mkdir(parents=True, exist_ok=True)
    document = {"slug": "scout", "guardrails": [{"text": "Ask first.", "rules": list(rules)}]}
    (home / "scout@x.agent.triad.json").write_text(json.dumps(document), "utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "space"
    path.mkdir()
    git("init", "--quiet", cwd=path)
    return path


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with made_space(root, "scout") as made:
        made.sessions.define("one", FLOW)
        yield made


def check(space: clia.Space, kind: str, payload: Any, request: str = "1.1") -> None:
    check_rules(context_for(space, asked(kind, payload, request=request), CONFIG, tools_for()))


def test_without_rules_everything_runs(space: clia.Space) -> None:
    check(space, "command", {"program": "say", "args": ["x"]})


@pytest.mark.parametrize(
    ("rule", "kind", "payload"),
    [
        ({"on": "command", "match": {"program": "say"}}, "command", {"program": "say"}),
        ({"on": "command", "match": {"command": "echo deploy *"}}, "command", {"program": "say", "args": ["deploy", "x"]}),
        ({"on": "command", "match": {"command": "deploy *"}}, "command", {"program": "py", "stdin": "os.system('deploy x')"}),
        ({"on": "effect", "match": {"effect": "command"}}, "command", {"program": "say"}),
        ({"on": "effect", "match": {"effect": "llm"}}, "llm", {"prompt": "x"}),
        ({"on": "effect"}, "timer", {"seconds": 1}),
        ({"on": "command"}, "command", ["not an object"]),
    ],
)
def test_a_denied_request_is_refused_with_the_rule(root: Path, space: clia.Space, rule: Any, kind: str, payload: Any) -> None:
    write_rules(root, {**rule, "do": "deny"})
    space.spawn("scout-2", clia.Briefing(title="x"), slug="scout")
    request = asked(kind, payload, agent="scout-2")
    with pytest.raises(NotAllowed, match="Ask first") as caught:
        check_rules(context_for(space, request, CONFIG, tools_for()))
    assert caught.value.code == "denied-by-rule"
    check(space, kind, payload)  # the other agent has no identity


def test_a_person_is_asked_once_and_the_request_waits(root: Path, space: clia.Space) -> None:
    write_rules(root, {"on": "command", "match": {"program": "say"}, "do": "ask", "risk": "high"})
    space.spawn("helper", clia.Briefing(title="x"), slug="scout")
    session = space.start("helper", "one", {"kind": "command", "payload": {"program": "say", "args": ["hi"]}})
    for _ in range(2):
        worker_for(space, root, config=CONFIG).run(once=True)
    (question,) = [request for request in space.pending("helper") if request.kind == "human"]
    assert question.payload["question"] == "May a worker run: echo -n hi?"
    assert (question.payload["risk"], question.payload["rule"]["guardrail"]) == ("high", "Ask first.")
    (request,) = [request for request in space.pending("helper") if request.kind == "command"]
    context = context_for(space, request, CONFIG, tools_for())
    with pytest.raises(Conflict) as caught:
        check_rules(context)
    assert caught.value.code == "waits-for-people"
    space.decide("helper", "allow", request_id=question.id)
    check_rules(context)
    assert len(space.sessions.questions("helper")) == 1
    assert space.session("helper", session.id).live


WORKER = """
import os, signal, sys
from clia.sessions.service import SessionService
from clia.cli.main import main
ask = SessionService.ask_for_clia
def killed(*words):
    ask(*words)
    os.kill(os.getpid(), signal.SIGKILL)
SessionService.ask_for_clia = killed
sys.exit(main(["worker", "--once", "--path", sys.argv[1]]))
"""


def test_a_worker_that_is_killed_after_it_asked_does_not_ask_again(root: Path, space: clia.Space) -> None:
    write_rules(root, {"on": "command", "match": {"program": "say"}, "do": "ask"})
    (root / ".git" / "clia" / "config.toml").write_text('[effects.command.programs.say]\nrun = ["echo"]\narguments = ["*"]\n')
    space.spawn("helper", clia.Briefing(title="x"), slug="scout")
    space.start("helper", "one", {"kind": "command", "payload": {"program": "say", "args": ["hi"]}})
    ran = subprocess.run([sys.executable, "-P", "-c", WORKER, str(root)], capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    worker_for(space, root, config=CONFIG).run(once=True)
    (question,) = [request for request in space.pending("helper") if request.kind == "human"]
    assert len(space.sessions.questions("helper")) == 1
    space.decide("helper", "allow", request_id=question.id)
    (request,) = [request for request in space.pending("helper") if request.kind == "command"]
    check_rules(context_for(space, request, CONFIG, tools_for()))


@pytest.mark.parametrize("how", ["deny", "cancel"])
def test_a_refusal_or_a_closed_question_refuses_the_request(root: Path, space: clia.Space, how: str) -> None:
    write_rules(root, {"on": "effect", "match": {"effect": "timer"}, "do": "ask"})
    space.spawn("helper", clia.Briefing(title="x"), slug="scout")
    context = context_for(space, asked("timer", {"seconds": 1}, agent="helper"), CONFIG, tools_for())
    with pytest.raises(Conflict):
        check_rules(context)
    (question,) = space.pending("helper")
    if how == "deny":
        space.decide("helper", "deny", "No.", request_id=question.id)
    else:
        space.cancel("helper", "No.", session_id=question.session)
    with pytest.raises(NotAllowed) as caught:
        check_rules(context)
    assert caught.value.code == "denied-by-person"
