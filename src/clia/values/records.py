"""Records and their JSON form.

A record is a named tuple. Its JSON form is an object with its fields, in order; ``json_form`` declares what differs. The output of
``--json``, the API and the reference follow from the same declaration.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.errors import CliaError

RecordType = TypeVar("RecordType")
EMBED = "*"


class ErrorFields(NamedTuple):
    """An error as JSON."""

    code: str  # one of the codes of errors
    message: str  # one sentence for a person
    hints: list[str]  # what to do
    fields: dict[str, Any]  # details for programs


class ReportedError(NamedTuple):
    """An error in the place of an answer."""

    error: CliaError  # what prevented it


class JsonKey(NamedTuple):
    """How one attribute of a record is printed."""

    attribute: str
    key: str
    optional: bool = False  # left out if it has its default, or is None
    omitted: str = ""  # key of an embedded record that is left out

    @property
    def embedded(self) -> bool:
        return self.key == EMBED


def json_form(*attributes: str, **keys: str) -> Callable[[type[RecordType]], type[RecordType]]:
    """Declare the JSON form of a record.

    ``attributes``: fields, properties and methods to print, in order (default: all fields). ``keys``: the key of an attribute, if
    it is not its name; with a ``?`` at the end, it is left out if it has its default. ``EMBED`` prints the fields of a record in
    the place of the attribute; ``EMBED + "body"`` leaves out one of them. A later key replaces one of an embedded record.
    """

    def decorate(kind: type[RecordType]) -> type[RecordType]:
        kind.__json__ = (attributes, keys)  # type: ignore[attr-defined]
        return kind

    return decorate


@cache
def json_keys(kind: Any) -> tuple[JsonKey, ...]:
    """How the attributes of a record are printed, in order."""
    attributes, keys = getattr(kind, "__json__", ((), {}))
    return tuple([_json_key(name, keys.get(name, name.rstrip("_"))) for name in attributes or getattr(kind, "_fields", ())])


def _json_key(name: str, key: str) -> JsonKey:
    if key.startswith(EMBED):
        return JsonKey(name, EMBED, omitted=key.removeprefix(EMBED))
    return JsonKey(name, key.removesuffix("?"), key.endswith("?"))


def fields_json(record: Any) -> dict[str, Any]:
    """A record as a JSON object."""
    fields: dict[str, Any] = {}
    kind: Any = type(record)
    for spec in json_keys(kind):
        value = getattr(record, spec.attribute)
        value = value() if callable(value) else value
        if spec.embedded:
            fields |= as_json(value)
            fields.pop(spec.omitted, None)
        elif not spec.optional or value != kind._field_defaults.get(spec.attribute):
            fields[spec.key] = as_json(value)
    return fields


def as_json(value: Any) -> Any:
    """A value as JSON: records as objects at every level. An object with a method ``to_json`` has its own form."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return fields_json(value)
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
