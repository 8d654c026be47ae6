"""Requests and sessions at a terminal: how they are shown, and what a person means by an answer.

A choice is recognised by its text before anything is read as JSON: the answer ``1`` to the choices "1" and "2" is a text.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from string import ascii_lowercase

from clia.cli.inputs import json_or_text
from clia.cli.output import console, counted, one_line
from clia.cli.rendering import facts_table, json_text, minute, short, show_block, show_line
from clia.sessions.model import CANCELLED, DIVERGED, FAILED, FINISHED, RUNNING, SUSPENDED, context_of, is_for_people, question_of
from clia.sessions.records import ASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from rich.text import Text

    from clia.sessions.answers import Rule
    from clia.sessions.model import Request, Session
    from clia.store.interface import Waiting

_STATUS_STYLES = {
    RUNNING: "cyan",
    SUSPENDED: "yellow",
    FINISHED: "green",
    FAILED: "red",
    DIVERGED: "magenta",
    CANCELLED: "bright_black",
}
_MAX_LINES = 12
_MAX_CHARACTERS = 1200
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def age(since: str, now: datetime) -> str:
    """How long ago a time was: ``3 hours``."""
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return since
    seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for size, name in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count != 1 else ''}"
    return "less than a minute"


def answer_value(text: str, choices: Sequence[Any], *, as_text: bool = False) -> Any:
    """The value of an answer: the choice with this text, else the JSON value, else the text itself."""
    if as_text or text in choices:
        return text
    for choice in choices:
        if not isinstance(choice, str) and json_text(choice) == text.strip():
            return choice
    return json_or_text(text)


def labelled_answer(text: str, choices: Sequence[Any], *, as_text: bool = False) -> Any:
    """As ``answer_value``, for a person who was shown labelled choices: a label stands for its choice."""
    word = text.strip()
    if not as_text and word in (labels := choice_labels(choices)):
        return choices[labels.index(word)]
    matches = any(word == (choice if isinstance(choice, str) else json_text(choice)) for choice in choices)
    return answer_value(word if matches else text, choices, as_text=as_text)


def choice_labels(choices: Sequence[Any]) -> list[str]:
    """Labels for choices: numbers, or letters if a choice is itself a number; none if they could be mistaken for choices."""
    texts = {as_text(choice).strip() for choice in choices}
    numbers = [str(number) for number in range(1, len(choices) + 1)]
    for labels in (numbers, list(ascii_lowercase[: len(choices)])):
        if len(labels) == len(choices) and texts.isdisjoint(labels):
            return labels
    return []


def choice_texts(choices: Sequence[Any]) -> list[str]:
    """The choices for people; as JSON if two would look the same, or one would be invisible."""
    texts = [as_text(choice) for choice in choices]
    distinct = len(set(texts)) == len(texts) and all(text.strip() == text and text for text in texts)
    return texts if distinct else [json_text(choice) for choice in choices]


def labelled_choices(choices: Sequence[Any]) -> str:
    labels = choice_labels(choices) or [""] * len(choices)
    pairs = zip(labels, choice_texts(choices), strict=True)
    return "   ".join(f"{label} {one_line(text)}".strip() for label, text in pairs)


def as_text(value: Any) -> str:
    """A value for people: a text without quotes, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def decide_command(request: Request, value: str | None = None, *, path: str = ".") -> str:
    """The command that answers a request; without a value it asks for one."""
    words = ["clia", "decide", request.agent, *(() if value is None else (value,)), "--request", request.id]
    words += ["-m", "WHY"] if value is not None else []
    words += ["--path", path] if path != "." else []
    return shlex.join(words)


def request_json(request: Request, rule: Rule, attempts: Waiting | None = None) -> dict[str, Any]:
    tried = None if attempts is None else {key: value for key, value in attempts._asdict().items() if key != "task"}
    question = {"question": question_of(request), "choices": list(rule.choices), "schema": rule.schema}
    return {**request._asdict(), **question, "for_people": is_for_people(request), "tried": tried}


