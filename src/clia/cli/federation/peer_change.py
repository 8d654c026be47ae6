"""``clia peer change``: what acts at once."""

from __future__ import annotations

from clia.cli.federation.common import NO_TRUST, address_of, note_address
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("peer", metavar="NAME", help="which peer")
    parser.add_argument("--url", metavar="URL", help="where it is reached from now on")
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--trust", action="store_true", default=None, help="what is granted counts")
    trust.add_argument("--no-trust", dest="trust", action="store_false", help=NO_TRUST)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if args.url is None and args.trust is None:
        raise InvalidInput("say what to change: --url, --trust or --no-trust", code="usage", hints=["clia peer change --help"])
    with space_of(args) as space:
        made = space.change_peer(args.peer, url=address_of(args.url), trusted=args.trust)
    if args.json:
        emit_json(as_json(made))
    else:
        note_address(address_of(args.url))
        trust = "trusted" if made.trusted else "not trusted"
        write(one_line(f"{made.name} is {trust}, and reached at {made.url}" if made.url else f"{made.name} is {trust}") + "\n")
    return 0
