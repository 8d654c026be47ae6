"""The shapes of what a space takes and answers with, one for each record of the library."""

from __future__ import annotations

from clia.api.shapes import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    STRING,
    TEXT,
    WHOLE,
    Bytes,
    Either,
    Listed,
    Mapped,
    Optional,
    Record,
    refusal,
)
from clia.engine.records import Problem
from clia.errors import InvalidInput
from clia.federation.model import (
    Announced,
    Explained,
    Grant,
    Key,
    Missing,
    Move,
    Peer,
    Refused,
    Remote,
    RemoteBehaviour,
    Share,
    Synced,
    Untaken,
)
from clia.git.records import FileChange, Pushed, Stamp
from clia.sessions.answers import Rule
from clia.sessions.health import Ailment
from clia.sessions.model import Decision, Flow, Request, Session
from clia.sessions.records import Resumed
from clia.space.adoption import Adopted
from clia.space.checks import Finding, Report
from clia.space.landing import Relinked
from clia.space.maintenance import AgentState, Maintained
from clia.space.model import (
    AgentCommit,
    BlamedLine,
    BoundTrace,
    ConflictPath,
    Conflicts,
    File,
    Landed,
    Link,
    Merged,
    Spawned,
    Submodule,
    TraceChange,
    TraceHit,
    UpToDate,
)
from clia.space.purging import Purged
from clia.store.interface import Edge, Task, Waiting
from clia.values.typed_objects import Briefing, ConsoleTrace, as_object, as_typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from clia.api.shapes import Shape

MAYBE_TEXT = Optional(TEXT)
MAYBE_STRING = Optional(STRING)
STRINGS = Listed(STRING)
_TUPLE = Listed(STRING, tuple)


class _Content:
    """What stands at a path: bytes, a file that may be executable, a link, or another repository's commit."""

    _bytes = Bytes()

    def encode(self, value: Any) -> Any:
        if isinstance(value, File):
            return {**self._bytes.encode(value.data), "executable": value.executable}
        if isinstance(value, Link):
            return {"link": value.target}
        if isinstance(value, Submodule):
            return {"submodule": value.commit}
        if not isinstance(value, bytes):
            raise refusal("content", "bytes, clia.File, clia.Link or clia.Submodule", value)
        return self._bytes.encode(value)

    def decode(self, given: Any, where: str) -> Any:
        if type(given) is not dict:
            return self._bytes.decode(given, where)
        if list(given) == ["link"]:
            return Link(TEXT.decode(given["link"], f"{where}.link"))
        if list(given) == ["submodule"]:
            return Submodule(TEXT.decode(given["submodule"], f"{where}.submodule"))
        if "executable" not in given:
            return self._bytes.decode(given, where)
        data = {key: each for key, each in given.items() if key != "executable"}
        return File(self._bytes.decode(data, where), FLAG.decode(given["executable"], f"{where}.executable"))

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/components/schemas/Content"}

    def parts(self) -> Iterable[Shape]:
        return ()


CONTENT_SCHEMA: dict[str, Any] = {
    "description": "What stands at a path: a text, or an object with text or base64 (and executable), link or submodule.",
    "anyOf": [
        {"type": "string"},
        *(
            {
                "type": "object",
                "properties": {
                    key: {"type": "string"},
                    **({"executable": {"type": "boolean"}} if key in ("text", "base64") else {}),
                },
                "required": [key],
                "additionalProperties": False,
            }
            for key in ("text", "base64", "link", "submodule")
        ),
    ],
}
CONTENT = _Content()
FILES = Mapped(CONTENT)
CHANGES = Mapped(Optional(CONTENT))

