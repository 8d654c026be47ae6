"""``clia session``: start, inspect and control sessions; and how sessions, requests and answers are shown and read.

A choice is recognised by its text before anything is read as JSON: the answer ``1`` to the choices "1" and "2" is a text.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from string import ascii_lowercase
from typing import Any, NamedTuple

from clia.cli.command import AGENT, WHY, Answer, arg, command, flag, opt
from clia.cli.inputs import given_text, invalid_option, json_or_text, json_value, message_text, read_source, require_person
from clia.cli.output import console, counted, one_line
from clia.cli.rendering import facts_table, json_text, minute, short, show_block, show_line, show_table, styled
from clia.errors import InvalidInput
from clia.sessions.model import CANCELLED, DIVERGED, FAILED, FINISHED, RUNNING, SUSPENDED, context_of, is_for_people, question_of
from clia.sessions.records import ASK, COPIED, RESUMED, RETRIED, STARTED, Resumed
from clia.values.records import EMBED, json_form
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.text import Text

    from clia.facade.space import Space
    from clia.sessions.answers import Rule
    from clia.sessions.model import Request, Session
    from clia.store.interface import Waiting

AS_TEXT = flag("VALUE is text, even if it looks like JSON", "--text")
REQUEST = opt("ID", "request to answer; may be left out if only one is pending")
_STATUS_STYLES = {
    RUNNING: "cyan",
    SUSPENDED: "yellow",
    FINISHED: "green",
    FAILED: "red",
    DIVERGED: "magenta",
    CANCELLED: "bright_black",
}
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def _session_answer(session: Session) -> Answer[Session]:
    return Answer(session, lambda: show_session(session))


@command("session start")
def session_start(
    space: Space,
    agent: str = AGENT,
    flow: str = arg("FLOW", "flow name, or the id of one version"),
    input_json: str | None = opt("JSON", "argument of main() (default: null)", "--input", one_of="input"),
    input_file: str | None = opt("FILE", "file with that JSON ('-': standard input)", one_of="input"),
) -> Answer[Session]:
    """Start a flow for an agent and run it to its first request."""
    value = None if input_json is None else json_value(input_json, "--input")
    if input_file is not None:
        value = json_value(read_source(input_file, "input"), "--input-file")
    return _session_answer(space.sessions.start(agent, flow, value))


class DecisionPosition(NamedTuple):
    """An answer that was a decision."""

    position: int  # in `resumes`, from 0
    commit: str  # the decision's commit


@json_form(session=EMBED)
class SessionDetails(NamedTuple):
    """A session with its input and its answers."""

    session: Session
    input: Any  # argument of `main`
    resumes: list[Any]  # the answers so far, in order; `{"error": …}` if a request was given up
    decisions: list[DecisionPosition]  # which of them are decisions


@json_form(details=EMBED)
class SessionJournal(NamedTuple):
    """A session with every recorded event."""

    details: SessionDetails
    journal: list[dict[str, Any]]
    """The events, in order. A `resume` is a list: number of the call, hash of the request, value, error, decision, by whom, when;
    without nulls at its end"""


@command("session show")
def session_show(
    space: Space,
    path: str,
    agent: str = AGENT,
    session: str | None = opt("ID", "session id (default: the live session, else the last one)"),
    with_journal: bool = flag("show every recorded event", "--journal"),
) -> Answer[SessionDetails | SessionJournal]:
    """Show a session: its status, pending requests and answers."""
    current = space.sessions.get(agent, session)
    journal = space.sessions.journal(agent, current.id) if with_journal else None

    def show() -> None:
        show_session(current, whole=True)
        for request in current.pending:
            console().print()
            show_request(request, space.sessions.rule(request), whole=True, path=path)
        if journal is not None:
            console().print()
            rows = [(number, event["event"], *_event_cells(event)) for number, event in enumerate(journal, 1)]
            show_table(("", "event", "what", "by", "when (UTC)"), rows)

    decisions = [DecisionPosition(*decision) for decision in current.decisions]
    details = SessionDetails(current, current.input, current.resumes, decisions)
    return Answer(details if journal is None else SessionJournal(details, journal), show)


def _event_cells(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """What happened, by whom and when."""
    if event["event"] == STARTED:
        flow = f"{event['name']} ({short(event['flow'])}) on {event['engine']}"
        return flow, str(event.get("by", "")), minute(event["started_at"])
    if event["event"] == RESUMED:
        resumed = Resumed(*event["resume"])
        value = f"given up: {resumed.error}" if resumed.error is not None else json_text(resumed.value)
        decision = f"  decision {short(resumed.decision)}" if resumed.decision else ""
        return f"call {resumed.call}: {one_line(value)}{decision}", resumed.by or "", minute(resumed.at)
    if event["event"] == COPIED:
        return f"{len(event['resumes'])} answers copied", "", ""
    if event["event"] == RETRIED:
        again = f"call {event['dropped']} again" if event.get("dropped") is not None else "last turn again"
        return f"{again}: {event['why']}" if event.get("why") else again, str(event.get("by", "")), minute(event.get("at"))
    return str(event.get("status", "")), "", minute(event.get("at"))


@command("session resume")
def session_resume(
    space: Space,
    agent: str = AGENT,
    value: str | None = arg("VALUE", "answer: JSON, or else text ('-': standard input)", nargs="?"),
    as_text: bool = AS_TEXT,
    request: str | None = REQUEST,
    error: str | None = opt("REASON", "instead of a value: let the request fail in the flow, for this reason"),
) -> Answer[Session]:
    """Answer a request that is not a question for people."""
    if error is not None and value is None:
        return _session_answer(space.sessions.give_up(agent, error, request))
    if value is None or error is not None:
        hints = ["clia session resume --help"]
        raise InvalidInput("give a VALUE, or --error REASON", code="usage", hints=hints, fields={"field": "value"})
    text = given_text(value, "value")
    return _session_answer(space.sessions.resume(agent, text if as_text else json_or_text(text), request))


@command("session fork")
def session_fork(
    space: Space,
    agent: str = AGENT,
    new: str = arg("NEW", "name of the new agent"),
    at: str | None = opt("COMMIT", "fork the session as of this commit (default: its current state)"),
    title: str | None = opt(None, "title of a briefing of its own (default: the same briefing)", "-t --title"),
    text: str = opt("TEXT", "text of that briefing ('-': standard input)", "-b --briefing", former="--text", default=""),
) -> Answer[Session]:
    """Copy an agent's session to a new agent, or to one that was spawned for it and did nothing yet."""
    if title is None and text:
        raise invalid_option("--briefing needs --title")
    briefing = None if title is None else Briefing(title, given_text(text, "text"))
    return _session_answer(space.sessions.fork(agent, new, at, briefing=briefing))


