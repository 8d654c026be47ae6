"""``clia peer add``."""

from __future__ import annotations

from clia.cli.federation.common import NO_TRUST, address_of, note_address
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("peer", metavar="NAME", help="what the other space is called here, as platform-team")
    parser.add_argument("--key", required=True, metavar="KEY", help="what its 'clia key show' prints: clia:SPACE:KEY")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="where it is reached: a folder, any git address, or its forge's https://forge.example.org/federation/SPACE",
    )
    parser.add_argument("--no-trust", action="store_true", help=NO_TRUST)
    parser.epilog = 'Example: clia peer add friends --key "$(clia key show --path ../friends)" --url ../friends'
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        made = space.add_peer(args.peer, args.key, address_of(args.url), trusted=not args.no_trust)
    if args.json:
        emit_json(as_json(made))
        return 0
    note_address(made.url)
    trusted = "" if made.trusted else ", not trusted"
    write(one_line(f"{made.name} is added{trusted}: space {made.space}, key {made.fingerprint}") + "\n")
    write(f"next: clia cap grant {made.name} --follow lets its agents in; clia peer share {made.name} says what it is told about\n")
    return 0
