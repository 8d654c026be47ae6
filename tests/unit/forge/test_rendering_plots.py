"""Plots of rates: with no, one and many observations; names in them are always text."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from clia.forge.rendering import plots
from clia.forge.rendering.plots import PERIODS, SERIES, Point, Series, mark, over_time, percent, side_by_side, signed
from support.forge import ATTACK

_ = "\u00a0"
"""A non-breaking space, between a number and its unit."""
SVG = "{http://www.w3.org/2000/svg}"


def parse_svg(markup: str) -> ET.Element:
    """The picture, parsed as XML."""
    xml = str(markup).replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1)
    return ET.fromstring(xml)  # noqa: S314  # written by the code under test


def points(picture: ET.Element) -> list[str]:
    """The titles of the points, in drawing order."""
    return [group.findtext(f"{SVG}title", "") for group in picture.iter(f"{SVG}g")]


def day(number: int) -> str:
    return f"20{number // 336:02}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}"


@pytest.mark.parametrize(
    "markup",
    [over_time("p", [], "finished", "week"), over_time("p", [Series("a", [])], "finished", "day"), side_by_side("p", [], "kept")],
)
def test_nothing_observed_is_a_picture_with_axes_and_a_note(markup: str) -> None:
    picture = parse_svg(markup)
    assert points(picture) == []
    assert picture.findtext(f"{SVG}desc") == "No observations."
    assert [text.text for text in picture.iter(f"{SVG}text") if text.get("class") == "tick"] == [
        "0 %",
        "25 %",
        "50 %",
        "75 %",
        "100 %",
    ]


def test_one_observation_is_a_point_with_its_interval_and_no_line() -> None:
    point = Point("2026-05-04", 1.0, 0.21, 1.0, 1)
    picture = parse_svg(over_time("p", [Series("3f2a current", [point])], "finished", "week"))
    assert points(picture) == [f"2026-05-04, 3f2a current: 100{_}% of 1 (21{_}% to 100{_}%)"]
    assert not [path for path in picture.iter(f"{SVG}path") if (path.get("class") or "").startswith("line")]
    assert picture.get("aria-labelledby") == "p-title p-desc"
    assert picture.findtext(f"{SVG}title") == "finished by week: rates with their 95 % intervals"
    bar = next(path.get("d") or "" for path in picture.iter(f"{SVG}path") if path.get("class") == "bar")
    low, high = (float(number) for number in re.findall(r"^M[\d.]+ ([\d.]+)V([\d.]+)", bar)[0])
    assert (low, high) == (172.0, 14.0)  # 21 % and 100 % of 200 pixels, below the margin of 14


def test_the_newest_periods_are_drawn_in_order_and_their_labels_do_not_overlap() -> None:
    many = [Point(day(number), 0.5, 0.25, 0.75, 4) for number in range(500)]
    series = [Series(f"v{number}", many) for number in range(SERIES + 3)]
    picture = parse_svg(over_time("p", series, "passed", "day"))
    assert plots.periods_of(series) == [day(number) for number in range(500 - PERIODS, 500)]
    titles = points(picture)
    assert len(titles) == PERIODS * SERIES
    assert titles[0].startswith(f"{day(500 - PERIODS)}, v0:")
    marks = {path.get("d", "").partition("m")[2] for path in picture.iter(f"{SVG}path") if path.get("class") == "mark"}
    assert len(marks) == SERIES  # each series has its own shape
    ticks = [text for text in picture.iter(f"{SVG}text") if re.match(r"20\d\d-", text.text or "")]
    positions = [float(tick.get("x") or "") for tick in ticks]
    assert all(later - earlier >= 70 for earlier, later in pairwise(positions))
    assert max(positions) + 66 < float(picture.get("width") or "")  # ten characters


def test_rows_show_rate_and_count_even_beyond_the_number_of_marks() -> None:
    rows = [Point(f"v{number}", number / 10, 0.0, 1.0, number) for number in range(10)]
    picture = parse_svg(side_by_side("p", rows, "kept"))
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert [f"{number * 10}{_}% of {number}" in texts for number in range(10)] == [True] * 10
    heights = [
        float(re.findall(r"^M[\d.]+ ([\d.]+)", path.get("d") or "")[0])
        for path in picture.iter(f"{SVG}path")
        if path.get("class") == "mark"
    ]
    assert heights == sorted(set(heights))
    assert heights[-1] < float(picture.get("height") or "") - 36


def test_a_name_is_always_text() -> None:
    """In both plots, in the titles of points and beside rows; invisible and bidirectional characters are made visible."""
    name = f"{ATTACK}\u202e\n&amp;"
    point = Point(name, 0.5, 0.1, 0.9, 10)
    for markup in (over_time("p", [Series(name, [point])], name, name), side_by_side("p", [point], name)):
        picture = parse_svg(markup)
        assert {element.tag.removeprefix(SVG) for element in picture.iter()} <= {"svg", "title", "desc", "path", "g", "text"}
        assert not {key for element in picture.iter() for key in element.attrib if key.startswith("on") or key in ("style", "href")}
        assert any(f"{ATTACK}\u2426\u240a&amp;" in title for title in points(picture))


def test_only_exact_shares_are_shown_as_0_or_100_percent() -> None:
    """A small difference is never shown as none."""
    shares = (0, 0.0009, 0.001, 0.0049, 0.005, 0.5, 0.9949, 0.995, 0.998, 0.9991, 1)
    texts = [percent(share).replace(_, " ") for share in shares]
    assert texts[:5] == ["0 %", "below 0.1 %", "0.1 %", "0.5 %", "0.5 %"]
    assert texts[5:] == ["50 %", "99 %", "99.5 %", "99.8 %", "over 99.9 %", "100 %"]
    differences = [signed(difference) for difference in (-1, -0.9999, -0.25, -0.002, -0.0001, 0, 0.0001, 0.3, 0.997, 1)]
    assert differences == ["-100", "-over 99.9", "-25", "-0.2", "-below 0.1", "0", "+below 0.1", "+30", "+99.7", "+100"]


def test_rows_fit_a_phone_with_all_their_text() -> None:
    """For any name and count, by the maximum width of a letter in each font."""
    rows = [Point("0123abcd proposed by somebody", 0.9991, 0.99, 1.0, 1_234_567), Point("a", 0.0, 0.0, 1.0, 1)]
    picture = parse_svg(side_by_side("p", rows, "finished"))
    width = float(picture.get("width") or "")
    assert width <= 300
    boxes = []
    for text in picture.iter(f"{SVG}text"):
        text_width = len(text.text or "") * (7.3 if text.get("class") == "name" else 6.2)
        start = (
            float(text.get("x") or "") - {"start": 0, "middle": text_width / 2, "end": text_width}[text.get("text-anchor") or ""]
        )
        assert 0 <= start <= start + text_width <= width, text.text
        boxes.append((float(text.get("y") or ""), start, start + text_width))
    for left, right in pairwise(sorted(boxes)):
        assert left[0] != right[0] or left[2] <= right[1]


def test_a_legend_has_the_marks_of_the_plot() -> None:
    marks = [mark(number) for number in range(SERIES)]
    assert len({re.findall(r'd="M7 7([^"]+)"', svg)[0] for svg in marks}) == SERIES
    assert mark(SERIES) == marks[0]
