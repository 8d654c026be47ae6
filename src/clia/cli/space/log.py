"""``clia log``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_space, moment, positive, short, show_entries, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from rich.text import Text

    from clia.facade.space import Space
    from clia.space.model import AgentCommit


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("what", metavar="AGENT|COMMIT", help="where to start; PEER/AGENT: an agent of a peer's")
    parser.add_argument("--own", action="store_true", help="only what the agent itself did")
    parser.add_argument("-n", "--number", type=positive, default=30, metavar="N", help="how many commits (default: 30)")
    parser.add_argument("--trace", action="store_true", help="with what was traced before each commit")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.log(args.what, own=args.own, limit=args.number)
        if args.json:
            emit_json([_as_json(space, each, args.trace) for each in found])
            return 0
        terminal = console()
        for each in found:
            terminal.print(_line(each), soft_wrap=True)
            trace = space.trace_for(each.cid) if args.trace else None
            show_entries(trace.entries if trace else ())
    return 0


def _as_json(space: Space, commit: AgentCommit, traced: bool) -> dict[str, object]:
    made: dict[str, object] = as_json(commit)
    if traced:
        trace = space.trace_for(commit.cid)
        made["trace"] = list(trace.entries) if trace else []
    return made


def _line(commit: AgentCommit) -> Text:
    from rich.text import Text  # only people see it

    who = (one_line(commit.agent), "bold") if commit.agent else (one_line(commit.author.name), "dim")
    line = Text.assemble((short(commit.cid), "yellow"), "  ", (moment(commit.committer.at), "dim"), "  ", who)
    if commit.kind:
        line.append(f"  {one_line(commit.kind)}", style="cyan")
    line.append(f"  {one_line(commit.subject)}")
    return line