@command("session cancel")
def session_cancel(
    space: Space,
    agent: str = AGENT,
    session: str | None = opt("ID", "session id, or an open question such as ask-1 (default: the live session)"),
    message: str = WHY,
) -> Answer[Session]:
    """Cancel a session."""
    return _session_answer(space.sessions.cancel(agent, message_text(message), session_id=session))


@command("session retry")
def session_retry(
    space: Space,
    agent: str = AGENT,
    session: str | None = opt("ID", "session id (default: the last session)"),
    message: str = WHY,
) -> Answer[Session]:
    """Retry a failed session from its last step.

    Only people do this. The last request is made again. A decision stays, and so does the answer after which the flow exceeded a
    limit: then the flow runs again from there.
    """
    require_person(f"ask a person to run it: clia session retry {agent}")
    return _session_answer(space.sessions.retry(agent, message_text(message), session_id=session))


@command("session list")
def session_list(
    space: Space,
    agent: str | None = arg("AGENT", "only sessions of this agent", nargs="?"),
    live: bool = flag("only live sessions"),
) -> Answer[list[Session]]:
    """List sessions, live ones first."""
    sessions = space.sessions(agent, live=live)
    if not sessions:
        return Answer([], "no live sessions" if live else "no sessions yet; start one with: clia session start AGENT FLOW")
    return Answer(sessions, lambda: _show_sessions(sessions))


def _show_sessions(sessions: Sequence[Session]) -> None:
    rows = []
    for session in sessions:
        pending = ", ".join(f"{request.kind} ({request.id})" for request in session.pending)
        times = [styled(minute(time), "dim") for time in (session.started_at, session.ended_at)]
        rows.append((styled(session.agent, "bold"), session.id, session.flow, status_text(session.status), pending, *times))
    show_table(("agent", "session", "flow", "status", "waits for", "started (UTC)", "ended"), rows)


