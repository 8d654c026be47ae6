"""Text from documents stays text in every kind of file that it is written to."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from clia.identities.exports import markdown

# Characters that a hostile document would use, more often than random text has them.
HOSTILE = (
    st.text(st.sampled_from("ab \n\t\r#-_*+=<>!`~[]():@|\\\"'1.&?/{}%\x00\x1b\x85\u200b\u200d\u202e\u2028\ufeff\ufffe\U000e0041"))
    | st.text()
)


PARAGRAPH = ["paragraph_open", "inline", "paragraph_close"]


def tokens(markdown: str) -> list[str]:
    return [token.type for token in MarkdownIt("commonmark").parse(markdown)]


@given(HOSTILE)
def test_a_line_is_always_one_paragraph_of_markdown(text: str) -> None:
    line = markdown.markdown_line(text)
    assert "\n" not in line
    assert tokens(line) == (PARAGRAPH if line else [])


@given(HOSTILE, HOSTILE)
def test_lines_of_a_paragraph_never_turn_into_other_blocks(first: str, second: str) -> None:
    assert tokens(markdown.prose(f"word {first}\n{second}")) == PARAGRAPH


@given(HOSTILE)
def test_no_line_of_a_list_item_ends_it_or_opens_a_block_in_it(text: str) -> None:
    document = f"- {markdown.prose('x' + text, '  ')}\n\nafter"
    listed = ["bullet_list_open", "list_item_open", *PARAGRAPH, "list_item_close", "bullet_list_close"]
    assert tokens(document) == [*listed, *PARAGRAPH]


@given(HOSTILE)
def test_prose_has_no_comment_no_import_and_no_invisible_character(text: str) -> None:
    prose = markdown.prose(text)
    assert "<!--" not in prose
    assert not re.search(r"(?:^|\s)@", prose)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u202e\u2066\ufeff\U000e0041]", prose)


@given(HOSTILE)
def test_a_quoted_line_is_the_same_text_in_json_and_yaml(text: str) -> None:
    quoted = markdown.quoted_string(text)
    assert json.loads(quoted) == markdown.one_line(text)
    assert yaml.safe_load(f"key: {quoted}\n") == {"key": markdown.one_line(text)}
    assert "---" not in quoted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words, a-b, 3.14 and x < y", "plain words, a-b, 3.14 and x < y"),
        ("# heading", "\\# heading"),
        ("#hashtag", "#hashtag"),
        ("**bold** start", "**bold** start"),
        ("---", "\\---"),
        ("- - -", "\\- - -"),
        ("===", "\\==="),
        ("```python", "\\```python"),
        ("1. first", "1\\. first"),
        ("12) twelfth", "12\\) twelfth"),
        ("2026 was", "2026 was"),
        ("<script>", "\\<script>"),
        ("see <slug>", "see <slug>"),
        ("[x]: https://example.org", "\\[x]: https://example.org"),
        ("a <!-- b --> c", "a &lt;!-- b --> c"),
        ("@~/.ssh/id_ed25519", "\\@~/.ssh/id_ed25519"),
        ("ask @/etc/passwd", "ask \\@/etc/passwd"),
        ("mail tess@example.org", "mail tess@example.org"),
        ("a\u200bb\x1b[31m\u202e", "a\\u{200b}b\\u{1b}[31m\\u{202e}"),
        ("\U0001f469\u200d\U0001f680 and ❤\ufe0f\u200d\U0001f525", "\U0001f469\u200d\U0001f680 and ❤\ufe0f\u200d\U0001f525"),
        ("a\u200db", "a\\u{200d}b"),
        ("two\u00a0words", "two words"),
    ],
)
def test_text_that_markdown_would_interpret_is_escaped(text: str, expected: str) -> None:
    assert markdown.markdown_line(text) == expected


def test_paragraphs_are_split_at_blank_lines_of_any_kind() -> None:
    assert markdown.paragraphs("\n one\r\ntwo\r\n \r\n\r\nthree\n") == [" one\ntwo", "three"]


def test_text_cannot_end_a_code_span() -> None:
    assert markdown.code_span("a`b\n<!--") == "`a\\u{60}b &lt;!--`"


def test_a_code_span_contains_no_import_even_if_backticks_are_ignored() -> None:
    assert markdown.code_span("@scope/a @b") == "`@scope/a \\u{40}b`"


@given(HOSTILE, st.integers(2, 60))
def test_a_shortened_line_fits_in_code_points_and_in_utf16_units(text: str, room: int) -> None:
    short = markdown.shortened(text, room)
    assert len(short) <= len(short.encode("utf-16-le")) // 2 <= room
    assert markdown.one_line(short) == short
    assert short == markdown.one_line(text) or short.endswith("…")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", "one two…"),
        ("onetwothree four", "onetwoth…"),
        ("a bcdefghijklm", "a bcdefg…"),
        ("ab cdef\U0001f469\u200d\U0001f680", "ab cdef…"),
        ("abcdef\U0001f469\u200d\U0001f680", "abcdef\U0001f469…"),
        ("nine char", "nine char"),
    ],
)
def test_a_long_line_is_cut_between_words_and_never_inside_a_character(text: str, expected: str) -> None:
    assert markdown.shortened(text, 9) == expected
