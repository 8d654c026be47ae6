"""``clia agents schema``: always JSON, for editors and programs."""

from __future__ import annotations

from clia.cli.arguments import add_json
from clia.cli.output import emit_json
from clia.identities.contexts import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("document", nargs="?", choices=KINDS, help="one kind of document (default: all three, in one object)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.identities.checks import schemas

    found = schemas()
    emit_json(found[args.document] if args.document else found)
    return 0
