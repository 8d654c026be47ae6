"""``clia init``.

Invariant: running it again changes nothing but what is new on the remotes and at the hub. A password is never written to a file.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.cli.arguments import add_json
from clia.cli.federation.common import bar, show_hints
from clia.cli.hub.common import add_heads, hub_words, restart_hints, show_elsewhere, show_forks, standing
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.space.common import settings_of, short
from clia.errors import InvalidInput, NotFound, TransportError
from clia.hub.records import ELSEWHERE, PUBLISHED, REMOVED
from clia.space.adoption import AHEAD, NEW, UNITED, Adopted
from clia.space.model import as_json
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.facade.joining import HubWish
    from clia.facade.space import Space
    from clia.facade.store_migration import Moved
    from clia.hub.records import HubStatus, HubSynced


_TAKEN = (NEW, AHEAD, UNITED, REMOVED)
_UNTAKEN = (PUBLISHED, ELSEWHERE)  # told by themselves


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
    hub: HubStatus | None
    published: tuple[str, ...]  # refs that the hub did not have
    moved: Moved | None  # what came along from the store beside the repository


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="a repository, or an empty directory (default: the current one)"
    )
    parser.add_argument("--no-adopt", action="store_true", help="ask no remote for a space or for news of it, but the one of --hub")
    parser.add_argument("--store", metavar="URL", help="postgresql://… for a store on a server; kept in git's settings")
    parser.add_argument("--hub", metavar="URL", help="a repository of any git server, where the machines of this space meet")
    add_heads(parser, "--hub-heads")
    parser.add_argument(
        "--claim", action="append", default=[], metavar="AGENT", help="work on an agent of another clone from here (repeatable)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.store is not None:
        _check_store(args.store)
    if args.heads and args.hub is None:
        raise InvalidInput(
            "--hub-heads goes with --hub",
            code="invalid-option",
            hints=["of a hub that there is: clia hub set REMOTE --heads …"],
            fields={"option": "--hub-heads"},
        )
    try:
        made, hints = _init(args)
    except TransportError as err:
        if args.hub is None:
            err.hints = (*err.hints, "clia init --no-adopt asks no remote")
        raise
    if args.json:
        emit_json(as_json(made))
    else:
        _show(made)
        show_hints(hints)
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
            fields={"field": "store"},
        )
    if password:
        raise InvalidInput(
            "the store's address holds a password, and would be kept in git's settings",
            code="password-in-store",
            hints=["leave --store out and set CLIA_STORE, or keep the password in ~/.pgpass"],
            fields={"field": "store"},
        )


def _init(args: argparse.Namespace) -> tuple[_Made, list[str]]:
    """What was done, and what is to be done then."""
    from clia.facade.joining import HubWish, check
    from clia.facade.setup import move_store, set_up

    settings, adopt = settings_of(args), not args.no_adopt
    wish = None if args.hub is None else HubWish(args.hub, args.heads)
    if wish is not None:
        check(wish)  # before anything is moved
    moved = move_store(args.directory, settings) if args.store else None  # first of all: others are refused while it is half done
    hints = None if wish is None else _has_now(args, wish)
    known = hints is not None  # then all that it has is published, which is shown as it goes
    done = set_up(
        args.directory,
        settings=settings,
        adopt=adopt,
        news=adopt and not known,
        keep_store=bool(args.store),
        hub=None if known else wish,
    )
    with done.space as space:
        synced = _sync(space, args) if known else []
        for name in args.claim:
            space.claim(name)
        taken = (*done.adopted, *(Adopted(each.ref, each.what, each.cid or "") for each in synced if each.what not in _UNTAKEN))
        published = [each.ref for each in synced if each.what == PUBLISHED]
        published += [names.SPACE] if done.created and wish is not None else []
        remotes = tuple(_Remote(name, rules) for name, rules in done.rules)
        hub = space.hub_status() if space.has_hub else None
        return _Made(space.id, done.path, done.created, taken, remotes, hub, tuple(published), moved), hints or []


def _has_now(args: argparse.Namespace, wish: HubWish) -> list[str] | None:
    """Gives the space that is there a hub, and tells what is to be done then; None where there is no space yet."""
    from clia.facade.setup import set_hub
    from clia.workers.hub_inspection import address_at

    settings = settings_of(args)
    before = address_at(args.directory, settings)
    try:
        with set_hub(args.directory, wish, settings=settings) as space:
            return restart_hints(before, space.hub_status())
    except NotFound as err:
        if err.code in ("no-such-repository", "no-such-space"):
            return None
        raise


def _sync(space: Space, args: argparse.Namespace) -> list[HubSynced]:
    with bar(args, "Syncing") as progress:
        return space.hub_sync(progress=progress)


def _show(made: _Made) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    adopted_space = any(each.ref == names.SPACE and each.what == "new" for each in made.adopted)
    what = "new space" if made.created else "adopted the space" if adopted_space else "space"
    terminal.print(Text.assemble(f"{what} ", (made.space, "bold"), f" in {one_line(made.path)}"), soft_wrap=True)
    for each in made.adopted:
        style = "green" if each.what in _TAKEN else "yellow"
        terminal.print(Text.assemble("  ", (f"{each.what:<8}", style), f" {one_line(each.ref)}  {short(each.cid)}"), soft_wrap=True)
    for remote in made.remotes:
        if remote.fetch:
            terminal.print(Text(f"git fetch {one_line(remote.name)} also brings"), soft_wrap=True)
            for rule in remote.fetch:
                terminal.print(Text(f"  {one_line(rule)}", style="dim"), soft_wrap=True)
    if made.moved is not None:
        _show_moved(made.moved)
    if made.hub is not None:
        _show_hub(made.hub, made.published)
    if made.created:
        terminal.print("next: clia spawn NAME --title TITLE", soft_wrap=True)


def _show_moved(moved: Moved) -> None:
    live = counted(moved.sessions, "live session", "live sessions")
    traces, users = counted(moved.traces, "pending trace entry", "pending trace entries"), counted(moved.users, "user", "users")
    write(f"moved to PostgreSQL: {live}, {traces}, {users}\n")
    show_hints(["workers and forges that run here must be started again"])


def _show_hub(hub: HubStatus, published: Sequence[str]) -> None:
    if published:
        write(f"published {counted(len(published), 'ref', 'refs')}\n")
    write(f"{hub_words(hub)}\n{standing(hub)}\n")
    show_forks(hub.forks)
    show_elsewhere(hub.elsewhere)
