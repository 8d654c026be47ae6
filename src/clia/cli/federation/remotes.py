"""``clia remotes``."""

from __future__ import annotations

from clia.cli.federation.common import add_peer
from clia.cli.federation.tables import show_rows
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, moment, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.federation.model import Remote, RemoteBehaviour


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "only this one's", nargs="?")
    parser.add_argument("--behaviours", action="store_true", help="only behaviours; with --json, these instead of agents")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        agents = [] if args.behaviours else space.remotes(args.peer)
        behaviours = space.remote_behaviours(args.peer) if args.behaviours or not args.json else []
    if args.json:
        emit_json(as_json(behaviours if args.behaviours else agents))
    elif agents or behaviours:
        show_remotes(agents, behaviours)
    else:
        write(one_line(_none(args.peer or "PEER", behaviours=args.behaviours)) + "\n")
    return 0


def _none(who: str, *, behaviours: bool) -> str:
    what, grant = ("behaviours", f"{who} behaviour behaviour") if behaviours else ("agents", f"{who} --follow")
    return f"no {what} of peers are tracked; let some in: clia cap grant {grant}, then clia sync {who}"


def show_remotes(agents: Sequence[Remote], behaviours: Sequence[RemoteBehaviour]) -> None:
    """By the name that other commands take: PEER/NAME."""
    if agents:
        _show_agents(agents)
    if agents and behaviours:
        console().print()
    if behaviours:
        rows = [(f"{each.peer}/{each.name}", short(each.cid), "yes" if each.runs else "no") for each in behaviours]
        show_rows(("behaviour", "version", "may run"), rows)


def _show_agents(found: Sequence[Remote]) -> None:
    from rich.text import Text  # only people see it

    rows = [
        (
            Text(one_line(f"{each.peer}/{each.agent}"), style="bold"),
            each.kind or "",
            each.subject,
            Text(moment(each.at), style="dim"),
            "yes" if each.record else "no",
            str(each.traces or ""),
        )
        for each in found
    ]
    headings = ("agent", "last", "subject", "when (UTC)", "briefing", "traces")
    show_rows(headings, rows, cut=("subject",), right=("traces",))
