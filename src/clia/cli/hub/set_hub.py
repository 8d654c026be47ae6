"""``clia hub set``: where the machines of this space meet.

Invariant: no agent is published or taken over yet. A hub that cannot be reached, or holds another space, changes nothing.
"""

from __future__ import annotations

from clia.cli.federation.common import show_hints
from clia.cli.hub.common import add_heads, hub_words, is_in_step, restart_hints, standing
from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, settings_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("hub", metavar="URL|REMOTE", help="a repository of any git server, or a remote of this one")
    add_heads(parser, "--heads")
    parser.add_argument(
        "--new-store",
        action="store_true",
        help="the database that machines shared is gone for good; that of this one takes its place, or, without, each has its own",
    )
    parser.add_argument(
        "--new-hub",
        action="store_true",
        help="the hub that machines with one database had is gone for good; this one takes its place",
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    from clia.facade.joining import HubWish
    from clia.facade.setup import set_hub
    from clia.workers.hub_inspection import address_at

    settings = settings_of(args)
    before = address_at(args.path, settings)
    wish = HubWish(args.hub, args.heads, args.new_store, args.new_hub)
    with set_hub(args.path, wish, settings=settings) as space:
        found = space.hub_status()
    if args.json:
        emit_json(as_json(found))
        return 0
    write(f"{hub_words(found)}\n{standing(found)}\n")
    if not is_in_step(found):
        show_hints(["clia hub sync publishes what is owed, and takes over what is behind"])
    show_hints(restart_hints(before, found))
    return 0
