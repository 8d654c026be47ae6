"""``clia publish``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.git.records import Pushed

_STYLES = {"new": "green", "moved": "green", "same": "dim", "refused": "red"}


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="who")
    parser.add_argument("--all", action="store_true", help="every agent, archived ones too")
    parser.add_argument("--remote", default="origin", metavar="NAME", help="where to (default: origin)")
    parser.add_argument("--federation", action="store_true", help="also the space's public keys and what is granted to peers")
    parser.add_argument("--no-traces", action="store_true", help="leave out what agents said and saw")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where the remote refused something; then it took nothing."""
    if (args.agents and args.all) or not (args.agents or args.all or args.federation):
        raise InvalidInput("name agents, or give --all", code="invalid-option", fields={"option": "--all"})
    with space_of(args) as space:
        agents = [*space.agents(), *space.agents(archived=True)] if args.all else args.agents
        done = space.publish(agents, args.remote, traces=not args.no_traces, federation=args.federation)
    if args.json:
        emit_json(as_json(done))
    else:
        _show(done)
    return 1 if any(each.state == "refused" for each in done) else 0


def _show(done: Sequence[Pushed]) -> None:
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("state", "ref", "reason"):
        table.add_column(heading if heading != "reason" or any(each.reason for each in done) else "", overflow="fold")
    for each in done:
        table.add_row(Text(each.state, style=_STYLES.get(each.state, "")), Text(one_line(each.ref)), Text(one_line(each.reason)))
    console().print(table)
