"""Starting, resuming, cancelling and reading sessions; and decisions: a person's answer becomes a commit, then a resume.

Invariant: an agent has at most one live session. A request takes one answer; a later one gets an error that names the first. Every
step holds the agent's lock and is atomic. A decision's commit is its point of no return: its effects are computed before and
recorded with the intent, so recovery finishes it exactly once without running anything.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import NamedTuple, cast

from clia.errors import Ambiguous, Conflict, InvalidAnswer, InvalidInput, Nondeterminism, NotAllowed, NotFound, StaleRequest
from clia.sessions import records
from clia.sessions.checkpoints import damaged_row, last_ask, last_number, live_row, session_counts
from clia.sessions.model import (
    CANCELLED,
    DIVERGED,
    SUSPENDED,
    Request,
    Session,
    all_requests,
    is_for_people,
    is_human,
    kept_secret,
    requests_of,
)
from clia.sessions.records import (
    ASK,
    COUNTS,
    ENDED,
    LIVE,
    Origin,
    Resumed,
    SessionRow,
    is_sound,
    request_hash,
    session_row,
)
from clia.sessions.replay import LiveSession
from clia.sessions.request_rows import complete, complete_rows, pending_call, request_rows
from clia.values import refs as names
from clia.values.clock import timestamp
from clia.values.commit_messages import check_text
from clia.values.json_values import CannotCross, inward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.engine.records import FlowAnswer, FlowCall
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.flows import Flows
    from clia.sessions.replay import Replay
    from clia.sessions.transitions import Transition, Transitions
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.store.interface import Transaction


class PendingCall(NamedTuple):
    """One pending call of a live session."""

    live: LiveSession
    call: FlowCall

    @property
    def id(self) -> str:
        return f"{self.live.session}.{self.call.number}"


class Lifecycle(NamedTuple):
    core: Core
    envelope: Envelope
    flows: Flows
    replay: Replay
    transitions: Transitions
    seed: Callable[[], str]
    checkpoints: Checkpoints
    check_running: Callable[..., None]  # takes a flow's name: may it continue; with a version: may it start

    def now(self) -> str:
        return timestamp(self.core.clock())

    # Reading

    def session(self, agent: str, session: str | None = None) -> Session:
        self.core.require_known(agent)
        with self.core.store.reading() as view:
            chosen = self._last(view, agent) if session is None else check_text(session, "session")
            row = None if chosen is None else _any_row(view, agent, chosen)
            row = row and complete(view.values, agent, cast("str", chosen), row)
        if chosen is None or row is None:
            raise no_session(agent, session)
        return self.as_session(agent, chosen, row)

    def as_session(self, agent: str, session: str, row: SessionRow | Mapping[str, Any]) -> Session:
        """A session by its row, which is complete."""
        fields, calls = (row._asdict(), row.calls) if isinstance(row, SessionRow) else (row, lambda: row["pending"])

        def load() -> tuple[Any, list[Resumed]]:
            journal = self.recorded(agent, session)
            return journal.origin.input, journal.resumes[: fields["done"]]

        return Session(agent, session, fields, calls, load)

    def _last(self, view: Transaction, agent: str) -> str | None:
        """The live session, else the last one."""
        live = live_row(view.values, agent)
        if live is not None:
            return live[0]
        last = session_counts(view.values, agent).get("last", 0)
        return str(last) if last else None

    def sessions(self, agent: str | None = None, *, live: bool = False, questions: bool = False) -> list[Session]:
        """Every session, or those of an agent, live ones first; either those of flows, or the questions asked by ``ask``."""
        if agent is not None:
            self.core.require_known(agent)
        below = "" if agent is None else f"{agent}/"
        with self.core.store.reading() as view:
            rows = [row for prefix in ((LIVE,) if live else (LIVE, ENDED)) for row in view.values.scan(prefix + below)]
            sessions = [self.as_session(*records.split(key), row) for key, row in complete_rows(view.values, rows)]
        live_first = sorted(sessions, key=lambda session: (not session.live, session.agent, len(session.id), session.id))
        return [session for session in live_first if session.id.startswith(ASK) == questions]

    def pending(self, agent: str | None = None) -> list[Request]:
        """Every pending request, oldest first; without those of agents whose branch was deleted."""
        if agent is not None:
            self.core.require_known(agent)
        self.core.store.require_sound(look=True)  # an older copy of the store lists questions that have been answered
        below = "" if agent is None else f"{agent}/"
        with self.core.store.reading() as view:
            values = view.values
            requests = all_requests(values.each(LIVE + below), lambda *place: request_rows(values, *place))
        if agent is None and not self.core.refs.shared:  # otherwise an agent may be on another machine only
            gone = self.core.refs.missing(names.HEADS, {request.agent for request in requests})
            requests = [request for request in requests if request.agent not in gone] if gone else requests
        requests.sort(key=attrgetter("since"))  # stable: requests of equal age stay ordered by agent, session and number
        return requests

    def journal(self, agent: str, session: str | None = None) -> list[dict[str, Any]]:
        """The recorded events of a session, in order."""
        chosen = self.session(agent, session).id
        with self.core.store.reading() as view:
            return [entry.body for entry in view.streams.read(records.stream(agent, chosen))]

    def recorded(self, agent: str, session: str) -> records.Journal:
        """The origin of a session and its resumes."""
        with self.core.store.reading() as view:
            return records.read_journal(view, agent, session)

    # Starting

    def start(self, agent: str, flow: str, value: Any, timezone: str = "UTC", called: str | None = None) -> Session:
        """Run a flow; ``called`` overrides the flow's name in the session."""
        core = self.core
        names.check_name(agent)
        flow_input, redacted = self.crossed(self.as_json(value, "input"), "input")
        check_text(timezone, "timezone")
        cid, name = self.flows.resolve(check_text(flow, "flow"))
        only_asks = cid == self.flows.ask()
        with self.envelope.at_work(agent):
            head = core.own_head(agent)
            agreed_rows = self.checkpoints.agree(agent, head)
            session, counts = self._next(agent, only_asks=only_asks)
            origin = Origin(cid, called or name, flow_input, self.seed(), self.now(), timezone, self.replay.version)
            extra = {"on": head, "by": self.by(None), **records.redactions(redacted)}
            with self.replay.beginning(agent, session, origin) as result:
                step = self.transitions.opened(agent, session, origin, result.turn, extra, [(COUNTS + agent, counts), *agreed_rows])
                self.transitions.write(step, 0)
                result.row = step.live
        return self.as_session(agent, session, step.row)

    def _next(self, agent: str, *, only_asks: bool) -> tuple[str, dict[str, int]]:
        with self.core.store.reading() as view:
            live, counts = live_row(view.values, agent), session_counts(view.values, agent)
        if only_asks:
            counts["asks"] = 1 + (counts["asks"] if "asks" in counts else last_ask(self.core, agent))
            return f"{ASK}{counts['asks']}", counts
        if live is not None:
            message = f"agent {agent!r} already has a live session: {live[0]} ({live[1]['name']})"
            hints = [f"clia session show {agent}", f"clia session cancel {agent}", f"clia session fork {agent} NEW"]
            raise Conflict(message, code="session-live", hints=hints, fields={"agent": agent, "session": live[0]})
        counts["last"] = 1 + (counts["last"] if "last" in counts else last_number(self.core, agent))
        return str(counts["last"]), counts

    def check_agreement(self, agent: str, session: str) -> None:
        """Raise ``Conflict`` if the session is frozen, because store and git differ about it."""
        if not self.checkpoints.is_known(agent, self.core.own_head(agent)):
            with self.envelope.at_work(agent):  # another process may be working on it
                self.checkpoints.agree(agent, self.core.own_head(agent), session)

    def check_beginning(self, origin: Origin) -> None:
        """Raise an error unless another session of the same flow may start now."""
        self.check_running(origin.name, origin.flow)

    # Answering

    def resume(self, agent: str, answer: FlowAnswer, request_id: str | None, by: str | None) -> Session:
        """Resume with an answer that is not a person's decision."""
        names.check_name(agent)
        author = self.by(by)
        json_value = self.as_json(answer.value, "value")
        with self.envelope.at_work(agent):
            head = self.core.own_head(agent)
            pending = self.find(agent, request_id, for_people=False)
            agreed_rows = self.checkpoints.agree(agent, head, pending.live.session)
            value, redacted = self.crossed(json_value, "value", pending.call.payload)
            outcome = f"answered by {author}" if answer.error is None else f"given up: {answer.error}"
            text = f"session {pending.live.session} resumed: {pending.call.kind} ({pending.id}) {outcome}"
            resumed = Resumed(pending.call.number, request_hash(pending.call), value, answer.error, None, author, self.now())
            with self.answered(pending, resumed, text, {"request": pending.id}, redacted) as step:
                self.transitions.write(step.with_puts(agreed_rows), pending.live.row.end)
        return self.as_session(agent, pending.live.session, step.row)

    @contextmanager
    def answered(
        self, pending: PendingCall, resumed: Resumed, text: str, data: dict[str, Any], redacted: int
    ) -> Iterator[Transition]:
        """The transition after an answer; the block writes it. A replay that diverges ends the session."""
        with ExitStack() as stack:
            live = pending.live
            try:
                result = stack.enter_context(self.replay.going_on(live, resumed.call, resumed.answer()))
            except Nondeterminism as err:
                reason = {"reason": "diverged", "message": err.message, **err.fields}
                ended = self.transitions.stopped(live, DIVERGED, reason, f"session {live.session} diverged")
                self.transitions.write(ended, live.row.end)
                raise
            complete_row = live._replace(row=result.before or live.row)
            step = self.transitions.moved(complete_row, resumed, result.turn, result.snapshot, (text, data), redacted)
            yield step
            result.row = step.live

    def find(self, agent: str, request_id: str | None, *, for_people: bool) -> PendingCall:
        """The pending call that an answer is for."""
        wanted_id = None if request_id is None else check_text(request_id, "request")
        values = self.core.store
        rows: dict[str, dict[str, Any]] = {}
        if wanted_id is None:
            stored = [(records.split(key)[1], row) for key, row in values.scan(f"{LIVE}{agent}/")]
            rows = {session: _sound(agent, session, row) for session, row in stored}
            complete_rows = {session: complete(values, agent, session, row) for session, row in rows.items()}
            wanted_id = _only(agent, complete_rows, for_people=for_people)
        session, _, number = wanted_id.rpartition(".")
        row = rows.get(session) or self._live_row(agent, session)
        call = None if row is None else pending_call(values, agent, session, row, number)
        if row is None or call is None:
            raise self._gone(agent, session, number, wanted_id)
        self.check_running(row["name"])
        _check_route(agent, wanted_id, call, for_people=for_people)
        return PendingCall(LiveSession(agent, session, session_row(row)), call)

    def _live_row(self, agent: str, session: str) -> dict[str, Any] | None:
        live = self.core.store.get(records.key(LIVE, agent, session)) if session else None
        return None if live is None else _sound(agent, session, live.value)

    def _gone(self, agent: str, session: str, number: str, request_id: str) -> StaleRequest | NotFound:
        """The error for a request that is not pending: answered, of an ended session, or unknown."""
        fields: dict[str, Any] = {"agent": agent, "request": request_id}
        with self.core.store.reading() as view:
            row = _any_row(view, agent, session) if session else None
            resumes = records.read_journal(view, agent, session).resumes if row is not None else []
        for resumed in resumes:
            if str(resumed.call) == number:
                fields |= {"answered_by": resumed.by, "value": resumed.value, "decision": resumed.decision, "at": resumed.at}
                by = f" by {resumed.by}" if resumed.by else ""
                outcome = f"given up: {resumed.error}" if resumed.error is not None else brief(self.core.clean.value(resumed.value))
                return StaleRequest(f"request {request_id} of {agent!r} has already been answered{by}: {outcome}", fields=fields)
        if row is not None and row["status"] != SUSPENDED:
            fields |= {"status": row["status"]}
            return StaleRequest(f"session {session} of {agent!r} is {row['status']}: it has no pending requests", fields=fields)
        hints = ["clia inbox shows pending requests"]
        return NotFound(f"{agent!r} has no request {request_id!r}", code="no-such-request", hints=hints, fields=fields)

    # Ending

    def cancel(self, agent: str, reason: str, session: str | None) -> Session:
        names.check_name(agent)
        reason_text = self.core.clean.text(reason, "reason")
        with self.envelope.at_work(agent):
            head = self.core.own_head(agent)
            with self.core.store.reading() as view:
                chosen = self._last(view, agent) if session is None else check_text(session, "session")
                row = None if chosen is None else view.values.get(records.key(LIVE, agent, chosen))
            if chosen is None or row is None:
                raise self._not_live(agent, chosen)
            agreed_rows = self.checkpoints.agree(agent, head, chosen)
            live = LiveSession(agent, chosen, session_row(_sound(agent, chosen, row.value)))
            failure = {"reason": CANCELLED, "message": reason_text, "by": self.by(None)}
            step = self.transitions.stopped(live, CANCELLED, failure, f"session {live.session} cancelled by {failure['by']}")
            self.transitions.write(step.with_puts(agreed_rows), live.row.end)
        return self.as_session(agent, live.session, step.row)

    def _not_live(self, agent: str, session: str | None) -> NotFound | Conflict:
        if session is None:
            return no_session(agent, None)
        status = self.session(agent, session).status  # raises if there is none
        fields = {"agent": agent, "session": session, "status": status}
        return Conflict(f"session {session} of {agent!r} is already {status}", code="session-over", fields=fields)

    # Values

    def crossed(self, value: Any, field: str, request: Any = None) -> tuple[Any, int]:
        """JSON as the flow gets it, and the number of secrets removed from it: none if the request says ``"secret": "keep"``."""
        clean, count = (value, 0) if kept_secret(request) else self.core.clean.counted(value)
        return self.as_json(clean, field) if count else value, count

    def as_json(self, value: Any, field: str) -> Any:
        """JSON with keys in canonical order."""
        try:
            return inward(value, field)
        except CannotCross as err:
            kind = InvalidAnswer if field == "value" else InvalidInput
            raise kind(str(err), code=None if field == "value" else "invalid-json", fields={"field": field}) from None

    def by(self, author: str | None) -> str:
        """Who answers, on one line: as given, else the accountable person."""
        if author is None:
            return f"{self.core.person.name} <{self.core.person.email}>"
        text = check_text(author, "by").strip()
        if not text or "\n" in text or "\r" in text:
            raise InvalidInput("the name of the person who decides must be one line", code="invalid-by", fields={"field": "by"})
        return self.core.clean.text(text, "by")


