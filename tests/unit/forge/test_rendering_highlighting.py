"""Syntax colours of source lines."""

from __future__ import annotations

import pytest

from clia.forge.rendering.highlighting import LINE_MAX, HighlightBudget
from clia.forge.rendering.texts import html, text_of


def test_runs_have_the_text_of_the_lines() -> None:
    texts = ['def greet(name):  # say "hello"', "    return 'hé' + name", "", "\t<script>"]
    lines = HighlightBudget().lines("src/greet.py", texts)
    assert lines is not None
    assert ["".join(run.text for run in runs) for runs in lines] == texts
    classes = {run.text: run.classes for runs in lines for run in runs}
    assert (classes["def"], classes["greet"]) == ("hl-keyword", "hl-name")
    assert classes['# say "hello"'] == "hl-comment"


def test_markup_in_code_is_escaped() -> None:
    lines = HighlightBudget().lines("page.html", ["<script>alert(1)</script>"])
    assert lines is not None
    shown = html(lines[0])
    assert "<script" not in shown
    assert "&lt;" in shown


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("notes.unknown-language", ["x = 1"]),
        ("README", ["plain"]),
        ("long.py", ["x" * (LINE_MAX + 1)]),
        ("empty.py", []),
        ("returns.py", ["x = 1\r", "y = 2"]),
    ],
)
def test_text_without_colours(path: str, texts: list[str]) -> None:
    lines = HighlightBudget().lines(path, texts)
    assert lines is None or [text_of(runs) for runs in lines] == texts


def test_a_page_has_a_limit_of_coloured_text() -> None:
    budget = HighlightBudget(10)
    assert budget.lines("a.py", ["x = 1"]) is not None
    assert budget.lines("b.py", ["y = 2222"]) is None
