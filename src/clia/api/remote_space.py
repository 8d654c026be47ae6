"""``RemoteSpace``: the library's interface over HTTP.

Invariant: the verbs are those of ``Space`` and its services, with the same parameters, docstrings, results and errors. A method
without a route raises an error with the code ``local-only``. Progress is not reported: a forge answers once. Importing this module
loads no service; each is loaded when it is first used.
"""

from __future__ import annotations

import inspect
import threading
from functools import cache, wraps
from urllib.parse import quote, urlsplit

from clia.api.connection import ForgeConnection, check_token, follow
from clia.errors import InvalidInput, NotAllowed, StoreError
from clia.facade.space import Space
from clia.values.commit_messages import check_text
from clia.verbs import GET, alias, route_of, service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Any, Self

    from clia.api.derivation import Verb
    from clia.sessions.health import Ailment
    from clia.sessions.model import Session
    from clia.sessions.records import Resumed

    _Interface = Space
else:
    _Interface = object  # it has none of a space's parts, only its verbs

_ROOT = "/api/v1/spaces"
PAGE_SIZE = 5000


class RemoteSpace(_Interface):
    """A space that a forge serves. ``space``: its name, if the forge serves several. ``timeout``: seconds for each call."""

    def __init__(self, url: str, token: str, *, space: str | None = None, timeout: float = 30) -> None:
        from clia.http_client import HttpConnectionPool

        self._url = _check_url(url)
        self._name = None if space is None else check_text(space, "space")
        self._connection = ForgeConnection(HttpConnectionPool(self._url), check_token(token), _check_seconds(timeout))
        self._id: str | None = None
        self._closed = False

    @property
    def id(self) -> str:
        """The id of the space, the same in every clone."""
        if self._id is None:
            self._id = str(self._get("")["id"])
        return self._id

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        self._connection.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteSpace({self._url!r}, space={self._name!r})"

    def events(self, after: str | None = None) -> Generator[dict[str, Any]]:
        """Events of the space as they happen: after the ``place`` of another event, or from now on. The stream has no end."""
        place = None if after is None else check_text(after, "after")
        if place is not None and not (place.isascii() and place.isprintable()):
            raise InvalidInput("after must be the position of an event", code="invalid-field", fields={"field": "after"})
        return follow(self._connection, self._target("/events"), place)

    def doctor(self, *, repair: bool = False) -> list[Ailment]:
        """Problems of sessions and refs; with ``repair``, fix those that can be fixed."""
        return self.sessions.repair() if repair else self.sessions.examine()

    # Requests

    def __call__(self, verb: Verb, arguments: Mapping[str, Any]) -> Any:
        """Call a verb; arguments by the library's names."""
        from clia.api.arguments import request_for

        if verb.paged:
            return self._read(verb, self._pages(verb, arguments))
        target, body = request_for(verb, arguments)
        if verb.method == GET:
            return self._read(verb, self._get(target))
        return self._read(verb, self._connection.change(verb.method, self._target(target), body))

    def _pages(self, verb: Verb, arguments: Mapping[str, Any]) -> list[Any]:
        from clia.api.arguments import request_for

        items: list[Any] = []
        paging: dict[str, str | int] = {"page_size": PAGE_SIZE}
        while True:
            page = self._get(request_for(verb, arguments, paging)[0])
            items += page["items"]
            if page["next"] is None:
                return items
            paging["cursor"] = page["next"]

    def _get(self, target: str) -> Any:
        return self._connection.get(self._target(target))

    def _target(self, below: str) -> str:
        if self._closed:
            raise StoreError("the space is closed", code="store-closed")
        if self._name is None:
            self._name = _only(self._connection.get(_ROOT))
        return f"{_ROOT}/{quote(self._name, safe='')}{below}"

    def _read(self, verb: Verb, answer: Any) -> Any:
        """The records in an answer. A session loads its input and resumes when they are read."""
        from clia.api.shapes import Listed
        from clia.api.special_shapes import SESSION
        from clia.sessions.model import Decision

        if verb.result is None:
            return None
        if verb.result is SESSION:
            return self._session(answer)
        if isinstance(verb.result, Listed) and verb.result.inner is SESSION:
            return [self._session(session) for session in answer]
        result = verb.result.decode(answer, "answer")
        return result._replace(session=self._session(answer["session"])) if isinstance(result, Decision) else result

    def _session(self, answer: Any) -> Session:
        from clia.api.special_shapes import SESSION

        loaded: list[tuple[Any, list[Resumed]]] = []

        def load() -> tuple[Any, list[Resumed]]:
            if not loaded:
                record = self.sessions.record(session.agent, session.id)
                loaded.append((record.input, record.resumes[: session.resumed]))  # as it was when the session was read
            return loaded[0]

        session = SESSION.read(answer, "answer", load)
        return session


