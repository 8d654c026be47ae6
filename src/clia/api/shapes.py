"""How values cross the wire: each shape writes a value as JSON, reads it back, and says what it looks like.

Invariant: ``decode(encode(value)) == value`` for every value of the shape; what does not fit is refused with ``InvalidInput``
that names the field, before anything else happens. The schema accepts what ``decode`` accepts, so that one table serves the
server, its OpenAPI document and the client.
"""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from typing import Protocol, runtime_checkable

from clia.api.annotations import field_docs
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

TEXT_MAX = 4 * 1024 * 1024


@runtime_checkable
class Shape(Protocol):
    def encode(self, value: Any) -> Any:
        """The JSON value."""

    def decode(self, given: Any, where: str) -> Any:
        """The value; ``where`` names the field in a refusal."""

    def schema(self) -> dict[str, Any]:
        """As OpenAPI 3.1 says it; a record by reference."""

    def parts(self) -> Iterable[Shape]:
        """The shapes inside."""


def refusal(where: str, wanted: str, given: Any) -> InvalidInput:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    found = "nothing" if given is None else kinds.get(type(given), "something else")
    return InvalidInput(f"{where} must be {wanted}, not {found}", code="invalid-field", fields={"field": where})


class _Plain:
    """A JSON scalar that stands for itself."""

    def __init__(self, kind: type, wanted: str, schema: Mapping[str, Any], fits: Callable[[Any], bool] | None = None) -> None:
        self._kind = kind
        self._wanted = wanted
        self._schema = schema
        self._fits = fits

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, given: Any, where: str) -> Any:
        if type(given) is not self._kind or (self._fits is not None and not self._fits(given)):
            raise refusal(where, self._wanted, given)
        return given

    def schema(self) -> dict[str, Any]:
        return dict(self._schema)

    def parts(self) -> Iterable[Shape]:
        return ()


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return len(text) <= TEXT_MAX


TEXT = _Plain(str, "a text of at most 4 MiB without lone surrogates", {"type": "string", "maxLength": TEXT_MAX}, _is_text)
STRING = _Plain(str, "a text", {"type": "string"})
"""A text that is only read: whatever git has of names and lines."""
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


class _Number:
    """A number with a fraction; JSON does not tell 1 from 1.0."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, given: Any, where: str) -> Any:
        if type(given) not in (int, float):
            raise refusal(where, "a number", given)
        return float(given)

    def schema(self) -> dict[str, Any]:
        return {"type": "number"}

    def parts(self) -> Iterable[Shape]:
        return ()


class _Any:
    """Any JSON value."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, given: Any, where: str) -> Any:
        del where
        return given

    def schema(self) -> dict[str, Any]:
        return {}

    def parts(self) -> Iterable[Shape]:
        return ()


class _Object(_Any):
    """Any JSON object."""

    def encode(self, value: Any) -> Any:
        return dict(value)

    def decode(self, given: Any, where: str) -> Any:
        if type(given) is not dict:
            raise refusal(where, "an object", given)
        return given

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


NUMBER, ANY, OBJECT = _Number(), _Any(), _Object()


class Optional:
    def __init__(self, inner: Shape) -> None:
        self.inner = inner

    def encode(self, value: Any) -> Any:
        return None if value is None else self.inner.encode(value)

    def decode(self, given: Any, where: str) -> Any:
        return None if given is None else self.inner.decode(given, where)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.inner.schema(), {"type": "null"}]}

    def parts(self) -> Iterable[Shape]:
        return (self.inner,)


class Listed:
    """A list, or a tuple where the library has one."""

    def __init__(self, inner: Shape, made: Callable[[list[Any]], Any] = list) -> None:
        self.inner = inner
        self.made = made

    def encode(self, value: Any) -> Any:
        return [self.inner.encode(each) for each in value]

    def decode(self, given: Any, where: str) -> Any:
        if type(given) is not list:
            raise refusal(where, "a list", given)
        return self.made([self.inner.decode(each, f"{where}[{index}]") for index, each in enumerate(given)])

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.inner.schema()}

    def parts(self) -> Iterable[Shape]:
        return (self.inner,)


class Mapped:
    """An object with any names, whose values have one shape."""

    def __init__(self, inner: Shape) -> None:
        self.inner = inner

    def encode(self, value: Any) -> Any:
        return {key: self.inner.encode(each) for key, each in value.items()}

    def decode(self, given: Any, where: str) -> Any:
        if type(given) is not dict:
            raise refusal(where, "an object", given)
        return {key: self.inner.decode(each, f"{where}.{key}") for key, each in given.items()}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.inner.schema()}

    def parts(self) -> Iterable[Shape]:
        return (self.inner,)


