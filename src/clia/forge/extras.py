"""Applications of somebody else's at addresses of the forge, for programs that have a token.

Invariant: a browser's login does not reach them, so no page can use them in somebody's name. One is made when it is first asked
for: its packages may take a second to load, and most forges never need it. It lives in a task of its own until the forge ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from anyio import to_thread

from clia.forge.auth.identity import NOBODY, require

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp, Receive, Scope, Send

CALLER = "clia_caller"
"""Where who asks stands in the scope of a request."""


class Made(NamedTuple):
    """An application, what goes on as long as it is there, and how it is told to stop, from a signal's handler."""

    app: ASGIApp
    life: Callable[[], AbstractAsyncContextManager[None]]
    stopping: Callable[[], None]


class Extra(NamedTuple):
    """Where an application is, and how it is made; that happens in a thread."""

    name: str
    paths: Sequence[str]
    make: Callable[[], Made]


class Hosted:
    """An extra in a forge that runs: the application at its addresses."""

    def __init__(self, extra: Extra) -> None:
        self.extra = extra
        self._made: Made | None = None

    async def __aenter__(self) -> Hosted:
        self._wanted, self._over = asyncio.Event(), asyncio.Event()
        self._ready: asyncio.Future[Made] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._over.set()
        if not self._wanted.is_set():
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _live(self) -> None:
        await self._wanted.wait()
        try:
            self._made = await to_thread.run_sync(self.extra.make)
            async with self._made.life():
                self._ready.set_result(self._made)
                await self._over.wait()
        except Exception as err:
            if self._ready.done():
                raise
            self._ready.set_exception(err)  # whoever asks is told that something is broken

    def stopping(self) -> None:
        if self._made is not None:
            self._made.stopping()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = scope["state"]["identity"]
        user = require(NOBODY if identity.by_cookie else identity, "viewer")
        self._wanted.set()
        made = await asyncio.shield(self._ready)
        await made.app({**scope, CALLER: user}, receive, send)
