"""The MCP server: the tools, resources and prompts of one space, for any transport, and the stdio transport.

Invariant: every request is checked for caller, role and arguments, in this order, before it has any effect. Errors become
responses and never end the server. On stdio, only protocol messages go to standard output, and the server ends with its input.
"""

from __future__ import annotations

import json
from functools import cached_property
from inspect import iscoroutinefunction

import anyio
import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from clia.errors import CliaError, FileError, InvalidInput, NotFound
from clia.mcp import behaviour_tools, decisions, lineage_tools, permissions, resources, space_tools
from clia.mcp.caller import origin_of
from clia.mcp.calls import Caller, Exchange, SpaceContext, ToolCall
from clia.mcp.startup_cache import FirstRequests, KeptAnswers, first_requests
from clia.mcp.toolbox import Tool, arguments, broken, input_schema, output_schema, protocol_error, refused
from clia.verbs import VIEWER, set_channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from mcp.server.context import ServerRequestContext

    from clia.facade.space import Space
    from clia.mcp.startup_cache import EarlyAnswers

    Context = ServerRequestContext[Any, Any]
    R = TypeVar("R")

_MODULES = (lineage_tools, space_tools, decisions, permissions, behaviour_tools)
TOOLS = {tool.name: tool for module in _MODULES for tool in vars(module).values() if isinstance(tool, Tool)}
CORE = (
    *("whoami", "plan", "journal", "agents", "spawn", "commit", "trace", "log", "merge"),
    *("request_decision", "decision", "permission_prompt"),
)
"""The tools that are listed by default: every listed tool costs the model context. The others can be called all the same."""
_CORE_SCHEMA_MAX = 2000
"""Characters of an output schema in the default list; a larger one is left out."""
NAME = "clia"
_THREADS = 16


def server_of(
    place: SpaceContext, version: str, caller_of: Callable[[Context], Caller], security: RequestStateSecurity
) -> Server[Any]:
    """Create a server. ``caller_of`` identifies the caller; ``security`` seals the state that a client carries between rounds."""
    desk = _RequestHandlers(place, caller_of)
    server: Server[Any] = Server(
        NAME,
        version=version,
        title="clia",
        description="The system of record for AI agents in a git repository.",
        instructions=resources.INSTRUCTIONS,
        get_tool_input_schema={name: tool.input_schema for name, tool in desk.tools.items()}.get,
        on_list_tools=desk.list_tools,
        on_call_tool=desk.call_tool,
        on_list_resources=desk.list_resources,
        on_list_resource_templates=desk.list_templates,
        on_read_resource=desk.read_resource,
        on_list_prompts=desk.list_prompts,
        on_get_prompt=desk.get_prompt,
        on_completion=desk.complete,
    )
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    return server


