"""Plots of rates: what is drawn for nothing, for one and for many, and that no name in them is ever more than text."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from clia.forge.rendering import plots
from clia.forge.rendering.plots import PERIODS, SERIES, Point, Series, mark, over_time, percent, side_by_side, signed
from support.forge import ATTACK

_ = "\u00a0"
"""What a number and its sign are kept together by."""
SVG = "{http://www.w3.org/2000/svg}"


def drawn(markup: str) -> ET.Element:
    """The picture, read as strictly as XML is."""
    whole = str(markup).replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1)
    return ET.fromstring(whole)  # noqa: S314  # the code under test made it


def points(picture: ET.Element) -> list[str]:
    """What each point says of itself, in the order they are drawn."""
    return [each.findtext(f"{SVG}title", "") for each in picture.iter(f"{SVG}g")]


def day(number: int) -> str:
    return f"20{number // 336:02}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}"


@pytest.mark.parametrize(
    "made",
    [over_time("p", [], "finished", "week"), over_time("p", [Series("a", [])], "finished", "day"), side_by_side("p", [], "kept")],
)
def test_nothing_observed_is_a_picture_with_axes_that_says_so(made: str) -> None:
    picture = drawn(made)
    assert points(picture) == []
    assert picture.findtext(f"{SVG}desc") == "No observations."
    assert [each.text for each in picture.iter(f"{SVG}text") if each.get("class") == "tick"] == [
        "0 %",
        "25 %",
        "50 %",
        "75 %",
        "100 %",
    ]


def test_one_observation_is_a_point_with_its_wide_interval_and_no_line() -> None:
    point = Point("2026-05-04", 1.0, 0.21, 1.0, 1)
    picture = drawn(over_time("p", [Series("3f2a current", [point])], "finished", "week"))
    assert points(picture) == [f"2026-05-04, 3f2a current: 100{_}% of 1 (21{_}% to 100{_}%)"]
    assert not [each for each in picture.iter(f"{SVG}path") if (each.get("class") or "").startswith("line")]
    assert picture.get("aria-labelledby") == "p-title p-desc"
    assert picture.findtext(f"{SVG}title") == "finished by week: rates with their 95 % intervals"
    bar = next(each.get("d") or "" for each in picture.iter(f"{SVG}path") if each.get("class") == "bar")
    low, high = (float(each) for each in re.findall(r"^M[\d.]+ ([\d.]+)V([\d.]+)", bar)[0])
    assert (low, high) == (172.0, 14.0)  # 21 % and 100 % of 200 pixels, below the margin of 14


def test_of_many_periods_the_newest_are_drawn_in_order_and_their_days_do_not_meet() -> None:
    many = [Point(day(number), 0.5, 0.25, 0.75, 4) for number in range(500)]
    series = [Series(f"v{number}", many) for number in range(SERIES + 3)]
    picture = drawn(over_time("p", series, "passed", "day"))
    assert plots.periods_of(series) == [day(number) for number in range(500 - PERIODS, 500)]
    said = points(picture)
    assert len(said) == PERIODS * SERIES
    assert said[0].startswith(f"{day(500 - PERIODS)}, v0:")
    marks = {each.get("d", "").partition("m")[2] for each in picture.iter(f"{SVG}path") if each.get("class") == "mark"}
    assert len(marks) == SERIES  # each series has a shape of its own
    ticks = [each for each in picture.iter(f"{SVG}text") if re.match(r"20\d\d-", each.text or "")]
    places = [float(each.get("x") or "") for each in ticks]
    assert all(later - earlier >= 70 for earlier, later in pairwise(places))
    assert max(places) + 66 < float(picture.get("width") or "")  # ten characters


def test_rows_beside_each_other_say_rate_and_count_also_beyond_the_number_of_marks() -> None:
    rows = [Point(f"v{number}", number / 10, 0.0, 1.0, number) for number in range(10)]
    picture = drawn(side_by_side("p", rows, "kept"))
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert [f"{number * 10}{_}% of {number}" in texts for number in range(10)] == [True] * 10
    heights = [
        float(re.findall(r"^M[\d.]+ ([\d.]+)", each.get("d") or "")[0])
        for each in picture.iter(f"{SVG}path")
        if each.get("class") == "mark"
    ]
    assert heights == sorted(set(heights))
    assert heights[-1] < float(picture.get("height") or "") - 36


def test_a_name_is_text_whatever_it_holds() -> None:
    """In both plots, in what a point says and beside a row; what would hide or turn a line around is made visible."""
    name = f"{ATTACK}\u202e\n&amp;"
    point = Point(name, 0.5, 0.1, 0.9, 10)
    for made in (over_time("p", [Series(name, [point])], name, name), side_by_side("p", [point], name)):
        picture = drawn(made)
        assert {each.tag.removeprefix(SVG) for each in picture.iter()} <= {"svg", "title", "desc", "path", "g", "text"}
        assert not {key for each in picture.iter() for key in each.attrib if key.startswith("on") or key in ("style", "href")}
        assert any(f"{ATTACK}\u2426\u240a&amp;" in said for said in points(picture))


def test_a_share_that_is_not_all_is_never_said_to_be_all() -> None:
    """Nor is one that is not nothing said to be nothing, nor a difference that is there to be none."""
    shares = (0, 0.0009, 0.001, 0.0049, 0.005, 0.5, 0.9949, 0.995, 0.998, 0.9991, 1)
    said = [percent(each).replace(_, " ") for each in shares]
    assert said[:5] == ["0 %", "below 0.1 %", "0.1 %", "0.5 %", "0.5 %"]
    assert said[5:] == ["50 %", "99 %", "99.5 %", "99.8 %", "over 99.9 %", "100 %"]
    found = [signed(each) for each in (-1, -0.9999, -0.25, -0.002, -0.0001, 0, 0.0001, 0.3, 0.997, 1)]
    assert found == ["-100", "-over 99.9", "-25", "-0.2", "-below 0.1", "0", "+below 0.1", "+30", "+99.7", "+100"]


def test_rows_fit_a_phone_with_all_of_their_words() -> None:
    """However long a name is and however much was observed: by what a letter takes at most, in the font of each."""
    rows = [Point("0123abcd proposed by somebody", 0.9991, 0.99, 1.0, 1_234_567), Point("a", 0.0, 0.0, 1.0, 1)]
    picture = drawn(side_by_side("p", rows, "finished"))
    width = float(picture.get("width") or "")
    assert width <= 300
    places = []
    for each in picture.iter(f"{SVG}text"):
        long = len(each.text or "") * (7.3 if each.get("class") == "name" else 6.2)
        start = float(each.get("x") or "") - {"start": 0, "middle": long / 2, "end": long}[each.get("text-anchor") or ""]
        assert 0 <= start <= start + long <= width, each.text
        places.append((float(each.get("y") or ""), start, start + long))
    for one, other in pairwise(sorted(places)):
        assert one[0] != other[0] or one[2] <= other[1]


def test_a_legend_has_the_marks_of_the_plot() -> None:
    made = [mark(number) for number in range(SERIES)]
    assert len({re.findall(r'd="M7 7([^"]+)"', each)[0] for each in made}) == SERIES
    assert mark(SERIES) == made[0]