def show_request(
    request: Request, rule: Rule, *, whole: bool = False, path: str | None = ".", attempts: Waiting | None = None
) -> None:
    """Print a request.

    ``whole``: do not shorten it. ``path``: where the space is, for the command that answers; None leaves the command out.
    ``attempts``: what workers have tried so far.
    """
    from rich.text import Text

    head = Text.assemble((one_line(request.agent), "bold"), " asks" if is_for_people(request) else " waits for ")
    if not is_for_people(request):
        head.append(one_line(request.kind), style="cyan")
    line = f", line {request.line}" if request.line else ""
    flow = "" if request.session.startswith(ASK) else f" · flow {one_line(request.flow)}{line}"
    head.append(f"  {request.id} · {age(request.since, datetime.now(UTC))}{flow}", style="dim")
    show_line(head)
    question = question_of(request)
    if question != request.kind:  # otherwise it has none
        show_block(question, "bold")
    details = _request_details(request, rule, whole=whole, path=path)
    console().print(facts_table(details if attempts is None else [*details, ("tried", _attempts_text(attempts))]))


def _attempts_text(attempts: Waiting) -> str:
    parts = [counted(attempts.attempts, "attempt", "attempts")]
    parts += [f"now by {attempts.worker}"] if attempts.worker is not None else []
    if attempts.worker is None and attempts.next_at:
        parts.append(f"again at {datetime.fromtimestamp(attempts.next_at, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}")
    parts += [f"last: {attempts.error}"] if attempts.error else []
    return one_line("; ".join(parts))


def _request_details(request: Request, rule: Rule, *, whole: bool, path: str | None) -> list[tuple[str, object]]:
    limit = (None, None) if whole else (_MAX_LINES, _MAX_CHARACTERS)
    details: list[tuple[str, object]] = []
    was_cut = False
    for key, value in context_of(request):
        text = as_text(value)
        shown = shortened(text, *limit)
        was_cut = was_cut or shown != text
        details.append((key, shown))
    if rule.choices:
        details.append(("choices", labelled_choices(rule.choices)))
    elif rule.schema is not None:
        details.append(("must be", shortened(json_text(rule.schema), *limit)))
    if was_cut:
        details.append(("in full", f"clia session show {request.agent} --session {request.session}"))
    if path is not None and is_for_people(request):
        details.append(("answer", decide_command(request, path=path)))
        example = choice_texts(rule.choices)[0] if rule.choices else "VALUE"
        details.append(("", f"or at once: {one_line(decide_command(request, example, path=path))}"))
    return details


def shortened(text: str, lines: int | None, characters: int | None) -> str:
    """The beginning of a text that is too long for a list."""
    if lines is None or characters is None:
        return text
    start = "\n".join(text.split("\n")[:lines])[:characters]
    return text if start == text else f"{start.rstrip()} … ({len(text) - len(start):,} more characters)"


def status_text(status: str) -> Text:
    from rich.text import Text

    return Text(one_line(status), style=_STATUS_STYLES.get(status, ""))


def show_session(session: Session, *, whole: bool = False) -> None:
    """Print a session; ``whole``: with its input and its answers."""
    from rich.text import Text

    show_line(Text.assemble((one_line(session.agent), "bold"), f"  session {one_line(session.id)}  ", status_text(session.status)))
    facts: list[tuple[str, object]] = [("flow", f"{one_line(session.flow)} ({short(session.flow_cid)})")]
    facts += [("started", minute(session.started_at)), ("ended", minute(session.ended_at)), ("forked", _origin(session))]
    facts += _answer_facts(session) if whole else []
    facts += [("result", as_text(session.result))] if session.result is not None else []
    facts += _failure_facts(session)
    if not whole:
        facts += [("waits for", f"{each.kind} ({each.id}): {one_line(question_of(each))}") for each in session.pending]
    console().print(facts_table(facts))
    if whole and session.failure and session.failure.get("trace"):
        show_block(str(session.failure["trace"]), "dim")


def _origin(session: Session) -> str:
    fork = session.forked
    return "" if fork is None else f"from {fork['agent']}, session {fork['session']}, at {short(fork['commit'])}"


def _answer_facts(session: Session) -> list[tuple[str, object]]:
    decisions = dict(session.decisions)
    facts: list[tuple[str, object]] = [("input", None if session.input is None else json_text(session.input))]
    for index, value in enumerate(session.resumes):
        decision = f"  decision {short(decisions[index])}" if index in decisions else ""
        facts.append((f"answer {index + 1}", f"{one_line(json_text(value))}{decision}"))
    return facts


def _failure_facts(session: Session) -> list[tuple[str, object]]:
    if session.failure is None:
        return []
    line = f" (line {session.failure['line']})" if session.failure.get("line") else ""
    return [("reason", f"{session.failure.get('message') or session.failure.get('reason')}{line}")]
