"""The records that session verbs return."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from clia.values.records import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clia.engine.records import FlowCall
    from clia.sessions.records import Resumed

RUNNING, SUSPENDED, FINISHED, FAILED = "running", "suspended", "finished", "failed"
DIVERGED, CANCELLED = "diverged", "cancelled"
STATUSES = (RUNNING, SUSPENDED, FINISHED, FAILED, DIVERGED, CANCELLED)
"""``running``: the flow is executing right now; it is never stored."""

HUMAN, SUSPEND = "human", "suspend"


KEEP = "keep"


def kept_secret(request: Any) -> str | None:
    """``keep`` if a request's payload, or a session's input, says ``"secret": "keep"``: the answer is stored as it is."""
    return KEEP if isinstance(request, dict) and request.get("secret") == KEEP else None


def is_human(kind: str) -> bool:
    """Whether requests of this kind are questions to people, which only a decision answers."""
    return kind == HUMAN or kind.startswith(f"{HUMAN}-")


class Request(NamedTuple):
    """A pending request of a suspended session. Its id consists of the session and the call number."""

    agent: str  # the agent
    id: str  # SESSION.CALL, such as 2.1
    kind: str  # human, llm, command, timer, …
    tag: str | None  # the label that the flow gave it
    payload: Any  # what is asked, as the flow wrote it
    since: str  # RFC 3339
    line: int  # in the flow's source
    session: str  # session id
    flow: str  # name of the flow


class Decision(NamedTuple):
    """A person's answer: the commit that records it, and the session after it."""

    cid: str  # the commit that records it
    agent: str  # the agent that asked
    request: str  # request id
    value: Any  # the answer
    by: str  # who decided
    session: Session  # after the decision
    redacted: int = 0  # number of secrets removed from the answer


class Flow(NamedTuple):
    """A flow's current version, or one version of it."""

    name: str  # name of the flow
    cid: str  # id of the current version, or of the one that was asked for
    source: str  # its source
    versions: tuple[str, ...]  # ids of all versions, oldest first
    by: str  # who added it; empty if one version was asked for
    at: int  # seconds since the epoch
    why: str  # reason that was given


class SessionState(NamedTuple):
    """A session as JSON, without its input and its answers."""

    agent: str  # the agent
    id: str  # session id: 1, 2, …; of questions outside a flow ask-1, ask-2, …
    status: str  # `suspended`, `finished`, `failed`, `diverged` or `cancelled`
    flow: str  # name of the flow
    flow_cid: str  # id of the flow's version
    started_at: str  # RFC 3339; a fork has the time of the run that it copies
    ended_at: str | None  # RFC 3339
    pending: tuple[Request, ...]  # requests that it waits for
    result: Any  # what the flow returned
    failure: Mapping[str, Any] | None
    """Why it ended otherwise: `reason` and `message`; `line` and `trace` if the flow raised; `by` if it was cancelled"""
    forked: Mapping[str, Any] | None  # of a fork: `agent`, `session` and `commit` that it was copied from, and when (`at`)
    redacted: int = 0  # number of secrets removed from its input, answers and result


