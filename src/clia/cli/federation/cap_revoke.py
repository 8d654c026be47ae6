"""``clia cap revoke``: what acts at once."""

from __future__ import annotations

from clia.cli.federation.cap_list import show_grants
from clia.cli.federation.common import add_peer, grants_counted
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import Ambiguous, InvalidInput
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space

_ID_MIN = 4


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whose grants")
    parser.add_argument("type", metavar="TYPE", nargs="?", help="only those for this type (default: every grant)")
    parser.add_argument("trigger", metavar="TRIGGER", nargs="?", help="only those by this trigger")
    parser.add_argument("--id", metavar="CID", help="only this one; clia cap list shows the ids")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if args.id is not None and args.type is not None:
        raise InvalidInput(
            "--id names one grant: give it without TYPE and TRIGGER", code="invalid-option", fields={"option": "--id"}
        )
    with space_of(args) as space:
        if args.trigger is not None:
            space.explain(args.peer, args.type, args.trigger)  # complains about what is no trigger
        gone = space.revoke(args.peer, args.type, args.trigger, cid=None if args.id is None else _whole(space, args.peer, args.id))
    if args.json:
        emit_json(as_json(gone))
        return 0
    show_grants(gone)
    write(one_line(f"{grants_counted(len(gone))} of {args.peer} revoked; what is tracked already stays as it is") + "\n")
    return 0


def _whole(space: Space, peer: str, start: str) -> str:
    """The id that a start of one means; what means none is looked for as it is."""
    found = [each.cid for each in space.grants(peer) if len(start) >= _ID_MIN and each.cid.startswith(start)]
    if len(found) > 1:
        raise Ambiguous(f"{start} is the start of {len(found)} grants", fields={"matches": found})
    return found[0] if found else start
