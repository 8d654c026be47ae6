"""JSON shapes: each encodes a value as JSON, decodes it, and has a JSON Schema.

Invariant: ``decode(encode(value)) == value`` for every value of the shape; a value that does not fit is refused with an
``InvalidInput`` that names the field, before anything else happens. The schema accepts what ``decode`` accepts, so that one table
serves the server, its OpenAPI document and the client.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol, runtime_checkable

from clia.api.annotations import field_docs
from clia.errors import InvalidInput
from clia.values.records import json_keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from clia.verbs import Hint

TEXT_MAX = 4 * 1024 * 1024


@runtime_checkable
class Shape(Protocol):
    """The JSON form of a type: its encoder, decoder and schema."""

    def encode(self, value: Any) -> Any:
        """The JSON value."""

    def decode(self, data: Any, where: str) -> Any:
        """The value; ``where`` names the field in a refusal."""

    def schema(self) -> dict[str, Any]:
        """The OpenAPI 3.1 schema; records are referenced."""

    def parts(self) -> Iterable[Shape]:
        """The shapes inside."""


def refusal(where: str, wanted: str, data: Any) -> InvalidInput:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    actual = "nothing" if data is None else kinds.get(type(data), "something else")
    return InvalidInput(f"{where} must be {wanted}, not {actual}", code="invalid-field", fields={"field": where})


class JsonValue:
    """Any JSON value, which stands for itself."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, data: Any, where: str) -> Any:
        del where
        return data

    def schema(self) -> dict[str, Any]:
        return {}

    def parts(self) -> Iterable[Shape]:
        return ()


class _Plain(JsonValue):
    """A JSON scalar."""

    def __init__(self, kind: type, wanted: str, schema: Mapping[str, Any], fits: Callable[[Any], bool] = lambda _: True) -> None:
        self._kind = kind
        self._wanted = wanted
        self._schema = schema
        self._fits = fits

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not self._kind or not self._fits(data):
            raise refusal(where, self._wanted, data)
        return data

    def schema(self) -> dict[str, Any]:
        return dict(self._schema)

    def hinted(self, hint: Hint) -> _Plain:
        more = {key: list(value) if isinstance(value, tuple) else value for key, value in hint.keywords}
        return _Plain(self._kind, self._wanted, {**self._schema, **more}, self._fits)


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return len(text) <= TEXT_MAX


TEXT = _Plain(str, "a text of at most 4 MiB without lone surrogates", {"type": "string", "maxLength": TEXT_MAX}, _is_text)
STRING = _Plain(str, "a text", {"type": "string"})
"""A text that is only read: names and lines as git has them."""
FLAG = _Plain(bool, "true or false", {"type": "boolean"})
_LARGEST = 2**53 - 1
COUNT = _Plain(
    int, "a whole number from 0", {"type": "integer", "minimum": 0, "maximum": _LARGEST}, lambda number: 0 <= number <= _LARGEST
)
WHOLE = _Plain(
    int,
    "a whole number",
    {"type": "integer", "minimum": -_LARGEST, "maximum": _LARGEST},
    lambda number: abs(number) <= _LARGEST,
)


class _Number(JsonValue):
    """A number with a fraction; JSON does not tell 1 from 1.0."""

    def decode(self, data: Any, where: str) -> Any:
        if type(data) not in (int, float):
            raise refusal(where, "a number", data)
        return float(data)

    def schema(self) -> dict[str, Any]:
        return {"type": "number"}


class _Object(JsonValue):
    """Any JSON object."""

    def encode(self, value: Any) -> Any:
        return dict(value)

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not dict:
            raise refusal(where, "an object", data)
        return data

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


NUMBER, ANY, OBJECT = _Number(), JsonValue(), _Object()


class _Wrapping:
    """A shape around another one."""

    def __init__(self, inner: Shape) -> None:
        self.inner = inner

    def parts(self) -> Iterable[Shape]:
        return (self.inner,)


class Optional(_Wrapping):
    def encode(self, value: Any) -> Any:
        return None if value is None else self.inner.encode(value)

    def decode(self, data: Any, where: str) -> Any:
        return None if data is None else self.inner.decode(data, where)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.inner.schema(), {"type": "null"}]}


class Listed(_Wrapping):
    """A list, or a tuple where the library has one."""

    def __init__(self, inner: Shape, kind: Callable[[list[Any]], Any] = list) -> None:
        super().__init__(inner)
        self.kind = kind

    def encode(self, value: Any) -> Any:
        return [self.inner.encode(item) for item in value]

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not list:
            raise refusal(where, "a list", data)
        return self.kind([self.inner.decode(item, f"{where}[{index}]") for index, item in enumerate(data)])

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.inner.schema()}


