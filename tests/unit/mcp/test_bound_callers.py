"""A caller that is bound to an agent acts as no other, with any tool, on standard input and over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.mcp.calls import Caller
from clia.mcp.server import TOOLS
from clia.users.service import User
from clia.verbs import VIEWER
from support import git
from support.mcp_server import drive, server_at
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    import clia
    from support.mcp_client import Driver

CHANGING = sorted(name for name, tool in TOOLS.items() if tool.role != VIEWER)
AGENTS = ("agent", "into", "src", "parent")
"""The arguments that name the agent for which a tool acts."""
OTHERS: dict[str, Any] = {
    **dict.fromkeys(("message", "note", "body", "why", "title"), "x"),
    **dict.fromkeys(("from", "dst"), "scout"),
    **dict.fromkeys(("name", "as_agent"), "third"),
    **dict.fromkeys(("ours", "theirs"), "0" * 40),
    "kind": "finding",
    "text": "hello",
    "flow": "ask",
    "value": 1,
    "question": "Go on?",
    "files": {},
    "behaviour": "b",
    "tool_name": "Bash",
    "input": {"command": "ls"},
}
BOT = User("bot", "agent", agents=("scout",))


def arguments_for(name: str) -> dict[str, Any]:
    """Arguments that let a tool act for the agent ``helper``."""
    tool = TOOLS[name]
    keys = {param.key for param in tool.params}
    (acting,) = [key for key in AGENTS if key in keys][:1]
    required = {param.key: OTHERS[param.key] for param in tool.params if param.required and param.key != acting}
    extra = {"kind": "prompt"} if name == "behaviour_propose" else {}
    return {**required, **extra, acting: "helper"}


@pytest.mark.parametrize("bound", ["server", "token"])
@pytest.mark.parametrize("name", CHANGING)
def test_no_tool_acts_for_another_agent(space: clia.Space, repo: Path, name: str, bound: str) -> None:
    space.spawn("helper", BRIEFING)
    before = git("for-each-ref", cwd=repo)
    caller = Caller(BOT, lambda _: BOT) if bound == "token" else None
    server = server_at(space, repo, caller, agent="scout" if bound == "server" else None)

    async def work(driver: Driver) -> None:
        result: Any = await driver.client.call_tool(name, arguments_for(name))
        assert result.is_error, result
        codes = ("not-allowed", "person-needed") if bound == "server" else ("not-your-agent", "role-too-low")
        assert result.structured_content["code"] in codes, result.structured_content

    drive(server, work)
    assert git("for-each-ref", cwd=repo) == before
    assert space.pending() == []
    assert space.traces.pending("helper") == []
