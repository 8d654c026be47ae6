"""``clia init``.

Invariant: running it again changes nothing but what is new on the remotes. A password is never written to a file.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.cli.arguments import add_json
from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import settings_of, short
from clia.errors import InvalidInput, TransportError
from clia.kernel import refs as names
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.space.exchange import Adopted


class _Remote(NamedTuple):
    name: str
    fetch: tuple[str, ...]  # the rules of ours among its fetch rules


class _Made(NamedTuple):
    """What ``--json`` says."""

    space: str
    path: str
    created: bool
    adopted: tuple[Adopted, ...]
    remotes: tuple[_Remote, ...]


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="a repository, or an empty directory (default: the current one)"
    )
    parser.add_argument("--no-adopt", action="store_true", help="ask no remote for a space or for news of it")
    parser.add_argument("--store", metavar="URL", help="postgresql://… for a store on a server; kept in git's settings")
    parser.add_argument(
        "--claim", action="append", default=[], metavar="AGENT", help="work on an agent of another clone from here (repeatable)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.store:
        _check_store(args.store)
    try:
        made = _init(args)
    except TransportError as err:
        err.hints = (*err.hints, "clia init --no-adopt asks no remote")
        raise
    if args.json:
        emit_json(as_json(made))
    else:
        _show(made)
    return 0


def _check_store(store: str) -> None:
    """Before anything is made: the address must be one, and fit to be kept in a file."""
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(store)
        password = parts.password or any("password" in key for key in parse_qs(parts.query))
    except ValueError:
        parts, password = None, False
    if parts is None or parts.scheme not in ("postgresql", "postgres"):
        raise InvalidInput(
            "a store's address starts with postgresql://",
            code="invalid-store",
            hints=["leave it out for a file beside the repository"],
        )
    if password:
        raise InvalidInput(
            "the store's address holds a password, and would be kept in git's settings",
            code="password-in-store",
            hints=["leave --store out and set CLIA_STORE, or keep the password in ~/.pgpass"],
        )


def _init(args: argparse.Namespace) -> _Made:
    from clia.app.spaces import set_up

    done = set_up(args.directory, settings=settings_of(args), adopt=not args.no_adopt, news=True, keep_store=bool(args.store))
    with done.space as space:
        for name in args.claim:
            space.claim(name)
        remotes = tuple(_Remote(name, rules) for name, rules in done.rules)
        return _Made(space.id, done.path, done.created, done.adopted, remotes)


def _show(made: _Made) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    adopted_space = any(each.ref == names.SPACE and each.what == "new" for each in made.adopted)
    what = "new space" if made.created else "adopted the space" if adopted_space else "space"
    terminal.print(Text.assemble(f"{what} ", (made.space, "bold"), f" in {one_line(made.path)}"), soft_wrap=True)
    for each in made.adopted:
        style = "yellow" if each.what in ("diverged", "purged") else "green"
        terminal.print(Text.assemble("  ", (f"{each.what:<8}", style), f" {one_line(each.ref)}  {short(each.cid)}"), soft_wrap=True)
    for remote in made.remotes:
        if remote.fetch:
            terminal.print(Text(f"git fetch {one_line(remote.name)} also brings"), soft_wrap=True)
            for rule in remote.fetch:
                terminal.print(Text(f"  {one_line(rule)}", style="dim"), soft_wrap=True)
    if made.created:
        terminal.print("next: clia spawn NAME --title TITLE", soft_wrap=True)
