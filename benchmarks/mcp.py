"""The start of an MCP server, which a tool waits for before its first request to a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from benchmarks.measure import Row, beside, command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SDK = "import mcp.server.lowlevel, mcp.server.request_state, mcp.server.stdio"
_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
_START: tuple[dict[str, Any], ...] = (
    {"id": 1, "method": "initialize", "params": _HELLO},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)
_CALL = {"id": 3, "method": "tools/call", "params": {"name": "agents", "arguments": {}}}


def rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory).resolve()
        root = top / "space"
        clia.init(root, settings=clia.Settings(durable=False)).close()
        cache, numbers = str(top / "kept"), count()
        works = [
            command([sys.executable, "-c", _SDK]),
            _server(root, lambda: cache, _START),
            _server(root, lambda: str(top / f"state-{next(numbers)}"), _START),
            _server(root, lambda: cache, (*_START, _CALL)),
        ]
        (floor, again, first, call), _ = beside(works, {}, rounds)
    return [Row("mcp-start", again, floor), Row("mcp-start-first", first, floor), Row("mcp-call", call, floor)]


def _server(root: Path, state: Callable[[], str], messages: Sequence[dict[str, Any]]) -> Callable[[], object]:
    """Start a server, send each message after the answer to the one before, and end it when the last is answered."""
    words = [str(Path(sys.executable).parent / "clia"), "mcp"]

    def start() -> None:
        environment = {**os.environ, "XDG_STATE_HOME": state()}
        with subprocess.Popen(words, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            for message in messages:
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                server.stdin.flush()
                answer = json.loads(server.stdout.readline()) if "id" in message else {"result": None}
                assert "result" in answer, answer
            server.kill()  # the start is measured, not the end

    return start