def _only(agent: str, rows: Mapping[str, Any], *, for_people: bool) -> str:
    """The id of the only pending request that an answer without a request id can be for."""
    requests = [request for session, row in rows.items() for request in requests_of(agent, session, row["name"], row["pending"])]
    if for_people:
        human = [request for request in requests if is_human(request.kind)]
        candidates = human or [request for request in requests if is_for_people(request)]
    else:
        candidates = [request for request in requests if not request.session.startswith(ASK)]
    if len(candidates) == 1:
        return candidates[0].id
    if candidates:
        raise Ambiguous(
            f"{agent!r} has {len(candidates)} pending requests; choose which one to answer",
            code="several-requests",
            hints=[f"{request.id}: {request.kind} {brief(request.payload)}" for request in candidates],
            fields={"agent": agent, "matches": [request.id for request in candidates]},
        )
    hints = [_resume_hint(agent, request.id) for request in requests] if for_people else []
    message = f"{agent!r} has no request that waits for {'a decision' if hints else 'an answer'}"
    raise NotFound(message, code="nothing-pending", hints=hints or ["clia inbox shows pending requests"], fields={"agent": agent})


def _check_route(agent: str, request_id: str, call: FlowCall, *, for_people: bool) -> None:
    """Raise ``NotAllowed`` unless a request may be answered this way: questions to people by a decision only."""
    fields = {"agent": agent, "request": request_id, "kind": call.kind}
    if for_people and not is_for_people(call):
        message = f"request {request_id} ({call.kind}) is not for people; a decision cannot answer it"
        raise NotAllowed(message, code="not-a-human-request", hints=[_resume_hint(agent, request_id)], fields=fields)
    if not for_people and is_human(call.kind):
        message = f"{request_id} is a question to people: only a decision answers it"
        hints = [f"clia decide {agent} VALUE --request {request_id} -m WHY"]
        raise NotAllowed(message, code="human-request", hints=hints, fields=fields)


def _resume_hint(agent: str, request_id: str) -> str:
    return f"clia session resume {agent} VALUE --request {request_id}"


def no_session(agent: str, session: str | None) -> NotFound:
    which = "no session" if session is None else f"no session {session!r}"
    message = f"agent {agent!r} has {which}"
    hints = [f"start one: clia session start {agent} FLOW"]
    return NotFound(message, code="no-such-session", hints=hints, fields={"agent": agent, "session": session})


def _sound(agent: str, session: str, row: Any) -> dict[str, Any]:
    if not is_sound(row):
        raise damaged_row(agent, session)
    return cast("dict[str, Any]", row)


def _any_row(view: Transaction, agent: str, session: str) -> dict[str, Any] | None:
    for prefix in (LIVE, ENDED):
        stored = view.values.get(records.key(prefix, agent, session))
        if stored is not None:
            return _sound(agent, session, stored.value)
    return None


def brief(value: Any) -> str:
    """A value, shortened for messages."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
