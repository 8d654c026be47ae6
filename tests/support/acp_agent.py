"""An agent of the Agent Client Protocol, run as a program: each line of a prompt is one thing that it does.

``run COMMAND`` and ``edit PATH TEXT`` ask for permission; ``write PATH TEXT`` and ``terminal COMMAND`` use the editor at once;
``big N`` sends a long message. Each answer is sent to the editor as text.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    text_block,
    update_agent_message,
)
from acp.exceptions import RequestError
from acp.schema import FileEditToolCallContent, PermissionOption, ToolCallUpdate

OPTIONS = [PermissionOption(option_id=f"id-{kind}", name=kind, kind=kind) for kind in ("allow_always", "allow_once", "reject_once")]


AnyAgent: Any = Agent  # its methods take keywords that grow with the protocol


class ScriptedAgent(AnyAgent):  # type: ignore[misc]
    def __init__(self) -> None:
        self.editor: Any = None
        self.calls = 0

    def on_connect(self, conn: Any) -> None:
        self.editor = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=min(protocol_version, PROTOCOL_VERSION))

    async def new_session(self, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="s1")

    async def cancel(self, **_: Any) -> None:
        return None

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        for line in prompt[0].text.splitlines():
            verb, _, rest = line.partition(" ")
            try:
                said = await getattr(self, f"do_{verb}")(session_id, rest)
            except RequestError as error:
                said = f"error: {error}"
            await self.editor.session_update(session_id=session_id, update=update_agent_message(text_block(f"{verb}: {said}")))
        return PromptResponse(stop_reason="end_turn")

    async def _ask(self, session: str, **call: Any) -> str:
        self.calls += 1
        update = ToolCallUpdate(tool_call_id=f"call-{self.calls}", **call)
        response = await self.editor.request_permission(options=OPTIONS, session_id=session, tool_call=update)
        return str(getattr(response.outcome, "option_id", response.outcome.outcome))

    async def do_run(self, session: str, command: str) -> str:
        return await self._ask(session, kind="execute", title=command, raw_input={"command": command})

    async def do_titled(self, session: str, command: str) -> str:
        return await self._ask(session, kind="execute", title=command)

    async def do_edit(self, session: str, rest: str) -> str:
        path, _, text = rest.partition(" ")
        change = FileEditToolCallContent(type="diff", path=path, old_text="old\n", new_text=text)
        return await self._ask(session, kind="edit", title=f"Edit {path}", content=[change])

    async def do_write(self, session: str, rest: str) -> str:
        path, _, text = rest.partition(" ")
        await self.editor.write_text_file(session_id=session, path=path, content=text)
        return "done"

    async def do_terminal(self, session: str, rest: str) -> str:
        command, *arguments = rest.split()
        await self.editor.create_terminal(session_id=session, command=command, args=arguments)
        return "done"

    async def do_big(self, session: str, size: str) -> str:
        return "x" * int(size)

    async def do_die(self, session: str, rest: str) -> str:
        del session, rest
        sys.exit(3)


if __name__ == "__main__":
    asyncio.run(run_agent(ScriptedAgent()))
