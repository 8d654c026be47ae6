"""``clia user list``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, write
from clia.cli.sessions.common import when
from clia.cli.space.common import add_space, show_table, space_of
from clia.space.model import as_json
from clia.users.service import users_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.users.service import UserInfo


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = users_of(space).all()
    if args.json:
        emit_json([{**as_json(user), "created_at": made, "tokens": as_json(tokens)} for user, made, tokens in found])
    elif found:
        _show(found)
    else:
        write("no users yet; add one: clia user add NAME\n")
    return 0


def _show(found: Sequence[UserInfo]) -> None:
    people = [(user.name, user.role, user.display, user.email, when(made), len(tokens)) for user, made, tokens in found]
    show_table(("user", "role", "name", "e-mail", "since (UTC)", "tokens"), people)
    rows = [
        (
            user.name,
            each.id,
            each.label,
            each.role,
            when(each.created_at),
            when(each.last_used_at) or "never",
            when(each.expires_at) or "never",
        )
        for user, _, tokens in found
        for each in tokens
    ]
    if rows:
        console().print()
        show_table(("user", "token", "label", "role", "since (UTC)", "last used", "expires"), rows)
