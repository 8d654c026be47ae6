"""``clia key rotate``.

Invariant: as with ``clia key show``, what others pin stands alone on standard output.
"""

from __future__ import annotations

import sys

from clia.cli.federation.common import HEARD_BY
from clia.cli.federation.key_show import show_key
from clia.cli.output import write
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.federation.model import Key


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
        write(_outcome(key, lost=args.lost), sys.stderr)
    return 0


def _outcome(key: Key, *, lost: bool) -> str:
    if lost:
        return "this is a new identity: every peer has to remove this space and add it again by what stands above\n"
    if len(key.chain) == 1:
        return "this space had no key: its first was made, and none replaced\n"
    return HEARD_BY
