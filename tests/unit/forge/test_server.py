"""The forge's server process: signals and shutdown."""

from __future__ import annotations

import asyncio
import os
import signal

import uvicorn

from clia.forge.server import ForgeServer


async def app(*_: object) -> None:
    """An application without routes."""


def test_a_signal_handler_takes_no_locks_and_the_shutdown_ends_the_streams() -> None:
    calls: list[str] = []
    server = ForgeServer(uvicorn.Config(app, log_config=None), lambda: None, lambda: calls.append("stopping"))
    with server.capture_signals():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    assert server.should_exit
    assert calls == []
    server.servers, server.force_exit = [], True  # nothing runs
    asyncio.run(server.shutdown())
    assert calls == ["stopping"]
