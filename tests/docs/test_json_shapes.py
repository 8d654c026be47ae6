"""The documented shape of ``--json`` output and what commands print."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from clia.capture.hook import TOOLS
from clia.values.records import EMBED, json_form
from docs import pages

sys.path.insert(0, str(pages.ROOT / "tools"))

import reference_json
from reference_examples import Example
from reference_schemas import Schemas

if TYPE_CHECKING:
    from collections.abc import Callable

LINE: dict[str, Any] = {
    "number": 1,
    "text": "a",
    "commit": "c",
    "agent": None,
    "kind": None,
    "briefing": None,
    "behaviour": None,
    "trace": None,
    "by": "person",
    "author": "Ada",
    "title": None,
    "via": None,
}


def change(**fields: Any) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda lines: [line | fields for line in lines]


def test_every_command_has_a_shape_except_servers_and_hooks() -> None:
    shapes = reference_json.command_shapes(Schemas())
    assert set(reference_json.all_commands()) - set(shapes) == {"acp", "mcp", "hook answer", *(f"hook {tool}" for tool in TOOLS)}


def test_shapes_are_closed_and_every_field_is_described() -> None:
    """Only objects from users and tools may have other keys."""
    schemas = Schemas()
    reference_json.own_records(reference_json.command_shapes(schemas), schemas)  # stops without a docstring
    is_open = {name for name, schema in schemas.definitions.items() if schema.get("additionalProperties") is not False}
    assert is_open == {"EntryFields", "LandingFields", "MergedJson", "RehearsalReport"}
    for name, schema in schemas.definitions.items():
        assert all(field["description"] for field in schema["properties"].values()), name


def test_output_of_the_documented_shape_is_accepted() -> None:
    schemas = Schemas()
    shapes = {"blame": reference_json.command_shapes(schemas)["blame"]}
    reference_json.check(shapes, schemas, [Example("blame", "blame scout a.txt", [LINE])])


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (change(more=1), "Additional properties"),
        (lambda lines: [{key: value for key, value in line.items() if key != "trace"} for line in lines], "required property"),
        (change(number="1"), "not of type"),
        (change(text=None), "not of type"),
        (lambda lines: lines[0], "not of type"),
    ],
    ids=["new key", "missing key", "wrong type", "null", "not a list"],
)
def test_output_of_another_shape_stops_the_generation(alter: Callable[[list[dict[str, Any]]], Any], message: str) -> None:
    schemas = Schemas()
    shapes = {"blame": reference_json.command_shapes(schemas)["blame"]}
    with pytest.raises(SystemExit, match=message):
        reference_json.check(shapes, schemas, [Example("blame", "blame scout a.txt", alter([LINE]))])


def test_a_command_without_an_example_stops_the_generation() -> None:
    schemas = Schemas()
    with pytest.raises(SystemExit, match="no example of blame"):
        reference_json.check({"blame": reference_json.command_shapes(schemas)["blame"]}, schemas, [])


class Undescribed(NamedTuple):
    """A record."""

    name: str


class Inner(NamedTuple):
    lives: int  # lives left


def test_a_record_in_a_record_needs_a_docstring() -> None:
    schemas = Schemas()
    with pytest.raises(SystemExit, match="Inner has no docstring"):
        reference_json.own_records({"pets": schemas.of(list[Inner]), "pet": schemas.of(Inner)}, schemas)


def test_a_field_without_a_comment_stops_the_generation() -> None:
    with pytest.raises(SystemExit, match=r"Undescribed\.name has no description"):
        Schemas().of(Undescribed)


def test_two_records_of_one_name_stop_the_generation() -> None:
    schemas = Schemas()
    assert schemas.of(Inner) == schemas.of(Inner)
    other_record = type("Inner", (tuple,), {"_fields": ("lives",)})
    with pytest.raises(SystemExit, match="two records are named Inner"):
        schemas.of(other_record)


class Cat(NamedTuple):
    """A cat."""

    lives: int  # lives left


class Dog(NamedTuple):
    """A dog."""

    tricks: list[str]  # tricks it knows


@json_form(animal=EMBED)
class Pet(NamedTuple):
    """An animal with an owner."""

    owner: str  # its owner
    animal: Cat | Dog


def test_a_record_that_embeds_one_of_several_has_the_fields_of_exactly_one() -> None:
    schemas = Schemas()
    shapes = {"pet": schemas.of(Pet)}
    cat, dog = {"lives": 9}, {"tricks": ["sit"]}
    valid: list[Any] = [{"owner": "Ada", **cat}, {"owner": "Ada", **dog}]
    for value in valid:
        reference_json.check(shapes, schemas, [Example("pet", "pet", value)])
    for value in ({"owner": "Ada"}, {"owner": "Ada", **cat, **dog}):
        with pytest.raises(SystemExit, match="does not print its shape"):
            reference_json.check(shapes, schemas, [Example("pet", "pet", value)])
