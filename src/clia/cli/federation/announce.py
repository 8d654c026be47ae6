"""``clia announce``."""

from __future__ import annotations

from clia.cli.federation.common import add_peer, place
from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_space, short, show_table, space_of, working
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.federation.model import Announced


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whom to tell (default: every peer that something is shared with)", nargs="?")
    parser.add_argument("--snapshot", action="store_true", help="say everything anew: this heals whatever a peer has missed")
    parser.add_argument("--push", metavar="REMOTE", help="a remote of git's that takes it to where the peer looks, as origin")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, working(args, "Announcing"):
        told = space.announce(args.peer, snapshot=args.snapshot, push=args.push)
    if args.json:
        emit_json(as_json(told))
        return 0
    for each in told:
        _show(each, args.push)
    if not told:
        write("nothing is shared with any peer; say what: clia peer share PEER --agent '*'\n")
    return 0


def _show(told: Announced, push: str | None) -> None:
    pushed = f"; pushed to {push}" if push else ""
    if not told.statements:
        write(one_line(f"{told.peer}: nothing new{pushed}") + "\n")
        return
    said = counted(told.statements, "statement", "statements") + (", a snapshot" if told.snapshot else "")
    news = "its forge took notice" if told.rung else "it hears of it at its next sync"
    write(one_line(f"{told.peer} is told: {said}{pushed}; {news}") + "\n")
    if told.moves:
        rows = [
            (place(each["ref"]), short(each["old"]) or "-", short(each["new"]) or "no longer shared", each["type"], each["trigger"])
            for each in told.moves
        ]
        show_table(("what", "from", "to", "type", "trigger"), rows)
