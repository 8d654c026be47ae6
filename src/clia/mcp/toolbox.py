"""What tools take and answer with, as JSON Schema that stands alone.

Invariant: a tool's schemas are made from the shapes that read its arguments and write its answer, so they cannot disagree. A
schema refers to nothing outside itself: clients have no other document to look in.


What a tool is: data, so that its description, its rights and its work stand in one place.

Errors as the protocol says them: the one place where an error of the library becomes what a client sees.

Invariant: whoever made a mistake is told which, with hints; a bug is said to the log, and to nobody else.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

from clia.api.records import EXTRA_SCHEMAS, MAYBE_TEXT
from clia.api.shapes import definitions
from clia.api.verbs import REQUIRED
from clia.errors import CliaError, Denied, InvalidInput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from clia.api.shapes import Shape

ABSENT: Any = object()
"""The default of what may be left out, where null says something else."""
_ELSEWHERE, _INSIDE = "#/components/schemas/", "#/$defs/"


class Field(NamedTuple):
    """One argument of a tool; ``name`` is the function's, ``key`` what clients call it."""

    name: str
    shape: Shape
    said: str
    default: Any = REQUIRED

    @property
    def key(self) -> str:
        return self.name.rstrip("_")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


class Told:
    """An object with certain fields, all of which are there."""

    def __init__(self, **fields: Shape) -> None:
        self.fields = fields

    def encode(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shape.encode(value[name]) for name, shape in self.fields.items()}

    def decode(self, given: Any, where: str) -> Any:
        raise NotImplementedError(f"{where}: only answered, never taken: {given!r}")

    def schema(self) -> dict[str, Any]:
        properties = {name: shape.schema() for name, shape in self.fields.items()}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def parts(self) -> Iterable[Shape]:
        return self.fields.values()


def output_schema(shape: Shape) -> dict[str, Any]:
    """Of an object: protocols before 2026-07-28 know no other answer."""
    return _alone({"type": "object", **shape.schema()}, [shape])


def input_schema(fields: Sequence[Field]) -> dict[str, Any]:
    properties = {each.key: _described(each) for each in fields}
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [each.key for each in fields if each.required]
    return _alone(made | ({"required": required} if required else {}), [each.shape for each in fields])


def _described(field: Field) -> dict[str, Any]:
    made = {**field.shape.schema(), "description": field.said}
    silent = field.required or field.default is None or field.default is ABSENT
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return made if silent else {**made, "default": default}


def _alone(schema: dict[str, Any], shapes: Sequence[Shape]) -> dict[str, Any]:
    known = definitions(shapes) | EXTRA_SCHEMAS
    found: dict[str, Any] = {}
    made = _moved(schema, known, found)
    return {**made, "$defs": dict(sorted(found.items()))} if found else dict(made)


def _moved(value: Any, known: Mapping[str, Any], found: dict[str, Any]) -> Any:
    """A schema whose references lead into itself; ``found`` gets what they lead to."""
    if isinstance(value, list):
        return [_moved(each, known, found) for each in value]
    if not isinstance(value, dict):
        return value
    target = value.get("$ref")
    if isinstance(target, str) and target.startswith(_ELSEWHERE):
        name = target.removeprefix(_ELSEWHERE)
        if name not in found:
            found[name] = {}  # it may refer to itself
            found[name] = _moved(known[name], known, found)
        return {**value, "$ref": _INSIDE + name}
    return {key: _moved(each, known, found) for key, each in value.items()}


def arguments(fields: Sequence[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function is called with; ``InvalidInput`` names the field that is wrong, unknown or missing."""
    known = {each.key: each for each in fields}
    for key in given:
        if key not in known:
            listed = ", ".join(known) or "none"
            raise InvalidInput(
                f"there is no argument {key!r}", code="unknown-field", hints=[f"arguments: {listed}"], fields={"field": key}
            )
    for key, field in known.items():
        if field.required and key not in given:
            raise InvalidInput(f"{key} is missing", code="missing-field", hints=[field.said], fields={"field": key})
    return {each.name: each.shape.decode(given[each.key], each.key) if each.key in given else each.default for each in fields}


class Effect(NamedTuple):
    """What a client may be told of a tool before it is called."""

    reads: bool = False
    destroys: bool = False
    repeats: bool = False  # whether a second call with the same arguments changes nothing more


READS = Effect(reads=True, repeats=True)
ADDS = Effect()
ONCE = Effect(repeats=True)
ENDS = Effect(destroys=True)


class Tool(NamedTuple):
    name: str
    title: str
    said: str  # for the model
    role: str  # as the verb takes it over HTTP
    fields: Sequence[Field]
    result: Told | Shape
    run: Callable[..., Any]  # with a call and the arguments: in a thread, or a coroutine that takes an exchange
    effect: Effect = READS
    slow: str | None = None  # what is said while it goes on
    talks: bool = False  # ``run`` is a coroutine that may ask the client back


def agent_field(said: str = "the agent; leave it out to mean yourself") -> Field:
    return Field("agent", MAYBE_TEXT, said, None)


AGENT = agent_field()


log = logging.getLogger("clia.mcp")


def refused(err: CliaError) -> CallToolResult:
    """A tool that did nothing, in words for a model and in fields for a program."""
    told = "\n".join([f"{err.code}: {err.message}", *(f"hint: {hint}" for hint in err.hints)])
    return CallToolResult(content=[TextContent(text=told)], structured_content=err.to_json(), is_error=True)


def broken(what: str) -> CliaError:
    """What is said of a bug; called where it was caught."""
    log.exception("%s failed", what)
    return CliaError("something went wrong inside clia", code="internal", hints=["the server's log has the details"])


def protocol_error(err: CliaError, more: Mapping[str, Any]) -> MCPError:
    """For what has no other way to say no: resources and prompts."""
    known = isinstance(err, (InvalidInput, NotFound))
    code = INVALID_PARAMS if known else INVALID_REQUEST if isinstance(err, Denied) else INTERNAL_ERROR
    return MCPError(code, err.message, {**err.to_json(), **more})
