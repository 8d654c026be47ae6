"""``clia list``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, moment, nobody_yet, positive, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.space.maintenance import AgentState


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--archived", action="store_true", help="those put away, instead of those at work")
    parser.add_argument("--limit", type=positive, metavar="N", help="at most so many, by name")
    parser.add_argument("--after", default="", metavar="AGENT", help="only those after this name: the next page")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        page = {"after": args.after, "limit": args.limit}
        found = _archived(space, page) if args.archived else space.states(**page)
        marks = {} if args.json or not space.has_hub else _marks(space)
        nobody = _nobody(space, args)
    if args.json:
        emit_json(as_json(found))
    elif found:
        _show(found, marks)
    else:
        write(nobody)
    return 0


def _archived(space: Space, page: Mapping[str, Any]) -> list[AgentState]:
    from clia.space.maintenance import AgentState

    found = []
    for name in space.agents(archived=True, **page):
        commit = space.show(name)
        landed = [str(each["onto"]) for each in space.landings(name) if each["head"] == commit.cid]
        branch = landed[0].removeprefix("refs/heads/") if landed else None
        found.append(AgentState(name, commit.cid, commit.kind, commit.subject, commit.committer.at, 0, branch))
    return found


def _nobody(space: Space, args: argparse.Namespace) -> str:
    if args.after:
        return f"no agents after {one_line(args.after)}\n"
    return "no archived agents\n" if args.archived else nobody_yet(space)


def _marks(space: Space) -> dict[str, str]:
    """Agents that nobody can work on here as things are, and why."""
    hub = space.hub_status()
    return {each.agent: "elsewhere" for each in hub.elsewhere} | {each.agent: "forked" for each in hub.forks}


def _show(found: Sequence[AgentState], marks: Mapping[str, str]) -> None:
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("agent", "last", "subject", "when (UTC)", "pending", "landed on", *(("hub",) if marks else ())):
        table.add_column(heading, overflow="fold", justify="right" if heading == "pending" else "left")
    for each in found:
        table.add_row(
            Text(one_line(each.agent), style="bold"),
            Text(one_line(each.kind or "")),
            Text(one_line(each.subject)),
            Text(moment(each.at), style="dim"),
            Text(str(each.pending or ""), style="yellow"),
            Text(one_line(each.landed or ""), style="green"),
            *((Text(marks.get(each.agent, ""), style="yellow"),) if marks else ()),
        )
    console().print(table)
