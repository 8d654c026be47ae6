"""Permission prompts of tools: the hook program, the question, the answer, and what dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.capture.permissions.prompts import (
    PermissionPrompt,
    PromptedCall,
    close_abandoned,
    grant_named,
    grants,
    is_waited_for,
    revoke,
)
from clia.errors import NotFound, StaleRequest
from clia.rules.evaluation import evaluate
from clia.rules.model import parse_rule
from clia.users.service import users_of
from support import clia as command
from support import git
from support.effects import made_space
from support.forge_server import Api, ForgeProcess
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.sessions.model import Request

PATIENCE = 60.0
RULES = [
    {"on": "tool", "match": {"command": "deploy *"}, "do": "ask"},
    {"on": "tool", "match": {"command": "rm -rf *"}, "do": "deny"},
]


class ToolDesk:
    """A space with the agent scout, and the hooks of its tool."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        git("init", "--quiet", cwd=root)
        self.write_rules(*RULES)
        self.space = made_space(root, "scout")
        self.hooks: list[subprocess.Popen[bytes]] = []

    def write_rules(self, *rules: Any) -> None:
        home = self.root / ".clia" / "agents" / "scout"
        home.mkdir(parents=True, exist_ok=True)
        document = {"slug": "scout", "guardrails": [{"text": "Ask a person.", "rules": list(rules)}]}
        (home / "scout@x.agent.triad.json").write_text(json.dumps(document), "utf-8")

    def event(self, command: str, call: str, name: str = "PreToolUse", **fields: Any) -> dict[str, Any]:
        common = {"session_id": "s1", "cwd": str(self.root), "hook_event_name": name, "tool_name": "Bash"}
        return {**common, "tool_input": {"command": command}, **({"tool_use_id": call} if call else {}), **fields}

    def start(self, command: str, call: str, name: str = "PreToolUse", *, tool: str = "claude-code", seconds: int = 600) -> Any:
        """Run the hook program as the tool does."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLIA_", "GIT_"))}
        hook = subprocess.Popen(
            [sys.executable, "-P", "-m", "clia", "hook", tool, str(seconds)],
            cwd=self.root,
            env={**kept, "CLIA_AGENT": "scout", "CLIA_HOOK_INGEST": "off"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert hook.stdin is not None
        hook.stdin.write(json.dumps(self.event(command, call, name)).encode())
        hook.stdin.close()
        hook.stdin = None
        self.hooks.append(hook)
        return hook

    def run(self, command: str, call: str, name: str = "PreToolUse", **options: Any) -> Any:
        return printed(self.start(command, call, name, **options))

    def waiting(self, number: int = 1) -> list[Request]:
        """The pending requests, once this number is waited for."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            pending = [request for request in self.space.pending("scout") if is_waited_for(self.space, request)]
            if len(pending) >= number:
                return pending
            time.sleep(0.02)
        raise AssertionError(self.space.pending("scout"))

    def decide(self, request: Request, value: Any, why: str = "") -> None:
        self.space.decide("scout", value, why, request_id=request.id)


def printed(hook: Any) -> Any:
    out, _ = hook.communicate(timeout=PATIENCE)
    assert hook.returncode == 0
    return json.loads(out)["hookSpecificOutput"] if out else None


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ToolDesk]:
    made = ToolDesk(tmp_path / "space")
    yield made
    for hook in made.hooks:
        hook.kill()
        hook.communicate()
    made.space.close()


def test_the_rules_decide_before_a_call(desk: ToolDesk) -> None:
    assert desk.run("ls", "toolu_1") is None
    refusal = desk.run("cd x && rm -f -r y", "toolu_2")
    assert refusal["permissionDecision"] == "deny"
    assert "Ask a person. (rule .clia/agents/scout/" in refusal["permissionDecisionReason"]
    desk.write_rules({"on": "tool", "match": {"command": "ls *"}, "do": "deny"})
    assert desk.run("ls", "toolu_3")["permissionDecision"] == "deny"
    assert desk.run("rm -rf y", "toolu_4")["permissionDecision"] == "deny"  # of the record
    assert desk.space.pending("scout") == []


@pytest.mark.parametrize(("value", "decision"), [("allow", "allow"), ("deny", "deny")])
def test_the_answer_of_a_person_reaches_the_tool(desk: ToolDesk, value: str, decision: str) -> None:
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    assert request.payload["question"] == "Claude Code: may Bash run: deploy prod?"
    assert request.payload["rule"]["guardrail"] == "Ask a person."
    desk.decide(request, value, "Not on Fridays.")
    answer = printed(hook)
    assert answer["permissionDecision"] == decision
    assert ("Not on Fridays." in answer["permissionDecisionReason"]) is (value == "deny")
    assert "Tess" in answer["permissionDecisionReason"]
    # The call itself, after it was asked about: it is not asked again, and another one is.
    assert desk.run("deploy prod", "toolu_1")["permissionDecision"] == decision
    assert desk.space.pending("scout") == []


