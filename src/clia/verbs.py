"""How verbs are declared: ``verb`` on a method of a space or of a service, ``service`` on the space.

Invariant: a verb is stated once. Its route and role are in the decorator; its parameters, defaults, JSON and documentation are
derived from the signature, the records and the docstring (``clia.api.derivation``). Calling a decorated method has no extra cost.

In a signature, ``Count`` and ``Text`` say more than ``int`` and ``str`` do.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from types import FunctionType
from typing import Annotated, Generic, NamedTuple, TypeVar, overload

from clia.errors import NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.facade.space import Space

    F = TypeVar("F", bound=Callable[..., Any])
else:
    F = TypeVar("F")

S = TypeVar("S")
VIEWER, DECIDER, ADMIN = "viewer", "decider", "admin"
GET, POST, PUT = "GET", "POST", "PUT"

Count = Annotated[int, "count"]
"""A whole number from 0."""
Text = Annotated[str, "text"]
"""A text in a record that clients send: at most 4 MiB, without lone surrogates. A parameter of type ``str`` is one, too."""


class Hint(NamedTuple):
    """Additional JSON Schema of a text, as documentation: the verb itself refuses other values."""

    keywords: tuple[tuple[str, Any], ...]


class Route(NamedTuple):
    """Where a verb is served, and for whom."""

    method: str
    path: str  # below the address of a space; ``{name}`` is a parameter
    role: str  # the lowest role that may call it
    tag: str  # the section of the reference
    name: str  # the operation id: unique among all verbs
    moves: str | None = None  # the parameter that names the agent whose head it moves: If-Match is its expected head
    base: str | None = None  # the parameter that takes the expected head, where the verb itself compares
    shows: str | None = None  # the parameter that names the agent whose head is the ETag of the response
    wire: Mapping[str, str] = {}  # annotations to use on the wire instead of those in the signature, by parameter or "return"
    agent: str | None = None  # the parameter that names the agent: a user with the role agent may call it for its own agents


def verb(method: str, path: str, role: str, tag: str, name: str | None = None, **extras: Any) -> Callable[[F], F]:
    """Serve a method at a path. ``name``: the operation id (default: the method's name); ``extras``: fields of ``Route``."""

    def decorate(function: F) -> F:
        function.__route__ = Route(method, path, role, tag, name or function.__name__, **extras)  # type: ignore[attr-defined]
        return function

    return decorate


# Acts of people: one rule for the library, the command line, the API and MCP.

_channel: ContextVar[str] = ContextVar("clia_channel", default="library")
_person_answers: ContextVar[bool] = ContextVar("clia_person_answers", default=False)
_acting: ContextVar[str | None] = ContextVar("clia_acting", default=None)


def channel() -> str:
    """How the current call reached clia: `library`, `command-line`, `forge`, `api`, `mcp` or `form`. Decisions record it."""
    return _channel.get()


def set_channel(name: str) -> None:
    """Name the channel of the current thread or task."""
    _channel.set(name)


@contextmanager
def using_channel(name: str) -> Iterator[None]:
    """Name the channel of the current thread or task while the block runs."""
    token = _channel.set(name)
    try:
        yield
    finally:
        _channel.reset(token)


@contextmanager
def person_answers(name: str) -> Iterator[None]:
    """While the block runs, a person's own answer is carried out, in a process that acts for an agent: a form of an MCP client."""
    token = _person_answers.set(True)
    try:
        with using_channel(name):
            yield
    finally:
        _person_answers.reset(token)


@contextmanager
def acting_as(agent: str | None) -> Iterator[None]:
    """While the block runs, an agent acts, in a process that serves people too: a user of a forge with the role agent."""
    token = _acting.set(agent)
    try:
        yield
    finally:
        _acting.reset(token)


def actor(opened_by: str | None) -> str | None:
    """The agent that acts: the one that opened the space, else that of the current call; None: a person."""
    return opened_by or _acting.get()


def require_person(opened_by: str | None, alternative: str) -> None:
    """Raise ``NotAllowed`` if an agent acts; ``alternative`` is a hint for it."""
    agent = actor(opened_by)
    if agent is not None and not _person_answers.get():
        message = f"only a person may do this, and agent {agent!r} acts here"
        hints = [alternative, "a person does it outside clia run, without CLIA_AGENT"]
        raise NotAllowed(message, code="person-needed", hints=hints, fields={"agent": agent})


def for_people(alternative: str, *, own: bool = False) -> Callable[[F], F]:
    """Refuse a method of a space or of a service to agents. ``alternative``: what an agent can do instead.

    ``own``: the first argument names an agent, which may do it to itself.
    """

    def decorate(function: F) -> F:
        first = function.__code__.co_varnames[1] if own else ""

        @wraps(function)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            agent = actor(self._components.options.agent)
            if agent is not None and not (own and (args[0] if args else options.get(first)) == agent):
                require_person(agent, alternative)
            return function(self, *args, **options)

        call.__for_people__ = True  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def is_for_people(function: object) -> bool:
    """Whether a method is refused to agents."""
    return getattr(function, "__for_people__", False)


def route_of(function: object) -> Route | None:
    """The route of a method; None if it is not served."""
    route: Route | None = getattr(function, "__route__", None)
    return route


class service(Generic[S]):  # noqa: N801  # reads as a declaration
    """A service of a space, imported and built on first use. On the class, it is the service's class."""

    def __init__(self, home: str) -> None:
        self.home = home  # module:Class

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def kind(self) -> type[S]:
        module, _, name = self.home.partition(":")
        loaded: type[S] = getattr(import_module(module), name)
        return loaded

    @overload
    def __get__(self, space: None, owner: type) -> type[S]: ...
    @overload
    def __get__(self, space: object, owner: type) -> S: ...
    def __get__(self, space: Any, owner: type) -> S | type[S]:
        if space is None:
            return self.kind()
        components = space._components  # noqa: SLF001  # what every service is built from
        with components.building:
            if self._name not in space.__dict__:
                space.__dict__[self._name] = self.kind()(components)  # type: ignore[call-arg]  # every service takes them
        built: S = space.__dict__[self._name]
        return built


class alias(Generic[S]):  # noqa: N801  # reads as a declaration
    """Another name for a verb of a service: ``trace_pending = alias(lambda space: space.traces.pending)``."""

    def __init__(self, find: Callable[[Space], S]) -> None:
        self._find = find

    def __get__(self, space: Space | None, owner: type) -> S:
        if space is not None:
            return self._find(space)
        member = self._find(owner)  # type: ignore[arg-type]  # on the class: the service's own function
        return self._unbound(member) if isinstance(member, FunctionType) else member

    def _unbound(self, function: Any) -> Any:
        """The function as ``Space.verb(space, ...)`` calls it."""

        @wraps(function)
        def call(space: Space, *args: Any, **options: Any) -> Any:
            verb: Any = self._find(space)
            return verb(*args, **options)

        return call
