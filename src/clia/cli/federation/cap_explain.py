"""``clia cap explain``: the gate's answer, with its reasons."""

from __future__ import annotations

from clia.cli.federation.common import add_peer, check_execute
from clia.cli.output import console, emit_json, one_line
from clia.cli.sessions.common import rows_of
from clia.cli.space.common import add_space, moment, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.federation.model import Explained, Grant


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whose things")
    parser.add_argument("type", metavar="TYPE", help="of which type, as finding")
    parser.add_argument("trigger", metavar="TRIGGER", help="by what: spawn, head-move, merge, note, behaviour or type")
    parser.add_argument("--execute", action="store_true", help="not only taken in: run; for TYPE and TRIGGER behaviour")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where it is denied."""
    check_execute(args.type, args.trigger, execute=args.execute)
    with space_of(args) as space:
        found = space.explain(args.peer, args.type, args.trigger, execute=args.execute)
    if args.json:
        emit_json(as_json(found))
    else:
        _show(found)
    return 0 if found.allowed else 1


def _show(found: Explained) -> None:
    from rich.text import Text  # only people see it

    answer = ("allowed", "green") if found.allowed else ("denied", "red")
    run = " and run" if found.execute else ""
    what = f": {found.type} by {found.trigger} of {found.peer} to be taken in{run}"
    console().print(Text.assemble(answer, one_line(what)), soft_wrap=True)
    trust = "is trusted" if found.trusted else "is not trusted"
    facts: list[tuple[str, object]] = [("trust", f"{found.peer} {trust}"), ("type", " → ".join(map(one_line, found.path)))]
    facts += [("grant", _grant(each)) for each in found.grants]
    for each in found.missing:
        facts += [("missing", one_line(each.message)), ("to change it", one_line(each.hint))]
    console().print(rows_of(facts))


def _grant(grant: Grant) -> str:
    until = f", until {moment(grant.expires)} UTC" if grant.expires is not None else ""
    run = ", may run" if grant.execute else ""
    return one_line(f"{short(grant.cid)}: {grant.type} by {grant.trigger}{run}{until}; by {grant.by}, {moment(grant.at)} UTC")
