"""``clia peer show``: a peer, what is tracked of it, and what is not, with the reason."""

from __future__ import annotations

from clia.cli.federation.common import follow_hints, share_words, show_hints
from clia.cli.federation.remotes import show_remotes
from clia.cli.federation.tables import ROWS, reason, show_refusals, show_rows
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.sessions.common import rows_of
from clia.cli.space.common import add_space, moment, short, space_of
from clia.federation.keys import fingerprint
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.federation.model import Peer, Untaken

_REFUSALS = 10


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("peer", metavar="NAME", help="which peer")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        peer = space.peer(args.peer)
        tracked, behaviours = space.remotes(args.peer), space.remote_behaviours(args.peer)
        waiting, refusals = space.waiting(args.peer), space.refusals(args.peer)
    if args.json:
        more = {
            "fingerprints": [fingerprint(each) for each in peer.keys],
            "tracked": as_json(tracked),
            "behaviours": as_json(behaviours),
            "claims": as_json(waiting),
            "refusals": as_json(refusals),
        }
        emit_json({**as_json(peer), **more})
        return 0
    _show(peer)
    if tracked or behaviours:
        console().print()
        show_remotes(tracked, behaviours)
    if waiting:
        _show_waiting(peer, waiting)
    if refusals:
        console().print()
        show_refusals(refusals[:_REFUSALS], moment)
        _show_rest(len(refusals) - _REFUSALS)
    return 0


def _show(peer: Peer) -> None:
    from rich.text import Text  # only people see it

    trust = ("trusted", "green") if peer.trusted else ("not trusted", "yellow")
    console().print(Text.assemble((one_line(peer.name), "bold"), "  ", trust))
    keys = [("replaced key" if each != peer.keys[-1] else "key", f"{each}\n{fingerprint(each)}") for each in peer.keys]
    forked = "its chain has forked: nothing is taken until a snapshot of its decides" if peer.forked else ""
    facts: list[tuple[str, object]] = [("space", peer.space), *keys, ("url", peer.url or "not known")]
    facts += [("it is told", share_words(peer.share)), ("heard", "never" if peer.heard is None else f"{moment(peer.heard)} UTC")]
    facts += [("forked", forked)]
    facts += [("tracked", counted(peer.agents, "agent", "agents")), ("waiting", counted(peer.waiting, "claim", "claims"))]
    console().print(rows_of(facts))


def _show_waiting(peer: Peer, waiting: Sequence[Untaken]) -> None:
    """What waits for the same reason stands together: often it is one for all."""
    groups: dict[tuple[str, str, str], list[Untaken]] = {}
    for each in waiting[:ROWS]:
        groups.setdefault((each.code, reason(each.why, each.place), each.hint), []).append(each)
    for (code, why, hint), claims in groups.items():
        console().print()
        write(one_line(f"{code}: {why}") + "\n")
        rows = [(each.place, short(each.new) or "gone", each.type, each.trigger) for each in claims]
        show_rows(("waits", "at", "type", "trigger"), rows, indent=2)
        show_hints([hint] if hint else [])
    _show_rest(len(waiting) - ROWS)
    hints = follow_hints(peer.name, waiting)
    if hints:
        console().print()
        show_hints(hints)


def _show_rest(number: int) -> None:
    if number > 0:
        write(f"and {number} more: --json shows all\n")
