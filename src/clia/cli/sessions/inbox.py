"""``clia inbox``: what waits for you."""

from __future__ import annotations

from clia.cli.output import console, counted, emit_json, write
from clia.cli.sessions.common import show_request
from clia.cli.sessions.requests import question_json
from clia.cli.space.common import add_space, space_of
from clia.sessions.model import is_for_people

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="only what this agent asks")
    parser.add_argument("--all", action="store_true", help="also what waits for a worker")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        waiting = space.pending(args.agent)
        chosen = [(each, space.rule(each)) for each in waiting if args.all or is_for_people(each)]
        tried = {(each.task.agent, each.task.request): each for each in space.attempts()} if args.all else {}
    if args.json:
        emit_json([question_json(*each, tried.get((each[0].agent, each[0].id))) for each in chosen])
        return 0
    for request, rule in chosen:
        show_request(request, rule, path=args.path, tried=tried.get((request.agent, request.id)))
        console().print()
    others = len(waiting) - len(chosen)
    more = f"; {counted(others, 'request waits', 'requests wait')} for a worker (--all shows them)" if others else ""
    what = counted(len(chosen), "request waits", "requests wait") if args.all else counted(len(chosen), "question", "questions")
    write(f"{what if chosen else 'nothing waits for you'}{more}\n")
    return 0
