"""Gemini CLI as an agent of the Agent Client Protocol, behind the relay; the editor is the protocol's own library."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse

from support.model_server import Reply
from support.real_tool_setups import GEMINI
from support.real_tools import CLIA, serving, write_rules

if TYPE_CHECKING:
    from support.real_tools import Computer

AnyClient: Any = Client  # its methods take keywords that grow with the protocol
PATIENCE = 120.0


class Editor(AnyClient):  # type: ignore[misc]
    """Rejects whatever it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def request_permission(self, options: Any, **_: Any) -> RequestPermissionResponse:
        self.asked += 1
        option = next(option for option in options if option.kind == "reject_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    async def session_update(self, **_: Any) -> None:
        return None


@pytest.mark.parametrize("answer", ["allow", "deny"])
def test_a_person_decides_about_the_request_for_permission(computer: Computer, answer: str) -> None:
    write_rules(computer, {"on": "tool", "match": {"command": "echo deployed *"}, "do": "ask"})
    GEMINI.configure(computer)
    computer.add_program(GEMINI.program, GEMINI.program)
    computer.clia("spawn", "scout", "--title", "Deploy")
    script = computer.model.script(Reply("I do.", (GEMINI.shell("echo deployed > deployed.txt"),)), Reply("That was it."))
    editor = Editor()

    async def session(forge: Any) -> None:
        words = [str(CLIA), "acp", "scout", "--", GEMINI.program, "--acp"]
        async with spawn_agent_process(editor, *words, cwd=computer.root, env=computer.environment()) as (connection, _):
            await connection.initialize(protocol_version=PROTOCOL_VERSION)
            await connection.authenticate(method_id="gemini-api-key")
            opened = await connection.new_session(cwd=str(computer.root), mcp_servers=[])
            turn = asyncio.ensure_future(connection.prompt(session_id=opened.session_id, prompt=[text_block(f"Deploy. {script}")]))
            until = time.monotonic() + PATIENCE
            while not (questions := await asyncio.to_thread(forge.questions)):
                assert not turn.done(), turn.result()
                assert time.monotonic() < until
                await asyncio.sleep(0.2)
            assert "echo deployed > deployed.txt" in questions[0]["payload"]["command"]
            await asyncio.to_thread(forge.answer, questions[0], answer)
            await asyncio.wait_for(turn, PATIENCE)

    with serving(computer) as forge:
        asyncio.run(session(forge))
        assert forge.questions() == []
    assert editor.asked == 0
    assert (computer.root / "deployed.txt").exists() is (answer == "allow")