def test_a_killed_hook_asks_once_and_the_next_hook_of_the_call_gets_the_answer(desk: ToolDesk) -> None:
    first = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert is_waited_for(desk.space, request) is False
    second = desk.start("deploy prod", "toolu_1")
    assert [waiting.id for waiting in desk.waiting()] == [request.id]
    second.send_signal(signal.SIGKILL)
    second.wait()
    desk.decide(request, "allow")  # while nobody waits
    assert desk.run("deploy prod", "toolu_1")["permissionDecision"] == "allow"
    other = desk.start("deploy prod", "toolu_2")  # another call of the same command
    (request,) = desk.waiting()
    desk.decide(request, "deny")
    assert printed(other)["permissionDecision"] == "deny"


def test_two_hooks_of_one_call_share_the_question(desk: ToolDesk) -> None:
    hooks = [desk.start("deploy prod", "toolu_1") for _ in range(2)]
    (request,) = desk.waiting()
    desk.decide(request, "allow")
    assert [printed(hook)["permissionDecision"] for hook in hooks] == ["allow", "allow"]
    assert len(desk.space.sessions.questions("scout")) == 1


def test_without_an_answer_the_tool_asks_in_its_own_way_and_nothing_is_allowed(desk: ToolDesk) -> None:
    assert desk.run("deploy prod", "toolu_1", seconds=1)["permissionDecision"] == "ask"
    assert desk.run("deploy prod", "call_1", tool="codex", seconds=1)["permissionDecision"] == "deny"  # Codex cannot ask there
    assert len(desk.space.pending("scout")) == 2
    assert desk.run("deploy prod", "", "PermissionRequest", seconds=1) is None
    assert len(desk.space.pending("scout")) == 2


def test_the_tools_own_prompt_gets_the_answer_of_the_question_before(desk: ToolDesk) -> None:
    assert desk.run("deploy prod", "toolu_1", seconds=1)["permissionDecision"] == "ask"
    prompt = desk.start("deploy prod", "", "PermissionRequest")
    (request,) = desk.waiting()
    desk.decide(request, "allow")
    assert printed(prompt)["decision"] == {"behavior": "allow"}
    assert len(desk.space.sessions.questions("scout")) == 1


def test_the_hook_ends_when_the_tool_is_gone_and_the_question_is_marked(desk: ToolDesk) -> None:
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    hook.stdout.close()  # the tool was killed
    hook.stdout = None
    hook.wait(timeout=PATIENCE)
    assert is_waited_for(desk.space, request) is False
    assert [pending.id for pending in desk.space.pending("scout")] == [request.id]


def test_a_question_of_a_tool_session_that_ended_is_closed(desk: ToolDesk) -> None:
    desk.run("deploy prod", "toolu_1", seconds=1)
    assert close_abandoned(desk.space) == []
    from clia.capture.service import CapturedSession

    desk.space.captures.keep(CapturedSession("claude-code", "s1", "", "scout", str(desk.root), open=False))
    (request,) = desk.space.pending("scout")
    assert close_abandoned(desk.space) == [request.id]
    assert desk.space.pending("scout") == []
    assert desk.run("deploy prod", "toolu_1", seconds=1)["permissionDecision"] == "ask"


def test_a_cancelled_question_lets_the_tool_ask(desk: ToolDesk) -> None:
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    desk.space.cancel("scout", "Not now.", session_id=request.session)
    answer = printed(hook)
    assert answer["permissionDecision"] == "ask"
    assert "closed: Not now." in answer["permissionDecisionReason"]


def test_always_grants_the_same_call_until_it_is_revoked(desk: ToolDesk) -> None:
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    desk.decide(request, "always")
    assert printed(hook)["permissionDecision"] == "allow"
    (grant,) = grants(desk.space)
    assert (grant.state, grant.command, grant.agent) == ("active", "deploy prod", "scout")
    assert desk.space.show(grant.decision).kind == "decision"
    granted = desk.run("deploy prod", "toolu_2")
    assert granted["permissionDecision"] == "allow"
    assert grant.decision[:12] in granted["permissionDecisionReason"]
    assert desk.run("deploy prod --force", "toolu_3", seconds=1)["permissionDecision"] == "ask"
    assert desk.run("deploy prod", "toolu_4")["permissionDecision"] == "allow"
    with pytest.raises(NotFound):
        grant_named(desk.space, "0" * 40)
    revocation = revoke(desk.space, grant_named(desk.space, grant.decision[:10]), "Done.", None)
    assert desk.space.show(revocation).kind == "decision"
    assert [grant.state for grant in grants(desk.space)] == ["revoked"]
    assert desk.run("deploy prod", "toolu_5", seconds=1)["permissionDecision"] == "ask"