def _only(served: Any) -> str:
    names = [str(site["name"]) for site in served]
    if len(names) == 1:
        return names[0]
    raise InvalidInput(
        f"the forge serves {len(names)} spaces; choose one",
        code="space-not-named",
        hints=[f"one of them is {name}" for name in names],
        fields={"field": "space", "spaces": names},
    )


def _check_url(url: object) -> str:
    """The address without a trailing slash. Only the token identifies the caller, so the address has no credentials."""
    text = check_text(url, "url")
    try:
        parts = urlsplit(text)
        sound = parts.username is parts.password is None and not parts.query and not parts.fragment and text.isprintable()
    except ValueError:
        sound = False
    if not sound or not text.isascii() or " " in text:
        raise InvalidInput(
            "the address of a forge must be http:// or https:// with a host and an optional path",
            code="invalid-url",
            fields={"field": "url"},
        )
    return text.rstrip("/")


def _check_seconds(timeout: object) -> float:
    if isinstance(timeout, (int, float)) and 0 < timeout <= threading.TIMEOUT_MAX:
        return float(timeout)
    raise InvalidInput("timeout must be a number of seconds", code="invalid-field", fields={"field": "timeout"})


def _local(name: str) -> NotAllowed:
    return NotAllowed(
        f"{name} is only available on the machine of the space",
        code="local-only",
        hints=["open the space there: clia.open(PATH)"],
        fields={"verb": name},
    )


# The verbs of Space and its services


class RemoteService:
    """A service of a remote space."""

    def __init__(self, space: RemoteSpace) -> None:
        self._space = space


@cache
def _remote_class(local: service[Any], name: str) -> type[RemoteService]:
    """The remote form of a service: its verbs over HTTP."""
    kind = local.kind()
    members = {key: member for key, member in vars(kind).items() if key == "__call__" or not key.startswith("_")}
    return type(f"Remote{kind.__name__}", (RemoteService,), {key: _remote(member, name, key) for key, member in members.items()})


def _remote(member: Any, service_name: str, attribute: str) -> Any:
    """A method or property of ``Space`` or of a service, over HTTP."""
    if not inspect.isfunction(member):

        def refuse(_: Any) -> Any:
            raise _local(attribute)

        return property(refuse, doc=member.__doc__)
    signature = inspect.signature(member)

    @wraps(member)
    def verb(self: Any, *args: Any, **more: Any) -> Any:
        bound = signature.bind(self, *args, **more)
        bound.apply_defaults()
        if route_of(member) is None:
            raise _local(attribute)
        from clia.api.derivation import verb_of

        space: RemoteSpace = self._space if service_name else self
        return space(verb_of(member, service_name, attribute), dict(bound.arguments))

    verb.__qualname__, verb.__module__ = f"Remote{member.__qualname__}", __name__
    return verb


class _RemoteServiceAttribute:
    """The remote form of a ``service``: its class is made on first use."""

    def __init__(self, local: service[Any], name: str) -> None:
        self._local = local
        self._name = name

    def __get__(self, space: RemoteSpace | None, owner: type) -> Any:
        kind = _remote_class(self._local, self._name)
        if space is None:
            return kind
        if not any(route_of(member) for member in vars(self._local.kind()).values()):
            raise _local(self._name)
        return space.__dict__.setdefault(self._name, kind(space))


def _attribute(name: str, member: Any) -> Any:
    if isinstance(member, alias):
        return member
    return _RemoteServiceAttribute(member, name) if isinstance(member, service) else _remote(member, "", name)


for _name, _member in vars(Space).items():
    if not _name.startswith("_") and _name not in vars(RemoteSpace):
        setattr(RemoteSpace, _name, _attribute(_name, _member))
