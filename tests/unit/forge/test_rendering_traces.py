"""Trace entries as HTML: windows, matches and redactions."""

from __future__ import annotations

from typing import Any

import pytest

from clia.errors import InvalidInput
from clia.forge.rendering.traces import SHOWN_MAX, EntryView, TraceWindow, hits, view, window
from clia.redaction.secrets import redact
from support.fake_secrets import FAKES
from support.markup import shown, within


def entry(text: str, **more: Any) -> dict[str, Any]:
    return {"at": "2026-05-01T00:00:00Z", "kind": "console", "text": text, **more}


def view_of(content: Any, **options: Any) -> EntryView:
    (entry_view,) = view([content], **options)
    return entry_view


def test_a_view_has_the_content_of_the_entry() -> None:
    entry_view = view_of(entry("\n \n\x1b[32mok\x1b[0m <b>\nmore", data={"exit": 0}, redacted=2, cut=300_000), start=7)
    assert (entry_view.number, entry_view.kind, entry_view.at, entry_view.lines, entry_view.long) == (
        7,
        "console",
        "2026-05-01T00:00:00Z",
        4,
        False,
    )
    assert entry_view.head == "ok &lt;b&gt;"
    assert entry_view.body == '\n \n<span class="ansi-fg-2">ok</span> &lt;b&gt;\nmore'
    assert entry_view.data is not None
    assert shown(entry_view.data) == '{\n  "exit": 0\n}\n'
    assert (entry_view.redacted, entry_view.cut, entry_view.rest, entry_view.hit) == (2, 300_000, 0, False)


def test_entries_are_numbered_from_the_start_of_their_window() -> None:
    assert [entry_view.number for entry_view in view([entry("a"), entry("b")], 200)] == [200, 201]


@pytest.mark.parametrize(
    ("text", "long"),
    [("a\n" * 19, False), ("a\n" * 20, True), ("a" * 2000, False), ("a" * 2001, True), ("a" * 2001 + "\r\x1b[K", False)],
)
def test_many_lines_or_characters_make_an_entry_long(text: str, long: bool) -> None:
    assert view_of(entry(text)).long is long


def test_a_long_head_is_truncated() -> None:
    assert view_of(entry("x" * 500)).head == "x" * 160 + "…"


def test_only_a_very_long_line_has_its_own_class() -> None:
    entry_view = view_of(entry("a" * 400 + "\n" + "b" * 401 + "\nc"))
    assert within(entry_view.body, "span.long-line") == ["b" * 401]


def test_redactions_are_marked_with_their_kind() -> None:
    text = redact(FAKES[0].text).text
    assert "[redacted:" in text
    (marked,) = within(view_of(entry(text)).body, "mark.redacted")
    kind = marked.removeprefix("[redacted:").removesuffix("]")
    assert f'<mark class="redacted" title="redacted secret: {kind}">' in view_of(entry(text)).body


def test_text_that_only_resembles_a_redaction_is_not_marked() -> None:
    assert within(view_of(entry(f"[redacted:{'x' * 65}] [redacted:<b>]")).body, "mark.redacted") == []


def test_a_huge_entry_shows_its_first_complete_lines_and_counts_the_rest() -> None:
    text = "0123456789\n" * 5000
    entry_view = view_of(entry(text))
    assert len(shown(entry_view.body)) + entry_view.rest == len(text)
    assert SHOWN_MAX - 11 <= len(shown(entry_view.body)) <= SHOWN_MAX
    assert shown(entry_view.body).endswith("\n0123456789")
    assert (view_of(entry(text), complete=True).body, view_of(entry(text), complete=True).rest) == (text, 0)
    assert view_of(entry("x" * 50_000)).rest == 30_000


@pytest.mark.parametrize(
    "wrong", [None, 7, "<b>", ["<b>"], {}, {"text": ["<b>"], "kind": 3, "at": {}, "redacted": "x", "cut": -1, "data": "<b>"}]
)
def test_an_invalid_entry_of_another_program_is_shown(wrong: Any) -> None:
    entry_view = view_of(wrong)
    assert "<b>" not in entry_view.body + entry_view.head + (entry_view.data or "")
    assert (entry_view.redacted, entry_view.cut) == (0, 0)
    assert hits([wrong], "<b>") == ([0] if "<b>" in str(wrong) else [])


