"""``clia peer show``: a peer, what is tracked of it, and what is not, with the reason."""

from __future__ import annotations

from clia.cli.federation.common import fingerprint, share_words, show_refusals
from clia.cli.federation.remotes import show_remotes
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.sessions.common import rows_of
from clia.cli.space.common import add_space, moment, short, show_table, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.federation.model import Peer, Untaken

_CLAIMS, _REFUSALS = 30, 10


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("peer", metavar="NAME", help="which peer")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        peer = space.peer(args.peer)
        tracked, refusals = space.remotes(args.peer), space.refusals(args.peer)
        waiting = space.waiting(args.peer)
    if args.json:
        prints = [fingerprint(each) for each in peer.keys]
        more = {"fingerprints": prints, "tracked": as_json(tracked), "claims": as_json(waiting), "refusals": as_json(refusals)}
        emit_json({**as_json(peer), **more})
        return 0
    _show(peer)
    if tracked:
        console().print()
        show_remotes(tracked)
    if waiting:
        console().print()
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
    keys = [("replaced key" if each != peer.keys[-1] else "key", f"{each}  {fingerprint(each)}") for each in peer.keys]
    forked = "its chain has forked: nothing is taken until a snapshot of its decides" if peer.forked else ""
    facts: list[tuple[str, object]] = [("space", peer.space), *keys, ("url", peer.url or "not known")]
    facts += [("it is told", share_words(peer.share)), ("heard", "never" if peer.heard is None else f"{moment(peer.heard)} UTC")]
    facts += [("forked", forked)]
    facts += [("tracked", counted(peer.agents, "agent", "agents")), ("waiting", counted(peer.waiting, "claim", "claims"))]
    console().print(rows_of(facts))


def _show_waiting(peer: Peer, waiting: Sequence[Untaken]) -> None:
    rows = [(each.place, short(each.new) or "gone", each.type, each.trigger, each.code, each.why) for each in waiting[:_CLAIMS]]
    show_table(("waits", "at", "type", "trigger", "code", "why"), rows)
    _show_rest(len(waiting) - _CLAIMS)
    hints = list(dict.fromkeys(each.hint for each in waiting if each.hint))
    if any(each.hint.startswith("clia cap grant") and each.place.startswith("agents/") for each in waiting):
        hints.insert(0, f"clia cap grant {peer.name} --follow grants all that it takes to follow its agents")
    write("".join(one_line(f"  hint: {each}") + "\n" for each in hints))


def _show_rest(number: int) -> None:
    if number > 0:
        write(f"and {number} more: --json shows all\n")
