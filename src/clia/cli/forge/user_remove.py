"""``clia user remove``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, space_of
from clia.users.service import users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("user", metavar="NAME", help="who goes, with every token and login; what they decided stays")
    parser.add_argument("--force", action="store_true", help="also the last admin")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        users_of(space).remove(args.user, force=args.force)
    if args.json:
        emit_json({"user": args.user, "removed": True})
    else:
        write(f"{args.user} is removed, with every token and login\n")
    return 0
