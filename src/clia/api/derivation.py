"""Verbs and JSON shapes, derived from signatures and records.

Invariant: the parameters and the result of a verb are stated once, in its signature. Path, query and body parameters follow from
the route, defaults and types from the signature, the summary from the docstring, a record's fields from its class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from clia.api.annotations import resolve
from clia.api.shapes import ANY, COUNT, FLAG, NUMBER, OBJECT, STRING, TEXT, WHOLE, Either, Listed, Mapped, Optional, Record
from clia.values.records import json_keys
from clia.verbs import GET, Hint, Route, alias, route_of, service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.api.shapes import Shape

PATH, QUERY, BODY = "path", "query", "body"
_PARAMETER = re.compile(r"``(\w+)``: (.+?)\.(?= |$)")
"""A sentence of a docstring about a parameter."""
REQUIRED: Any = inspect.Parameter.empty


class Param(NamedTuple):
    """A parameter of a verb or tool; ``name`` is the one in the library, ``key`` the one on the wire."""

    name: str
    shape: Shape
    default: Any = REQUIRED
    description: str = ""
    where: str = BODY
    wire_name: str = ""

    @property
    def key(self) -> str:
        return self.wire_name or self.name.rstrip("_")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


class Verb(NamedTuple):
    """A verb as it is served; ``service`` is the attribute of the space that has the method, empty for the space itself."""

    route: Route
    service: str
    attribute: str
    params: tuple[Param, ...]
    result: Shape | None  # None: nothing is returned
    summary: str
    description: str = ""  # the paragraphs of the docstring after the first

    @property
    def name(self) -> str:
        return self.route.name

    @property
    def method(self) -> str:
        return self.route.method

    @property
    def path(self) -> str:
        return self.route.path

    @property
    def role(self) -> str:
        return self.route.role

    @property
    def changes(self) -> bool:
        return self.method != GET

    @property
    def paged(self) -> bool:
        """Whether the response is a list in pages. The result of a change is returned whole, since it is not computed again."""
        return type(self.result) is Listed and not self.changes

    @property
    def is_personal(self) -> bool:
        """Whether the verb records who called it: over HTTP, always the logged-in user."""
        return any(param.name == "by" for param in self.params)

    def call(self, space: Any, arguments: Mapping[str, Any]) -> Any:
        target = getattr(space, self.service) if self.service else space
        return getattr(target, self.attribute)(**arguments)


@cache
def all_verbs() -> tuple[Verb, ...]:
    """Every verb that is served, by section of the reference."""
    from clia.facade.space import Space

    services = [name for name, member in vars(Space).items() if isinstance(member, service)]
    verbs = [verb for name in ("", *services) for verb in verbs_of(getattr(Space, name) if name else Space, name)]
    sections = list(dict.fromkeys(_SECTIONS) | dict.fromkeys(verb.route.tag for verb in verbs))
    return tuple(sorted(verbs, key=lambda verb: sections.index(verb.route.tag)))


_SECTIONS = (
    *("types", "agents", "commits", "merges", "changes", "relations", "traces", "flows", "sessions", "requests"),
    "behaviours",
)


def verbs_of(kind: type, service: str = "") -> Iterator[Verb]:
    """The verbs that a class declares."""
    for attribute, function in vars(kind).items():
        if inspect.isfunction(function) and route_of(function) is not None:
            yield verb_of(function, service, attribute)


def local_members() -> dict[str, str]:
    """The members of a space and its services that exist on their own machine only, with the first line of each docstring."""
    from clia.facade.space import Space

    services = {name: member.kind() for name, member in vars(Space).items() if isinstance(member, service)}
    members = {name: member for name, member in vars(Space).items() if not isinstance(member, (service, alias))}
    for name, kind in services.items():
        served = any(verbs_of(kind))
        members |= {f"{name}.{attribute}": member for attribute, member in vars(kind).items()} if served else {name: kind}
    public = {name: member for name, member in members.items() if not name.rpartition(".")[2].startswith("_")}
    summaries = {name: (member.__doc__ or "").partition("\n")[0] for name, member in public.items() if route_of(member) is None}
    return {name: summaries[name] for name in sorted(summaries) if name not in ("id", "doctor", "close")}


@cache
def verb_of(function: Callable[..., Any], service: str, attribute: str) -> Verb:
    route = route_of(function)
    if route is None:
        raise TypeError(f"{function.__qualname__} has no route")
    in_path = re.findall(r"\{(\w+)\}", route.path)
    elsewhere = QUERY if route.method == GET else BODY
    paragraphs = [" ".join(paragraph.split()) for paragraph in inspect.cleandoc(function.__doc__ or "").split("\n\n")]
    docs = {name: _plain(text) for paragraph in paragraphs for name, text in _PARAMETER.findall(paragraph)}
    params = [
        param._replace(where=PATH if param.key in in_path else elsewhere, description=docs.get(param.name, param.description))
        for param in params_of(function, route.wire)
    ]
    returned = resolve(route.wire.get("return", function.__annotations__["return"]), function.__module__)
    result = None if returned in (None, NoneType) else shape_of(returned)
    summary, *others = map(_plain, paragraphs)
    return Verb(route, service, attribute, tuple(params), result, summary, "\n\n".join(others))


def _plain(text: str) -> str:
    return text.replace("``", "")


def params_of(function: Callable[..., Any], wire: Mapping[str, str]) -> Iterator[Param]:
    """The parameters after the first, without callbacks and ``**arguments``. ``wire``: annotations that replace those here."""
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        kind = resolve(wire.get(name, parameter.annotation), function.__module__)
        is_callback = any(get_origin(member) is Callable for member in (kind, *get_args(kind)))
        if is_callback or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue  # progress is not sent
        notes = [note for member in (kind, *get_args(kind)) for note in getattr(member, "__metadata__", ())]
        description = next((note for note in reversed(notes) if isinstance(note, str) and note not in _MARKED), "")
        yield Param(name, input_shape(kind), parameter.default, description)


# Shapes of types

_MARKED = {"count": COUNT, "text": TEXT}  # see clia.verbs


@cache
def shape_of(kind: Any) -> Shape:
    """The JSON shape of a result or of a field of a record."""
    return _shape(kind, STRING, shape_of)


@cache
def input_shape(kind: Any) -> Shape:
    """The JSON shape of a parameter: a text is limited."""
    return _shape(kind, TEXT, input_shape)


def _shape(kind: Any, text: Shape, inner: Callable[[Any], Shape]) -> Shape:
    plain = {str: text, int: WHOLE, bool: FLAG, float: NUMBER, Any: ANY}
    if kind in plain:
        return plain[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return TEXT.hinted(args[1]) if isinstance(args[1], Hint) else _MARKED.get(args[1]) or inner(args[0])
    if origin in (UnionType, Union):
        return _union(kind, text, inner)
    if origin in (dict, Mapping):
        return OBJECT if args[1] is Any else Mapped(inner(args[1]))
    if origin is Iterable and get_origin(args[0]) is Mapping:
        return _special("ENTRIES")
    if origin in (list, Sequence, tuple):
        return Listed(inner(args[0]), tuple if origin is tuple else list)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return record_of(kind)
    if isinstance(kind, type) and kind.__name__ == "Session":
        return _special("SESSION")
    raise TypeError(f"no JSON shape for {kind}")


def _union(kind: Any, text: Shape, inner: Callable[[Any], Shape]) -> Shape:
    members = [member for member in get_args(kind) if member is not NoneType]
    if len(members) < len(get_args(kind)):
        return Optional(inner(members[0] if len(members) == 1 else Union[tuple(members)]))  # noqa: UP007  # of a tuple
    names = {getattr(member, "__name__", "") for member in members}
    if bytes in members:
        return _special("CONTENT")
    if "Behaviour" in names:
        return _special("THING" if text is TEXT else "TYPED")
    if "ConsoleTrace" in names:
        return _special("ENTRIES")
    records = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", member.__name__).lower(): record_of(member) for member in members}
    return Either(**records)


def _special(name: str) -> Shape:
    from clia.api import special_shapes  # it derives records itself

    shape: Shape = getattr(special_shapes, name)
    return shape


@cache
def record_of(kind: Any) -> Record:
    """The shape of a named tuple."""
    printed = {spec.attribute for spec in json_keys(kind)}
    annotations = {name: annotation for name, annotation in kind.__annotations__.items() if name in printed}
    return Record(kind, **{name: shape_of(resolve(annotation, kind.__module__)) for name, annotation in annotations.items()})
