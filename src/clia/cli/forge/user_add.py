"""``clia user add``."""

from __future__ import annotations

from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.space.model import as_json
from clia.users.service import ROLES, VIEWER, users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("user", metavar="NAME", help="what the user is called here, as ada-lovelace")
    parser.add_argument("--role", choices=ROLES, default=VIEWER, help="sees, also answers, or also manages (default: viewer)")
    parser.add_argument("--name", dest="display", default="", metavar="DISPLAY", help="who that is, as decisions record it")
    parser.add_argument("--email", default="", metavar="ADDRESS", help="recorded beside it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        made = users_of(space).add(args.user, args.role, args.display, args.email)
    if args.json:
        emit_json(as_json(made))
    else:
        write(one_line(f"{made.name} is added, as {made.role}; what {made.name} decides is by {made.by}") + "\n")
    return 0
