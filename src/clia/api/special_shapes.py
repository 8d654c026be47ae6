"""JSON shapes of values that are not plain records: file contents, typed objects, trace entries and sessions."""

from __future__ import annotations

from clia.api.derivation import record_of
from clia.api.shapes import FLAG, OBJECT, TEXT, Bytes, Listed, refusal
from clia.errors import InvalidInput
from clia.sessions.model import Request, Session
from clia.space.model import File, Link, Submodule
from clia.values.typed_objects import ConsoleTrace, as_object, as_typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from clia.api.shapes import Shape
    from clia.sessions.records import Resumed


class ContentShape:
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
CONTENT = ContentShape()


class TypedInput:
    """An object with a ``type``, as it is to be written: every field counts, since all of them make its id."""

    def encode(self, value: Any) -> Any:
        return as_object(value)

    def decode(self, given: Any, where: str) -> Any:
        return as_object(OBJECT.decode(given, where))

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}

    def parts(self) -> Iterable[Shape]:
        return ()


class TypedOutput(TypedInput):
    """A typed object that was read, in the class of its type where that has one."""

    def decode(self, given: Any, where: str) -> Any:
        return as_typed(super().decode(given, where))


class EntriesShape:
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
ENTRIES, THING = EntriesShape(), TypedInput()
TYPED = TypedOutput()
REQUEST = record_of(Request)
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


EXTRA_SCHEMAS = {"Content": CONTENT_SCHEMA, "Session": SESSION_SCHEMA}
