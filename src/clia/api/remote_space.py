"""``RemoteSpace``: the library's interface over HTTP.

Invariant: every verb has the name, the parameters and the words of ``Space``'s, being made from it and from the table of verbs; it
answers with the same records and fails with the same errors. What only makes sense on the space's own machine says so. Progress
is not reported: a forge answers once.
"""

from __future__ import annotations

import inspect
import threading
from functools import wraps
from urllib.parse import quote, urlsplit

from clia.api.arguments import question
from clia.api.connection import Line, check_token
from clia.api.following import follow
from clia.api.records import DECIDED, GIVEN, SESSION
from clia.api.shapes import Listed
from clia.api.verbs import GET, LOCAL, all_verbs
from clia.errors import InvalidInput, NotAllowed, StoreError
from clia.facade.space import Space
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import TracebackType
    from typing import Any, Self

    from clia.api.verbs import Verb
    from clia.sessions.model import Session
    from clia.sessions.records import Resumed

    _Interface = Space
else:
    _Interface = object  # it has none of a space's parts, only its verbs

_VERBS = {verb.name: verb for verb in all_verbs()}
_ROOT = "/api/v1/spaces"
_PAGE = 5000


class RemoteSpace(_Interface):
    """A space that a forge serves. ``space`` names it where the forge serves several; ``timeout`` is in seconds, for each call."""

    def __init__(self, url: str, token: str, *, space: str | None = None, timeout: float = 30) -> None:
        from clia.http_client import HttpConnectionPool

        self._url = _check_url(url)
        self._name = None if space is None else check_text(space, "space")
        self._line = Line(HttpConnectionPool(self._url), check_token(token), _check_seconds(timeout))
        self._id: str | None = None
        self._closed = False

    @property
    def id(self) -> str:
        """The space's id, the same in every clone."""
        if self._id is None:
            self._id = str(self._get("")["id"])
        return self._id

    @property
    def running(self) -> Any:
        """What its sessions run on: for workers."""
        raise _local("running")

    @property
    def captures(self) -> Any:
        """Sessions of tools that are captured: for ingest."""
        raise _local("captures")

    @property
    def has_hub(self) -> bool:
        """Whether the clone that is served shares its refs with other machines."""
        raise _local("has_hub")

    @property
    def peer_tokens(self) -> Any:
        """What peers show at the forge."""
        raise _local("peer_tokens")

    def close(self) -> None:
        """Lets go of the connections."""
        self._closed = True
        self._line.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteSpace({self._url!r}, space={self._name!r})"

    def events(self, after: str | None = None) -> Generator[dict[str, Any]]:
        """What happens in the space, as it happens: after the ``place`` of another event, or from now on. It has no end."""
        place = None if after is None else check_text(after, "after")
        if place is not None and not (place.isascii() and place.isprintable()):
            raise InvalidInput("after is the place of an event", code="invalid-field", fields={"field": "after"})
        return follow(self._line, self._target("/events"), place)

    # How verbs are asked for

    def _asked(self, name: str, given: Mapping[str, Any]) -> Any:
        verb = _VERBS[name]
        if verb.paged:
            return self._read(verb, self._pages(verb, given))
        asked = question(verb, given)
        if verb.method == GET:
            return self._read(verb, self._get(asked.target))
        return self._read(verb, self._line.change(verb.method, self._target(asked.target), asked.body))

    def _pages(self, verb: Verb, given: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        more: dict[str, str | int] = {"page_size": _PAGE}
        while True:
            page = self._get(question(verb, given, more).target)
            found += page["items"]
            if page["next"] is None:
                return found
            more["cursor"] = page["next"]

    def _get(self, target: str) -> Any:
        return self._line.get(self._target(target))

    def _target(self, below: str) -> str:
        if self._closed:
            raise StoreError("the space is closed", code="store-closed")
        if self._name is None:
            self._name = _only(self._line.get(_ROOT))
        return f"{_ROOT}/{quote(self._name, safe='')}{below}"

    def _read(self, verb: Verb, answer: Any) -> Any:
        """The records in an answer; sessions ask for what they were given when somebody wants to see it."""
        if verb.result is None:
            return None
        if verb.result is SESSION:
            return self._session(answer)
        if verb.result is DECIDED:
            return DECIDED.decode(answer, "answer")._replace(session=self._session(answer["session"]))
        if isinstance(verb.result, Listed) and verb.result.inner is SESSION:
            return [self._session(each) for each in answer]
        return verb.result.decode(answer, "answer")

    def _session(self, answer: Any) -> Session:
        loaded: list[tuple[Any, list[Resumed]]] = []

        def load() -> tuple[Any, list[Resumed]]:
            if not loaded:
                asked = question(_VERBS["given"], {"agent": made.agent, "session_id": made.id})
                given, resumes = GIVEN.decode(self._get(asked.target), "answer")
                loaded.append((given, resumes[: made.resumed]))  # as it was when the session was read
            return loaded[0]

        made = SESSION.read(answer, "answer", load)
        return made


def _only(served: Any) -> str:
    names = [str(each["name"]) for each in served]
    if len(names) == 1:
        return names[0]
    raise InvalidInput(
        f"the forge serves {len(names)} spaces; say which one is meant",
        code="space-not-named",
        hints=[f"one of them is {name}" for name in names],
        fields={"field": "space", "spaces": names},
    )


def _check_url(url: object) -> str:
    """Without a trailing slash; who asks is said by the token and by nothing in the address."""
    text = check_text(url, "url")
    try:
        parts = urlsplit(text)
        sound = parts.username is parts.password is None and not parts.query and not parts.fragment and text.isprintable()
    except ValueError:
        sound = False
    if not sound or not text.isascii() or " " in text:
        raise InvalidInput(
            "a forge's address is http:// or https:// with a host, and perhaps a path",
            code="invalid-url",
            fields={"field": "url"},
        )
    return text.rstrip("/")


def _check_seconds(timeout: object) -> float:
    if isinstance(timeout, (int, float)) and 0 < timeout <= threading.TIMEOUT_MAX:
        return float(timeout)
    raise InvalidInput("timeout is a number of seconds", code="invalid-field", fields={"field": "timeout"})


def _local(name: str) -> NotAllowed:
    return NotAllowed(
        f"{name} is for the machine that the space is on",
        code="local-only",
        hints=[LOCAL[name]],
        fields={"verb": name},
    )


def _remote(name: str) -> Callable[..., Any]:
    """A verb of ``Space``, asked over HTTP."""
    local = getattr(Space, name)
    signature = inspect.signature(local)

    @wraps(local)
    def verb(self: RemoteSpace, *args: Any, **more: Any) -> Any:
        bound = signature.bind(self, *args, **more)
        bound.apply_defaults()
        given = dict(bound.arguments)
        if name in LOCAL:
            raise _local(name)
        asked = "repair" if name == "doctor" and given["repair"] else name
        return self._asked(asked, given)

    verb.__qualname__, verb.__module__ = f"RemoteSpace.{name}", __name__
    return verb


for _each in [*_VERBS, *LOCAL]:
    if _each not in vars(RemoteSpace) and inspect.isfunction(getattr(Space, _each, None)):
        setattr(RemoteSpace, _each, _remote(_each))
