"""JSON Schemas of what commands print with ``--json``, derived from the types of their answers.

Invariant: every key of a record has a description, from the comment beside the field or the docstring of the property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, is_typeddict

from clia.api.annotations import field_docs, resolve
from clia.cli.command import Answer, Definition
from clia.values.records import json_keys

Schema = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bytes: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    Any: {},
}
REF = "#/components/schemas/"


def answer_types(definition: Definition) -> list[Any]:
    """What a command can print; empty if it prints no JSON."""
    function = definition.function
    returned = resolve(function.__annotations__["return"], function.__module__)
    kinds = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
    return [_answer_type(kind) for kind in kinds if kind is not int]


def _answer_type(kind: Any) -> Any:
    if get_origin(kind) is Annotated:  # an exit code, and what was printed
        return get_args(kind)[1]
    if get_origin(kind) is not Answer:
        raise SystemExit(f"reference: {kind} does not say what a command prints")
    return get_args(kind)[0]


class Schemas:
    """Schemas of types; ``definitions`` has the records that they refer to, by name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._kinds: dict[str, Any] = {}

    def of(self, kind: Any) -> Schema:
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.of(args[1] if isinstance(args[1], type) else args[0])
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(member) for member in args]}
        if origin in (dict, Mapping):
            return {"type": "object"} if args[1] is Any else {"type": "object", "additionalProperties": self.of(args[1])}
        if origin in (list, tuple, Sequence):
            return {"type": "array", "items": self.of(args[0])}
        return self._reference(origin or kind, args)

    def _reference(self, kind: Any, args: tuple[Any, ...]) -> Schema:
        if not hasattr(kind, "_fields") and not is_typeddict(kind):
            return self.of(_own_form(kind))
        name = "Of".join([kind.__name__, *(arg.__name__ for arg in args)])
        if self._kinds.setdefault(name, kind) is not kind:
            raise SystemExit(f"reference: two records are named {name}: in {self._kinds[name].__module__} and {kind.__module__}")
        if name not in self.definitions:
            self.definitions[name] = {}  # it may contain itself
            self.definitions[name] = self._open(kind) if is_typeddict(kind) else self._record(kind, args)
        return {"$ref": REF + name}

    def _open(self, kind: Any) -> Schema:
        """An object with at least some keys, which may be missing."""
        docs = field_docs(kind)
        keys = {key: self.of(resolve(kind.__annotations__[key], kind.__module__)) for key in docs}
        return {"type": "object", "description": _about(kind), "properties": _described(kind, keys, docs)}

    def _record(self, kind: Any, args: tuple[Any, ...]) -> Schema:
        forms = list(self._forms(kind, args))
        properties = {key: schema for form in forms for key, (schema, _) in form.items()}
        required = [{key for key, (_, always) in form.items() if always} for form in forms]
        schema: Schema = {"type": "object", "description": _about(kind), "properties": properties}
        schema |= {"required": sorted(set.intersection(*required)), "additionalProperties": False}
        if len(forms) > 1:
            schema["anyOf"] = [
                {"required": sorted(keys), "propertyNames": {"enum": list(form)}}
                for keys, form in zip(required, forms, strict=True)
            ]
        return schema

    def _forms(self, kind: Any, args: tuple[Any, ...]) -> Iterator[dict[str, tuple[Schema, bool]]]:
        """The keys of a record, each with its schema and whether it is always there; one for each record that it can embed."""
        forms: list[dict[str, tuple[Schema, bool]]] = [{}]
        docs = field_docs(kind)
        for spec in json_keys(kind):
            annotation, doc = _attribute(kind, spec.attribute, docs)
            resolved = resolve(annotation, kind.__module__)
            if args and getattr(resolved, "__parameters__", ()):
                resolved = resolved[args]
            if spec.embedded:
                members = get_args(resolved) if get_origin(resolved) in (Union, UnionType) else (resolved,)
                inner = [form for member in members for form in self._forms(_own_form(member), ())]
                omitted = [{key: value for key, value in form.items() if key != spec.omitted} for form in inner]
                forms = [{**form, **embedded} for form in forms for embedded in omitted]
            else:
                schema = _described(kind, {spec.key: self.of(resolved)}, {spec.key: doc})[spec.key]
                forms = [{**form, spec.key: (schema, not spec.optional)} for form in forms]
        yield from forms


def _own_form(kind: Any) -> Any:
    """The type that describes the JSON form of a class with a method ``to_json``; a record describes itself."""
    if hasattr(kind, "_fields"):
        return kind
    if not hasattr(kind, "to_json"):
        raise SystemExit(f"reference: {kind} has no JSON form")
    return get_args(resolve(kind.to_json.__annotations__["return"], kind.__module__))[1]


def _attribute(kind: Any, name: str, docs: Mapping[str, str]) -> tuple[Any, str]:
    """The annotation and the description of a field, a property or a method."""
    if name in docs:
        return kind.__annotations__[name], docs[name]
    member = getattr(kind, name)
    function = member.fget if isinstance(member, property) else member
    return function.__annotations__["return"], cleandoc(function.__doc__ or "").split("\n\n")[0].rstrip(".")


def _described(kind: Any, keys: Mapping[str, Schema], docs: Mapping[str, str]) -> dict[str, Schema]:
    for key in keys:
        if not docs[key]:
            raise SystemExit(f"reference: {kind.__module__}.{kind.__name__}.{key} has no description")
    return {key: schema | {"description": _lower_case(docs[key])} for key, schema in keys.items()}


def _lower_case(text: str) -> str:
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def _about(kind: Any) -> str:
    """The first paragraph of the docstring; empty if there is none, as for a record that only one command prints."""
    doc = cleandoc(kind.__doc__ or "").split("\n\n")[0]
    return "" if doc.startswith(f"{kind.__name__}(") else " ".join(doc.split())