def age(since: str, now: datetime) -> str:
    """How long ago a time was: ``3 hours``."""
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return since
    seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for size, name in _UNITS:
        if seconds >= size:
            return counted(int(seconds // size), name)
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
    texts = {value_text(choice).strip() for choice in choices}
    numbers = [str(number) for number in range(1, len(choices) + 1)]
    for labels in (numbers, list(ascii_lowercase[: len(choices)])):
        if len(labels) == len(choices) and texts.isdisjoint(labels):
            return labels
    return []


def choice_texts(choices: Sequence[Any]) -> list[str]:
    """The choices as shown to people; in JSON if two would look the same, or one would be invisible."""
    texts = [value_text(choice) for choice in choices]
    distinct = len(set(texts)) == len(texts) and all(text.strip() == text and text for text in texts)
    return texts if distinct else [json_text(choice) for choice in choices]


def labelled_choices(choices: Sequence[Any]) -> str:
    labels = choice_labels(choices) or [""] * len(choices)
    pairs = zip(labels, choice_texts(choices), strict=True)
    return "   ".join(f"{label} {one_line(text)}".strip() for label, text in pairs)


def value_text(value: Any) -> str:
    """A value for people: a text without quotes, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def decide_command(request: Request, value: str | None = None, *, path: str = ".") -> str:
    """The command that answers a request; without a value it asks for one."""
    words = ["clia", "decide", request.agent, *(() if value is None else (value,)), "--request", request.id]
    words += ["-m", "WHY"] if value is not None else []
    words += ["--path", path] if path != "." else []
    return shlex.join(words)


@json_form(waiting=EMBED + "task")
class Attempts(NamedTuple):
    """What workers have tried."""

    waiting: Waiting


@json_form(request=EMBED)
class AskedRequest(NamedTuple):
    """A pending request, and what its answer may be."""

    request: Request
    question: str  # text for people: `question`, `prompt` or `title` of the payload, else the tag, else the kind
    choices: list[Any]  # answers to choose from; empty: unknown, or anything
    schema: Any  # JSON Schema of the answer: the operator's, else the request's own; null: anything
    for_people: bool  # whether only people answer it
    tried: Attempts | None  # with `--all`: what workers have tried


def asked_request(request: Request, rule: Rule, attempts: Waiting | None = None) -> AskedRequest:
    tried = None if attempts is None else Attempts(attempts)
    return AskedRequest(request, question_of(request), list(rule.choices), rule.schema, is_for_people(request), tried)


def show_request(
    request: Request, rule: Rule, *, whole: bool = False, path: str | None = ".", attempts: Waiting | None = None
) -> None:
    """Print a request.

    ``whole``: do not shorten it. ``path``: where the space is, for the command that answers; None leaves the command out.
    ``attempts``: what workers have tried so far.
    """
    kind = "" if is_for_people(request) else one_line(request.kind)
    line = f", line {request.line}" if request.line else ""
    flow = "" if request.session.startswith(ASK) else f" · flow {one_line(request.flow)}{line}"
    since = f"  {request.id} · {age(request.since, datetime.now(UTC))}{flow}"
    show_line((one_line(request.agent), "bold"), " waits for " if kind else " asks", (kind, "cyan"), (since, "dim"))
    question = question_of(request)
    if question != request.kind:  # otherwise it has none
        show_block(question, "bold")
    details = _request_details(request, rule, whole=whole, path=path)
    console().print(facts_table(details if attempts is None else [*details, ("tried", _attempts_text(attempts))]))


def _attempts_text(attempts: Waiting) -> str:
    parts = [counted(attempts.attempts, "attempt")]
    parts += [f"now by {attempts.worker}"] if attempts.worker is not None else []
    if attempts.worker is None and attempts.next_at:
        parts.append(f"again at {datetime.fromtimestamp(attempts.next_at, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}")
    parts += [f"last: {attempts.error}"] if attempts.error else []
    return one_line("; ".join(parts))


def _request_details(request: Request, rule: Rule, *, whole: bool, path: str | None) -> list[tuple[str, object]]:
    limit = (None, None) if whole else (12, 1200)  # lines and characters
    details: list[tuple[str, object]] = []
    was_cut = False
    for key, value in context_of(request):
        text = value_text(value)
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
    return styled(status, _STATUS_STYLES.get(status, ""))


def show_session(session: Session, *, whole: bool = False) -> None:
    """Print a session; ``whole``: with its input and its answers."""
    show_line((one_line(session.agent), "bold"), f"  session {one_line(session.id)}  ", status_text(session.status))
    facts: list[tuple[str, object]] = [("flow", f"{one_line(session.flow)} ({short(session.flow_cid)})")]
    facts += [("started", minute(session.started_at)), ("ended", minute(session.ended_at))]
    if (fork := session.forked) is not None:
        facts.append(("forked", f"from {fork['agent']}, session {fork['session']}, at {short(fork['commit'])}"))
    facts += _answer_facts(session) if whole else []
    facts += [("result", value_text(session.result))] if session.result is not None else []
    facts += [("redacted", f"{counted(session.redacted, 'secret')} in its input, answers or result")] if session.redacted else []
    if session.failure is not None:
        line = f" (line {session.failure['line']})" if session.failure.get("line") else ""
        facts.append(("reason", f"{session.failure.get('message') or session.failure.get('reason')}{line}"))
    if not whole:
        facts += [("waits for", f"{request.kind} ({request.id}): {one_line(question_of(request))}") for request in session.pending]
    console().print(facts_table(facts))
    if whole and session.failure and session.failure.get("trace"):
        show_block(str(session.failure["trace"]), "dim")


def _answer_facts(session: Session) -> list[tuple[str, object]]:
    decisions = dict(session.decisions)
    facts: list[tuple[str, object]] = [("input", None if session.input is None else json_text(session.input))]
    for index, value in enumerate(session.resumes):
        decision = f"  decision {short(decisions[index])}" if index in decisions else ""
        facts.append((f"answer {index + 1}", f"{one_line(json_text(value))}{decision}"))
    return facts