def test_names_stay_on_one_line() -> None:
    assert view_of(entry("", kind="a\nb\u202e")).kind == "a␊b␦"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((10_000, 0), TraceWindow(0, 200, None, 200)),
        ((10_000, 199), TraceWindow(0, 200, None, 200)),
        ((10_000, 200), TraceWindow(200, 400, 0, 400)),
        ((10_000, 9_999), TraceWindow(9_800, 10_000, 9_600, None)),
        ((10_001, 10_000), TraceWindow(10_000, 10_001, 9_800, None)),
        ((10_000, 99_999), TraceWindow(9_800, 10_000, 9_600, None)),
        ((10_000, -5), TraceWindow(0, 200, None, 200)),
        ((0, 0), TraceWindow(0, 0, None, None)),
        ((0, 9), TraceWindow(0, 0, None, None)),
        ((3, 1, 1), TraceWindow(1, 2, 0, 2)),
    ],
)
def test_a_window_contains_the_requested_entry(args: Any, expected: TraceWindow) -> None:
    assert window(*args) == expected


def test_a_window_of_size_zero_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        window(5, 0, 0)
    assert caught.value.fields == {"size": 0}


def test_matches_are_found_in_the_shown_text_and_in_the_data() -> None:
    entries = [
        entry("Fai\x1b[31mled\x1b[0m"),
        entry("all is well"),
        entry("failed\rpassed"),
        entry("", data={"why": "FAILED"}),
        entry("\x1b]0;failed\x07"),
    ]
    assert hits(entries, "failed") == [0, 3]
    assert [entry_view.number for entry_view in view(entries, find="failed") if entry_view.hit] == [0, 3]
    assert hits(entries, "") == []


def test_a_match_is_marked_across_colours_in_text_head_and_data() -> None:
    entry_view = view_of(entry("x Fai\x1b[31mled\x1b[0m y", data=["failed"]), find="FAILED")
    assert within(entry_view.body, "mark.hit") == ["Fai", "led"]
    assert within(entry_view.body, "span.ansi-fg-1") == ["led"]
    assert within(entry_view.head, "mark.hit") == ["Failed"]
    assert entry_view.data is not None
    assert within(entry_view.data, "mark.hit") == ["failed"]


def test_a_match_inside_a_redaction_is_marked_within_it() -> None:
    entry_view = view_of(entry("[redacted:jwt]"), find="jwt")
    assert within(entry_view.body, "mark.redacted") == ["[redacted:", "jwt", "]"]
    assert within(entry_view.body, "mark.hit") == ["jwt"]


def test_the_number_of_marks_on_a_page_is_limited() -> None:
    views = view([entry("a" * 4000) for _ in range(3)], find="a")
    assert sum(len(within(entry_view.body, "mark.hit")) + len(within(entry_view.head, "mark.hit")) for entry_view in views) == 5000
    assert [entry_view.hit for entry_view in views] == [True] * 3


def marked_body(text: str, find: str) -> str:
    return view([entry(text)], find=find)[0].body


def test_a_search_for_markup_marks_the_text_and_no_tag() -> None:
    assert marked_body("<b>b</b>\n&amp;", "b") == (
        '&lt;<mark class="hit">b</mark>&gt;<mark class="hit">b</mark>&lt;/<mark class="hit">b</mark>&gt;\n&amp;amp;'
    )
    assert marked_body("a<b", "<") == 'a<mark class="hit">&lt;</mark>b'
    assert within(marked_body("a & b", "amp"), "mark.hit") == []


@pytest.mark.parametrize(
    ("text", "find", "expected"),
    [("İSTANBUL x", "X", "x"), ("ΟΔΟΣ x", "οδοσ", "ΟΔΟΣ"), ("a\u202eb", "\u202eB", "␦b"), ("STRASSE", "strasse", "STRASSE")],
)
def test_matches_in_any_language_are_marked_where_they_are(text: str, find: str, expected: str) -> None:
    assert "".join(within(marked_body(text, find), "mark.hit")) == expected
