"""Where a forge listens, and the addresses under which browsers, programs and peers reach it.

Invariant: the header in which a proxy names users is believed only if the proxy proves itself: with a secret from a listed address,
or by the Unix socket, which only its account can open.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from typing import NamedTuple

from clia.errors import BackendError, InvalidInput
from clia.forge.auth import PROXY_SECRET
from clia.forge.hosts import HostNames, checked_host_name, host_of, is_loopback, own_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.facade.config import ForgeOptions
    from clia.forge.forge import Forge

PORT = 8337
_EVERY_HOST = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  # compared and shown
_BACKLOG = 512
_SECRET_MIN = 16


class ServeOptions(NamedTuple):
    """Options of ``clia serve``."""

    spaces: Sequence[str]
    host: str = "127.0.0.1"
    port: int = PORT
    user: str | None = None  # user for the login link
    host_name: str | None = None  # host name for browsers
    socket: str | None = None  # path of a Unix socket to listen on, instead of a port


class Addresses(NamedTuple):
    """The addresses of a forge; ``api`` and ``peers`` are those for browsers if it listens on a Unix socket."""

    bound: str  # host and port, or the path of the socket
    browsers: str
    api: str  # for programs on this machine, which may not resolve names below localhost
    peers: str


class NoAddress(BackendError):
    """The address cannot be bound."""

    code = "address-taken"


def bind(options: ServeOptions) -> socket.socket:
    return _bind_port(options.host, options.port) if options.socket is None else _bind_socket(options.socket)


def set_addresses(forge: Forge, options: ServeOptions, bound: socket.socket) -> Addresses:
    """Set the forge's address and host names for the bound socket; return the addresses."""
    configured = forge.options.address.rstrip("/")
    if options.socket is not None:
        browsers = configured or f"http://{_named(options)}"
        listening = Addresses(options.socket, browsers, browsers, browsers)
    else:
        host, port = bound.getsockname()[:2]
        shown, api = f"[{host}]" if ":" in host else host, _api(bound)
        browsers = configured or _for_browsers(forge, options, api, port)
        listening = Addresses(f"{shown}:{port}", browsers, api, configured or api)
    by_ip = options.socket is None and not configured and options.host_name is None and not is_loopback(options.host)
    forge.options = forge.options._replace(address=browsers)
    forge.hosts, forge.socket = HostNames(host_of(browsers), by_ip), options.socket
    return listening


def _for_browsers(forge: Forge, options: ServeOptions, api: str, port: int) -> str:
    """The given host name, else a name of the forge's own on this machine, else where it is bound."""
    if options.host_name is not None:
        return f"http://{_named(options)}:{port}"
    if options.host in _EVERY_HOST or is_loopback(options.host):
        return f"http://{own_name(forge.home_id)}:{port}"
    return api


def _named(options: ServeOptions) -> str:
    if options.host_name is None:
        hints = ["set address in the [forge] configuration, or use --host-name NAME"]
        message = "a forge on a Unix socket needs the address for browsers"
        raise InvalidInput(message, code="usage", hints=hints, fields={"field": "socket"})
    return checked_host_name(options.host_name)


def _api(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{_EVERY_HOST.get(host, f'[{host}]' if ':' in host else host)}:{port}"


def proxy_secret(options: ForgeOptions, socket_path: str | None, environment: Mapping[str, str]) -> str | None:
    """What a trusted proxy sends. ``InvalidInput`` if the configured proxy could not prove itself."""
    fields, name = {"field": "forge.proxy_secret_env"}, options.proxy_secret_env
    secret = "" if name is None else environment.get(name, "")
    if name is not None and len(secret) < _SECRET_MIN:
        message = f"the environment variable {name} must hold the proxy's secret, at least {_SECRET_MIN} characters"
        raise InvalidInput(message, code="no-proxy-secret", hints=["create one with: openssl rand -hex 32"], fields=fields)
    if options.proxy_header is not None and name is None and socket_path is None:
        message = "forge.proxy_header is set, but the proxy cannot prove itself"
        hints = [
            f"set forge.proxy_secret_env, and let the proxy send the secret in the header {PROXY_SECRET}",
            "or let the proxy connect to a Unix socket: clia serve --socket PATH",
        ]
        raise InvalidInput(message, code="no-proxy-secret", hints=hints, fields=fields)
    return secret or None


def _bind_socket(path: str) -> socket.socket:
    """A Unix socket for its owner and group. One whose forge has ended is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            os.unlink(path)
        before = os.umask(0o117)
        try:
            bound.bind(path)
        finally:
            os.umask(before)
        bound.listen(_BACKLOG)
    except (OSError, ValueError) as err:
        bound.close()
        reason = getattr(err, "strerror", None) or str(err)
        code = "address-taken" if getattr(err, "errno", None) == errno.EADDRINUSE else "no-such-host"
        raise NoAddress(f"cannot listen on {path}: {reason}", code=code, fields={"path": path, "reason": reason}) from None
    return bound


def _is_abandoned(path: str) -> bool:
    """Whether a path is a Unix socket on which no process listens."""
    if not os.path.lexists(path) or not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
    return False


def _bind_port(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # Inherited by accepted sockets; without it each response is delayed by 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        is_taken = getattr(err, "errno", None) == errno.EADDRINUSE
        code, message = "address-taken" if is_taken else "no-such-host", f"cannot listen on {host}:{port}: {reason}"
        hints = ["the port is in use; use a free one with: clia serve --port 0"] if is_taken else []
        raise NoAddress(message, code=code, hints=hints, fields={"host": host, "port": port, "reason": reason}) from None
    return bound