STAMP = Record(Stamp, name=STRING, email=STRING, at=WHOLE)
BRIEFING = Record(Briefing, title=TEXT, text=TEXT, behaviour=MAYBE_TEXT, meta=Optional(OBJECT))
SPAWNED = Record(Spawned, agent=STRING, branch=STRING, briefing=STRING, genesis=STRING, profile=MAYBE_STRING)
COMMIT = Record(
    AgentCommit,
    cid=STRING,
    parents=_TUPLE,
    tree=STRING,
    agent=MAYBE_STRING,
    kind=MAYBE_STRING,
    message=STRING,
    author=STAMP,
    committer=STAMP,
    briefing=MAYBE_STRING,
    profile=MAYBE_STRING,
    behaviour=MAYBE_STRING,
    parent=MAYBE_STRING,
    merged=MAYBE_STRING,
    landed=MAYBE_STRING,
    range=MAYBE_STRING,
    decisions=_TUPLE,
    request=MAYBE_STRING,
    tag=MAYBE_STRING,
    value=MAYBE_STRING,
    by=MAYBE_STRING,
    forked=MAYBE_STRING,
    meta=OBJECT,
)
STATE = Record(
    AgentState, agent=STRING, head=STRING, kind=MAYBE_STRING, subject=STRING, at=WHOLE, pending=COUNT, landed=MAYBE_STRING
)
EDGE = Record(Edge, src=STRING, kind=STRING, dst=STRING, origin=STRING, source=STRING)
CHANGE = Record(FileChange, status=STRING, path=STRING, old_path=MAYBE_STRING, added=Optional(COUNT), removed=Optional(COUNT))
BLAMED = Record(
    BlamedLine,
    number=COUNT,
    text=STRING,
    commit=STRING,
    agent=MAYBE_STRING,
    kind=MAYBE_STRING,
    briefing=MAYBE_STRING,
    behaviour=MAYBE_STRING,
    trace=MAYBE_STRING,
)
_SIDE = Optional(CONTENT)
_MERGED = Record(Merged, cid=STRING)
_UP_TO_DATE = Record(UpToDate, head=STRING)
CONFLICTS = Record(
    Conflicts,
    into=STRING,
    from_=STRING,
    ours=STRING,
    theirs=STRING,
    paths=Listed(Record(ConflictPath, path=STRING, base=_SIDE, ours=_SIDE, theirs=_SIDE), tuple),
)
MERGED = _MERGED
MERGING = Either(merged=_MERGED, up_to_date=_UP_TO_DATE, conflicts=CONFLICTS)
LANDING = Either(landed=Record(Landed, cid=STRING, how=STRING, warnings=_TUPLE), up_to_date=_UP_TO_DATE, conflicts=CONFLICTS)
TRACE = Record(ConsoleTrace, commit=STRING, agent=STRING, entries=Listed(OBJECT, tuple))
BOUND_TRACE = Record(BoundTrace, cid=STRING, trace=TRACE)
TRACE_CHANGE = Record(TraceChange, notes_commit=STRING, trace=MAYBE_STRING, by=STAMP, message=STRING)
TRACE_HIT = Record(TraceHit, agent=STRING, commit=MAYBE_STRING, position=COUNT, entry=OBJECT)
PURGED = Record(Purged, agent=STRING, traces=COUNT, pending=COUNT, remaining=_TUPLE)
REPORT = Record(
    Report,
    findings=Listed(Record(Finding, code=STRING, message=STRING, ref=MAYBE_STRING, cid=MAYBE_STRING), tuple),
    agents=COUNT,
    commits=COUNT,
    traces=COUNT,
    edges=COUNT,
    unseen=_TUPLE,
)
RELINKED = Record(Relinked, commit=STRING, sources=_TUPLE, by=STRING, agent=STRING)
MAINTAINED = Record(Maintained, archived=_TUPLE, before=COUNT, after=COUNT)
PUSHED = Record(Pushed, ref=STRING, state=STRING, reason=STRING)
ADOPTED = Record(Adopted, ref=STRING, what=STRING, cid=STRING)
FLOW = Record(Flow, name=STRING, cid=STRING, source=STRING, versions=_TUPLE, by=STRING, at=WHOLE, why=STRING)
PROBLEM = Record(Problem, code=STRING, message=STRING, line=WHOLE, column=WHOLE, severity=STRING)
REQUEST = Record(
    Request,
    agent=STRING,
    id=STRING,
    kind=STRING,
    tag=MAYBE_STRING,
    payload=ANY,
    since=STRING,
    line=WHOLE,
    session=STRING,
    flow=STRING,
)
RULE = Record(Rule, schema=ANY, choices=Listed(ANY, tuple), whose=STRING, operators=FLAG)
WAITING = Record(
    Waiting,
    task=Record(Task, agent=STRING, request=STRING, kind=STRING, not_before=NUMBER),
    attempts=COUNT,
    worker=MAYBE_STRING,
    until=Optional(NUMBER),
    next_at=Optional(NUMBER),
    error=MAYBE_STRING,
)
AILMENT = Record(Ailment, code=STRING, message=STRING, agent=STRING, session=STRING, repaired=FLAG)
KEY = Record(Key, text=STRING, space=STRING, key=STRING, mine=FLAG, chain=_TUPLE, fingerprint=STRING, url=MAYBE_STRING)
PEER = Record(
    Peer,
    name=STRING,
    space=STRING,
    keys=_TUPLE,
    fingerprint=STRING,
    url=MAYBE_STRING,
    trusted=FLAG,
    share=Record(Share, agents=_TUPLE, traces=FLAG, sessions=FLAG, behaviours=_TUPLE),
    seq=COUNT,
    heard=Optional(WHOLE),
    level=COUNT,
    forked=FLAG,
    waiting=COUNT,
    agents=COUNT,
)
GRANT = Record(
    Grant,
    cid=STRING,
    peer=STRING,
    space=STRING,
    type=STRING,
    trigger=STRING,
    execute=FLAG,
    expires=Optional(WHOLE),
    by=STRING,
    at=WHOLE,
)
EXPLAINED = Record(
    Explained,
    peer=STRING,
    type=STRING,
    trigger=STRING,
    execute=FLAG,
    allowed=FLAG,
    trusted=FLAG,
    grants=Listed(GRANT, tuple),
    path=_TUPLE,
    missing=Listed(Record(Missing, what=STRING, message=STRING, hint=STRING), tuple),
)
ANNOUNCED = Record(
    Announced,
    peer=STRING,
    seq=COUNT,
    statements=COUNT,
    snapshot=FLAG,
    moves=Listed(OBJECT, tuple),
    rung=Optional(FLAG),
)
MOVE = Record(Move, place=STRING, old=MAYBE_STRING, new=MAYBE_STRING, type=STRING, trigger=STRING)
UNTAKEN = Record(
    Untaken,
    place=STRING,
    old=MAYBE_STRING,
    new=MAYBE_STRING,
    type=STRING,
    trigger=STRING,
    code=STRING,
    why=STRING,
    hint=STRING,
)
REFUSED = Record(Refused, code=STRING, message=STRING, ref=MAYBE_STRING, seq=Optional(WHOLE), at=WHOLE)
SYNCED = Record(
    Synced,
    peer=STRING,
    accepted=COUNT,
    seq=COUNT,
    moves=Listed(MOVE, tuple),
    refused=Listed(REFUSED, tuple),
    keys=WHOLE,
    error=Optional(OBJECT),
    waiting=COUNT,
    silent=FLAG,
)
REMOTE = Record(
    Remote,
    peer=STRING,
    agent=STRING,
    head=STRING,
    kind=MAYBE_STRING,
    subject=STRING,
    at=WHOLE,
    record=FLAG,
    traces=COUNT,
)
REMOTE_BEHAVIOUR = Record(RemoteBehaviour, peer=STRING, name=STRING, cid=STRING, runs=FLAG)


