"""Run the forge: socket, uvicorn and graceful shutdown.

Invariant: the socket is bound before the address is announced. On shutdown, running requests finish and streams end.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clia.errors import InvalidInput
from clia.facade.opening import open_space
from clia.forge.address_file import mark, unmark
from clia.forge.app import create_app
from clia.forge.binding import bind, proxy_secret, set_addresses
from clia.forge.federation import AT as FEDERATION
from clia.forge.forge import forge_of
from clia.forge.webhooks import Webhooks
from clia.hub.service import periodic_sync
from clia.users.fields import ADMIN
from clia.workers.fleet import FORGE
from clia.workers.heartbeats import ProcessInfo, heartbeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clia.facade.settings import Settings
    from clia.forge.binding import Addresses, ServeOptions
    from clia.forge.forge import ExtraApp, Forge

_GRACE = 5
_ROOM = 500  # connections in addition to event listeners
_FILES = 65536
HEAD_SECONDS = 20.0
_SILENCE = 10.0


class ServeBanner(NamedTuple):
    """What ``clia serve`` prints at start."""

    address: str  # address of the forge, as browsers reach it
    api: str  # address for programs on this machine, which may not resolve names below localhost
    link: str | None  # a login link, which works once
    user: str | None  # the user of the link
    spaces: Sequence[str]  # short names of the spaces


class _HeaderTimeout(H11Protocol):
    """Closes connections whose request headers do not arrive in time; each holds a file descriptor."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_waiting():
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._is_waiting():
            self.transport.close()

    def _is_waiting(self) -> bool:
        """Whether no request is in progress; ``cycle`` does not exist before the first."""
        cycle = getattr(self, "cycle", None)
        return cycle is None or bool(cycle.response_complete)


class ForgeServer(uvicorn.Server):
    """Reports when it is ready, ends streams when it shuts down, and survives the signal to clean up.

    Invariant: a signal handler only sets flags. Ending streams takes locks, which the interrupted code may hold.
    """

    def __init__(self, config: uvicorn.Config, serving: Callable[[], None], stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._serving = serving
        self.stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._serving()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stopping()
        await super().shutdown(sockets)


def serve(
    options: ServeOptions,
    settings: Settings,
    environment: Mapping[str, str],
    say: Callable[[ServeBanner], None],
    extras: Callable[[Forge], Sequence[ExtraApp]] = lambda _: (),
) -> None:
    """Serve until stopped; ``extras`` are created as soon as the address is known."""
    _allow_files()
    forge = open_forge(options.spaces, settings)
    try:
        forge.proxy_secret = proxy_secret(forge.options, options.socket, environment)
        with bind(options) as bound:
            addresses = set_addresses(forge, options, bound)
            hooks = Webhooks(forge, environment)
            app = create_app(forge, extras(forge))
            banner = banner_of(forge, addresses, options.user)
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE,
                limit_concurrency=forge.options.listeners + _ROOM,
                http=_HeaderTimeout,
            )
            hooks.start()
            try:
                with _announced(forge, addresses):
                    ForgeServer(config, lambda: say(banner), forge.stopping).run(sockets=[bound])
            finally:
                hooks.stop()
    finally:
        forge.close()


@contextmanager
def _announced(forge: Forge, addresses: Addresses) -> Iterator[None]:
    """Record where each space is served, for programs on this machine; send heartbeats and sync with the hub in the background."""
    process = ProcessInfo(FORGE, addresses.bound)
    with ExitStack() as stack:
        for site in forge.sites.values():
            mark(site.space.home, f"{addresses.browsers}/s/{site.name}", f"{addresses.peers}{FEDERATION}{site.name}")
            stack.callback(unmark, site.space.home)
            stack.enter_context(heartbeat(site.space, process))
            stack.enter_context(periodic_sync(site.space, site.space.local.config.worker.hub_seconds))
        yield


def open_forge(paths: Sequence[str], settings: Settings) -> Forge:
    opened = []
    try:
        for path in map(os.path.abspath, paths):
            opened.append((path, open_space(path, settings=settings)))
        ids = [space.id for _, space in opened]
        if len(set(ids)) < len(ids):
            raise InvalidInput("a space cannot be served twice", code="same-space", fields={"field": "space"})
        return forge_of(opened, opened[0][1].local.config.forge)
    except BaseException:
        for _, space in opened:
            space.close()
        raise


def _allow_files() -> None:
    """Raise the limit on open files; every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def banner_of(forge: Forge, addresses: Addresses, name: str | None) -> ServeBanner:
    """A login link for the named user, else for the first administrator, else for the local user, who becomes administrator."""
    users = [account.user for account in forge.users.all()]
    if name is None:
        name = next((user.name for user in users if user.role == ADMIN), None)
    elif name not in [user.name for user in users]:
        hints = [f"clia user add {name}"]
        raise InvalidInput(f"unknown user {name!r}", code="no-such-user", hints=hints, fields={"user": name})
    if name is None:  # another forge may create the administrator at the same time on the same store
        person = next(iter(forge.sites.values())).space.local.person
        name = forge.users.first_admin(person.name[:100], person.email).name
    link = f"{addresses.browsers}/login?key={forge.users.login_link(name)}"
    return ServeBanner(addresses.browsers, addresses.api, link, name, list(forge.sites))


def log_to(stream: logging.Handler) -> None:
    """Write the access log and warnings, one line each."""
    stream.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    levels = (("clia", logging.INFO), ("uvicorn.error", logging.WARNING), ("asyncio", logging.ERROR), ("mcp", logging.WARNING))
    for name, level in levels:
        logger = logging.getLogger(name)
        logger.handlers = [stream]
        logger.setLevel(level)
        logger.propagate = False
    logging.getLogger("asyncio").addFilter(_LogRateLimit())


class _LogRateLimit(logging.Filter):
    """Rate-limits identical log messages; without file descriptors the loop logs thousands."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage().partition("\n")[0][:80]
        if record.created - self._last.get(message, 0.0) < _SILENCE:
            return False
        self._last = {message: record.created}
        return True
