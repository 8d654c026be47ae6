"""An MCP server for a space in this process, and a client that works with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.request_state import RequestStateSecurity

from clia.mcp.calls import Caller, SpaceContext
from clia.mcp.server import server_of
from support.mcp_client import MODERN, Driver, talking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import clia


def server_at(space: clia.Space, root: Path, caller: Caller | None = None, **more: Any) -> Any:
    """A server that was started in a directory; ``more`` are other fields of its context."""
    context = SpaceContext(str(root), lambda: space, **more)
    return server_of(context, "1", lambda _: caller or Caller(), RequestStateSecurity.ephemeral())


def drive(server: Any, work: Callable[[Driver], Awaitable[None]], protocol: str = MODERN) -> None:
    """Run a coroutine with a client of the server."""

    async def main() -> None:
        async with talking(server, protocol) as driver:
            await work(driver)

    anyio.run(main)
