"""``clia hub status``."""

from __future__ import annotations

from clia.cli.hub.common import show_status
from clia.cli.output import emit_json
from clia.cli.space.common import add_space, settings_of, space_of, working
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--fetch", action="store_true", help="ask the hub first, instead of telling what is known of it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 however things stand: that is the answer."""
    with space_of(args) as space:
        if args.fetch and space.has_hub:
            from clia.workers.hub_inspection import ask_hub

            with working(args, "Asking the hub"):
                ask_hub(args.path, settings_of(args))
        found = space.hub_status()
    if args.json:
        emit_json(as_json(found))
    else:
        show_status(found)
    return 0
