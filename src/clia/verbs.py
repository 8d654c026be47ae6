"""How verbs are declared: ``verb`` on a method of a space or of a service, ``service`` on the space.

Invariant: a verb is stated once. Its route and role are in the decorator; its parameters, defaults, JSON and documentation are
derived from the signature, the records and the docstring (``clia.api.derivation``). Calling a decorated method has no extra cost.

In a signature, ``Count`` and ``Text`` say more than ``int`` and ``str`` do.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Generic, NamedTuple, TypeVar, overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

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
    """More JSON Schema of a text, for its readers: the verb itself refuses other values."""

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


def verb(method: str, path: str, role: str, tag: str, name: str | None = None, **extras: Any) -> Callable[[F], F]:
    """Serve a method at a path. ``name``: the operation id (default: the method's name); ``extras``: fields of ``Route``."""

    def decorate(function: F) -> F:
        function.__route__ = Route(method, path, role, tag, name or function.__name__, **extras)  # type: ignore[attr-defined]
        return function

    return decorate


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
