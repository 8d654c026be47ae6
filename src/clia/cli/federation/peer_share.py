"""``clia peer share``: what a peer is told about.

Invariant: the options say all of it; whatever they do not name is no longer shared.
"""

from __future__ import annotations

import sys

from clia.cli.federation.common import share_words
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.facade.space import Space


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("peer", metavar="NAME", help="which peer; without an option, what it is told about is shown")
    parser.add_argument(
        "--agent",
        dest="agents",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="agents it is told about; '*': all, also those to come",
    )
    parser.add_argument("--traces", action="store_true", help="with what these agents said and saw")
    parser.add_argument("--sessions", action="store_true", help="with where their sessions are")
    parser.add_argument(
        "--behaviour",
        dest="behaviours",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="behaviours it is told about; '*': all",
    )
    parser.add_argument("--nothing", action="store_true", help="share nothing any more; what it has, it keeps")
    parser.epilog = "Example: clia peer share friends --agent scout planner --traces. What is not named is no longer shared."
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    some = bool(args.agents or args.behaviours or args.traces or args.sessions)
    _check(args, some)
    unknown: list[str] = []
    with space_of(args) as space:
        if some or args.nothing:
            given = {"traces": args.traces, "sessions": args.sessions}
            made = space.share(args.peer, agents=_once(args.agents), behaviours=_once(args.behaviours), **given)
            unknown = _unknown(space, args)
        else:
            made = space.peer(args.peer)
    if args.json:
        emit_json(as_json(made.share))
        return 0
    write(one_line(f"{made.name} is told about: {share_words(made.share)}") + "\n")
    write("".join(f"note: {one_line(each)}\n" for each in unknown), sys.stderr)
    if some or args.nothing:
        write(f"next: clia announce {made.name}\n")
    return 0


def _check(args: argparse.Namespace, some: bool) -> None:
    if args.nothing and some:
        raise InvalidInput("--nothing says it all: give it alone", code="invalid-option", fields={"option": "--nothing"})
    if (args.traces or args.sessions) and not args.agents:
        raise InvalidInput(
            "traces and sessions are those of the agents that are shared: name them",
            code="invalid-option",
            hints=[f"clia peer share {args.peer} --agent '*' --traces", "what is not named is no longer shared"],
            fields={"option": "--agent"},
        )


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _unknown(space: Space, args: argparse.Namespace) -> list[str]:
    """Names that mean nothing here yet: they may be meant for later, or be typed wrong."""
    agents = {"*", *space.agents(), *space.agents(archived=True)}
    known = {"*", *(each.name for each in space.behaviours())} if args.behaviours else set()
    said = [f"there is no agent {each!r} here yet" for each in _once(args.agents) if each not in agents]
    return said + [f"there is no behaviour {each!r} here yet" for each in _once(args.behaviours) if each not in known]
