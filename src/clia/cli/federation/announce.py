"""``clia announce``.

Invariant: what was said is said, also where it could not be pushed; then both are told.
"""

from __future__ import annotations

from clia.cli.federation.common import HEARD_BY, add_peer
from clia.cli.federation.tables import ROWS, place, show_rest, show_rows
from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_space, short, space_of, working
from clia.errors import InvalidInput, TransportError
from clia.federation.announcing import NOTHING_SHARED
from clia.federation.model import Share
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.federation.model import Announced


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whom to tell (default: every peer that something is shared with)", nargs="?")
    parser.add_argument("--snapshot", action="store_true", help="say everything anew: this heals whatever a peer has missed")
    parser.add_argument(
        "--push",
        metavar="REMOTE",
        help="a remote of git's that takes it to where the peer looks, as origin; also what was said before",
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        with working(args, "Announcing"):
            told = _told(space, args)
        shared = told or any(each.share != Share() for each in space.peers())
    if args.json:
        emit_json(as_json(told))
        return 0
    for each in told:
        _show(each, args.push)
    if not shared:
        write("nothing is shared with any peer; say what: clia peer share PEER --agent '*'\n")
    elif not told:
        write("there is nothing to tell yet: no agent or behaviour of those that are shared is here\n")
    if not args.push and any(each.statements and not each.rung for each in told):
        write(HEARD_BY)
    return 0


def _told(space: Space, args: argparse.Namespace) -> list[Announced]:
    """What was said: nothing where what is shared is not there yet."""
    try:
        return space.announce(args.peer, snapshot=args.snapshot, push=args.push)
    except InvalidInput as err:
        if err.code != NOTHING_SHARED or space.peer(args.peer).share == Share():
            raise
        return []
    except TransportError as err:
        again = f"clia announce{f' {args.peer}' if args.peer else ''} --push {args.push}"
        raise TransportError(
            f"it is announced, and not pushed: {err.message}",
            hints=[*err.hints, f"{again} pushes it, also where there is nothing new to say"],
            fields=err.fields,
        ) from None


def _show(told: Announced, push: str | None) -> None:
    pushed = f"; pushed to {push}" if push else ""
    if not told.statements:
        write(one_line(f"{told.peer}: nothing new{pushed}") + "\n")
        return
    said = counted(told.statements, "statement", "statements") + (", a snapshot" if told.snapshot else "")
    rung = "; its forge took notice" if told.rung else ""
    write(one_line(f"{told.peer} is told: {said}{pushed}{rung}") + "\n")
    if told.moves:
        rows = [
            (place(each["ref"]), short(each["old"]) or "-", short(each["new"]) or "no longer shared", each["type"], each["trigger"])
            for each in told.moves[:ROWS]
        ]
        show_rows(("what", "from", "to", "type", "trigger"), rows)
        show_rest(len(told.moves) - ROWS)
