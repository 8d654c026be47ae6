"""Excerpts of a flow in error messages."""

from __future__ import annotations

import pytest

from clia.cli import flows


@pytest.mark.parametrize(
    ("line", "column", "expected", "caret"),
    [
        ("x = foo(1)", 5, "x = foo(1)", 4),
        ("\tfoo", 2, "    foo", 4),
        ("世界 = foo", 6, "世界 = foo", 7),  # two cells each
        ("a\x1bb = c", 3, "a\\u{1b}b = c", 7),
        ("abc", 9, "abc", 3),
        ("abc", 0, "abc", 0),
    ],
)
def test_the_caret_is_below_the_character_of_the_problem(line: str, column: int, expected: str, caret: int) -> None:
    first, second = (text.plain for text in flows.excerpt(line, 7, column))
    assert first == f"    7 │ {expected}"
    assert second == f"      │ {' ' * caret}^"
