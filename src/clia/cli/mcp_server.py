"""``clia mcp``: the space at a path for one agent's client, over standard input and output.

Invariant: nothing but the protocol goes to standard output; what went wrong inside goes to standard error.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys

from clia import __version__
from clia.cli.space.common import add_space, settings_of
from clia.errors import InvalidInput
from clia.facade.forge_address import address_of
from clia.values.refs import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    parser.add_argument(
        "--agent",
        default=slug,
        metavar="NAME",
        help="who the client is, where a call does not say (default: CLIA_AGENT, else whose checkout the path is in)",
    )
    parser.add_argument(
        "--forge",
        metavar="URL",
        help="the forge where people answer, for links to its inbox (default: CLIA_FORGE, else the one that serves the space here)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="the operator's configuration (default: CLIA_CONFIG, else .git/clia/config.toml)"
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    forge = _checked(args.forge or os.environ.get("CLIA_FORGE") or None)
    agent = args.agent or os.environ.get("CLIA_AGENT") or None
    path, settings = os.path.abspath(args.path), settings_of(args)
    if not os.path.isdir(path):
        raise InvalidInput(f"{path} is not a directory", code="not-a-directory", fields={"path": path})
    if agent is not None:
        check_name(agent)
    from clia.facade.opening import open_space
    from clia.mcp.calls import SpaceContext
    from clia.mcp.server import serve  # the protocol's package: a second

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    place = SpaceContext(
        path, lambda: open_space(path, settings=settings), agent=agent, address=lambda space: _address(forge, space)
    )
    # A thread waits for the next line and would not let the program end. Whatever goes on can be cut off at any point.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(place, __version__)
    return 0


def _checked(forge: str | None) -> str | None:
    if forge is not None and not re.match(r"https?://[^/\s]+", forge):
        raise InvalidInput(
            f"--forge takes an address that starts with http:// or https://, not {forge!r}",
            code="usage",
            hints=["clia serve prints it: http://127.0.0.1:8337"],
            fields={"field": "forge"},
        )
    return None if forge is None else forge.rstrip("/")


def _address(forge: str | None, space: Space) -> str | None:
    """Where the space is in the forge: as told, or under the name that a forge gives to the repository's directory; where nothing
    is told, in the forge of this machine that serves it."""
    if forge is None:
        return address_of(space)
    if "/s/" in forge:
        return forge
    common = os.path.dirname(space.home)
    root = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    name = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-")[:60] or "space"
    return f"{forge}/s/{name}"