class _RequestHandlers:
    """Handlers for each kind of request."""

    def __init__(self, place: SpaceContext, caller_of: Callable[[Context], Caller]) -> None:
        self._place = place
        self._who = caller_of
        self.tools = {name: described(tool) for name, tool in TOOLS.items()}
        self.listed = list(self.tools.values()) if place.all_tools else core_tools(self.tools)

    @cached_property
    def _limiter(self) -> CapacityLimiter:
        """A separate thread pool, so that agents do not slow down the pages of a forge. Bound to the running event loop."""
        return CapacityLimiter(_THREADS)

    # Tools

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        del params
        return types.ListToolsResult(tools=list(self.tools.values()) if _asks_for_all(context) else self.listed)

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}", {"tools": list(TOOLS)})
        try:
            caller = self._who(context)
            caller.require_tool(tool)
            set_channel("mcp")
            values = arguments(tool.params, params.arguments or {})
            result = await _done(tool, Exchange(self._place, caller, context, params, self._limiter), values)
            if isinstance(result, types.InputRequiredResult):
                return result
            text = _sendable(json.dumps(tool.result.encode(result), ensure_ascii=False, separators=(",", ":")))
            return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=json.loads(text))
        except MCPError:
            raise
        except Exception as err:  # noqa: BLE001  # a bug becomes a logged error result
            return refused(self._error(err, f"tool {tool.name}"))

    # Resources and prompts

    async def list_resources(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        del params
        return types.ListResourcesResult(resources=await self._look(context, "resources", resources.listed))

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del context, params
        return types.ListResourceTemplatesResult(resource_templates=resources.templates())

    async def read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        text = await self._look(context, uri, lambda call: _sendable(resources.read(call, uri)))
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=text, mime_type=resources.JSON)])

    async def list_prompts(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        del params
        return types.ListPromptsResult(prompts=await self._look(context, "prompts", resources.listed_prompts))

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return await self._look(context, params.name, lambda call: resources.rendered(call, params.name, params.arguments or {}))

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        ref, typed = params.ref, params.argument
        uri = ref.uri if isinstance(ref, types.ResourceTemplateReference) else ""
        completion = await self._look(context, uri, lambda call: resources.completed(call, uri, typed.name, typed.value))
        return types.CompleteResult(completion=completion)

    async def _look(self, context: Context, name: str, work: Callable[[ToolCall], R]) -> R:
        """Read something in a thread; errors become protocol errors."""
        try:
            caller = self._who(context)
            caller.require(VIEWER)
            return await to_thread.run_sync(work, ToolCall(self._place, caller, origin_of(context)), limiter=self._limiter)
        except Exception as err:  # noqa: BLE001  # as above
            raise protocol_error(self._error(err, name), {"uri": name}) from None

    def _error(self, err: Exception, name: str) -> CliaError:
        """The error for the client, as the command line has it. A remote caller learns nothing about files of this machine."""
        if isinstance(err, CliaError):
            return self._place.in_error(err)
        if isinstance(err, OSError) and self._place.at_hand:
            return FileError(str(err))
        return InvalidInput("a name or text is not Unicode", code="invalid-text") if isinstance(err, UnicodeError) else broken(name)


async def _done(tool: Tool, exchange: Exchange, values: dict[str, Any]) -> Any:
    if iscoroutinefunction(tool.run):
        return await tool.run(exchange, **values)
    if tool.slow is not None:
        await exchange.tell(f"{tool.name}: {tool.slow}")
    call = exchange.call
    result = await exchange.do(lambda: tool.run(call, **tool.arguments(call, values)))
    if tool.slow is not None:
        await exchange.tell(f"{tool.name}: done")
    return result


def _sendable(text: str) -> str:
    """Text from git may not be valid Unicode; replace what cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def core_tools(tools: Mapping[str, types.Tool]) -> list[types.Tool]:
    """The tools of the default list."""
    core = [tools[name] for name in CORE]
    return [
        tool.model_copy(update={"output_schema": None}) if len(json.dumps(tool.output_schema)) > _CORE_SCHEMA_MAX else tool
        for tool in core
    ]


def _asks_for_all(context: Context) -> bool:
    """Whether the address of an HTTP request ends in ``?tools=all``."""
    return context.request is not None and context.request.query_params.get("tools") == "all"


def described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=input_schema(tool.params),
        output_schema=output_schema(tool.result),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.role == VIEWER,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def prepare_answers(version: str, directory: str, code: str) -> None:
    """Keep the answers to the first requests of clients, for each version of the protocol. They depend on no space."""

    def unopened() -> Space:
        raise NotFound("no space is open")

    place = SpaceContext("", unopened)
    versions = dict.fromkeys(HANDSHAKE_PROTOCOL_VERSIONS, True) | dict.fromkeys(MODERN_PROTOCOL_VERSIONS, False)
    for protocol, has_handshake in versions.items():
        requests = first_requests(protocol, has_handshake=has_handshake)
        anyio.run(_serve, place, version, FirstRequests(KeptAnswers(directory, code), requests))


def serve(place: SpaceContext, version: str, messages: EarlyAnswers) -> None:
    """Serve until standard input ends."""
    try:
        anyio.run(_serve, place, version, messages)
    finally:
        place.close()


async def _serve(place: SpaceContext, version: str, messages: EarlyAnswers | FirstRequests) -> None:
    caller = Caller()
    file: Any = anyio.wrap_file(messages)  # type: ignore[arg-type]  # it has what the SDK calls
    server = server_of(place, version, lambda _: caller, RequestStateSecurity.ephemeral())
    async with stdio_server(file, file) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
