"""Tool definitions, their JSON Schemas, and errors as MCP results.

Invariant: a tool is stated once, as a function. Its schemas follow from the annotations, defaults and docstring, by the shapes that
decode arguments and encode results. A schema is self-contained, because clients have no other document to resolve references in.
User errors are returned with hints; bugs are only logged.
"""

from __future__ import annotations

import logging
from typing import Annotated, NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

from clia.api.annotations import resolve
from clia.api.derivation import params_of, shape_of
from clia.api.shapes import Shape, definitions
from clia.api.special_shapes import EXTRA_SCHEMAS
from clia.errors import CliaError, Denied, InvalidInput, NotFound
from clia.verbs import VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from clia.api.derivation import Param

AgentName = Annotated[str | None, "the agent (default: yourself)"]
ABSENT: Any = object()
"""The default of an optional argument for which null has a meaning."""
_ELSEWHERE, _INSIDE = "#/components/schemas/", "#/$defs/"


class ResultShape:
    """The shape of a result object, by the types or shapes of its fields; all fields are present."""

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Shape] = {name: kind if isinstance(kind, Shape) else shape_of(kind) for name, kind in fields.items()}

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


def input_schema(params: Sequence[Param]) -> dict[str, Any]:
    properties = {param.key: _described(param) for param in params}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [param.key for param in params if param.required]
    return _alone(schema | ({"required": required} if required else {}), [param.shape for param in params])


def _described(param: Param) -> dict[str, Any]:
    schema = {**param.shape.schema(), "description": param.description}
    if param.required or param.default is None or param.default is ABSENT:
        return schema
    return {**schema, "default": list(param.default) if isinstance(param.default, tuple) else param.default}


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


def arguments(params: Sequence[Param], values: Mapping[str, Any]) -> dict[str, Any]:
    """Decode arguments; raises ``InvalidInput`` for a wrong, unknown or missing field."""
    keys = [param.key for param in params]
    for key in values:
        if key not in keys:
            hints = [f"arguments: {', '.join(keys) or 'none'}"]
            raise InvalidInput(f"unknown argument {key!r}", code="unknown-field", hints=hints, fields={"field": key})
    for param in params:
        if param.required and param.key not in values:
            fields = {"field": param.key}
            raise InvalidInput(f"{param.key} is missing", code="missing-field", hints=[param.description], fields=fields)
    return {
        param.name: param.shape.decode(values[param.key], param.key) if param.key in values else param.default for param in params
    }


class Tool(NamedTuple):
    name: str
    title: str
    description: str  # for the model
    role: str  # the same as over HTTP; a viewer's tools only read
    params: Sequence[Param]
    result: ResultShape | Shape
    run: Callable[..., Any]  # takes a ToolCall and the arguments, or, as a coroutine, an Exchange
    slow: str | None  # progress message
    idempotent: bool
    destructive: bool


def tool(
    title: str,
    role: str = VIEWER,
    *,
    returns: ResultShape | None = None,
    slow: str | None = None,
    idempotent: bool = False,
    destructive: bool = False,
) -> Callable[[Callable[..., Any]], Tool]:
    """Serve a function as the tool of its name.

    ``Annotated`` describes an argument, the docstring the tool. ``returns``: the fields of the result, where the function returns a
    mapping and not a record.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        result = returns or shape_of(resolve(function.__annotations__["return"], function.__module__))
        description, params = " ".join((function.__doc__ or "").split()), tuple(params_of(function, {}))
        repeatable = idempotent or role == VIEWER
        return Tool(function.__name__, title, description, role, params, result, function, slow, repeatable, destructive)

    return decorate


log = logging.getLogger("clia.mcp")


def refused(err: CliaError) -> CallToolResult:
    """The result of a refused call, as text for a model and as fields for a program."""
    text = "\n".join([f"{err.code}: {err.message}", *(f"hint: {hint}" for hint in err.hints)])
    return CallToolResult(content=[TextContent(text=text)], structured_content=err.to_json(), is_error=True)


def broken(name: str) -> CliaError:
    """The error for a bug; call it in the exception handler."""
    log.exception("%s failed", name)
    return CliaError("internal error in clia", code="internal", hints=["see the server's log"])


def protocol_error(err: CliaError, fields: Mapping[str, Any]) -> MCPError:
    """The protocol error for resources and prompts."""
    is_invalid = isinstance(err, (InvalidInput, NotFound))
    code = INVALID_PARAMS if is_invalid else INVALID_REQUEST if isinstance(err, Denied) else INTERNAL_ERROR
    return MCPError(code, err.message, {**err.to_json(), **fields})
