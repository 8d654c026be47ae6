"""Questions for people: inbox, decide, ask."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

from clia.cli import sessions
from clia.cli.command import AGENT, WHY, Answer, arg, command, flag, opt
from clia.cli.inputs import given_text, invalid_option, json_value, message_text, require_person
from clia.cli.output import console, counted, emit_json, one_line, plain, show_error, write
from clia.cli.rendering import json_text, short, show_line
from clia.cli.sessions import AS_TEXT, REQUEST
from clia.errors import Conflict, InvalidAnswer, InvalidInput, NotFound
from clia.sessions.flows import ASK
from clia.sessions.model import FINISHED, is_for_people, is_human, question_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from clia.cli.sessions import AskedRequest
    from clia.facade.space import Space
    from clia.sessions.model import Decision, Request, Session

NOT_ANSWERED = 3
FOREVER = float("inf")


@command("inbox")
def inbox(
    space: Space,
    path: str,
    agent: str | None = arg("AGENT", "only questions of this agent", nargs="?"),
    everything: bool = flag("also show requests for workers", "--all"),
) -> Answer[list[AskedRequest]]:
    """List the questions that wait for you, oldest first."""
    waiting = space.sessions.pending(agent)
    chosen = [(request, space.sessions.rule(request)) for request in waiting if everything or is_for_people(request)]
    attempts = {(attempt.task.agent, attempt.task.request): attempt for attempt in space.sessions.attempts()} if everything else {}

    waits = [act for act in space.trust.waiting() if act.request] if chosen else []

    def show() -> None:
        for request, rule in chosen:
            sessions.show_request(request, rule, path=path, attempts=attempts.get((request.agent, request.id)))
            for act in (act for act in waits if (act.about, act.request) == (request.agent, request.id)):
                text = f"  {len(act.people)} of {act.threshold}: {', '.join(act.people)} answered {json_text(act.value)}"
                show_line((one_line(text), "yellow"))
            if request.session.startswith(ASK):
                from clia.capture.permissions.prompts import is_waited_for

                if is_waited_for(space, request) is False:
                    show_line(("  no tool waits for this answer now", "yellow"))
            console().print()
        others = len(waiting) - len(chosen)
        rest = f"; {counted(others, 'request waits', 'requests wait')} for a worker (show them with --all)" if others else ""
        total = counted(len(chosen), "request waits", "requests wait") if everything else counted(len(chosen), "question")
        write(f"{total if chosen else 'nothing waits for you'}{rest}\n")

    value = [sessions.asked_request(request, rule, attempts.get((request.agent, request.id))) for request, rule in chosen]
    return Answer(value, show)


@command("decide")
def decide(
    space: Space,
    json_output: bool,
    agent: str = AGENT,
    value: str | None = arg(
        "VALUE", "answer: a choice, JSON, or else text ('-': standard input); you are asked if it is missing", nargs="?"
    ),
    as_text: bool = AS_TEXT,
    request: str | None = REQUEST,
    by: str | None = opt("WHO", "person who decides (default: the accountable person)"),
    message: str = WHY,
) -> Answer[Decision]:
    """Answer a question: record the decision as a commit and resume the session."""
    require_person("the question waits in their inbox: clia inbox")
    if value is None:
        if json_output or not (sys.stdin.isatty() and sys.stdout.isatty()):
            hints = ["clia decide --help"]
            raise InvalidInput("give a VALUE: there is no terminal to ask at", code="usage", hints=hints, fields={"field": "value"})
        decision = _ask_person(space, agent, request, by, message, as_text=as_text)
    else:
        if value == message == "-":
            raise invalid_option("only one of VALUE and --message can be standard input")
        candidates = _candidates(space, agent, request)
        choices = space.sessions.rule(candidates[0]).choices if len(candidates) == 1 else ()
        answer = sessions.answer_value(given_text(value, "value"), choices, as_text=as_text)
        request_id = candidates[0].id if len(candidates) == 1 else request
        decision = space.sessions.decide(agent, answer, message_text(message), by=by, request_id=request_id)

    def show() -> None:
        head = (short(decision.cid), "yellow"), f" decision by {one_line(decision.by)}: "
        show_line(*head, (one_line(json_text(decision.value)), "bold"), (f" on {decision.request}", "dim"))
        if decision.redacted:
            show_line((f"redacted {counted(decision.redacted, 'secret')} in the answer: the flow gets it as shown", "yellow"))
        sessions.show_session(decision.session)

    return Answer(decision, show)


def _candidates(space: Space, agent: str, request_id: str | None) -> list[Request]:
    """The requests that an answer may be for: the named one, else questions for people, else suspended flows."""
    pending = space.sessions.pending(agent)
    if request_id is not None:
        return [request for request in pending if request.id == request_id]
    human = [request for request in pending if is_human(request.kind)]
    return human or [request for request in pending if is_for_people(request)]


def _ask_person(space: Space, agent: str, request_id: str | None, by: str | None, message: str, *, as_text: bool) -> Decision:
    """Show the request at the terminal, and ask until a valid answer is given."""
    with suppress(ImportError):
        import readline  # noqa: F401  # line editing and history for input()
    request = _choose_request(space, agent, request_id)
    if not is_for_people(request):
        return space.sessions.decide(agent, None, by=by, request_id=request.id)  # refuses it, and says how to answer it
    rule = space.sessions.rule(request)
    sessions.show_request(request, rule, path=None)
    labels = sessions.choice_labels(rule.choices)
    prompt = f"answer ({labels[0]} to {labels[-1]}): " if labels else "answer: "
    while True:
        text = _read_line(prompt)
        value = sessions.labelled_answer(text, rule.choices, as_text=as_text)
        try:
            if text.strip():
                space.sessions.check_answer(request, value)
                break
        except InvalidAnswer as err:
            show_error(err, as_json=False)
    why = message_text(message) if message else _read_line("why (may be empty): ")
    return space.sessions.decide(agent, value, why, by=by, request_id=request.id)


def _choose_request(space: Space, agent: str, request_id: str | None) -> Request:
    candidates = _candidates(space, agent, request_id)
    if not candidates:
        subject = "pending request" if request_id is None else f"pending request {request_id!r}"
        hints = ["list pending questions with: clia inbox", f"show past answers with: clia session show {agent} --journal"]
        fields = {"agent": agent, "request": request_id}
        raise NotFound(f"agent {agent!r} has no {subject}", code="nothing-pending", hints=hints, fields=fields)
    if len(candidates) == 1:
        return candidates[0]
    for number, request in enumerate(candidates, 1):
        write(one_line(f"{number}  {request.id}  {question_of(request)}") + "\n")
    while True:
        word = _read_line(f"which of these {counted(len(candidates), 'request')}: ").strip()
        for number, request in enumerate(candidates, 1):
            if word in (str(number), request.id):
                return request


def _read_line(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        write("\n")
        raise Conflict("nothing was decided", code="not-decided", hints=["the question stays open: clia inbox"]) from None


def _seconds(text: str) -> float:
    import argparse

    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < FOREVER:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}")
    return seconds


class RecordedAnswer(NamedTuple):
    """The answer to a question."""

    agent: str  # the agent that asked
    request: str  # request id
    value: Any  # the answer
    decision: str | None  # the decision's commit


@command("ask")
def ask(
    space: Space,
    path: str,
    json_output: bool,
    agent: str = AGENT,
    question: str = arg("QUESTION", "the question ('-': standard input)"),
    choices: str | None = opt("A,B,…", "possible answers"),
    context: str | None = opt("JSON", "object with more information for the person; a schema in it is enforced"),
    wait: float | None = opt(
        "SECONDS", "wait for the answer (default: without limit) and print it", nargs="?", type=_seconds, const=FOREVER
    ),
) -> Answer[AskedRequest] | Annotated[int, RecordedAnswer]:
    """Ask people a question on behalf of an agent.

    With --wait, standard output carries only the answer. Exit code 3 if there is no answer in time, or the question was cancelled;
    a question without an answer stays open.
    """
    request = space.sessions.ask(agent, _ask_payload(question, choices, context))
    if wait is None:
        line = (request.id, "yellow"), f"  answer: {one_line(sessions.decide_command(request, path=path))}"
        return Answer(sessions.asked_request(request, space.sessions.rule(request)), lambda: show_line(*line))
    if not json_output:
        write(f"{request.id}: {one_line(sessions.decide_command(request, path=path))}\n", sys.stderr)
    return _print_answer(request, _wait_for_answer(space, request, wait), path, json_output=json_output)


def _ask_payload(question: str, choices: str | None, context: str | None) -> dict[str, Any]:
    payload: dict[str, Any] = {"question": given_text(question, "question")}
    if not payload["question"].strip():
        raise InvalidInput("the question is empty", code="empty-question", fields={"field": "question"})
    if choices is not None:
        payload["choices"] = [choice.strip() for choice in choices.split(",")]
        if not all(payload["choices"]):
            raise invalid_option("--choices takes answers separated by commas, none of them empty", field="choices")
    extra = {} if context is None else json_value(context, "--context")
    if not isinstance(extra, dict) or extra.keys() & {"question", "choices"}:
        raise invalid_option("--context takes a JSON object without question and choices", field="context")
    return payload | extra


def _wait_for_answer(space: Space, request: Request, seconds: float) -> Session:
    """The session of a question when it ends, or when the time is up."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while True:
        session = space.sessions.get(request.agent, request.session)
        left = deadline - time.monotonic()
        if not session.live or left <= 0:
            return session
        time.sleep(min(pause, left))
        pause = min(pause * 2, 0.5)


def _print_answer(request: Request, session: Session, path: str, *, json_output: bool) -> int:
    if session.status == FINISHED:
        if json_output:
            decision = session.decisions[0][1] if session.decisions else None
            emit_json(RecordedAnswer(request.agent, request.id, session.result, decision))
        else:
            text = sessions.value_text(session.result)
            write(f"{plain(text) if sys.stdout.isatty() else text}\n")
        return 0
    message = "no answer in time" if session.live else f"the question was {session.status}"
    hints = [f"it stays open: {sessions.decide_command(request, path=path)}"] if session.live else []
    fields = {"agent": request.agent, "request": request.id, "status": session.status}
    show_error(Conflict(f"{message}: {request.id}", code="not-answered", hints=hints, fields=fields), as_json=json_output)
    return NOT_ANSWERED
