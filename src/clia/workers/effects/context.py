"""The context of a handler: the request, the space, and how to report progress.

Invariant: a handler may be called several times for one request, even while an earlier call hangs. ``key`` is the same each
time, so that effects can be made idempotent. ``cancelled`` is set when the answer is no longer needed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import BackendError, CliaError, InvalidInput, StaleRef
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

_FIRST_LIMIT = 32
_COMMIT_TRIES = 4


class Cleaning(NamedTuple):
    """Functions that remove secrets from what is recorded; they change nothing if redaction is off."""

    text: Callable[[str], str]
    chunk: Callable[[str, RedactionState], tuple[str, RedactionState]]  # one chunk of a stream, with the state after the last one


class Tools(NamedTuple):
    """What effects reach the outside world with."""

    clock: Clock
    monotonic: Callable[[], float]  # for durations within this process
    environment: Mapping[str, str]
    http: HttpClient
    programs: ProgramRunner
    cleaning: Cleaning


class Context(NamedTuple):
    """One attempt at one request."""

    space: Space
    request: Request
    attempt: int  # starts at 1
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
        """An idempotency key: the same for every attempt at this request, unique among requests."""
        return f"{self.space.id}/{self.agent}/{self.request.id}"

    def trace(self, text: str, kind: str = "console", data: Mapping[str, Any] | None = None) -> None:
        """Append to the agent's trace. Retries while the store is unavailable."""
        entry_data = {"request": self.request.id, **(data or {})}
        retry_while_unavailable(lambda: self.space.trace(self.agent, kind, text, data=entry_data), self.cancelled)

    def progress(self, text: str) -> None:
        """Show a line in the worker's status. It is not recorded."""
        self.tell(" ".join(text.split())[:200])

    def mark(self) -> dict[str, str]:
        """The metadata of a commit made for this request.

        Includes the time: request ids may repeat after a store was lost.
        """
        return {"request": self.request.id, "asked": self.request.since}

    def once(self, commit_on: Callable[[str], str]) -> str:
        """Return the commit for this request: an earlier attempt's, or a new one made by ``commit_on(head)``.

        Looks again if the head moved: another worker or a late earlier attempt may have committed.
        """
        for _ in range(_COMMIT_TRIES):
            head = self.space.head(self.agent)
            earlier = self.marked()
            if earlier is not None:
                return earlier.cid
            with suppress(StaleRef):
                return commit_on(head)
        return commit_on(self.space.head(self.agent))

    def marked(self) -> AgentCommit | None:
        """Return the commit that an earlier attempt made for this request."""
        checked, limit = 0, _FIRST_LIMIT
        while True:
            commits = self.space.log(self.agent, own=True, limit=limit)
            for commit in commits[checked:]:
                if self.mark().items() <= commit.meta.items():
                    return commit
            if len(commits) < limit:
                return None
            checked, limit = limit, limit * 8


def is_away(error: CliaError) -> bool:
    """Whether the store is unavailable or failed just now, so that a retry may succeed."""
    return isinstance(error, BackendError) and (error.retryable or error.code == "store-unsure")


class Payload:
    """The object that a request carries. Unknown or mistyped fields are refused by name."""

    def __init__(self, kind: str, payload: Any, *fields: str) -> None:
        self._kind = kind
        if not isinstance(payload, dict):
            raise self.refusal("payload", "must be an object")
        self._values = payload
        for key in payload:
            if fields and key not in fields:
                raise self.refusal(key, f"is unknown; expected {', '.join(fields)}")

    def refusal(self, field: str, problem: str) -> InvalidInput:
        return InvalidInput(f"{self._kind}: {field} {problem}", code="invalid-payload", fields={"kind": self._kind, "field": field})

    def has(self, field: str) -> bool:
        return self._values.get(field) is not None

    def text(self, field: str, default: str | None = None) -> str:
        value = self._values.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not (value or default is not None):
            raise self.refusal(field, "is required and must be a string" if default is None else "must be a string")
        return value

    def texts(self, field: str) -> list[str]:
        value = self._values.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
            raise self.refusal(field, "must be a list of strings")
        return value

    def truth(self, field: str, default: bool) -> bool:
        value = self._values.get(field, default)
        if not isinstance(value, bool):
            raise self.refusal(field, "must be true or false")
        return value

    def object(self, field: str) -> Mapping[str, Any]:
        value = self._values.get(field)
        if not isinstance(value, dict):
            raise self.refusal(field, "is required and must be an object")
        return value

    def value(self, field: str) -> Any:
        return self._values.get(field)