class _Thing:
    """An object with a ``type``, as it is to be written: every field counts, since all of them make its id."""

    def encode(self, value: Any) -> Any:
        return as_object(value)

    def decode(self, given: Any, where: str) -> Any:
        return as_object(OBJECT.decode(given, where))

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}

    def parts(self) -> Iterable[Shape]:
        return ()


class _Typed(_Thing):
    """A typed object that was read, in the class of its type where that has one."""

    def decode(self, given: Any, where: str) -> Any:
        return as_typed(super().decode(given, where))


class _Entries:
    """The entries of a trace, which may come as the trace that has them."""

    def encode(self, value: Any) -> Any:
        if isinstance(value, (str, bytes, dict)):
            raise refusal("entries", "a list", value)
        return [dict(each) for each in (value.entries if isinstance(value, ConsoleTrace) else value)]

    def decode(self, given: Any, where: str) -> Any:
        return _OBJECTS.decode(given, where)

    def schema(self) -> dict[str, Any]:
        return _OBJECTS.schema()

    def parts(self) -> Iterable[Shape]:
        return ()


_OBJECTS = Listed(OBJECT)
ENTRIES, THING = _Entries(), _Thing()
TYPED = _Typed()
_DONE = "resumed"
_SESSION_FIELDS: dict[str, Any] = {
    "agent": {"type": "string"},
    "id": {"type": "string"},
    "status": {"type": "string"},
    "flow": {"type": "string"},
    "flow_cid": {"type": "string"},
    "started_at": {"type": "string"},
    "ended_at": {"type": ["string", "null"]},
    "pending": {"type": "array", "items": REQUEST.schema()},
    "result": {},
    "failure": {"type": ["object", "null"]},
    "forked": {"type": ["object", "null"]},
    _DONE: {"type": "integer", "minimum": 0, "description": "how often it was resumed"},
}
SESSION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "One run of a flow by one agent, as it was when it was asked for.",
    "properties": _SESSION_FIELDS,
    "required": list(_SESSION_FIELDS),
}
RESUMED = Record(
    Resumed, call=WHOLE, asked=STRING, value=ANY, error=MAYBE_STRING, decision=MAYBE_STRING, by=MAYBE_STRING, at=MAYBE_STRING
)
_RESUMES = Listed(RESUMED)
RECORD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "What a session was given: its input, and its resumes in order.",
    "properties": {"input": {}, "resumes": _RESUMES.schema()},
    "required": ["input", "resumes"],
}


