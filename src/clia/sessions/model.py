"""What sessions answer with: plain records, in the words that users know."""

from __future__ import annotations

from typing import NamedTuple

from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from clia.engine.records import FlowCall
    from clia.sessions.records import Resumed

RUNNING, SUSPENDED, FINISHED, FAILED = "running", "suspended", "finished", "failed"
DIVERGED, CANCELLED = "diverged", "cancelled"
STATUSES = (RUNNING, SUSPENDED, FINISHED, FAILED, DIVERGED, CANCELLED)
"""``running`` is a session whose flow computes at this moment; it is never what a store holds."""

HUMAN, SUSPEND = "human", "suspend"


def is_human(kind: str) -> bool:
    """Whether a kind of request is a question to people: only a decision answers it."""
    return kind == HUMAN or kind.startswith(f"{HUMAN}-")


class Request(NamedTuple):
    """What a suspended session asks for. ``id`` names the session and the call: an answer names what it answers."""

    agent: str
    id: str
    kind: str
    tag: str | None
    payload: Any
    since: str
    line: int  # in the flow's source
    session: str
    flow: str


class Decision(NamedTuple):
    """A person's answer: the commit that records it, and the session it led to."""

    cid: str
    agent: str
    request: str
    value: Any
    by: str
    session: Session


class Flow(NamedTuple):
    """A flow as it is defined now, or one version of it."""

    name: str
    cid: str
    source: str
    versions: tuple[str, ...]  # oldest first
    by: str
    at: int  # seconds since the epoch
    why: str


_SHOWN = ("agent", "id", "status", "flow", "flow_cid", "started_at", "ended_at", "pending", "result", "failure", "forked")


class Session:
    """One run of a flow by one agent, as it was when it was asked for."""

    def __init__(self, agent: str, session_id: str, row: Mapping[str, Any], load: Callable[[], tuple[Any, list[Resumed]]]) -> None:
        self.agent = agent
        self.id = session_id
        self.status: str = row["status"]
        self.flow: str = row["name"]
        self.flow_cid: str = row["flow"]
        self.started_at: str = row["started_at"]
        self.ended_at: str | None = row.get("ended_at")
        self.forked: Mapping[str, Any] | None = row.get("forked")
        self.pending = requests_of(agent, session_id, row)
        self.result: Any = row.get("result")
        self.failure: Mapping[str, Any] | None = row.get("failure")
        self.resumed: int = row["done"]
        self._load = load

    @property
    def live(self) -> bool:
        return self.status in (RUNNING, SUSPENDED)

    def given(self) -> list[Resumed]:
        """What the flow was resumed with, in order."""
        return self._load()[1]

    @property
    def input(self) -> Any:
        return self._load()[0]

    @property
    def resumes(self) -> list[Any]:
        """The values that the flow was resumed with, in order; ``{"error": …}`` where a request was given up."""
        return [each.value if each.error is None else {"error": each.error} for each in self._load()[1]]

    @property
    def decisions(self) -> list[tuple[int, str]]:
        """Which of the resumes were decisions: their index, and the decision's commit."""
        return [(index, each.decision) for index, each in enumerate(self._load()[1]) if each.decision is not None]

    def to_json(self) -> dict[str, Any]:
        return {name: as_json(getattr(self, name)) for name in _SHOWN}

    def __repr__(self) -> str:
        return f"Session(agent={self.agent!r}, id={self.id!r}, flow={self.flow!r}, status={self.status!r})"


def requests_of(agent: str, session_id: str, row: Mapping[str, Any]) -> tuple[Request, ...]:
    """The pending requests in a session's row."""
    name = row["name"]
    return tuple(
        [
            Request(agent, f"{session_id}.{call}", kind, tag, payload, since, line, session_id, name)
            for call, kind, tag, payload, line, since in row.get("pending", ())
        ]
    )


def all_requests(rows: Iterable[tuple[str, Any]], cut: int) -> list[Request]:
    """The pending requests of every row, by keys that begin with so many characters more than agent and session.

    A row that is damaged hides no other; ``doctor`` tells of it. There may be ten thousand: one look at each.
    """
    found: list[Request] = []
    for key, row in rows:
        agent, _, session_id = key[cut:].partition("/")
        try:
            name = row["name"]
            sound = type(row["done"]) is type(row["end"]) is type(row.get("kept", 0)) is int
            for call, kind, tag, payload, line, since in row["pending"] if sound else ():
                if type(since) is type(kind) is type(name) is str and type(call) is int and (tag is None or type(tag) is str):
                    made = agent, f"{session_id}.{call}", kind, tag, payload, since, line, session_id, name
                    found.append(tuple.__new__(Request, made))  # at half the cost of its own constructor
        except (TypeError, KeyError, ValueError):
            continue
    return found


# What a person must know of a request: what is asked, and what is said beside it.

_QUESTIONS = ("question", "prompt", "title")


def is_for_people(request: Request | FlowCall) -> bool:
    """Whether a person answers this request: a question to people, or a flow that suspended itself."""
    return is_human(request.kind) or request.kind == SUSPEND


def question_of(request: Request) -> str:
    """What is asked, in one text."""
    return question_in(request.payload) or request.tag or request.kind


def question_in(payload: Any) -> str:
    """The question that a payload puts in words; "" where it puts none."""
    if isinstance(payload, str) and payload.strip():
        return payload
    key = _question_key(payload)
    return str(payload[key]) if key is not None else ""


def context_of(request: Request) -> list[tuple[str, Any]]:
    """What a request says beside its question and its choices."""
    payload = request.payload
    found = [("tag", request.tag)] if request.tag and question_of(request) != request.tag else []
    if isinstance(payload, dict):
        told = {_question_key(payload), "choices", "schema"}
        return found + [(key, value) for key, value in payload.items() if key not in told]
    if payload is None or question_of(request) == payload:
        return found
    return [*found, ("payload", payload)]


def _question_key(payload: Any) -> str | None:
    if not isinstance(payload, dict):
        return None
    return next((key for key in _QUESTIONS if isinstance(payload.get(key), str) and payload[key].strip()), None)
