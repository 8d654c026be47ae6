"""``clia list``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, moment, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.app.space import Space
    from clia.space.upkeep import AgentState


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--archived", action="store_true", help="those put away, instead of those at work")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = _archived(space) if args.archived else space.states()
    if args.json:
        emit_json(as_json(found))
    elif found:
        _show(found)
    else:
        write("no archived agents\n" if args.archived else "no agents yet; make one: clia spawn NAME --title TITLE\n")
    return 0


def _archived(space: Space) -> list[AgentState]:
    from clia.space.upkeep import AgentState

    found = []
    for name in space.agents(archived=True):
        commit = space.show(name)
        landed = [str(each["onto"]) for each in space.landings(name) if each["head"] == commit.cid]
        branch = landed[0].removeprefix("refs/heads/") if landed else None
        found.append(AgentState(name, commit.cid, commit.kind, commit.subject, commit.committer.at, 0, branch))
    return found


def _show(found: Sequence[AgentState]) -> None:
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("agent", "last", "subject", "when (UTC)", "pending", "landed on"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "pending" else "left")
    for each in found:
        table.add_row(
            Text(one_line(each.agent), style="bold"),
            Text(one_line(each.kind or "")),
            Text(one_line(each.subject)),
            Text(moment(each.at), style="dim"),
            Text(str(each.pending or ""), style="yellow"),
            Text(one_line(each.landed or ""), style="green"),
        )
    console().print(table)
