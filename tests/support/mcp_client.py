"""The official client of the Model Context Protocol, on every line to a space: in this process, over stdio and over HTTP."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from support import warm
from support.forge_server import PERSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from mcp.client.session import ClientRequestContext
    from mcp_types import ElicitRequestParams

MODERN, LEGACY = "2026-07-28", "2025-11-25"
PROTOCOLS = (MODERN, LEGACY)


class Person:
    """Whoever sits before the client, and what forms they were shown."""

    def __init__(self, answer: Callable[[ElicitRequestParams], Awaitable[ElicitResult]] | ElicitResult) -> None:
        self._answer = answer
        self.shown: list[ElicitRequestParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        self.shown.append(params)
        return self._answer if isinstance(self._answer, ElicitResult) else await self._answer(params)


def says(content: Mapping[str, Any] | None = None, action: Any = "accept") -> Person:
    return Person(ElicitResult(action=action, content=None if content is None else dict(content)))


class Driver:
    """Calls tools, and keeps in mind which: the client itself checks every answer against the tool's output schema."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.used: set[str] = set()
        self.progress: list[str] = []

    async def do(self, tool: str, /, **args: Any) -> dict[str, Any]:
        self.used.add(tool)
        done = await self.client.call_tool(tool, args, progress_callback=self._heard)
        assert not done.is_error, done.content
        found: dict[str, Any] = done.structured_content
        return found

    async def refused(self, code: str, tool: str, /, **args: Any) -> dict[str, Any]:
        """The error of a call that must fail; in words for a model too."""
        done = await self.client.call_tool(tool, args)
        assert done.is_error, done.structured_content
        found: dict[str, Any] = done.structured_content
        assert found["code"] == code, found
        assert found["message"] in getattr(done.content[0], "text", "")
        return found

    async def _heard(self, progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        self.progress.append(message or "")


async def fails(call: Awaitable[Any]) -> MCPError:
    """The error of the protocol that something ends in."""
    try:
        done = await call
    except MCPError as err:
        return err
    raise AssertionError(done)


def _mode(protocol: str) -> str:
    return "auto" if protocol == MODERN else "legacy"


@asynccontextmanager
async def talking(server: Any, protocol: str = MODERN, person: Person | None = None) -> AsyncIterator[Driver]:
    async with Client(server, mode=_mode(protocol), elicitation_callback=person) as client:
        assert client.protocol_version == protocol
        yield Driver(client)


def stdio(root: Path, *words: str, **env: str) -> StdioServerParameters:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))}
    kept |= {"GIT_COMMITTER_NAME": PERSON[0], "GIT_COMMITTER_EMAIL": PERSON[1]}
    return StdioServerParameters(command=warm.program(), args=["mcp", "--path", str(root), *words], env=kept | env)


@asynccontextmanager
async def over_http(address: str, token: str, path: str = "/mcp", **headers: str) -> AsyncIterator[Any]:
    """A transport to a forge; nothing of it outlives the block."""
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}", **headers}, timeout=60.0) as http:
        yield streamable_http_client(f"{address}{path}", http_client=http)
