"""``clia ask``: an agent without a flow puts a question to people.

Invariant: with ``--wait``, standard output carries the answer and nothing else. Whoever stops waiting leaves the question open.
"""

from __future__ import annotations

import sys
import time

from clia.cli.output import console, emit_json, one_line, plain, show_error, write
from clia.cli.sessions.common import given_text
from clia.cli.sessions.requests import as_words, decide_command, json_of, question_json
from clia.cli.space.common import add_space, space_of
from clia.errors import Conflict, InvalidInput
from clia.sessions.model import FINISHED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from clia.facade.space import Space
    from clia.sessions.model import Request, Session

NOT_ANSWERED = 3
FOR_EVER = float("inf")
_OWN = ("question", "choices")
_POLL_FIRST, _POLL_LONGEST = 0.05, 0.5


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="who asks")
    parser.add_argument("question", metavar="QUESTION", help="the question ('-': standard input)")
    parser.add_argument("--choices", metavar="A,B,…", help="the answers to choose from")
    parser.add_argument("--context", metavar="JSON", help="an object: what else the person should see; its schema, if any, holds")
    parser.add_argument(
        "--wait",
        nargs="?",
        type=_seconds,
        const=FOR_EVER,
        metavar="SECONDS",
        help="wait for the answer, for ever or so long, and print it",
    )
    add_space(parser)


def _seconds(text: str) -> float:
    import argparse

    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < FOR_EVER:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Exit 3 where the answer did not come in time, or the question was cancelled."""
    payload = _payload(args)
    with space_of(args) as space:
        request = space.ask(args.agent, payload)
        if args.wait is None:
            emit_json(question_json(request, space.rule(request))) if args.json else _show_asked(request, args.path)
            return 0
        if not args.json:
            write(f"{request.id}: {one_line(decide_command(request, path=args.path))}\n", sys.stderr)
        return _report(args, request, _answered(space, request, args.wait))


def _payload(args: argparse.Namespace) -> dict[str, Any]:
    made: dict[str, Any] = {"question": given_text(args.question, "question")}
    if not made["question"].strip():
        raise InvalidInput("a question needs a text", code="empty-question", fields={"field": "question"})
    if args.choices is not None:
        made["choices"] = [each.strip() for each in args.choices.split(",")]
        if not all(made["choices"]):
            raise InvalidInput(
                "--choices takes answers between commas, none of them empty", code="invalid-option", fields={"field": "choices"}
            )
    context = {} if args.context is None else json_of(args.context, "--context")
    if not isinstance(context, dict) or any(key in context for key in _OWN):
        raise InvalidInput(
            "--context takes a JSON object, without question and choices", code="invalid-option", fields={"field": "context"}
        )
    return made | context


def _show_asked(request: Request, path: str) -> None:
    from rich.text import Text  # only people see it

    console().print(
        Text.assemble((request.id, "yellow"), f"  answer: {one_line(decide_command(request, path=path))}"), soft_wrap=True
    )


def _answered(space: Space, request: Request, seconds: float) -> Session:
    """The session of a question as it is when it is over, or when the time is up."""
    until, pause = time.monotonic() + seconds, _POLL_FIRST
    while True:
        session = space.session(request.agent, request.session)
        left = until - time.monotonic()
        if not session.live or left <= 0:
            return session
        time.sleep(min(pause, left))
        pause = min(pause * 2, _POLL_LONGEST)


def _report(args: argparse.Namespace, request: Request, session: Session) -> int:
    """Prints the answer, or says that there is none."""
    if session.status == FINISHED:
        decisions = session.decisions
        if args.json:
            decision = decisions[0][1] if decisions else None
            emit_json({"agent": args.agent, "request": request.id, "value": session.result, "decision": decision})
        else:
            text = as_words(session.result)
            write(f"{plain(text) if sys.stdout.isatty() else text}\n")
        return 0
    said = "nobody answered in time" if session.live else f"the question was {session.status}"
    hints = [f"it stays open: {decide_command(request, path=args.path)}"] if session.live else []
    fields = {"agent": args.agent, "request": request.id, "status": session.status}
    show_error(Conflict(f"{said}: {request.id}", code="not-answered", hints=hints, fields=fields), as_json=args.json)
    return NOT_ANSWERED
