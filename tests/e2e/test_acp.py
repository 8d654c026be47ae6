"""The relay between an editor and an agent of the Agent Client Protocol, with the protocol's own library on both sides."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
import warnings
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, CreateTerminalResponse, RequestPermissionResponse

import support.acp_agent
from clia.capture.permissions.prompts import grants, is_waited_for
from clia.errors import CliaError
from support import git
from support.effects import made_space
from support.plain_git import commit_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import clia
    from clia.sessions.model import Request

PATIENCE = 60.0
RULES = [
    {"on": "tool", "match": {"command": "deploy *"}, "do": "ask"},
    {"on": "tool", "match": {"command": "rm -rf *"}, "do": "deny"},
    {"on": "tool", "match": {"tool": "Bash", "command": "ls *"}, "do": "allow"},
    {"on": "tool", "match": {"paths": "infra/**"}, "do": "ask"},
    {"on": "tool", "match": {"paths": "secrets/**"}, "do": "deny"},
]


AnyClient: Any = Client  # its methods take keywords that grow with the protocol


class ScriptedEditor(AnyClient):  # type: ignore[misc]
    """Answers every request in the same way, and keeps what it saw."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.texts: list[str] = []
        self.written: list[str] = []

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> RequestPermissionResponse:
        del options, session_id
        self.asked.append(tool_call.title)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id="editor"))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        del session_id
        self.texts.append(update.content.text)

    async def write_text_file(self, content: str, path: str, session_id: str, **_: Any) -> None:
        del content, session_id
        self.written.append(path)

    async def create_terminal(self, command: str, session_id: str, args: Any = None, **_: Any) -> CreateTerminalResponse:
        del session_id
        self.written.append(" ".join([command, *(args or ())]))
        return CreateTerminalResponse(terminal_id="t1")