def test_a_refused_revocation_leaves_no_question(desk: ToolDesk) -> None:
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    desk.decide(request, "always")
    assert printed(hook)["permissionDecision"] == "allow"
    (grant,) = grants(desk.space)
    ran = command("grant", "revoke", grant.decision[:10], "-m", "Mine.", cwd=desk.root, env={"CLIA_AGENT": "scout"})
    assert (ran.code, "person-needed" in ran.err) == (1, True), ran.err
    refused("not-a-person", lambda: revoke(desk.space, grant, "Mine.", "scout"))
    assert desk.space.pending("scout") == []
    assert [grant.state for grant in grants(desk.space)] == ["active"]


def test_a_grant_does_not_cover_a_rule_that_was_not_shown_with_it(desk: ToolDesk) -> None:
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    assert request.payload["directory"] == "."
    assert request.payload["always"].startswith("allows the same call in this directory until 2")
    desk.decide(request, "always")
    assert printed(hook)["permissionDecision"] == "allow"
    desk.write_rules(*RULES, {"on": "tool", "match": {"command": "* prod"}, "do": "ask", "risk": "low"})
    assert desk.run("deploy prod", "toolu_2", seconds=1)["permissionDecision"] == "ask"
    desk.write_rules(*RULES)
    assert desk.run("deploy prod", "toolu_3")["permissionDecision"] == "allow"
    desk.write_rules({"on": "tool", "match": {"command": "deploy *"}, "do": "ask", "risk": "high"})
    assert desk.run("deploy prod", "toolu_4", seconds=1)["permissionDecision"] == "ask"


def test_an_answer_does_not_count_for_another_call_with_the_same_id(desk: ToolDesk) -> None:
    hook = desk.start("deploy test", "toolu_1")
    (request,) = desk.waiting()
    desk.decide(request, "allow")
    assert printed(hook)["permissionDecision"] == "allow"
    assert desk.run("deploy prod", "toolu_1", seconds=1)["permissionDecision"] == "ask"


def test_a_call_that_codex_repeats_gets_the_late_answer_once(desk: ToolDesk) -> None:
    def call(number: int) -> Any:
        return desk.run("deploy prod", f"call_{number}", tool="codex", seconds=1)

    assert call(1)["permissionDecision"] == "deny"
    (request,) = desk.space.pending("scout")
    assert call(2)["permissionDecision"] == "deny"  # joins the question
    assert [pending.id for pending in desk.space.pending("scout")] == [request.id]
    desk.decide(request, "allow")
    assert call(3) is None  # Codex runs it
    assert call(4)["permissionDecision"] == "deny"
    assert len(desk.space.pending("scout")) == 1


ASKER = """
import os, signal, sys
from clia.capture.permissions.prompts import PermissionPrompt
from clia.cli.main import main
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
PermissionPrompt._note = killed
sys.exit(main(["hook", "answer", "claude-code", "--seconds", "600"]))
"""


def test_a_hook_that_is_killed_before_it_kept_its_question_does_not_ask_again(desk: ToolDesk) -> None:
    for call, is_answered in (("toolu_1", True), ("toolu_2", False)):
        event = json.dumps(desk.event("deploy prod", call)).encode()
        environment = {**os.environ, "CLIA_AGENT": "scout"}
        words = [sys.executable, "-P", "-c", ASKER]
        assert subprocess.run(words, input=event, cwd=desk.root, env=environment, check=False).returncode == -signal.SIGKILL
        (request,) = desk.space.pending("scout")
        if is_answered:
            desk.decide(request, "allow")
            assert desk.run("deploy prod", call)["permissionDecision"] == "allow"
        else:
            hook = desk.start("deploy prod", call)
            assert [waiting.id for waiting in desk.waiting()] == [request.id]
            desk.decide(request, "deny")
            assert printed(hook)["permissionDecision"] == "deny"
    assert len(desk.space.sessions.questions("scout")) == 2


DECIDER = """
import os, signal, sys
import clia
left = int(sys.argv[2])
def reached(step):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
with clia.open(sys.argv[1], settings=clia.Settings(durable=False, reached=reached, person=("Ada", "ada@example.org"))) as space:
    space.decide("scout", "allow", request_id=sys.argv[3])
print(left)
"""


