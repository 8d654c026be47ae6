"""``clia land``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_message, add_space, message_of, short, space_of
from clia.space.model import Conflicts, Landed, UpToDate, as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose work")
    parser.add_argument("--onto", required=True, metavar="BRANCH", help="the branch of people that takes it")
    parser.add_argument("--squash", action="store_true", help="one commit for all of it")
    parser.add_argument("--no-ff", action="store_true", help="a merge commit, also where the branch could simply move forward")
    add_message(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where there are conflicts."""
    with space_of(args) as space:
        done = space.land(args.agent, args.onto, args.squash, no_ff=args.no_ff, message=message_of(args))
    if args.json:
        emit_json({"result": _word(done), **as_json(done)})
    else:
        _show(args, done)
    return 1 if isinstance(done, Conflicts) else 0


def _word(done: Landed | UpToDate | Conflicts) -> str:
    if isinstance(done, Landed):
        return "landed"
    return "up-to-date" if isinstance(done, UpToDate) else "conflicts"


def _show(args: argparse.Namespace, done: Landed | UpToDate | Conflicts) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    agent, branch = one_line(args.agent), one_line(args.onto)
    if isinstance(done, Landed):
        line = Text.assemble("landed ", (agent, "bold"), f" on {branch} as ", (short(done.cid), "yellow"), f" ({done.how})")
        terminal.print(line, soft_wrap=True)
        for warning in done.warnings:
            console(stderr=True).print(Text(f"warning: {one_line(warning)}", style="yellow"), soft_wrap=True)
    elif isinstance(done, UpToDate):
        terminal.print(f"{branch} has all of {agent} already", soft_wrap=True)
    else:
        terminal.print(Text(f"conflicts; {branch} is as it was", style="red"), soft_wrap=True)
        for each in done.paths:
            terminal.print(f"  {one_line(each.path)}", soft_wrap=True)
        hint = f"let the agent work on top of {branch}, or merge by hand: git merge agents/{agent}"
        terminal.print(Text(hint, style="dim"), soft_wrap=True)
