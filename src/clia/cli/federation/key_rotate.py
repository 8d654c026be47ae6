"""``clia key rotate``.

Invariant: as with ``clia key show``, what others pin stands alone on standard output.
"""

from __future__ import annotations

import sys

from clia.cli.federation.key_show import show_key
from clia.cli.output import write
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "--lost", action="store_true", help="the private key is gone: a new identity, which every peer has to add anew"
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        key = space.rotate_key(lost=args.lost)
    show_key(key, as_program=args.json)
    if not args.json:
        lost = "this is a new identity: every peer has to remove this space and add it again by what stands above\n"
        write(lost if args.lost else "peers follow by themselves the next time they sync\n", sys.stderr)
    return 0
