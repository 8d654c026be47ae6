"""One call, with whoever made it still on the line.

Invariant: the library runs in threads and the loop never waits for it; what is said meanwhile goes only to a client that asked to
hear it.
"""

from __future__ import annotations

from functools import partial

from anyio import from_thread, to_thread

from clia.mcp.place import Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ParamSpec, TypeVar

    from anyio import CapacityLimiter
    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams, ElicitResult

    from clia.mcp.place import Caller, Place

    P = ParamSpec("P")
    R = TypeVar("R")


class Exchange:
    def __init__(
        self,
        place: Place,
        caller: Caller,
        context: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        limiter: CapacityLimiter,
    ) -> None:
        self.call = Call(place, caller, self._say)
        self._context = context
        self._params = params
        self._limiter = limiter
        self._told = 0

    async def do(self, work: Callable[P, R], *args: P.args, **more: P.kwargs) -> R:
        """Does something in a thread."""
        return await to_thread.run_sync(partial(work, *args, **more), limiter=self._limiter)

    async def tell(self, message: str) -> None:
        """One step further, for whoever asked for progress."""
        self._told += 1
        await self._context.session.report_progress(float(self._told), None, message)

    def _say(self, message: str) -> None:
        from_thread.run(self.tell, message)

    # Asking back

    @property
    def protocol(self) -> str:
        return self._context.protocol_version

    @property
    def can_show_forms(self) -> bool:
        """Whether the client said that it can; without a word on how, it means forms."""
        known = self._context.session.client_capabilities
        said = None if known is None else known.elicitation
        return said is not None and (said.form is not None or said.url is None)

    @property
    def can_ask_back(self) -> bool:
        return self._context.session.can_send_request

    @property
    def state(self) -> str | None:
        """What the round before left for this one."""
        return self._params.request_state

    @property
    def answers(self) -> Mapping[str, Any]:
        return self._params.input_responses or {}

    async def show(self, message: str, schema: dict[str, Any]) -> ElicitResult:
        """Has the client show a form, and waits for what becomes of it."""
        return await self._context.session.elicit_form(message, schema, self._context.request_id)
