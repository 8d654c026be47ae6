"""Spaces over HTTP: a real forge on a real socket, in a thread of the test process.

One forge serves a whole module of tests; each handle that a test opens becomes a served space. A person is a user with a
token: ``by`` in a test selects the token of that person.
"""

from __future__ import annotations

import itertools
import re
import socket
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

import clia
from clia.client import RemoteSpace
from clia.facade.config import ForgeOptions
from clia.forge.app import create_app
from clia.forge.forge import Site, forge_of
from clia.http_client import HttpConnectionPool
from support import session_spaces
from support.session_spaces import SessionSpace
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.api.derivation import Verb
    from clia.forge.forge import Forge
    from clia.http_client import HttpResponse

TESS = "Tess <tess@example.org>"
"""The accountable person of the tests' spaces."""
_PERSON = re.compile(r"(?P<display>[^<>]*?)(?: <(?P<email>[^<>]*)>)?")


class Served:
    """A running forge and its address."""

    def __init__(self, forge: Forge, address: str) -> None:
        self.forge = forge
        self.address = address
        self._numbers = itertools.count(1)
        self._tokens: dict[tuple[str, str], str] = {}
        self._turn = threading.Lock()

    def token(self, by: str = TESS, role: str = "admin") -> str:
        """The token of a user whose decisions are recorded as those of ``by``."""
        with self._turn:
            if (by, role) not in self._tokens:
                match = _PERSON.fullmatch(by)
                assert match is not None
                name = f"user-{next(self._numbers)}"
                user = self.forge.users.add(name, role, match["display"], match["email"] or "")
                assert user.by == by
                self._tokens[by, role] = self.forge.users.make_token(name)[0]
            return self._tokens[by, role]

    def add(self, space: clia.Space, path: str) -> str:
        """Serve another space; return its name."""
        with self._turn:
            name = f"space-{next(self._numbers)}"
            self.forge.sites = {
                **self.forge.sites,
                name: Site(name, space, space.local.open_feed(), path),  # the forge may be reading it
            }
        return name

    def remove(self, name: str) -> None:
        with self._turn:
            site = self.forge.sites[name]
            self.forge.sites = {key: served_site for key, served_site in self.forge.sites.items() if key != name}
        site.feed.close()
        site.space.close()

    def open(self, path: Path | str, **more: Any) -> clia.Space:
        """Create a space like ``clia.init``; return it as a remote space."""
        space = clia.init(path, settings=settings(**more))
        return Handle(self, self.add(space, str(path)), Path(path))


class Handle(RemoteSpace):
    """A remote space that is served as long as it is open."""

    def __init__(self, served: Served, name: str, root: Path, by: str = TESS) -> None:
        super().__init__(served.address, served.token(by), space=name)
        self.served = served
        self.name = name
        self.root = root
        self.name = name
        self._others: dict[str, RemoteSpace] = {}  # the same space for other users

    def close(self) -> None:
        super().close()
        for space in self._others.values():
            space.close()
        if self.name in self.served.forge.sites:
            self.served.remove(self.name)

    def __call__(self, verb: Verb, arguments: Mapping[str, Any]) -> Any:
        by = arguments.get("by")
        if by in (None, TESS) or not isinstance(by, str) or not by.strip() or not by.isprintable():
            return super().__call__(verb, arguments)
        if by not in self._others:
            self._others[by] = RemoteSpace(self.served.address, self.served.token(by), space=self.name)
        return self._others[by](verb, arguments)


class RemoteSessionSpace(SessionSpace):
    """A space's repository; opening it returns a remote space."""

    served: Served

    def open(self, **more: Any) -> clia.Space:
        return self.served.open(self.root, store=self.store, config=self.config, **more)

    def configured(self, text: str) -> SessionSpace:
        place = RemoteSessionSpace(*super().configured(text))
        place.served = self.served
        return place


def remote_session_space(served: Served, tmp_path: Path) -> RemoteSessionSpace:
    place = RemoteSessionSpace(tmp_path.resolve() / "repo")
    place.served = served
    return place


def root_of(space: clia.Space) -> Path:
    """The repository of a local or remote space."""
    return space.root if isinstance(space, Handle) else session_spaces.root_of(space)


def local_of(space: clia.Space) -> clia.Space:
    """The local space behind a remote one."""
    return space.served.forge.sites[space.name].space if isinstance(space, Handle) else space


@contextmanager
def serving(home: Path, **options: Any) -> Iterator[Served]:
    """A forge with a separate home space; by default it has no rate limit."""
    space = clia.init(home, settings=settings())
    unlimited = {"per_minute": 10_000_000, "logins_per_minute": 10_000_000}
    forge = forge_of([(str(home), space)], ForgeOptions(**{**unlimited, **options}))
    try:
        with running(forge) as address:
            yield Served(forge, address)
    finally:
        forge.close()


def answer_of(
    address: str, target: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> HttpResponse:
    """The answer to one raw request."""
    channel = HttpConnectionPool(address)
    try:
        return channel.request(method, target, headers or {}, body, seconds=30, limit=2**26)
    finally:
        channel.close()


@contextmanager
def running(forge: Forge, port: int = 0) -> Iterator[str]:
    """Serve a forge while the block runs; yield its address."""
    with socket.create_server(("127.0.0.1", port), backlog=128) as bound:
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # otherwise each answer waits for an acknowledgement
        config = uvicorn.Config(create_app(forge), log_config=None, access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            assert (
                answer_of(address, "/healthz").status == 200
            )  # connections wait in the socket's queue until the forge has started
            yield address
        finally:
            forge.stopping()
            server.should_exit = True
            thread.join()


class CuttingProxy:
    """A proxy between a client and a forge that cuts a number of connections when the forge answers."""

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        self._bound = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"http://127.0.0.1:{self._bound.getsockname()[1]}"
        self.cuts = 0
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_now(self) -> None:
        """Cut every open connection."""
        for connection in self._open:
            _end(connection)
        self._open.clear()

    def close(self) -> None:
        _end(self._bound)
        self.cut_now()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._bound.accept()
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self.cuts > 0:
                    self.cuts -= 1
                    break
                target.sendall(data)
        _end(source)
        _end(target)


def _end(channel: socket.socket) -> None:
    with suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()
