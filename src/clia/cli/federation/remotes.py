"""``clia remotes``."""

from __future__ import annotations

from clia.cli.federation.common import add_peer
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, moment, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.federation.model import Remote


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "only this one's agents", nargs="?")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.remotes(args.peer)
    if args.json:
        emit_json(as_json(found))
    elif found:
        show_remotes(found)
    else:
        who = args.peer or "PEER"
        write(one_line(f"no agents of peers are tracked; let some in: clia cap grant {who} --follow, then clia sync {who}") + "\n")
    return 0


def show_remotes(found: Sequence[Remote]) -> None:
    """Agents by the name that other commands take: PEER/AGENT."""
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("agent", "last", "subject", "when (UTC)", "briefing", "traces"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "traces" else "left")
    for each in found:
        table.add_row(
            Text(one_line(f"{each.peer}/{each.agent}"), style="bold"),
            Text(one_line(each.kind or "")),
            Text(one_line(each.subject)),
            Text(moment(each.at), style="dim"),
            Text("yes" if each.record else "no"),
            Text(str(each.traces or "")),
        )
    console().print(table)
