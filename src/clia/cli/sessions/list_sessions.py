"""``clia session list``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line, write
from clia.cli.sessions.common import status_text, when
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.sessions.model import Session


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="only this agent's")
    parser.add_argument("--live", action="store_true", help="only those that are not over")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.sessions(args.agent, live=args.live)
    if args.json:
        emit_json([each.to_json() for each in found])
    elif found:
        _show(found)
    else:
        write("no live sessions\n" if args.live else "no sessions yet; start one: clia session start AGENT FLOW\n")
    return 0


def _show(found: Sequence[Session]) -> None:
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("agent", "session", "flow", "status", "waits for", "started (UTC)", "ended"):
        table.add_column(heading, overflow="fold")
    for each in found:
        table.add_row(
            Text(one_line(each.agent), style="bold"),
            Text(one_line(each.id)),
            Text(one_line(each.flow)),
            status_text(each.status),
            Text(one_line(", ".join(f"{request.kind} ({request.id})" for request in each.pending))),
            Text(when(each.started_at), style="dim"),
            Text(when(each.ended_at), style="dim"),
        )
    console().print(table)
