"""The table of verbs, and the JSON shapes of records."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import clia
from clia.api.annotations import field_docs, resolve
from clia.api.derivation import BODY, PATH, all_verbs, local_members, record_of, shape_of
from clia.api.shapes import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    STRING,
    TEXT,
    WHOLE,
    Either,
    Listed,
    Mapped,
    Optional,
    Record,
    definitions,
)
from clia.api.special_shapes import CONTENT, ENTRIES, EXTRA_SCHEMAS, SESSION, THING, TYPED
from clia.errors import InvalidInput
from clia.forge.api.openapi import document
from clia.git.records import Stamp
from clia.sessions.model import Session
from clia.sessions.service import SessionRecord
from clia.verbs import GET, alias, route_of, service

DECISION = record_of(clia.Decision)
VERBS = {verb.name: verb for verb in all_verbs()}
NOT_ON_THE_WIRE = {"progress"}
_LARGEST = 2**53 - 1

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-_LARGEST, _LARGEST) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
contents = (
    st.binary(max_size=40)
    | st.builds(clia.File, st.binary(max_size=20), st.booleans())
    | st.builds(clia.Link, st.text(max_size=10))
    | st.builds(clia.Submodule, st.text("0123456789abcdef", min_size=40, max_size=40))
)
maybe_text = st.none() | st.text()
typed = (
    st.builds(clia.Briefing, st.text("abc", min_size=1), st.text(), st.none(), st.none())
    | st.builds(clia.Behaviour, st.text(), st.sampled_from(["prompt", "session-flow"]), st.text(), st.none(), maybe_text, st.text())
    | st.builds(clia.ConsoleTrace, st.text(), st.text(), st.lists(objects, max_size=2).map(tuple))
    | objects.map(lambda content: {**content, "type": "capability"})
)
PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (TEXT, st.text(max_size=20)),
    (STRING, st.text(max_size=20)),
    (FLAG, st.booleans()),
    (COUNT, st.integers(0, _LARGEST)),
    (WHOLE, st.integers(-_LARGEST, _LARGEST)),
    (NUMBER, st.floats(allow_nan=False, allow_infinity=False)),
    (ANY, json_values),
    (OBJECT, objects),
    (CONTENT, contents),
    (TYPED, typed),
]


def values_of(shape: Any) -> st.SearchStrategy[Any]:
    for plain, strategy in PLAIN:
        if shape is plain:
            return strategy
    if isinstance(shape, Optional):
        return st.none() | values_of(shape.inner)
    if isinstance(shape, Listed):
        return st.lists(values_of(shape.inner), max_size=3).map(shape.kind)
    if isinstance(shape, Mapped):
        return st.dictionaries(st.text(max_size=8), values_of(shape.inner), max_size=3)
    schema = shape.schema()
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "pattern" in schema:
        texts = st.from_regex(schema["pattern"], fullmatch=True, alphabet="abc-")
        return texts.filter(lambda text: len(text) <= schema["maxLength"])
    if isinstance(shape, Either):
        return st.one_of([values_of(record) for record in shape.records.values()])
    assert isinstance(shape, Record), shape
    return st.builds(shape.kind, **{name: values_of(inner) for name, inner in shape.fields.items()})


def shapes() -> dict[str, Any]:
    """Every shape of a parameter or result of a verb, and the shapes inside."""
    pending = [param.shape for verb in VERBS.values() for param in verb.params]
    pending += [verb.result for verb in VERBS.values() if verb.result is not None]
    by_schema: dict[str, Any] = {}
    while pending:
        shape: Any = pending.pop()
        if not {shape, getattr(shape, "inner", None)} & {SESSION, DECISION, THING, ENTRIES}:
            by_schema[f"{getattr(shape, 'name', type(shape).__name__)} {json.dumps(shape.schema())}"] = shape
        pending += shape.parts()
    return by_schema


SHAPES = shapes()
RECORDS = {shape.name: shape for shape in SHAPES.values() if isinstance(shape, Record)}
DEFINITIONS = {**definitions([verb.result for verb in VERBS.values() if verb.result is not None]), **EXTRA_SCHEMAS}


@cache
def validator_of(shape: Any) -> Draft202012Validator:
    return Draft202012Validator({**shape.schema(), "components": {"schemas": {**definitions([shape]), **DEFINITIONS}}})


def accepts(shape: Any, value: Any) -> bool:
    return bool(validator_of(shape).is_valid(value))


# The table


def test_every_public_name_of_a_space_is_a_verb_a_service_or_local() -> None:
    members = {name: member for name, member in inspect.getmembers(clia.Space) if not name.startswith("_")}
    services = {name for name, member in vars(clia.Space).items() if isinstance(member, service)}
    properties = {name for name, member in members.items() if isinstance(member, property)}
    local = {name.rpartition(".")[2] for name in local_members()} | {"close", "doctor", "id"}
    assert set(members) - set(VERBS) <= local | services
    assert properties <= local
    assert all(local_members().values())


def test_an_alias_has_the_name_of_the_operation() -> None:
    names = [name for name, member in vars(clia.Space).items() if isinstance(member, alias)]
    functions = {name: getattr(clia.Space, name) for name in names}
    routes = {name: route_of(function) for name, function in functions.items()}
    assert {name for name, route in routes.items() if route is None} == {"elsewhere", "meet"}
    assert {name: route.name for name, route in routes.items() if route} == {name: name for name, route in routes.items() if route}


def test_a_name_for_type_checkers_is_resolved_from_the_source() -> None:
    annotation = resolve("Mapping[str, Content | None] | None", "clia.facade.space")
    assert annotation == Mapping[str, bytes | clia.File | clia.Link | clia.Submodule | None] | None
    with pytest.raises(NameError, match=r"Nothing.*clia\.facade\.space"):
        resolve("Nothing", "clia.facade.space")


class Documented(NamedTuple):
    beside: str  # in a comment
    below: str = "#"
    """In a docstring,
    on two lines."""
    neither: int = 0


def test_the_description_of_a_field_comes_from_its_comment_or_docstring() -> None:
    docs = {"beside": "in a comment", "below": "In a docstring, on two lines.", "neither": ""}
    assert field_docs(Documented) == docs
    properties = record_of(Documented).definition()["properties"]
    assert {name: schema.get("description", "") for name, schema in properties.items()} == docs


def test_every_field_of_a_served_record_is_described() -> None:
    verbs = all_verbs()
    records = definitions([param.shape for verb in verbs for param in verb.params] + [verb.result for verb in verbs if verb.result])
    fields = {f"{name}.{key}": field for name, record in records.items() for key, field in record["properties"].items()}
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_the_openapi_document_describes_parameters_by_the_docstring_of_the_verb() -> None:
    operation = document()["paths"]["/api/v1/spaces/{space}/hub/sync"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert body["forks"]["description"] == "new names for our line of agents that have forked"
    assert operation["description"].startswith("forks: new names")


def test_the_openapi_document_describes_the_fields_of_records() -> None:
    openapi = document()
    status = openapi["components"]["schemas"]["FileChange"]["properties"]["status"]
    assert status == {"type": "string", "description": "A, D, M, R, C or T, as in git"}
    merged = openapi["paths"]["/api/v1/spaces/{space}/agents/{into}/merges/{from}"]["post"]["responses"]["200"]
    conflicts = merged["content"]["application/json"]["schema"]["oneOf"][2]
    assert conflicts["properties"]["theirs"]["description"] == "the head of the other"


@pytest.mark.parametrize("name", sorted(VERBS))
def test_a_verb_has_the_parameters_and_defaults_of_the_library(name: str) -> None:
    verb = VERBS[name]
    home = getattr(clia.Space, verb.service) if verb.service else clia.Space
    parameters = inspect.signature(getattr(home, verb.attribute)).parameters
    expected = {key: parameter.default for key, parameter in parameters.items() if key not in {"self", *NOT_ON_THE_WIRE}}
    actual = {param.name: inspect.Parameter.empty if param.required else param.default for param in VERBS[name].params}
    assert actual == expected


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_consistent(name: str) -> None:
    verb = VERBS[name]
    assert sorted(re.findall(r"\{(\w+)\}", verb.path)) == sorted(param.key for param in verb.params if param.where == PATH)
    assert verb.method != GET or not any(param.where == BODY for param in verb.params)
    assert {verb.route.moves, verb.route.base, verb.route.shows} - {None} <= {param.name for param in verb.params}
    assert verb.summary.endswith(".")


def test_no_two_verbs_have_the_same_route() -> None:
    addresses = [(verb.method, re.sub(r"\{\w+\}", "{}", verb.path)) for verb in VERBS.values()]
    assert len(set(addresses)) == len(addresses)


# Values


@pytest.mark.parametrize("name", SHAPES)
def test_encoded_values_decode_to_the_same_value_and_match_the_schema(name: str, soak: bool) -> None:
    shape = SHAPES[name]

    @settings(max_examples=200 if soak else 10, suppress_health_check=list(HealthCheck))
    @given(values_of(shape))
    def check(value: Any) -> None:
        encoded = json.loads(json.dumps(shape.encode(value)))
        assert shape.decode(encoded, "it") == value
        assert accepts(shape, encoded)

    check()


def refusal(shape: Any, value: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        shape.decode(value, "it")
    return caught.value


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_with_a_surplus_missing_or_mistyped_field_is_refused_and_the_field_is_named(name: str) -> None:
    shape = RECORDS[name]

    @settings(max_examples=5, suppress_health_check=list(HealthCheck))
    @given(values_of(shape))
    def check(value: Any) -> None:
        encoded = shape.encode(value)
        error = refusal(shape, {**encoded, "surplus": 1})
        assert (error.code, error.fields) == ("unknown-field", {"field": "it.surplus"})
        assert not accepts(shape, {**encoded, "surplus": 1})
        for key in shape.definition()["required"]:
            incomplete = {field: content for field, content in encoded.items() if field != key}
            assert (refusal(shape, incomplete).code, refusal(shape, incomplete).fields) == ("missing-field", {"field": f"it.{key}"})
            assert not accepts(shape, incomplete)
        for field, inner in shape.fields.items():
            if inner not in (STRING, TEXT, FLAG, COUNT, WHOLE, NUMBER):
                continue
            key = field.rstrip("_")
            assert refusal(shape, {**encoded, key: []}).fields["field"] == f"it.{key}"
            assert not accepts(shape, {**encoded, key: []})

    check()


@pytest.mark.parametrize(
    ("shape", "bad"),
    [
        (TEXT, ["\ud800", 3, None, [], True]),
        (FLAG, [1, "true", None]),
        (COUNT, [-1, 1.0, True, 2**53, "1", None]),
        (WHOLE, [1.5, True, 2**53, -(2**53), "1"]),
        (NUMBER, ["1", True, None, []]),
        (OBJECT, [[], None, "x"]),
        (Listed(TEXT), [{}, "x", [1], None]),
        (Mapped(TEXT), [[], {"a": 1}]),
        (CONTENT, [1, None, {}, {"text": 1}, {"base64": "?"}, {"base64": 1}, {"link": 1}, {"text": "a", "link": "b"}, []]),
        (CONTENT, [{"text": "a", "executable": 1}, {"text": "\ud800"}, {"submodule": []}]),
        (
            shape_of(clia.Merged | clia.UpToDate | clia.Conflicts),
            [{}, {"outcome": "lost"}, {"outcome": "merged"}, {"outcome": ["merged"]}, 3],
        ),
        (THING, [{}, [], {"type": 3}, {"type": "briefing"}, {"type": "briefing", "title": "", "text": ""}]),
        (SESSION, [{}, [], {"agent": "a"}, {"pending": 3}]),
        (record_of(SessionRecord), [{}, [], {"input": 1}, {"input": 1, "resumes": [{}]}]),
        (DECISION, [{}, [], {"session": {}}]),
    ],
)
def test_an_invalid_value_is_refused_and_named(shape: Any, bad: list[Any]) -> None:
    for value in bad:
        assert refusal(shape, value).fields.get("field")


@pytest.mark.parametrize("shape", [TEXT, FLAG, COUNT, WHOLE, OBJECT, Listed(TEXT), Mapped(TEXT), CONTENT, record_of(Stamp)])
def test_the_schema_accepts_exactly_the_decodable_values(shape: Any) -> None:
    @settings(max_examples=60)
    @given(json_values)
    def check(value: Any) -> None:
        try:
            shape.decode(value, "it")
        except InvalidInput:
            # In JSON Schema 1.0 is an integer, and Base64 content is not checked.
            assert not accepts(shape, value) or isinstance(value, (float, dict))
        else:
            assert accepts(shape, value)

    check()


def test_every_field_of_a_typed_object_is_encoded() -> None:
    briefing = {"type": "briefing", "title": "t", "text": "", "surplus": 1}
    assert THING.decode(THING.encode(briefing), "it") == briefing


def test_a_session_and_a_decision_survive_a_round_trip() -> None:
    row = {
        "status": "suspended",
        "name": "flow",
        "flow": "0" * 40,
        "started_at": "2026-05-01T00:00:00Z",
        "done": 2,
        "forked": {"agent": "b"},
    }
    calls = [[3, "human", "tag", {"a": [1]}, 7, "2026-05-01T00:00:01Z"]]
    session = Session("scout", "ask-1", row, lambda: calls, lambda: (None, []))
    encoded = json.loads(json.dumps(SESSION.encode(session)))
    decoded = SESSION.decode(encoded, "it")
    assert decoded.to_json() == session.to_json()
    assert (decoded.pending, decoded.resumed, decoded.live) == (session.pending, 2, True)
    assert accepts(SESSION, encoded)
    assert refusal_of_load(decoded) == "not-loaded"
    decision = clia.Decision("1" * 40, "scout", "ask-1.3", [None], "Tess", session)
    decoded_decision = DECISION.decode(json.loads(json.dumps(DECISION.encode(decision))), "it")
    assert decoded_decision._replace(session=session) == decision
    assert decoded_decision.session.to_json() == session.to_json()


def refusal_of_load(session: Session) -> str:
    with pytest.raises(InvalidInput) as caught:
        _ = session.resumes
    return caught.value.code


def test_a_value_of_another_class_is_not_encoded() -> None:
    for shape, bad in (
        (record_of(clia.Briefing), "text"),
        (record_of(clia.Request), ("a",)),
        (CONTENT, "text"),
        (CONTENT, None),
        (ENTRIES, "text"),
    ):
        with pytest.raises(InvalidInput):
            shape.encode(bad)


def test_the_entries_of_a_trace_may_come_as_the_trace() -> None:
    entries = ({"text": "a"}, {"text": "b"})
    assert ENTRIES.encode(clia.ConsoleTrace("", "", entries)) == ENTRIES.encode(iter(entries)) == list(entries)
