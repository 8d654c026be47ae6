"""JSON shapes of values that are not plain records: file contents, typed objects, trace entries and sessions."""

from __future__ import annotations

import base64
import binascii

from clia.api.derivation import record_of
from clia.api.shapes import FLAG, OBJECT, STRING, TEXT, JsonValue, Listed, refusal
from clia.errors import InvalidInput
from clia.sessions.model import Request, Session, SessionState
from clia.space.model import File, Link, Submodule
from clia.values.typed_objects import ConsoleTrace, as_object, as_typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from clia.api.shapes import Shape
    from clia.sessions.records import Resumed


def _encode_bytes(data: bytes) -> dict[str, Any]:
    """As text if it is UTF-8, else as Base64."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _decode_bytes(data: Any, where: str) -> bytes:
    if type(data) is str:
        data = {"text": data}
    if type(data) is dict and list(data) == ["text"]:
        text: str = STRING.decode(data["text"], f"{where}.text")  # its size is limited where it is stored
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            raise refusal(f"{where}.text", "a text without lone surrogates", text) from None
    if type(data) is dict and list(data) == ["base64"] and isinstance(data["base64"], str):
        try:
            return base64.b64decode(data["base64"], validate=True)
        except (binascii.Error, ValueError):
            pass
    raise refusal(where, 'a text, {"text": …} or {"base64": …}', data)


class ContentShape(JsonValue):
    """The content at a path: bytes, a file that may be executable, a link, or a submodule."""

    def encode(self, value: Any) -> Any:
        match value:
            case bytes():
                return _encode_bytes(value)
            case File(data, executable):
                return {**_encode_bytes(data), "executable": executable}
            case Link(target):
                return {"link": target}
            case Submodule(commit):
                return {"submodule": commit}
        raise refusal("content", "bytes, clia.File, clia.Link or clia.Submodule", value)

    def decode(self, value: Any, where: str) -> Any:
        if type(value) is not dict:
            return _decode_bytes(value, where)
        for key, kind in (("link", Link), ("submodule", Submodule)):
            if list(value) == [key]:
                return kind(TEXT.decode(value[key], f"{where}.{key}"))
        if "executable" not in value:
            return _decode_bytes(value, where)
        data = {key: item for key, item in value.items() if key != "executable"}
        return File(_decode_bytes(data, where), FLAG.decode(value["executable"], f"{where}.executable"))

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/components/schemas/Content"}


def _only(key: str, **more: Any) -> dict[str, Any]:
    properties = {key: {"type": "string"}, **more}
    return {"type": "object", "properties": properties, "required": [key], "additionalProperties": False}


_EXECUTABLE = {"type": "boolean"}
CONTENT_SCHEMA: dict[str, Any] = {
    "description": "The content at a path: a text, or an object with text or base64 (and executable), link or submodule.",
    "anyOf": [
        {"type": "string"},
        _only("text", executable=_EXECUTABLE),
        _only("base64", executable=_EXECUTABLE),
        _only("link"),
        _only("submodule"),
    ],
}
CONTENT = ContentShape()


class TypedInput(JsonValue):
    """An object with a ``type`` to write. Every field is kept, since its id depends on all of them."""

    def encode(self, value: Any) -> Any:
        return as_object(value)

    def decode(self, data: Any, where: str) -> Any:
        return as_object(OBJECT.decode(data, where))

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}


class TypedOutput(TypedInput):
    """A typed object that was read, as an instance of its type's class if there is one."""

    def decode(self, data: Any, where: str) -> Any:
        return as_typed(super().decode(data, where))


class EntriesShape(JsonValue):
    """The entries of a trace, or the trace that has them."""

    def encode(self, value: Any) -> Any:
        if isinstance(value, (str, bytes, dict)):
            raise refusal("entries", "a list", value)
        return [dict(entry) for entry in (value.entries if isinstance(value, ConsoleTrace) else value)]

    def decode(self, data: Any, where: str) -> Any:
        return _OBJECTS.decode(data, where)

    def schema(self) -> dict[str, Any]:
        return _OBJECTS.schema()


_OBJECTS = Listed(OBJECT)
ENTRIES, THING = EntriesShape(), TypedInput()
TYPED = TypedOutput()
REQUEST = record_of(Request)
_DONE = "resumed"
_SESSION_FIELDS: dict[str, Any] = {
    **record_of(SessionState).definition()["properties"],
    _DONE: {"type": "integer", "minimum": 0, "description": "number of resumes"},
}
SESSION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "One run of a flow by one agent, as of the request.",
    "properties": _SESSION_FIELDS,
    "required": list(_SESSION_FIELDS),
}


class SessionShape:
    """A session without its input and resumes; ``load`` fetches them when they are read."""

    def encode(self, value: Session) -> dict[str, Any]:
        return {**value.to_json(), _DONE: value.resumed}

    def decode(self, data: Any, where: str) -> Session:
        return self.read(data, where, _nothing)

    def read(self, data: Any, where: str, load: Callable[[], tuple[Any, list[Resumed]]]) -> Session:
        fields = OBJECT.decode(data, where)
        try:
            row = dict(fields) | {"name": fields["flow"], "flow": fields["flow_cid"], "done": fields[_DONE]}
            calls = [_call(REQUEST.decode(request, f"{where}.pending")) for request in fields["pending"]]
            return Session(fields["agent"], fields["id"], row, lambda: calls, load)
        except (KeyError, TypeError, ValueError):
            raise refusal(where, "a session", data) from None

    def schema(self) -> dict[str, Any]:
        return {"$ref": "#/components/schemas/Session"}

    def parts(self) -> Iterable[Shape]:
        return (REQUEST,)


def _call(request: Request) -> list[Any]:
    number = int(request.id.rpartition(".")[2])
    return [number, request.kind, request.tag, request.payload, request.line, request.since]


def _nothing() -> tuple[Any, list[Resumed]]:
    raise InvalidInput("the input and resumes of the session are not available", code="not-loaded")


SESSION = SessionShape()


EXTRA_SCHEMAS = {"Content": CONTENT_SCHEMA, "Session": SESSION_SCHEMA}