class Record:
    """A named tuple as an object with its fields' names; those with a default may be left out when it is read.

    ``called``: what it is called where it is public, if that is not the name of its class.
    """

    def __init__(self, kind: type[Any], called: str | None = None, /, **fields: Shape) -> None:
        self.kind = kind
        self.fields = fields
        self.name: str = called or kind.__name__
        missing = set(kind._fields) ^ set(fields)
        if missing:
            raise TypeError(f"{self.name}: {sorted(missing)}")

    def encode(self, value: Any) -> Any:
        if not self.fits(value):
            raise refusal(self.name, f"a clia.{self.name}", value)
        return {name.rstrip("_"): shape.encode(getattr(value, name)) for name, shape in self.fields.items()}

    def decode(self, given: Any, where: str) -> Any:
        if type(given) is not dict:
            raise refusal(where, f"an object ({self.name})", given)
        known = {name.rstrip("_"): name for name in self.fields}
        for key in given:
            if key not in known:
                raise InvalidInput(f"{where} has no field {key!r}", code="unknown-field", fields={"field": f"{where}.{key}"})
        for key, name in known.items():
            if key not in given and name not in self.kind._field_defaults:
                raise InvalidInput(f"{where}.{key} is missing", code="missing-field", fields={"field": f"{where}.{key}"})
        return self.kind(**{known[key]: self.fields[known[key]].decode(each, f"{where}.{key}") for key, each in given.items()})

    def schema(self) -> dict[str, Any]:
        return {"$ref": f"#/components/schemas/{self.name}"}

    @cached_property
    def _docs(self) -> dict[str, dict[str, str]]:
        return {name: {"description": doc} if doc else {} for name, doc in field_docs(self.kind).items()}

    def definition(self) -> dict[str, Any]:
        """Its schema, with what the source says about the class and its fields."""
        properties = {name.rstrip("_"): shape.schema() | self._docs[name] for name, shape in self.fields.items()}
        required = [name.rstrip("_") for name in self.fields if name not in self.kind._field_defaults]
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

    def decode(self, given: Any, where: str) -> Any:
        tag = given.get("outcome") if type(given) is dict else None
        record = self.records.get(tag) if isinstance(tag, str) else None
        if record is None:
            raise refusal(f"{where}.outcome", f"one of {', '.join(self.records)}", tag)
        return record.decode({key: each for key, each in given.items() if key != "outcome"}, where)

    def schema(self) -> dict[str, Any]:
        return {"oneOf": [self._tagged(tag, record) for tag, record in self.records.items()]}

    def _tagged(self, tag: str, record: Record) -> dict[str, Any]:
        made = record.definition()
        return made | {
            "properties": {"outcome": {"const": tag}, **made["properties"]},
            "required": ["outcome", *made["required"]],
        }

    def parts(self) -> Iterable[Shape]:
        return [part for record in self.records.values() for part in record.parts()]


class Bytes:
    """A file's bytes: as text where they are, else as Base64."""

    def encode(self, value: bytes) -> dict[str, Any]:
        try:
            return {"text": value.decode("utf-8")}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}

    def decode(self, given: Any, where: str) -> bytes:
        if type(given) is str:
            given = {"text": given}
        if type(given) is dict and list(given) == ["text"]:
            return _encoded(given["text"], f"{where}.text")
        if type(given) is dict and list(given) == ["base64"] and isinstance(given["base64"], str):
            try:
                return base64.b64decode(given["base64"], validate=True)
            except (binascii.Error, ValueError):
                pass
        raise refusal(where, 'a text, {"text": …} or {"base64": …}', given)

    def schema(self) -> dict[str, Any]:
        text, packed = {"type": "string"}, {"type": "string", "contentEncoding": "base64"}
        return {"anyOf": [text, *(_only(key, inner) for key, inner in (("text", text), ("base64", packed)))]}

    def parts(self) -> Iterable[Shape]:
        return ()


def _encoded(given: Any, where: str) -> bytes:
    """A file's text; how large it may be is decided where it is stored."""
    found: str = STRING.decode(given, where)
    try:
        return found.encode("utf-8")
    except UnicodeEncodeError:
        raise refusal(where, "a text without lone surrogates", given) from None


def _only(key: str, inner: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {key: dict(inner)}, "required": [key], "additionalProperties": False}


def definitions(shapes: Iterable[Shape]) -> dict[str, Any]:
    """What every reference in the schemas of some shapes leads to, by name."""
    found: dict[str, Any] = {}
    left = list(shapes)
    while left:
        shape = left.pop()
        if isinstance(shape, Record):
            if shape.name in found:
                continue
            found[shape.name] = shape.definition()
        left += shape.parts()
    return dict(sorted(found.items()))
