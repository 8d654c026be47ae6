"""``clia user link``.

Invariant: the link stands alone on standard output; it works once, and not for long.
"""

from __future__ import annotations

import sys

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, positive, space_of
from clia.users.service import users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_MINUTES = 15


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("user", metavar="NAME", help="who is to log in")
    parser.add_argument("--minutes", type=positive, default=_MINUTES, metavar="N", help="how long it is good (default: 15)")
    parser.add_argument(
        "--address", metavar="URL", help="where the forge is (default: the configured address, else http://127.0.0.1:8337)"
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        address = args.address or space.running.config.forge.address or "http://127.0.0.1:8337"
        link = f"{address.rstrip('/')}/login?key={users_of(space).login_link(args.user, args.minutes)}"
    if args.json:
        emit_json({"user": args.user, "link": link, "minutes": args.minutes})
        return 0
    write(f"{link}\n")
    write(f"good once, for {args.minutes} minutes\n", sys.stderr)
    return 0
