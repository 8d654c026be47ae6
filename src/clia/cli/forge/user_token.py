"""``clia user token``.

Invariant: the secret stands alone on standard output, once; what else is said goes to standard error.
"""

from __future__ import annotations

import sys

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, positive, space_of
from clia.errors import InvalidInput
from clia.users.service import ROLES, users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.users.service import Users


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("user", metavar="NAME", help="whose token")
    parser.add_argument("--label", default="", metavar="TEXT", help="what it is for")
    parser.add_argument("--role", choices=ROLES, help="what it may do, at most what the user may (default: the same)")
    parser.add_argument("--days", type=positive, metavar="N", help="how long it is good (default: until it is revoked)")
    parser.add_argument("--revoke", metavar="ID", help="make none, but take this one back; clia user list shows the ids")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if args.revoke is not None and (args.label or args.role or args.days):
        raise InvalidInput("--revoke takes a token back; --label, --role and --days are for a new one", code="invalid-option")
    with space_of(args) as space:
        users = users_of(space)
        _make(users, args) if args.revoke is None else _revoke(users, args)
    return 0


def _make(users: Users, args: argparse.Namespace) -> None:
    secret, made = users.make_token(args.user, args.label, args.role, args.days)
    if args.json:
        emit_json({"token": secret, "user": args.user, **made._asdict()})
        return
    write(f"{secret}\n")
    until = f"until {made.expires_at}" if made.expires_at else "until it is revoked"
    write(f"token {made.id} of {args.user}, {made.role}, good {until}; it is not shown again\n", sys.stderr)


def _revoke(users: Users, args: argparse.Namespace) -> None:
    users.revoke_token(args.user, args.revoke)
    if args.json:
        emit_json({"user": args.user, "id": args.revoke, "revoked": True})
    else:
        write(f"token {args.revoke} of {args.user} is revoked\n")
