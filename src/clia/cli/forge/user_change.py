"""``clia user change``: what acts at once, for every token and login of the user."""

from __future__ import annotations

from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput
from clia.space.model import as_json
from clia.users.service import ROLES, users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("user", metavar="NAME", help="who")
    parser.add_argument("--role", choices=ROLES, help="sees, also answers, or also manages")
    parser.add_argument("--name", dest="display", metavar="DISPLAY", help="who that is, as decisions record it")
    parser.add_argument("--email", metavar="ADDRESS", help="recorded beside it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if args.role is None and args.display is None and args.email is None:
        raise InvalidInput("say what to change: --role, --name or --email", code="usage", hints=["clia user change --help"])
    with space_of(args) as space:
        made = users_of(space).update(args.user, role=args.role, display=args.display, email=args.email)
    if args.json:
        emit_json(as_json(made))
    else:
        write(one_line(f"{made.name} is a {made.role} now; what {made.name} decides is by {made.by}") + "\n")
    return 0
