"""Tool definitions, their JSON Schemas, and errors as MCP results.

Invariant: schemas are derived from the shapes that decode arguments and encode results. A schema is self-contained, because
clients have no other document to resolve references in. User errors are returned with hints; bugs are only logged.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

from clia.api.derivation import REQUIRED
from clia.api.records import MAYBE_TEXT
from clia.api.shapes import definitions
from clia.api.special_shapes import EXTRA_SCHEMAS
from clia.errors import CliaError, Denied, InvalidInput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from clia.api.shapes import Shape

ABSENT: Any = object()
"""The default of an optional argument for which null has a meaning."""
_ELSEWHERE, _INSIDE = "#/components/schemas/", "#/$defs/"


class ToolArgument(NamedTuple):
    """An argument of a tool: ``name`` in the function, ``key`` for clients."""

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


class ResultShape:
    """The shape of a result object; all fields are present."""

    def __init__(self, **fields: Shape) -> None:
        self.fields = fields

    def encode(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shape.encode(value[name]) for name, shape in self.fields.items()}

    def decode(self, value: Any, where: str) -> Any:
        raise NotImplementedError(f"{where}: output only: {value!r}")

    def schema(self) -> dict[str, Any]:
        properties = {name: shape.schema() for name, shape in self.fields.items()}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def parts(self) -> Iterable[Shape]:
        return self.fields.values()


def output_schema(shape: Shape) -> dict[str, Any]:
    """The schema of the result, always an object: protocols before 2026-07-28 allow nothing else."""
    return _alone({"type": "object", **shape.schema()}, [shape])


def input_schema(fields: Sequence[ToolArgument]) -> dict[str, Any]:
    properties = {field.key: _described(field) for field in fields}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [field.key for field in fields if field.required]
    return _alone(schema | ({"required": required} if required else {}), [field.shape for field in fields])


def _described(field: ToolArgument) -> dict[str, Any]:
    schema = {**field.shape.schema(), "description": field.said}
    silent = field.required or field.default is None or field.default is ABSENT
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return schema if silent else {**schema, "default": default}


def _alone(schema: dict[str, Any], shapes: Sequence[Shape]) -> dict[str, Any]:
    shared = definitions(shapes) | EXTRA_SCHEMAS
    used: dict[str, Any] = {}
    inlined = _moved(schema, shared, used)
    return {**inlined, "$defs": dict(sorted(used.items()))} if used else dict(inlined)


def _moved(value: Any, shared: Mapping[str, Any], used: dict[str, Any]) -> Any:
    """A schema with local references; ``used`` collects their targets."""
    if isinstance(value, list):
        return [_moved(item, shared, used) for item in value]
    if not isinstance(value, dict):
        return value
    target = value.get("$ref")
    if isinstance(target, str) and target.startswith(_ELSEWHERE):
        name = target.removeprefix(_ELSEWHERE)
        if name not in used:
            used[name] = {}  # it may be recursive
            used[name] = _moved(shared[name], shared, used)
        return {**value, "$ref": _INSIDE + name}
    return {key: _moved(item, shared, used) for key, item in value.items()}


def arguments(fields: Sequence[ToolArgument], values: Mapping[str, Any]) -> dict[str, Any]:
    """Decode arguments; raises ``InvalidInput`` for a wrong, unknown or missing field."""
    by_key = {item.key: item for item in fields}
    for key in values:
        if key not in by_key:
            listed = ", ".join(by_key) or "none"
            raise InvalidInput(
                f"unknown argument {key!r}", code="unknown-field", hints=[f"arguments: {listed}"], fields={"field": key}
            )
    for key, field in by_key.items():
        if field.required and key not in values:
            raise InvalidInput(f"{key} is missing", code="missing-field", hints=[field.said], fields={"field": key})
    return {item.name: item.shape.decode(values[item.key], item.key) if item.key in values else item.default for item in fields}


class ToolEffect(NamedTuple):
    """Hints for clients about the effect of a tool."""

    reads: bool = False
    destroys: bool = False
    repeats: bool = False  # idempotent


READS = ToolEffect(reads=True, repeats=True)
ADDS = ToolEffect()
ONCE = ToolEffect(repeats=True)
ENDS = ToolEffect(destroys=True)


class Tool(NamedTuple):
    name: str
    title: str
    said: str  # for the model
    role: str  # the same as over HTTP
    fields: Sequence[ToolArgument]
    result: ResultShape | Shape
    run: Callable[..., Any]  # takes a Call and the arguments, or, as a coroutine, an Exchange
    effect: ToolEffect = READS
    slow: str | None = None  # progress message
    talks: bool = False  # ``run`` is a coroutine that may show forms


def agent_field(description: str = "the agent (default: yourself)") -> ToolArgument:
    return ToolArgument("agent", MAYBE_TEXT, description, None)


AGENT = agent_field()


log = logging.getLogger("clia.mcp")


def refused(err: CliaError) -> CallToolResult:
    """The result of a refused call, as text for a model and as fields for a program."""
    text = "\n".join([f"{err.code}: {err.message}", *(f"hint: {hint}" for hint in err.hints)])
    return CallToolResult(content=[TextContent(text=text)], structured_content=err.to_json(), is_error=True)


def broken(what: str) -> CliaError:
    """The error for a bug; call it in the exception handler."""
    log.exception("%s failed", what)
    return CliaError("internal error in clia", code="internal", hints=["see the server's log"])


def protocol_error(err: CliaError, more: Mapping[str, Any]) -> MCPError:
    """The protocol error for resources and prompts."""
    is_invalid = isinstance(err, (InvalidInput, NotFound))
    code = INVALID_PARAMS if is_invalid else INVALID_REQUEST if isinstance(err, Denied) else INTERNAL_ERROR
    return MCPError(code, err.message, {**err.to_json(), **more})
