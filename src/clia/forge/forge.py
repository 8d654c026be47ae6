"""A forge: the spaces it serves, who may use it, and what its operator decided.

Invariant: everything that a request may reach hangs on one ``Forge``; nothing of it is global to the process. The first space is
the forge's home: its store holds users, logins and idempotency keys for all of them.


Applications of somebody else's at addresses of the forge, for programs that have a token.

Invariant: a browser's login does not reach them, so no page can use them in somebody's name. One is made when it is first asked
for: its packages may take a second to load, and most forges never need it. It lives in a task of its own until the forge ends.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple

from anyio import to_thread

from clia.errors import InvalidInput, NotFound
from clia.forge.auth import NOBODY, require
from clia.forge.events import feed_of
from clia.users.service import users_of
from clia.workers.hub_inspection import address_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from starlette.types import ASGIApp, Receive, Scope, Send

    from clia.facade.config import ForgeOptions as Options
    from clia.facade.space import Space
    from clia.forge.events import Feed
    from clia.store.interface import Store
    from clia.users.service import Users

_SECRET = "forge/secret"  # noqa: S105  # the name of a row


class Site(NamedTuple):
    """One space that is served."""

    name: str
    space: Space
    feed: Feed
    path: str  # where lineage is asked who an agent is


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
        self.secret = secret  # what the forge signs for itself with; the same in all of its processes

    def site(self, name: str) -> Site:
        found = self.sites.get(name)
        if found is None:
            raise NotFound(f"no space {name!r} is served here", code="no-such-space", fields={"space": name})
        return found

    def stopping(self) -> None:
        """The forge is told to stop: whoever streams is to end. A signal's handler may call it."""
        for told in self.told_to_stop:
            told()

    def close(self) -> None:
        for site in self.sites.values():
            site.feed.close()
            site.space.close()


def forge_of(spaces: Iterable[tuple[str, Space]], options: Options) -> Forge:
    """A forge of opened spaces, each with the directory it was opened at."""
    opened = list(spaces)
    if not opened:
        raise InvalidInput("a forge serves at least one space", code="no-space")
    names = unique_names([_place(path, space) for path, space in opened])
    sites = [Site(name, space, feed_of(space), path) for name, (path, space) in zip(names, opened, strict=True)]
    home = opened[0][1]
    core = home._core  # noqa: SLF001  # the forge's own rows live in the home's store, beside its users
    return Forge(sites, users_of(home), core.store, core.clock, options, _secret(core.store))


def _secret(home: Store) -> str:
    with home.writing() as change:
        found = change.values.get(_SECRET)
        if found is not None and isinstance(found.value, str):
            return found.value
        made = token_hex(32)
        change.values.put(_SECRET, made)
    return made


def _place(path: str, space: Space) -> str:
    """What a space is called after: its hub's repository, which is the same on every machine, or its own directory."""
    address = address_of(space)
    if address is None:
        return path
    return re.split(r"[/:]", address.rstrip("/").removesuffix(".git").rstrip("/"))[-1]


def unique_names(paths: Iterable[str]) -> list[str]:
    """A short name for each path: its last part as a slug, with a number where that is taken."""
    found: list[str] = []
    for path in paths:
        last = path.rstrip("/").rpartition("/")[2].lower()
        slug = re.sub(r"[^a-z0-9]+", "-", last).strip("-")[:60] or "space"
        number = 2
        name = slug
        while name in found:
            name = f"{slug}-{number}"
            number += 1
        found.append(name)
    return found


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
