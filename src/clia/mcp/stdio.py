"""A server for one client, over standard input and output.

Invariant: nothing but the protocol goes to standard output; what is not of the protocol on standard input is refused and ends
nothing. The server ends when its input does.
"""

from __future__ import annotations

import anyio
from mcp.server.request_state import RequestStateSecurity
from mcp.server.stdio import stdio_server

from clia.mcp.place import Caller
from clia.mcp.server import server_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.mcp.place import Place


def serve(place: Place, version: str) -> None:
    """Serves until standard input ends."""
    try:
        anyio.run(_serve, place, version)
    finally:
        place.close()


async def _serve(place: Place, version: str) -> None:
    caller = Caller()
    server = server_of(place, version, lambda _: caller, RequestStateSecurity.ephemeral())
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
