"""``clia serve``: the forge.

Invariant: what is printed on standard output is where to go and how to log in, once; the access log goes to standard error.
"""

from __future__ import annotations

import logging
import os
import sys

from clia import __version__
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, settings_of
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.forge.forge import ExtraApp, Forge, LoadedApp, Site
    from clia.forge.server import ServeBanner


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--host", default="127.0.0.1", metavar="HOST", help="the address to bind (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8337, metavar="PORT", help="the port (default: 8337; 0: a free one)")
    parser.add_argument(
        "--space", action="append", default=[], metavar="DIR", help="a space to serve (repeatable; default: that of --path)"
    )
    parser.add_argument("--user", metavar="NAME", help="whom the login link is for (default: the first administrator)")
    parser.add_argument("--quiet", action="store_true", help="no access log")
    parser.add_argument(
        "--config", metavar="FILE", help="the operator's configuration (default: CLIA_CONFIG, else .git/clia/config.toml)"
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    from clia.forge.server import ServeOptions, log_to, serve  # the web's packages: a third of a second

    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if args.quiet:
        handler.setLevel(logging.WARNING)
    log_to(handler)
    options = ServeOptions(tuple(args.space) or (args.path,), args.host, args.port, args.user)
    serve(options, settings_of(args), os.environ, lambda served: _say(args, served), _extras)
    return 0


def _extras(forge: Forge) -> Sequence[ExtraApp]:
    """The forge's spaces over the Model Context Protocol. The web and the protocol do not know each other."""
    from clia.forge.forge import ExtraApp

    return [ExtraApp("mcp", ["/mcp", "/mcp/{space}"], lambda: _mcp(forge))]


def _mcp(forge: Forge) -> LoadedApp:
    from clia.forge.forge import LoadedApp
    from clia.forge.lineages import RelativePaths
    from clia.mcp.calls import RemotePaths, SpaceContext, WaitSlots
    from clia.mcp.http import Endpoint, EndpointOptions  # the protocol's package: a second, when the first agent asks

    def place(site: Site) -> SpaceContext:
        relative, address = RelativePaths(site.path), f"{forge.options.address}/s/{site.name}"
        paths = RemotePaths(relative.in_json, relative.told)
        return SpaceContext(site.path, lambda: site.space, address=lambda _: address, paths=paths, waits=waits)

    options, waits = forge.options, WaitSlots()
    endpoint_options = EndpointOptions(options.address, forge.secret, options.body_max, __version__, forge.users.get)
    endpoint = Endpoint({site.name: place(site) for site in forge.sites.values()}, endpoint_options)
    return LoadedApp(endpoint, endpoint.life, endpoint.stopping)


def _say(args: argparse.Namespace, served: ServeBanner) -> None:
    if args.json:
        emit_json(served._asdict())
    else:
        names = ", ".join(served.spaces)
        write(f"clia serves {one_line(names)} at {served.address}\n")
        write(f"log in as {served.user}: {served.link}\n")
        write("the link works once; Ctrl-C ends the forge\n")
        if args.host not in ("127.0.0.1", "localhost", "::1") and not served.address.startswith("https://"):
            warning = "beware: others on the network can reach it, and without TLS they can read what is sent"
            console(stderr=True).print(warning, style="yellow")
    sys.stdout.flush()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise InvalidInput(f"--port takes a number from 0 to 65535, not {text!r}", code="usage", fields={"field": "port"})
    return int(text)