class SessionShape:
    """A session without what it was given; whoever reads one says how that is got when it is asked for."""

    def encode(self, value: Session) -> dict[str, Any]:
        return {**value.to_json(), _DONE: value.resumed}

    def decode(self, given: Any, where: str) -> Session:
        return self.read(given, where, _nothing)

    def read(self, given: Any, where: str, load: Callable[[], tuple[Any, list[Resumed]]]) -> Session:
        made = OBJECT.decode(given, where)
        try:
            row = dict(made) | {"name": made["flow"], "flow": made["flow_cid"], "done": made[_DONE]}
            row["pending"] = [_call(REQUEST.decode(each, f"{where}.pending")) for each in made["pending"]]
            return Session(made["agent"], made["id"], row, load)
        except (KeyError, TypeError, ValueError):
            raise refusal(where, "a session", given) from None

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/components/schemas/Session"}

    def parts(self) -> Iterable[Shape]:
        return (REQUEST,)


def _call(request: Request) -> list[Any]:
    number = int(request.id.rpartition(".")[2])
    return [number, request.kind, request.tag, request.payload, request.line, request.since]


def _nothing() -> tuple[Any, list[Resumed]]:
    raise InvalidInput("what the session was given is not here", code="not-loaded")


SESSION = SessionShape()


class _Given:
    """What a session was given: encoded from the session, decoded as its ``load`` answers."""

    def encode(self, value: Session) -> dict[str, Any]:
        return {"input": value.input, "resumes": _RESUMES.encode(value.given())}

    def decode(self, given: Any, where: str) -> tuple[Any, list[Resumed]]:
        made = OBJECT.decode(given, where)
        if "input" not in made:
            raise refusal(where, "an object with an input and resumes", given)
        return made["input"], _RESUMES.decode(made.get("resumes"), f"{where}.resumes")

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/components/schemas/SessionRecord"}

    def parts(self) -> Iterable[Shape]:
        return (RESUMED,)


GIVEN = _Given()


class _Decided:
    """A decision; its session crosses as sessions do."""

    def encode(self, value: Decision) -> Any:
        return {**value._asdict(), "session": SESSION.encode(value.session)}

    def decode(self, given: Any, where: str) -> Decision:
        made = OBJECT.decode(given, where)
        try:
            session = SESSION.decode(made["session"], f"{where}.session")
            return Decision(made["cid"], made["agent"], made["request"], made["value"], made["by"], session)
        except KeyError:
            raise refusal(where, "a decision", given) from None

    def schema(self) -> dict[str, Any]:
        texts = {name: {"type": "string"} for name in ("cid", "agent", "request", "by")}
        properties: dict[str, Any] = {**texts, "value": {}, "session": SESSION.schema()}
        return {"type": "object", "properties": properties, "required": list(properties)}

    def parts(self) -> Iterable[Shape]:
        return (SESSION,)


DECIDED = _Decided()
EXTRA_SCHEMAS = {"Content": CONTENT_SCHEMA, "Session": SESSION_SCHEMA, "SessionRecord": RECORD_SCHEMA}
