"""What a handler is given: the request, the space, and ways to say how it goes.

Invariant: a handler may be called more than once for one request, also while an earlier call still hangs; ``key`` is the
same each time, so that what must happen once can be known again. ``cancelled`` is set when nobody waits for it any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import BackendError, CliaError, StaleRef
from clia.values.background import retry_while_unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.facade.config import Config
    from clia.facade.space import Space
    from clia.http_client import HttpClient
    from clia.programs.runner import ProgramRunner
    from clia.redaction.secrets import RedactionState
    from clia.sessions.model import Request
    from clia.space.model import AgentCommit
    from clia.values.clock import Clock

    Handler = Callable[["Context", Any], Any]

_FIRST_LOOK = 32
_LOOKS = 4


class Cleaning(NamedTuple):
    """How secrets are taken out of what is recorded; as they are where the operator said so."""

    text: Callable[[str], str]
    chunk: Callable[[str, RedactionState], tuple[str, RedactionState]]  # of a stream, with what the last one left for it


class Tools(NamedTuple):
    """Through what effects reach the world."""

    clock: Clock
    monotonic: Callable[[], float]  # seconds on a clock that is never set: for what passes within this process
    environment: Mapping[str, str]
    http: HttpClient
    programs: ProgramRunner
    workplace: str  # the directory for worktrees
    cleaning: Cleaning


class Context(NamedTuple):
    """One attempt at one request."""

    space: Space
    request: Request
    attempt: int  # from 1
    config: Config
    options: Mapping[str, Any]  # the operator's table for this kind: [effects.KIND]
    tools: Tools
    cancelled: threading.Event
    tell: Callable[[str], None]

    @property
    def agent(self) -> str:
        return self.request.agent

    @property
    def session(self) -> str:
        return self.request.session

    @property
    def key(self) -> str:
        """The same for every attempt at this request, and for no other request anywhere."""
        return f"{self.space.id}/{self.agent}/{self.request.id}"

    def trace(self, text: str, kind: str = "console", data: Mapping[str, Any] | None = None) -> None:
        """Adds to the agent's trace. A store that is away for a moment is waited for."""
        said = {"request": self.request.id, **(data or {})}
        retry_while_unavailable(lambda: self.space.trace(self.agent, kind, text, data=said), self.cancelled)

    def progress(self, text: str) -> None:
        """Shows a line to whoever looks at the worker; nothing is kept."""
        self.tell(" ".join(text.split())[:200])

    def mark(self) -> dict[str, str]:
        """What a commit made for this request carries. A request's number comes again where a store was lost; its time not."""
        return {"request": self.request.id, "asked": self.request.since}

    def once(self, make: Callable[[str], str]) -> str:
        """The commit for this request: that of an earlier attempt, else the one that is made on the head that was looked at.

        Somebody may work on the agent meanwhile, and an earlier attempt may come to its end late: then it is looked at again.
        """
        for _ in range(_LOOKS):
            head = self.space.head(self.agent)
            earlier = self.marked()
            if earlier is not None:
                return earlier.cid
            with suppress(StaleRef):
                return make(head)
        return make(self.space.head(self.agent))

    def marked(self) -> AgentCommit | None:
        """The commit that an earlier attempt made for this request."""
        looked, limit = 0, _FIRST_LOOK
        while True:
            found = self.space.log(self.agent, own=True, limit=limit)
            for commit in found[looked:]:
                if self.mark().items() <= commit.meta.items():
                    return commit
            if len(found) < limit:
                return None
            looked, limit = limit, limit * 8


def is_away(error: CliaError) -> bool:
    """Whether a store is away, or was lost just then: the same again may work."""
    return isinstance(error, BackendError) and (error.retryable or error.code == "store-unsure")