class Mapped(_Wrapping):
    """An object with any names, whose values have one shape."""

    def encode(self, value: Any) -> Any:
        return {key: self.inner.encode(item) for key, item in value.items()}

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not dict:
            raise refusal(where, "an object", data)
        return {key: self.inner.decode(item, f"{where}.{key}") for key, item in data.items()}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.inner.schema()}


class Record:
    """A named tuple as an object with its fields' names; those with a default may be left out when it is read."""

    def __init__(self, kind: Any, /, **fields: Shape) -> None:
        self.kind: type[Any] = kind
        self.fields = fields
        self.name: str = kind.__name__
        self._keys = {spec.attribute: spec.key for spec in json_keys(kind)}
        self._optional = {spec.attribute: kind._field_defaults[spec.attribute] for spec in json_keys(kind) if spec.optional}

    def encode(self, value: Any) -> Any:
        if not self.fits(value):
            raise refusal(self.name, f"a clia.{self.name}", value)
        printed = [name for name in self.fields if name not in self._optional or getattr(value, name) != self._optional[name]]
        return {self._keys[name]: self.fields[name].encode(getattr(value, name)) for name in printed}

    def decode(self, data: Any, where: str) -> Any:
        if type(data) is not dict:
            raise refusal(where, f"an object ({self.name})", data)
        names = {key: name for name, key in self._keys.items()}
        for key in data:
            if key not in names:
                raise InvalidInput(f"{where} has no field {key!r}", code="unknown-field", fields={"field": f"{where}.{key}"})
        for key, name in names.items():
            if key not in data and name not in self.kind._field_defaults:
                raise InvalidInput(f"{where}.{key} is missing", code="missing-field", fields={"field": f"{where}.{key}"})
        return self.kind(**{names[key]: self.fields[names[key]].decode(item, f"{where}.{key}") for key, item in data.items()})

    def schema(self) -> dict[str, Any]:
        return {"$ref": f"#/components/schemas/{self.name}"}

    @cached_property
    def _docs(self) -> dict[str, dict[str, str]]:
        return {name: {"description": doc} if doc else {} for name, doc in field_docs(self.kind).items()}

    def definition(self) -> dict[str, Any]:
        """Its schema, with the descriptions of the class and its fields from the source."""
        properties = {self._keys[name]: shape.schema() | self._docs[name] for name, shape in self.fields.items()}
        required = [self._keys[name] for name in self.fields if name not in self.kind._field_defaults]
        doc = (self.kind.__doc__ or "").split("\n\n")[0].strip()
        about = {"description": doc} if doc and not doc.startswith(f"{self.name}(") else {}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **about}

    def parts(self) -> Iterable[Shape]:
        return self.fields.values()

    def fits(self, value: Any) -> bool:
        return isinstance(value, self.kind)


class Either:
    """One of several records, told apart by ``outcome``."""

    def __init__(self, **records: Record) -> None:
        self.records = records

    def encode(self, value: Any) -> Any:
        for tag, record in self.records.items():
            if record.fits(value):
                return {"outcome": tag, **record.encode(value)}
        raise TypeError(type(value).__name__)

    def decode(self, data: Any, where: str) -> Any:
        tag = data.get("outcome") if type(data) is dict else None
        record = self.records.get(tag) if isinstance(tag, str) else None
        if record is None:
            raise refusal(f"{where}.outcome", f"one of {', '.join(self.records)}", tag)
        return record.decode({key: item for key, item in data.items() if key != "outcome"}, where)

    def schema(self) -> dict[str, Any]:
        return {"oneOf": [self._tagged(tag, record) for tag, record in self.records.items()]}

    def _tagged(self, tag: str, record: Record) -> dict[str, Any]:
        definition = record.definition()
        return definition | {
            "properties": {"outcome": {"const": tag}, **definition["properties"]},
            "required": ["outcome", *definition["required"]],
        }

    def parts(self) -> Iterable[Shape]:
        return [part for record in self.records.values() for part in record.parts()]


def definitions(shapes: Iterable[Shape]) -> dict[str, Any]:
    """The records that the schemas of some shapes refer to, by name."""
    records: dict[str, Any] = {}
    left = list(shapes)
    while left:
        shape = left.pop()
        if isinstance(shape, Record):
            if shape.name in records:
                continue
            records[shape.name] = shape.definition()
        left += shape.parts()
    return dict(sorted(records.items()))