def test_a_decision_that_is_killed_anywhere_reaches_the_tool_once(desk: ToolDesk) -> None:
    """``kill -9`` of what records the answer (a forge, a command), at each of its steps."""
    point, is_over = 0, False
    while not is_over:
        point += 1
        hook = desk.start(f"deploy {point}", f"toolu_{point}")
        (request,) = desk.waiting()
        words = [sys.executable, "-P", "-c", DECIDER, str(desk.root), str(point), request.id]
        decider = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
        is_over = decider.returncode == 0
        assert is_over or decider.returncode == -signal.SIGKILL, decider.stderr
        with clia.open(desk.root, settings=clia.Settings(durable=False)) as space:  # completes what was killed, or undoes it
            undecided = [pending.id for pending in space.pending("scout")]
            if undecided:
                assert undecided == [request.id]
                space.decide("scout", "deny", request_id=request.id)
            else:
                with pytest.raises(StaleRequest):
                    space.decide("scout", "deny", request_id=request.id)
            own = space.history.own("scout")
            decisions = [commit for commit in own if (commit.kind, commit.request) == ("decision", request.id)]
            assert len(decisions) == 1
            expected = json.loads(str(decisions[0].value))
        assert (expected == "deny") is bool(undecided)
        assert printed(hook)["permissionDecision"] == expected
    assert point > 5  # it was killed at several steps


def test_a_killed_forge_loses_no_prompt_and_the_next_one_takes_the_answer(desk: ToolDesk) -> None:
    users = users_of(desk.space)
    users.add("ada", "admin", "Ada", "ada@example.org")
    token = users.make_token("ada")[0]
    hook = desk.start("deploy prod", "toolu_1")
    (request,) = desk.waiting()
    path = "/api/v1/spaces/space/agents/scout/decisions"
    with ForgeProcess(desk.root) as forge:
        (shown,) = Api(forge.address, token).done("GET", "/api/v1/spaces/space/pending")["items"]
        assert shown["id"] == request.id
        forge.stop(signal.SIGKILL)
    assert hook.poll() is None
    with ForgeProcess(desk.root) as forge:
        api = Api(forge.address, token)
        answers = [api("POST", path, {"value": value, "request_id": request.id}) for value in ("allow", "deny")]
        assert [answer.status for answer in answers] == [200, 409]
    assert printed(hook)["permissionDecision"] == "allow"


def prompt(space: clia.Space, call: str, call_id: str = "") -> PermissionPrompt:
    rule = parse_rule(RULES[0], "Ask a person.", "f.json", "/guardrails/0/rules/0")
    fields = {
        "session_id": "s1",
        "tool_name": "Bash",
        "tool_input": {"command": f"deploy {call}"},
        "tool_use_id": f"toolu_{call_id or call}",
    }
    from clia.capture.permissions.ruled_calls import action_of

    verdict = evaluate([rule], action_of(fields, "/"))
    return PermissionPrompt(space, PromptedCall("claude-code", "PreToolUse", fields, "scout"), verdict, 60.0)


def test_a_grant_that_expires_in_the_middle_asks_again(tmp_path: Path) -> None:
    now = [datetime(2026, 5, 1, 12, tzinfo=UTC)]
    read_end, write_end = os.pipe()
    with made_space(tmp_path / "space", clock=lambda: now[0]) as space:
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(prompt(space, "1").answer(PATIENCE, write_end)))
        asking.start()
        until = time.monotonic() + PATIENCE
        while not space.pending("scout") and time.monotonic() < until:
            time.sleep(0.01)
        space.decide("scout", "always")
        asking.join()
        assert answers[0].do == "allow"
        (question,) = space.sessions.questions("scout")
        assert question.input["clia"]["until"] == "2026-05-01T12:01:00Z"
        assert again(space, "1", write_end) == "allow"
        now[0] += timedelta(seconds=61)
        assert [grant.state for grant in grants(space)] == ["expired"]
        assert again(space, "1", write_end) == "ask"
    os.close(read_end)
    os.close(write_end)


def again(space: clia.Space, call: str, out: int) -> str:
    """The answer to the same command as a new call, without waiting."""
    return prompt(space, call, call_id=os.urandom(4).hex()).answer(0.0, out).do


@pytest.mark.parametrize("number", [200])
def test_of_many_prompts_at_once_each_is_answered_once(tmp_path: Path, number: int) -> None:
    read_end, write_end = os.pipe()
    with made_space(tmp_path / "space") as space:
        answers: dict[int, Any] = {}
        threads = [
            threading.Thread(target=lambda call=call: answers.update({call: prompt(space, str(call)).answer(600.0, write_end)}))
            for call in range(number)
        ]
        for thread in threads:
            thread.start()
        decided: set[str] = set()
        until = time.monotonic() + 600
        while len(decided) < number and time.monotonic() < until:
            for request in space.pending("scout"):
                value = "allow" if int(request.payload["command"].split()[1]) % 2 else "deny"
                space.decide("scout", value, request_id=request.id)
                assert request.id not in decided
                decided.add(request.id)
        for thread in threads:
            thread.join()
        assert {call: answer.do for call, answer in answers.items()} == {
            call: ("allow" if call % 2 else "deny") for call in range(number)
        }
        assert len([commit for commit in space.history.own("scout") if commit.kind == "decision"]) == number
    os.close(read_end)
    os.close(write_end)