class Session:
    """One run of a flow by one agent, as of the time it was read."""

    def __init__(
        self,
        agent: str,
        session_id: str,
        row: Mapping[str, Any],
        calls: Callable[[], Iterable[Any]],
        load: Callable[[], tuple[Any, list[Resumed]]],
    ) -> None:
        self.agent = agent
        self.id = session_id
        self.status: str = row["status"]
        self.flow: str = row["name"]
        self.flow_cid: str = row["flow"]
        self.started_at: str = row["started_at"]
        self.ended_at: str | None = row.get("ended_at")
        self.forked: Mapping[str, Any] | None = row.get("forked")
        self.result: Any = row.get("result")
        self.failure: Mapping[str, Any] | None = row.get("failure")
        self.resumed: int = row["done"]
        self.redacted: int = row.get("redacted", 0)
        self._calls = calls
        self._pending: tuple[Request, ...] | None = None
        self._load = load
        self._loaded: tuple[Any, list[Resumed]] | None = None

    def _journal(self) -> tuple[Any, list[Resumed]]:
        """The input and the resumes, read on first use."""
        if self._loaded is None:  # not a cached_property: in Python 3.11 its lock is shared by all sessions
            self._loaded = self._load()
        return self._loaded

    @property
    def pending(self) -> tuple[Request, ...]:
        """The requests that it waits for; created on first use, because there may be thousands."""
        if self._pending is None:
            self._pending = requests_of(self.agent, self.id, self.flow, self._calls())
        return self._pending

    @property
    def live(self) -> bool:
        return self.status in (RUNNING, SUSPENDED)

    def given(self) -> list[Resumed]:
        """The resumes of the flow, in order."""
        return self._journal()[1]

    @property
    def input(self) -> Any:
        return self._journal()[0]

    @property
    def resumes(self) -> list[Any]:
        """The values that the flow was resumed with, in order; ``{"error": …}`` for a request that was given up."""
        return [answer.value if answer.error is None else {"error": answer.error} for answer in self._journal()[1]]

    @property
    def decisions(self) -> list[tuple[int, str]]:
        """The resumes that were decisions: index and commit."""
        return [(index, answer.decision) for index, answer in enumerate(self._journal()[1]) if answer.decision is not None]

    def to_json(self) -> Annotated[dict[str, Any], SessionState]:
        return {name: as_json(getattr(self, name)) for name in SessionState._fields}

    def __repr__(self) -> str:
        return f"Session(agent={self.agent!r}, id={self.id!r}, flow={self.flow!r}, status={self.status!r})"


def requests_of(agent: str, session_id: str, flow: str, calls: Iterable[Any]) -> tuple[Request, ...]:
    """The pending requests of a session, from the calls in its row."""
    return tuple(
        [
            Request(agent, f"{session_id}.{call}", kind, tag, payload, since, line, session_id, flow)
            for call, kind, tag, payload, line, since in calls
        ]
    )


def all_requests(rows: Iterable[tuple[str, Any]], own_rows: Callable[[str, str], list[Any]]) -> list[Request]:
    """The pending requests of all rows.

    ``own_rows`` reads the requests of a session whose requests have rows of their own. A damaged row hides no other; ``doctor``
    reports it. There may be ten thousand rows, so each is read once.
    """
    requests: list[Request] = []
    for key, row in rows:
        try:
            _, agent, session_id = key.split("/")
            name = row["name"]
            sound = type(row["done"]) is type(row["end"]) is type(row.get("kept", 0)) is int
            calls = row["pending"] if "pending" in row else own_rows(agent, session_id)
            for call, kind, tag, payload, line, since in calls if sound else ():
                if type(since) is type(kind) is type(name) is str and type(call) is int and (tag is None or type(tag) is str):
                    fields = agent, f"{session_id}.{call}", kind, tag, payload, since, line, session_id, name
                    requests.append(tuple.__new__(Request, fields))  # twice as fast as the constructor
        except (TypeError, KeyError, ValueError):
            continue
    return requests


_QUESTIONS = ("question", "prompt", "title")
INTERNAL = "clia"
"""The field of a payload that is for clia itself; people do not see it."""


def is_for_people(request: Request | FlowCall) -> bool:
    """Whether a person answers this request: a question to people, or a flow that suspended itself."""
    return is_human(request.kind) or request.kind == SUSPEND


def question_of(request: Request) -> str:
    """The question of a request, as one text."""
    return question_in(request.payload) or request.tag or request.kind


def question_in(payload: Any) -> str:
    """The question in a payload, or ""."""
    if isinstance(payload, str) and payload.strip():
        return payload
    key = _question_key(payload)
    return str(payload[key]) if key is not None else ""


def context_of(request: Request) -> list[tuple[str, Any]]:
    """What a request contains besides its question and choices."""
    payload = request.payload
    context = [("tag", request.tag)] if request.tag and question_of(request) != request.tag else []
    if isinstance(payload, dict):
        shown_keys = {_question_key(payload), "choices", "schema", INTERNAL}
        return context + [(key, value) for key, value in payload.items() if key not in shown_keys]
    if payload is None or question_of(request) == payload:
        return context
    return [*context, ("payload", payload)]


def _question_key(payload: Any) -> str | None:
    if not isinstance(payload, dict):
        return None
    return next((key for key in _QUESTIONS if isinstance(payload.get(key), str) and payload[key].strip()), None)