class AcpDesk:
    def __init__(self, root: Path, config: str = "") -> None:
        self.root = root
        root.mkdir()
        git("init", "--quiet", "--initial-branch=main", cwd=root)
        home = root / ".clia" / "agents" / "scout"
        home.mkdir(parents=True)
        document = {"slug": "scout", "guardrails": [{"text": "Ask a person.", "rules": RULES}]}
        commit_file(root, ".clia/agents/scout/scout@x.agent.triad.json", json.dumps(document))
        self.space: clia.Space = made_space(root, "scout")
        if config:
            (root / ".git" / "clia" / "config.toml").write_text(config)
        self.editor = ScriptedEditor()
        self.relay = 0

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Callable[[str], Any]]:
        """A session of the editor with the agent behind the relay."""
        agent = [sys.executable, support.acp_agent.__file__]
        relay = [sys.executable, "-P", "-m", "clia", "acp", "scout", "--", *agent]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("CLIA_", "GIT_"))}
        patient = {"shutdown_timeout": PATIENCE}  # otherwise the client kills a relay that takes two seconds to end
        started = spawn_agent_process(self.editor, *relay, cwd=self.root, env=environment, transport_kwargs=patient)
        async with started as (connection, process):
            self.relay = process.pid
            await connection.initialize(protocol_version=PROTOCOL_VERSION)
            session = await connection.new_session(cwd=str(self.root), mcp_servers=[])

            async def prompt(text: str) -> None:
                await connection.prompt(session_id=session.session_id, prompt=[text_block(text)])

            self.connection = connection
            yield prompt
        for pipe in (process.stdout, process.stderr):  # the agent has them open a moment longer than the relay
            if pipe is not None:
                await asyncio.wait_for(pipe.read(), PATIENCE)

    def say(self, text: str, *answers: str) -> list[str]:
        """Send a prompt, and answer the questions that it leads to; return what the agent was told."""

        async def turn() -> None:
            async with self.session() as prompt:
                running = asyncio.ensure_future(prompt(text))
                for answer in answers:
                    request = await self.question(running)
                    await asyncio.to_thread(self.decide, request, answer)
                await asyncio.wait_for(running, PATIENCE)

        asyncio.run(turn())
        return self.editor.texts

    async def question(self, running: Any) -> Request:
        """The question that the relay waits for."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if running.done():
                running.result()
                raise AssertionError(self.editor.texts)
            pending = await asyncio.to_thread(self.space.pending, "scout")
            waited = [request for request in pending if is_waited_for(self.space, request)]
            if waited:
                return waited[0]
            await asyncio.sleep(0.02)
        raise AssertionError("no question")

    def decide(self, request: Request, value: str) -> None:
        self.space.decide("scout", value, request_id=request.id)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AcpDesk]:
    acp_desk = AcpDesk(tmp_path / "space")
    yield acp_desk
    acp_desk.space.close()


def test_rules_decide_and_the_rest_is_the_editors(desk: AcpDesk) -> None:
    texts = desk.say("run rm -f -r x\nrun ls -l\nrun make\ntitled rm -rf y\ntitled ls y\nedit secrets/a b\nbig 300000")
    assert texts[:6] == [
        "run: id-reject_once",
        "run: id-allow_once",
        "run: editor",
        "titled: id-reject_once",
        "titled: editor",
        "edit: id-reject_once",
    ]
    assert texts[6] == f"big: {'x' * 300_000}"
    assert desk.editor.asked == ["make", "ls y"]
    assert desk.space.pending("scout") == []


@pytest.mark.parametrize(("answer", "option"), [("allow", "id-allow_once"), ("deny", "id-reject_once")])
def test_the_answer_of_a_person_reaches_the_agent(desk: AcpDesk, answer: str, option: str) -> None:
    assert desk.say("run deploy prod", answer) == [f"run: {option}"]
    assert desk.editor.asked == []
    (question,) = desk.space.sessions.questions("scout")
    assert question.input["command"] == "deploy prod"
    assert question.input["rule"]["guardrail"] == "Ask a person."


def test_a_grant_answers_the_same_call_again_and_no_other(desk: AcpDesk) -> None:
    assert desk.say("run deploy prod\nrun deploy prod\nrun deploy test", "always", "deny") == [
        "run: id-allow_once",
        "run: id-allow_once",
        "run: id-reject_once",
    ]
    (grant,) = grants(desk.space)
    assert (grant.command, grant.state) == ("deploy prod", "active")


def test_without_an_answer_the_editor_asks_and_nothing_is_written(tmp_path: Path) -> None:
    desk = AcpDesk(tmp_path / "space", "[prompts]\nwait_seconds = 1\n")
    with desk.space:
        texts = desk.say("run deploy prod\nwrite infra/a text\nterminal deploy prod")
        assert texts[0] == "run: editor"
        assert all("was not answered in time" in text for text in texts[1:]), texts
        assert desk.editor.asked == ["deploy prod"]
        assert desk.editor.written == []


def test_writes_and_commands_through_the_editor_are_checked(desk: AcpDesk) -> None:
    texts = desk.say("write secrets/a x\nterminal rm -rf /\nwrite src/a x\nterminal make all\nwrite infra/a x", "allow")
    assert "denied" not in texts[0]
    assert "Ask a person." in texts[0]
    assert "Ask a person." in texts[1]
    assert texts[2:] == ["write: done", "terminal: done", "write: done"]
    assert desk.editor.written == ["src/a", "make all", "infra/a"]


def test_what_a_person_allowed_is_written_without_another_question_once(desk: AcpDesk) -> None:
    texts = desk.say("edit infra/a b\nwrite infra/a b\nwrite infra/a c", "allow", "deny")
    assert texts[:2] == ["edit: id-allow_once", "write: done"]
    assert "refused it" in texts[2]
    assert desk.editor.written == ["infra/a"]


def test_a_cancelled_turn_withdraws_the_question(desk: AcpDesk) -> None:
    async def cancelled() -> None:
        async with desk.session() as prompt:
            running = asyncio.ensure_future(prompt("run deploy prod"))
            await desk.question(running)
            await desk.connection.cancel(session_id="s1")
            await asyncio.wait_for(running, PATIENCE)

    asyncio.run(cancelled())
    assert desk.editor.texts == ["run: cancelled"]
    assert desk.space.pending("scout") == []


@pytest.mark.parametrize("victim", ["agent", "relay"])
def test_a_question_of_a_killed_side_is_asked_once_and_not_answered_by_itself(desk: AcpDesk, victim: str) -> None:
    async def killed() -> None:
        async with desk.session() as prompt:
            running = asyncio.ensure_future(prompt("run deploy prod"))
            request = await desk.question(running)
            os.kill(child_of(desk.relay) if victim == "agent" else desk.relay, signal.SIGKILL)
            until = time.monotonic() + PATIENCE
            while is_waited_for(desk.space, request) and time.monotonic() < until:
                await asyncio.sleep(0.02)
            assert is_waited_for(desk.space, request) is False
            running.cancel()

    asyncio.run(killed())
    with warnings.catch_warnings():  # the agent kept the pipes of the killed relay open, so asyncio never closed them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert desk.editor.asked == []
    assert len(desk.space.sessions.questions("scout")) == 1
    pending = desk.space.pending("scout")
    assert len(pending) == (0 if victim == "agent" else 1)
    for request in pending:  # a late answer is recorded, and the agent that asks again for this call gets it
        desk.decide(request, "deny")
    if victim == "relay":
        desk.editor.texts.clear()
        assert desk.say("run deploy prod") == ["run: id-reject_once"]
        assert len(desk.space.sessions.questions("scout")) == 1


def child_of(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0])


def test_wrong_calls_are_reported(desk: AcpDesk, capfd: pytest.CaptureFixture[str]) -> None:
    from clia.cli.main import main

    where = ["--path", str(desk.root)]
    assert main(["acp", "scout", *where]) == 2
    assert main(["acp", "nobody", *where, "--", "true"]) == 2
    assert main(["acp", "scout", *where, "--", "/no/such/program"]) == 127
    assert "/no/such/program" in capfd.readouterr().err
    with pytest.raises(CliaError):
        desk.space.head("nobody")
