"""The context of a call: the space, the caller and the agent.

Invariant: a server that is bound to an agent acts as no other. An HTTP caller is on another machine, so it sees no local paths, the
working directory does not identify its agent, and its role limits it. A caller on standard input is the local user and has no
limits. Library code runs in threads and never blocks the event loop; progress goes only to clients that asked for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

from anyio import from_thread, to_thread

from clia.errors import CliaError, InvalidInput, NotAllowed
from clia.identities import checks
from clia.mcp.caller import UNKNOWN, CallOrigin, announced, captured_session, only_open_session, origin_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ParamSpec, TypeVar

    from anyio import CapacityLimiter
    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams, ElicitResult

    from clia.facade.space import Space
    from clia.identities.service import RelativePaths
    from clia.mcp.toolbox import Tool
    from clia.users.service import User

    P = ParamSpec("P")
    R = TypeVar("R")

_NO_SPACE = ("no-such-space", "no-such-repository")


class SpaceContext:
    """A directory and its space, if there is one."""

    def __init__(
        self,
        path: str,
        opened: Callable[[], Space],
        *,
        agent: str | None = None,
        session: str = "",
        refresh: Callable[[Space], object] = lambda _: None,
        address: Callable[[Space], str | None] = lambda _: None,
        paths: RelativePaths | None = None,  # for remote callers
        waits: WaitSlots | None = None,
        all_tools: bool = False,
    ) -> None:
        """``all_tools``: list every tool, not only the core ones."""
        self.path = path
        self.all_tools = all_tools
        self.agent = agent  # the agent that the server is bound to
        self.session = session  # of the tool that started the server
        self.refresh = refresh  # records the events of hooks
        self.at_hand = paths is None
        self.waits = waits or WaitSlots()
        self._address = address
        self._paths = paths
        self._opened = opened
        self._space: Space | None = None
        self._mutex = threading.Lock()
        self.stopping = False  # waiting calls must end
        self.asking = threading.Lock()  # makes "check for the same pending question, then ask" atomic

    def space(self) -> Space:
        """The space; opened on first use, and retried while it does not exist."""
        with self._mutex:
            if self._space is None:
                self._space = self._opened()
            return self._space

    def close(self) -> None:
        with self._mutex:
            if self._space is not None:
                self._space.close()

    def inbox(self, agent: str, request: str) -> str | None:
        """The URL at which people answer a request, if a forge is known."""
        base = self._address(self.space())
        return None if base is None else f"{base}/inbox/{quote(agent, safe='')}/{quote(request, safe='')}"

    def in_json(self, value: Any) -> Any:
        """A value with local paths replaced for remote callers."""
        return value if self._paths is None else self._paths.in_json(value)

    def in_error(self, err: CliaError) -> CliaError:
        return err if self._paths is None else self._paths.in_error(err)


class WaitSlots:
    """Limits how many calls wait for people at once; over HTTP each holds a connection."""

    def __init__(self, most: int = 256, per_user: int = 64) -> None:
        self._most = most
        self._per_user = per_user
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def room(self, requestor: str) -> Iterator[bool]:
        """Yield whether the user may start another wait; the slot is held until the block ends. Used by one event loop."""
        free = self._waiting[requestor] < self._per_user and self._waiting.total() < self._most
        self._waiting[requestor] += free
        try:
            yield free
        finally:
            self._waiting[requestor] -= free
            self._waiting += Counter()  # drops zero counts


class Caller(NamedTuple):
    """The caller: a user of the forge, or None for the local user."""

    user: User | None = None
    now: Callable[[str], User | None] = lambda _: None  # looks up the user again

    @property
    def name(self) -> str:
        return "" if self.user is None else self.user.name

    @property
    def by(self) -> str | None:
        """The name recorded with answers; None for the local user."""
        return None if self.user is None else self.user.by

    def may(self, role: str) -> bool:
        return self.user is None or self.user.may(role)

    def still(self, role: str) -> bool:
        """Check the role again, since a call may have waited for long."""
        if self.user is None:
            return True
        user = self.now(self.user.name)
        return self.may(role) and user is not None and user.may(role)

    def require(self, role: str) -> None:
        if self.user is not None:
            self.user.require(role)

    def require_tool(self, tool: Tool) -> None:
        """Refuse a tool that the caller may not call. An agent may also call those that act for itself."""
        if self.user is None or self.user.acting is None or not tool.for_agents:
            self.require(tool.role)


class ToolCall:
    """One tool call, as its function sees it. The function runs in a thread and may block."""

    def __init__(
        self, place: SpaceContext, caller: Caller, origin: CallOrigin = UNKNOWN, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.place = place
        self.caller = caller
        self.origin = origin
        self.say = say  # reports progress

    @property
    def space(self) -> Space:
        return self.place.space()

    def space_or_none(self) -> Space | None:
        try:
            return self.place.space()
        except CliaError as err:
            if err.code in _NO_SPACE:
                return None
            raise

    def agent(self, requested: str | None) -> str:
        """The agent of this call: the one that the server is bound to, else the named one, else that of the caller's session."""
        bound = self._bound()
        user = self.caller.user
        if user is not None and user.acting is not None:
            requested = requested or (user.agents[0] if len(user.agents) == 1 else None)
            if requested is not None:
                user.require_agent(requested)
        if bound and requested and requested != bound:
            message = f"this server acts as agent {bound!r} and cannot act as {requested!r}"
            hints = [f"leave out the argument, or start another server: clia mcp --agent {requested}"]
            raise NotAllowed(message, hints=hints, fields={"agent": bound, "requested": requested})
        name = bound or requested or (self._session_agent() if self.place.at_hand else None)
        if name is not None:
            return name
        space = self.space_or_none()
        names = space.agents() if space is not None else [agent.slug for agent in checks.roster(self.place.path).agents]
        names = names[:50]
        hints = [f"agents here: {', '.join(names)}" if names else "no agents yet; create one with: clia spawn NAME"]
        if self.place.at_hand:
            hints += ["set it for every call with clia mcp --agent NAME or CLIA_AGENT"]
            hints += ["record the sessions of your tool with: clia hook install"] if self.origin.session else []
        message, fields = "cannot tell which agent you are; set the agent argument", {"field": "agent", "agents": names}
        raise InvalidInput(message, code="missing-field", hints=hints, fields=fields)

    def _bound(self) -> str | None:
        """The agent that the server was started for, else the one whose checkout contains its directory."""
        if self.place.agent is not None or not self.place.at_hand:
            return self.place.agent
        space = self.space_or_none()
        checkout = None if space is None else space.checkout_at(self.place.path)
        return None if checkout is None else checkout.agent

    def _session_agent(self) -> str | None:
        """The agent of the captured session that the call comes from or, if the client does not name one, of the only open
        session."""
        space, place = self.space_or_none(), self.place
        if space is None:
            return None
        origin = announced(space, self.origin, place.session)
        if not origin.session:
            return only_open_session(space, place.path, origin.client)
        captured = captured_session(space, origin)
        if captured is None:
            place.refresh(space)  # it may have just begun
            captured = captured_session(space, origin)
        return None if captured is None else captured.agent


class Exchange:
    """A tool call with its client: threads, progress and forms."""

    def __init__(
        self,
        place: SpaceContext,
        caller: Caller,
        context: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        limiter: CapacityLimiter,
    ) -> None:
        origin = origin_of(context, params.name, params.arguments)
        self.call = ToolCall(place, caller, origin, lambda message: from_thread.run(self.tell, message))
        self.context = context
        self.params = params
        self._limiter = limiter
        self._reports = 0

    async def do(self, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """Run a function in a thread."""
        return await to_thread.run_sync(partial(work, *args, **options), limiter=self._limiter)

    async def tell(self, message: str) -> None:
        """Report progress to the client, if it asked for it."""
        self._reports += 1
        await self.context.session.report_progress(float(self._reports), None, message)

    # Elicitation

    @property
    def can_show_forms(self) -> bool:
        """Whether the client supports forms; a client that names no mode means forms."""
        capabilities = self.context.session.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    async def show(self, message: str, schema: dict[str, Any]) -> ElicitResult:
        """Show a form in the client and wait for the result."""
        return await self.context.session.elicit_form(message, schema, self.context.request_id)
