"""Where a server stands, who calls it, and which agent is meant.

Invariant: whoever calls over HTTP is on another machine: no path of this one is told, the working directory says nothing about
them, and they may do what their role may. Whoever started a server at their own terminal may do what they may anyway.


One call, with whoever made it still on the line.

Invariant: the library runs in threads and the loop never waits for it; what is said meanwhile goes only to a client that asked to
hear it.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, ParamSpec, TypeVar

    from anyio import CapacityLimiter
    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams, ElicitResult

    from clia.facade.space import Space
    from clia.users.service import User

    P = ParamSpec("P")
    R = TypeVar("R")

_NO_SPACE = ("no-such-space", "no-such-repository")


class Place:
    """One directory, the space that is there if any, and how its things are told."""

    def __init__(
        self,
        path: str,
        opened: Callable[[], Space],
        *,
        agent: str | None = None,
        address: Callable[[Space], str | None] = lambda _: None,
        paths: Paths | None = None,
        waits: Waits | None = None,
    ) -> None:
        self.path = path
        self.agent = agent  # who it is that calls, where nothing else is said
        self.at_hand = paths is None
        self.waits = waits or Waits()
        self._address = address
        self._paths = paths
        self._opened = opened
        self._space: Space | None = None
        self._mutex = threading.Lock()
        self.stopping = False  # whoever waits is to end
        self.asking = threading.Lock()  # whether a question waits already, and asking it, are one step

    def space(self) -> Space:
        """Opened when it is first needed, and tried again as long as there is none."""
        with self._mutex:
            if self._space is None:
                self._space = self._opened()
            return self._space

    def close(self) -> None:
        with self._mutex:
            if self._space is not None:
                self._space.close()

    def inbox(self, agent: str, request: str) -> str | None:
        """Where people answer a request, in a forge that is known."""
        base = self._address(self.space())
        return None if base is None else f"{base}/inbox/{quote(agent, safe='')}/{quote(request, safe='')}"

    def said(self, value: Any) -> Any:
        """A value with paths in it, as whoever calls may know it."""
        return value if self._paths is None else self._paths.in_json(value)

    def told(self, err: CliaError) -> CliaError:
        return err if self._paths is None else self._paths.told(err)


class Waits:
    """How many calls may wait for people at a time: over HTTP each is a connection that nobody else can have."""

    def __init__(self, most: int = 256, each: int = 64) -> None:
        self._most = most
        self._each = each
        self._now: Counter[str] = Counter()

    @contextmanager
    def room(self, who: str) -> Iterator[bool]:
        """Whether there is room for one more of somebody's; it is theirs until the block ends. One event loop has it."""
        free = self._now[who] < self._each and self._now.total() < self._most
        self._now[who] += free
        try:
            yield free
        finally:
            self._now[who] -= free
            self._now += Counter()  # forgets who has none


class Paths(NamedTuple):
    """How paths of this machine are said to others."""

    in_json: Callable[[Any], Any]
    told: Callable[[CliaError], CliaError]


class Caller(NamedTuple):
    """Who calls: a user of the forge, or whoever runs the server (None)."""

    user: User | None = None
    now: Callable[[str], User | None] = lambda _: None  # the user as known at this moment

    @property
    def name(self) -> str:
        return "" if self.user is None else self.user.name

    @property
    def by(self) -> str | None:
        """As answers record who gave them; None: the person that is accountable here."""
        return None if self.user is None else self.user.by

    def may(self, role: str) -> bool:
        return self.user is None or self.user.may(role)

    def still(self, role: str) -> bool:
        """Whether they may at this moment: a call may have waited for long."""
        if self.user is None:
            return True
        known = self.now(self.user.name)
        return self.may(role) and known is not None and known.may(role)

    def require(self, role: str) -> None:
        user = self.user
        if user is not None and not user.may(role):
            raise NotAllowed(
                f"{user.name!r} has the role {user.role}; this takes {role}",
                code="role-too-low",
                hints=[f"an administrator can change the role: clia user change {user.name} --role {role}"],
                fields={"user": user.name, "role": user.role, "needed": role},
            )


class Call:
    """One call of a tool, for the function that does it: in a thread of its own, where it may take its time."""

    def __init__(self, place: Place, caller: Caller, say: Callable[[str], None] = lambda _: None) -> None:
        self.place = place
        self.caller = caller
        self.say = say  # tells whoever waits how far it is

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

    def agent(self, given: str | None) -> str:
        """The agent that is meant: named, else whoever calls is known to be."""
        found = given or self.place.agent or self._checked_out() or self._captured()
        if found is not None:
            return found
        known = self._known()
        hints = [f"agents here: {', '.join(known)}" if known else "there are no agents here yet: clia spawn NAME"]
        hints += ["clia mcp --agent NAME, or CLIA_AGENT, says it for every call"] if self.place.at_hand else []
        raise InvalidInput(
            "say which agent you are: agent", code="missing-field", hints=hints, fields={"field": "agent", "agents": known}
        )

    def _checked_out(self) -> str | None:
        """Whose checkout the working directory is in."""
        space = self.space_or_none() if self.place.at_hand else None
        found = None if space is None else space.checkout_at(self.place.path)
        return None if found is None else found.agent

    def _captured(self) -> str | None:
        """Whose session of a tool is open in the working directory, where there is just one."""
        space = self.space_or_none() if self.place.at_hand else None
        if space is None:
            return None
        top = space.captures.top_of(self.place.path)
        found = {each.agent for each in space.captures.sessions() if each.open and not each.sub and each.place == top}
        return found.pop() if len(found) == 1 else None

    def _known(self) -> list[str]:
        space = self.space_or_none()
        if space is not None:
            return space.agents()[:50]
        return [each.slug for each in checks.roster(self.place.path).agents][:50]


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
