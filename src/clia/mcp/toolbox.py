"""Tool definitions, their JSON Schemas, and errors as MCP results.

Invariant: a tool states only what differs from its verb. Its schemas follow from the annotations, defaults and docstrings of both,
by the shapes that decode arguments and encode results. A schema is self-contained, because clients have no other document to
resolve references in. User errors are returned with hints; bugs are only logged.
"""

from __future__ import annotations

import logging
from inspect import Parameter, signature
from operator import attrgetter
from typing import Annotated, NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

from clia.api.annotations import resolve
from clia.api.derivation import params_of, shape_of, verb_of
from clia.api.shapes import Optional, Shape, definitions
from clia.api.special_shapes import EXTRA_SCHEMAS
from clia.errors import CliaError, Denied, InvalidInput, NotFound
from clia.facade.space import Space
from clia.verbs import VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.api.derivation import Param, Verb
    from clia.mcp.calls import ToolCall

AgentName = Annotated[str | None, "the agent (default: yourself)"]
ABSENT: Any = object()
"""The default of an optional argument for which null has a meaning."""
_ELSEWHERE, _INSIDE = "#/components/schemas/", "#/$defs/"


class ResultShape:
    """The shape of a result object, by its fields: a type, a shape, or the name of the verb that returns it. All are present."""

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Shape] = {name: _shape(kind) for name, kind in fields.items()}

    def encode(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shape.encode(value[name]) for name, shape in self.fields.items()}

    def decode(self, value: Any, where: str) -> Any:
        raise NotImplementedError(f"{where}: output only: {value!r}")

    def schema(self) -> dict[str, Any]:
        properties = {name: shape.schema() for name, shape in self.fields.items()}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def parts(self) -> Iterable[Shape]:
        return self.fields.values()


def _shape(kind: Any) -> Shape:
    shape = verb_named(kind).result if isinstance(kind, str) else kind if isinstance(kind, Shape) else shape_of(kind)
    if shape is None:
        raise TypeError(f"{kind} returns nothing")
    return shape


def verb_named(name: str) -> Verb:
    """The verb that a space has under a name, such as ``merge`` or ``changes.get``.

    A service that can be called is the verb that lists its items.
    """
    member = attrgetter(name)(Space)
    return verb_of(member.__call__ if isinstance(member, type) else member, "", name)


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
    you: str = ""  # the argument that is the caller's agent by default
    slow: str | None = None  # progress message
    idempotent: bool = False
    destructive: bool = False
    for_agents: bool = False  # whether a user with the role agent may call it, for its own agents

    def arguments(self, call: ToolCall, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the caller's agent filled in. Only a tool that reads takes another agent than the server's."""
        if not self.you:
            return dict(values)
        name = values[self.you]
        return {**values, self.you: name if name and self.role == VIEWER else call.agent(name)}


def tool(
    title: str,
    verb: str = "",
    *,
    role: str = "",
    you: str = "",
    names: Mapping[str, str] | None = None,
    returns: ResultShape | None = None,
    slow: str | None = None,
    idempotent: bool = False,
    destructive: bool = False,
    agents: bool = False,
) -> Callable[[Callable[..., Any]], Tool]:
    """Serve a function as the tool of its name, derived from the verb of that name of a space.

    The verb states role, description, parameters and result; the function states what differs: its docstring is more text for
    models, an annotated parameter is a further one or replaces the verb's, ``**arguments`` takes the verb's other parameters. A
    parameter that the function does not take is not offered. ``you``: the parameter that is the caller's agent by default;
    ``names``: other names of parameters for clients; ``returns``: the fields of the result, where the function returns a mapping;
    ``agents``: a user with the role agent may call it, because it acts for ``ToolCall.agent`` only.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        base = verb_named(verb) if verb else None
        params = tuple(_param(param, you, names or {}) for param in _params(function, base))
        result = returns or (_shape(verb) if verb else shape_of(resolve(function.__annotations__["return"], function.__module__)))
        description = " ".join(f"{base.summary if base else ''} {function.__doc__ or ''}".split())
        least = role or (base.role if base else VIEWER)
        repeatable = idempotent or least == VIEWER
        own = agents or (you and base is not None and base.route.agent == you)
        facts = (you, slow, repeatable, destructive, bool(own))
        return Tool(function.__name__, title, description, least, params, result, function, *facts)

    return decorate


def served(verb: str, title: str, text: str = "", *, name: str = "", key: str = "", **options: Any) -> Tool:
    """Serve a verb as it is. ``text``: more for models; ``name``: of the tool; ``key``: the field of a result that is a list."""

    def run(call: ToolCall, **arguments: Any) -> Any:
        result = attrgetter(verb)(call.space)(**arguments)
        return {key: result} if key else result

    run.__name__, run.__doc__ = name or verb, text
    return tool(title, verb, returns=ResultShape(**{key: verb}) if key else None, **options)(run)


def _params(function: Callable[..., Any], verb: Verb | None) -> Iterator[Param]:
    """The parameters of a tool: those of its verb that the function takes, then its own."""
    own_params = {param.name: param for param in params_of(function, {})}
    takes_rest = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in signature(function).parameters.values())
    for param in () if verb is None else verb.params:
        own = own_params.pop(param.name, None)
        if own is not None:
            yield own._replace(description=own.description or param.description)
        elif takes_rest and param.name != "by":
            yield param
    yield from own_params.values()


def _param(param: Param, you: str, names: Mapping[str, str]) -> Param:
    param = param._replace(wire_name=names.get(param.name, ""))
    if param.name != you:
        return param
    shape = param.shape if isinstance(param.shape, Optional) else Optional(param.shape)
    return param._replace(shape=shape, default=None, description=f"{param.description} (default: yourself)")


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
