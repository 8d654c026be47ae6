"""``clia session``: start, inspect and control sessions."""

from __future__ import annotations

from clia.cli.command import AGENT, WHY, Answer, arg, command, flag, opt
from clia.cli.inputs import given_text, json_or_text, json_value, message_text, read_source
from clia.cli.output import console, one_line
from clia.cli.rendering import json_text, minute, short, show_table
from clia.cli.requests import show_request, show_session, status_text
from clia.errors import InvalidInput
from clia.sessions.records import COPIED, RESUMED, STARTED, Resumed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.sessions.model import Session

AS_TEXT = flag("VALUE is text, even if it looks like JSON", "--text")
REQUEST = opt("ID", "request to answer; may be left out if only one is pending")


def _session_answer(session: Session) -> Answer:
    return Answer(session.to_json(), lambda: show_session(session))


@command("session start")
def session_start(
    space: Space,
    agent: str = AGENT,
    flow: str = arg("FLOW", "flow name, or the id of one version"),
    input_json: str | None = opt("JSON", "argument of main() (default: null)", "--input", one_of="input"),
    input_file: str | None = opt("FILE", "file with that JSON ('-': standard input)", one_of="input"),
) -> Answer:
    """Start a flow for an agent and run it to its first request."""
    value = None if input_json is None else json_value(input_json, "--input")
    if input_file is not None:
        value = json_value(read_source(input_file, "input"), "--input-file")
    return _session_answer(space.start(agent, flow, value))


@command("session show")
def session_show(
    space: Space,
    path: str,
    agent: str = AGENT,
    session: str | None = opt("ID", "session id (default: the live session, else the last one)"),
    with_journal: bool = flag("show every recorded event", "--journal"),
) -> Answer:
    """Show a session: its status, pending requests and answers."""
    current = space.session(agent, session)
    journal = space.sessions.journal(agent, current.id) if with_journal else None

    def show() -> None:
        show_session(current, whole=True)
        for request in current.pending:
            console().print()
            show_request(request, space.sessions.rule(request), whole=True, path=path)
        if journal is not None:
            console().print()
            _show_journal(journal)

    decisions = [{"position": position, "commit": commit} for position, commit in current.decisions]
    details = {"input": current.input, "resumes": current.resumes, "decisions": decisions}
    return Answer(current.to_json() | details | ({} if journal is None else {"journal": journal}), show)


def _show_journal(events: Sequence[Mapping[str, Any]]) -> None:
    rows = [(number, event["event"], *_event_cells(event)) for number, event in enumerate(events, 1)]
    show_table(("", "event", "what", "by", "when (UTC)"), rows)


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
    return str(event.get("status", "")), "", minute(event.get("at"))


@command("session resume")
def session_resume(
    space: Space,
    agent: str = AGENT,
    value: str | None = arg("VALUE", "answer: JSON, or else text ('-': standard input)", nargs="?"),
    as_text: bool = AS_TEXT,
    request: str | None = REQUEST,
    error: str | None = opt("REASON", "instead of a value: let the request fail in the flow, for this reason"),
) -> Answer:
    """Answer a request that is not a question for people."""
    if error is not None and value is None:
        return _session_answer(space.sessions.give_up(agent, error, request))
    if value is None or error is not None:
        raise InvalidInput(
            "give a VALUE, or --error REASON", code="usage", hints=["clia session resume --help"], fields={"field": "value"}
        )
    text = given_text(value, "value")
    return _session_answer(space.resume(agent, text if as_text else json_or_text(text), request))


@command("session fork")
def session_fork(
    space: Space,
    agent: str = AGENT,
    new: str = arg("NEW", "name of the new agent"),
    at: str | None = opt("COMMIT", "fork the session as of this commit (default: its current state)"),
) -> Answer:
    """Copy an agent's session to a new agent."""
    return _session_answer(space.fork(agent, new, at))


@command("session cancel")
def session_cancel(
    space: Space,
    agent: str = AGENT,
    session: str | None = opt("ID", "session id, or an open question such as ask-1 (default: the live session)"),
    message: str = WHY,
) -> Answer:
    """Cancel a session."""
    return _session_answer(space.cancel(agent, message_text(message), session_id=session))


@command("session list")
def session_list(
    space: Space,
    agent: str | None = arg("AGENT", "only sessions of this agent", nargs="?"),
    live: bool = flag("only live sessions"),
) -> Answer:
    """List sessions, live ones first."""
    sessions = space.sessions(agent, live=live)
    if not sessions:
        return Answer([], "no live sessions" if live else "no sessions yet; start one with: clia session start AGENT FLOW")
    return Answer([session.to_json() for session in sessions], lambda: _show_sessions(sessions))


def _show_sessions(sessions: Sequence[Session]) -> None:
    from rich.text import Text

    rows = [
        (
            Text(one_line(session.agent), style="bold"),
            session.id,
            session.flow,
            status_text(session.status),
            ", ".join(f"{request.kind} ({request.id})" for request in session.pending),
            Text(minute(session.started_at), style="dim"),
            Text(minute(session.ended_at), style="dim"),
        )
        for session in sessions
    ]
    show_table(("agent", "session", "flow", "status", "waits for", "started (UTC)", "ended"), rows)
