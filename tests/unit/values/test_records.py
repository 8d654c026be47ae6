"""The JSON form of records."""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.values.records import EMBED, as_json, json_form


class Point(NamedTuple):
    x: int
    from_: str | None = None


@json_form("size", "corners", "first", corners="points", first="first?")
class Polygon(NamedTuple):
    corners: tuple[Point, ...]
    color: str = "red"  # not printed

    @property
    def first(self) -> Point | None:
        return self.corners[0] if self.corners else None

    def size(self) -> int:
        return len(self.corners)


@json_form(point=EMBED + "x")
class Named(NamedTuple):
    name: str
    point: Point
    x: str


@json_form(point=EMBED)
class Moved(NamedTuple):
    point: Point
    x: float


class Own:
    def to_json(self) -> dict[str, Any]:
        return {"own": True}


def test_a_record_is_an_object_with_its_fields_at_every_level() -> None:
    assert as_json({"points": (Point(1), [Point(2, "a")])}) == {"points": [{"x": 1, "from": None}, [{"x": 2, "from": "a"}]]}


def test_attributes_are_printed_in_the_declared_order_under_the_declared_keys() -> None:
    value = as_json(Polygon((Point(1),)))
    assert list(value) == ["size", "points", "first"]
    assert value["size"] == 1
    assert value["first"] == {"x": 1, "from": None}


def test_an_optional_attribute_is_left_out_if_it_is_empty() -> None:
    assert as_json(Polygon(())) == {"size": 0, "points": []}


def test_the_fields_of_an_embedded_record_take_its_place_and_a_later_field_replaces_one() -> None:
    assert list(as_json(Named("a", Point(1), "last")).items()) == [("name", "a"), ("from", None), ("x", "last")]
    assert list(as_json(Moved(Point(1), 0.5)).items()) == [("x", 0.5), ("from", None)]


def test_an_object_with_its_own_form_keeps_it_and_bytes_become_text() -> None:
    assert as_json([Own(), b"\xffa", True, None, 1.5]) == [{"own": True}, "\ufffda", True, None, 1.5]
