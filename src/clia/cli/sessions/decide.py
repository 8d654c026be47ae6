"""``clia decide``: a person's answer.

Invariant: nothing is decided but what the person gave or typed, and for the request that they were shown; without a terminal
and without a value nobody is asked.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from clia.cli.output import console, counted, emit_json, one_line, show_error, write
from clia.cli.sessions.common import add_value, add_why, given_text, show_request, show_session
from clia.cli.sessions.requests import answer_of, chosen, json_text, labels_of
from clia.cli.space.common import add_space, message_of, require_person, short, space_of
from clia.errors import Conflict, InvalidAnswer, InvalidInput, NotFound
from clia.sessions.model import is_for_people, is_human, question_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.sessions.model import Decision, Request


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="who asks")
    add_value(parser, "the answer: a choice, JSON, or else text ('-': standard input); without it you are asked")
    parser.add_argument("--by", metavar="WHO", help="who decides (default: the accountable person)")
    add_why(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    require_person("the question waits in their list: clia inbox")
    if args.value is None and not _at_terminal(args):
        raise InvalidInput(
            "give a VALUE: there is no terminal to ask at", code="usage", hints=["clia decide --help"], fields={"field": "value"}
        )
    if args.value == args.message == "-":
        raise InvalidInput("only one of VALUE and --message can be standard input", code="invalid-option")
    with space_of(args) as space:
        made = _ask(space, args) if args.value is None else _decide(space, args)
        if args.json:
            emit_json({**made._asdict(), "session": made.session.to_json()})
        else:
            _show(made)
    return 0


def _at_terminal(args: argparse.Namespace) -> bool:
    return not args.json and sys.stdin.isatty() and sys.stdout.isatty()


def _decide(space: Space, args: argparse.Namespace) -> Decision:
    """With a value that was given; what cannot be answered is the library's to say."""
    found = _candidates(space, args)
    choices = space.rule(found[0]).choices if len(found) == 1 else ()
    value = answer_of(given_text(args.value, "value"), choices, as_text=args.text)
    request_id = found[0].id if len(found) == 1 else args.request
    return space.decide(args.agent, value, message_of(args), by=args.by, request_id=request_id)


def _candidates(space: Space, args: argparse.Namespace) -> list[Request]:
    """The requests that the answer may be for: the named one, else the questions to people, else suspended flows."""
    waiting = space.pending(args.agent)
    if args.request is not None:
        return [each for each in waiting if each.id == args.request]
    return [each for each in waiting if is_human(each.kind)] or [each for each in waiting if is_for_people(each)]


def _ask(space: Space, args: argparse.Namespace) -> Decision:
    """Shows the request to the person at the terminal and asks, until an answer is valid."""
    with suppress(ImportError):
        import readline  # noqa: F401  # gives the lines of input() editing and a history
    request = _which(space, args)
    rule = space.rule(request)
    show_request(request, rule, path=None)
    labels = labels_of(rule.choices)
    prompt = f"answer ({labels[0]} to {labels[-1]}): " if labels else "answer: "
    while True:
        text = _line(prompt)
        value = chosen(text, rule.choices, as_text=args.text)
        try:
            if text.strip():
                space.check_answer(request, value)
                break
        except InvalidAnswer as err:
            show_error(err, as_json=False)
    why = message_of(args) if args.message else _line("why (may be empty): ")
    return space.decide(args.agent, value, why, by=args.by, request_id=request.id)


def _which(space: Space, args: argparse.Namespace) -> Request:
    found = _candidates(space, args)
    if not found:
        which = "nothing" if args.request is None else f"no request {args.request!r}"
        raise NotFound(
            f"{which} of {args.agent!r} waits for an answer",
            code="nothing-pending",
            hints=["clia inbox shows what waits", f"clia session show {args.agent} --journal shows what was answered"],
            fields={"agent": args.agent, "request": args.request},
        )
    if len(found) == 1:
        return found[0]
    for number, each in enumerate(found, 1):
        write(one_line(f"{number}  {each.id}  {question_of(each)}") + "\n")
    while True:
        word = _line(f"which of these {counted(len(found), 'request', 'requests')}: ").strip()
        picked = [each for number, each in enumerate(found, 1) if word in (str(number), each.id)]
        if picked:
            return picked[0]


def _line(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        write("\n")
        raise Conflict("nothing was decided", code="not-decided", hints=["the question stays open: clia inbox"]) from None


def _show(made: Decision) -> None:
    from rich.text import Text  # only people see it

    line = Text.assemble(
        (short(made.cid), "yellow"), f" decision by {one_line(made.by)}: ", (one_line(json_text(made.value)), "bold")
    )
    console().print(line.append(f" on {made.request}", style="dim"), soft_wrap=True)
    show_session(made.session)
