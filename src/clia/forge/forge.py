"""The forge: its spaces, users and options, and mounted applications.

Invariant: everything that a request can reach belongs to one ``Forge``; there is no global state. The first space is the home: its
store holds users, logins and idempotency keys. Mounted applications (MCP) accept only tokens, never a browser login, and are loaded
on first use, because their packages take a second to import.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import NamedTuple

from anyio import to_thread

from clia.errors import InvalidInput, NotFound
from clia.forge.auth import ANONYMOUS, require
from clia.forge.hosts import HostNames, host_of
from clia.space.feed import stored_token
from clia.users.service import users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from starlette.types import ASGIApp, Receive, Scope, Send

    from clia.facade.config import ForgeOptions as Options
    from clia.facade.space import Space
    from clia.space.feed import Feed
    from clia.store.interface import Store
    from clia.users.service import Users

_SECRET = "forge/secret"  # noqa: S105  # the name of a row


class Site(NamedTuple):
    """A served space."""

    name: str
    space: Space
    feed: Feed
    path: str  # directory for identity lookups


class Forge:
    def __init__(
        self, sites: Iterable[Site], users: Users, home: Store, clock: Callable[[], datetime], options: Options, secret: str
    ) -> None:
        self.sites: Mapping[str, Site] = {site.name: site for site in sites}
        self.users = users
        self.home = home
        self.clock = clock
        self.options = options
        self.told_to_stop: list[Callable[[], None]] = []
        self.secret = secret  # signing key, shared by all processes of the forge
        self.home_id = next(iter(self.sites.values())).space.id
        self.hosts = HostNames(host_of(options.address))
        self.proxy_secret: str | None = None  # what a trusted proxy sends
        self.socket: str | None = None  # path of the Unix socket, which only a trusted proxy can open

    def site(self, name: str) -> Site:
        result = self.sites.get(name)
        if result is None:
            raise NotFound(f"unknown space {name!r}", code="no-such-space", fields={"space": name})
        return result

    def stopping(self) -> None:
        """End all streams."""
        for callback in self.told_to_stop:
            callback()

    def close(self) -> None:
        for site in self.sites.values():
            site.feed.close()
            site.space.close()


def forge_of(spaces: Iterable[tuple[str, Space]], options: Options) -> Forge:
    """Create a forge for open spaces, each with its directory."""
    opened = list(spaces)
    if not opened:
        raise InvalidInput("a forge needs at least one space", code="no-space")
    names = unique_names([_place(path, space) for path, space in opened])
    sites = [Site(name, space, space.local.open_feed(), path) for name, (path, space) in zip(names, opened, strict=True)]
    home = opened[0][1]
    local = home.local
    return Forge(sites, users_of(home), local.store, local.clock, options, stored_token(local.store, _SECRET, 32))


def _place(path: str, space: Space) -> str:
    """The path that a space is named after: its hub's repository, the same on every machine, else its directory."""
    if space.hub.exchange is None:
        return path
    return re.split(r"[/:]", space.hub.exchange.hub.address().rstrip("/").removesuffix(".git").rstrip("/"))[-1]


def unique_names(paths: Iterable[str]) -> list[str]:
    """A unique short name for each path: its last component as a slug, with a number if necessary."""
    names: list[str] = []
    for path in paths:
        last = path.rstrip("/").rpartition("/")[2].lower()
        slug = re.sub(r"[^a-z0-9]+", "-", last).strip("-")[:60] or "space"
        number = 2
        name = slug
        while name in names:
            name = f"{slug}-{number}"
            number += 1
        names.append(name)
    return names


CALLER = "clia_caller"
"""The key of the user in the ASGI scope."""


class LoadedApp(NamedTuple):
    """A loaded application, its lifespan, and a stop callback that is safe in a signal handler."""

    app: ASGIApp
    life: Callable[[], AbstractAsyncContextManager[None]]
    stopping: Callable[[], None]


class ExtraApp(NamedTuple):
    """An application to mount: its paths and a factory, which runs in a thread."""

    name: str
    paths: Sequence[str]
    make: Callable[[], LoadedApp]


class HostedApp:
    """A mounted application in a running forge."""

    def __init__(self, extra: ExtraApp) -> None:
        self.extra = extra
        self._made: LoadedApp | None = None

    async def __aenter__(self) -> HostedApp:
        self._wanted, self._over = asyncio.Event(), asyncio.Event()
        self._ready: asyncio.Future[LoadedApp] = asyncio.get_running_loop().create_future()
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
            self._ready.set_exception(err)  # requests get the error

    def stopping(self) -> None:
        if self._made is not None:
            self._made.stopping()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = scope["state"]["identity"]
        user = require(ANONYMOUS if identity.by_cookie else identity, "viewer")
        self._wanted.set()
        hosted = await asyncio.shield(self._ready)
        await hosted.app({**scope, CALLER: user}, receive, send)
