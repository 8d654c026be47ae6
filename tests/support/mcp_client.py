"""The official client of the Model Context Protocol, with every transport: in this process, over stdio and over HTTP."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client import session
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from mcp import Client, MCPError
from support import warm
from support.forge_server import PERSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from mcp.client.session import ClientRequestContext
    from mcp_types import ElicitRequestParams

MODERN, LEGACY = "2026-07-28", "2025-11-25"
session.DISCOVER_TIMEOUT_SECONDS = 60.0  # after ten seconds the client falls back to the older protocol
PROTOCOLS = (MODERN, LEGACY)


class FormUser:
    """The user of the client, who answers forms; ``shown`` has the forms."""

    def __init__(self, answer: Callable[[ElicitRequestParams], Awaitable[ElicitResult]] | ElicitResult) -> None:
        self._answer = answer
        self.shown: list[ElicitRequestParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        self.shown.append(params)
        return self._answer if isinstance(self._answer, ElicitResult) else await self._answer(params)


def says(content: Mapping[str, Any] | None = None, action: Any = "accept") -> FormUser:
    return FormUser(ElicitResult(action=action, content=None if content is None else dict(content)))


class Driver:
    """Calls tools and records which. The client itself checks every result against the tool's output schema."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.used: set[str] = set()
        self.progress: list[str] = []

    async def do(self, tool: str, /, **args: Any) -> dict[str, Any]:
        self.used.add(tool)
        result = await self.client.call_tool(tool, args, progress_callback=self._on_progress)
        assert not result.is_error, result.content
        content: dict[str, Any] = result.structured_content
        return content

    async def refused(self, code: str, tool: str, /, **args: Any) -> dict[str, Any]:
        """Return the error of a call that must fail. Its message must also be in the content, for the model."""
        result = await self.client.call_tool(tool, args)
        assert result.is_error, result.structured_content
        error: dict[str, Any] = result.structured_content
        assert error["code"] == code, error
        assert error["message"] in getattr(result.content[0], "text", "")
        return error

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        self.progress.append(message or "")


async def fails(call: Awaitable[Any]) -> MCPError:
    """Return the protocol error of a call that must fail."""
    try:
        result = await call
    except MCPError as err:
        return err
    raise AssertionError(result)


def _mode(protocol: str) -> str:
    return "auto" if protocol == MODERN else "legacy"


@asynccontextmanager
async def talking(server: Any, protocol: str = MODERN, person: FormUser | None = None) -> AsyncIterator[Driver]:
    async with Client(server, mode=_mode(protocol), elicitation_callback=person) as client:
        assert client.protocol_version == protocol
        yield Driver(client)


def stdio(root: Path, *arguments: str, **env: str) -> StdioServerParameters:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))}
    environment |= {"GIT_COMMITTER_NAME": PERSON[0], "GIT_COMMITTER_EMAIL": PERSON[1]}
    return StdioServerParameters(command=warm.program(), args=["mcp", "--path", str(root), *arguments], env=environment | env)


@asynccontextmanager
async def over_http(address: str, token: str, path: str = "/mcp", **headers: str) -> AsyncIterator[Any]:
    """A transport to a forge, which is closed at the end of the block."""
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}", **headers}, timeout=60.0) as http:
        yield streamable_http_client(f"{address}{path}", http_client=http)
