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


def one(made: Any, **how: Any) -> EntryView:
    (found,) = view([made], **how)
    return found


def test_a_view_says_what_the_entry_says() -> None:
    made = one(entry("\n \n\x1b[32mok\x1b[0m <b>\nmore", data={"exit": 0}, redacted=2, cut=300_000), start=7)
    assert (made.number, made.kind, made.at, made.lines, made.long) == (7, "console", "2026-05-01T00:00:00Z", 4, False)
    assert made.head == "ok &lt;b&gt;"
    assert made.body == '\n \n<span class="ansi-fg-2">ok</span> &lt;b&gt;\nmore'
    assert made.data is not None
    assert shown(made.data) == '{\n  "exit": 0\n}\n'
    assert (made.redacted, made.cut, made.rest, made.hit) == (2, 300_000, 0, False)


def test_entries_are_numbered_from_the_start_of_their_window() -> None:
    assert [each.number for each in view([entry("a"), entry("b")], 200)] == [200, 201]


@pytest.mark.parametrize(
    ("text", "long"),
    [("a\n" * 19, False), ("a\n" * 20, True), ("a" * 2000, False), ("a" * 2001, True), ("a" * 2001 + "\r\x1b[K", False)],
)
def test_many_lines_or_characters_make_an_entry_long(text: str, long: bool) -> None:
    assert one(entry(text)).long is long


def test_a_long_head_is_cut() -> None:
    assert one(entry("x" * 500)).head == "x" * 160 + "…"


def test_only_a_very_long_line_is_told_apart() -> None:
    made = one(entry("a" * 400 + "\n" + "b" * 401 + "\nc"))
    assert within(made.body, "span.long-line") == ["b" * 401]


def test_redactions_are_marked_with_their_kind() -> None:
    text = redact(FAKES[0].text).text
    assert "[redacted:" in text
    (marked,) = within(one(entry(text)).body, "mark.redacted")
    kind = marked.removeprefix("[redacted:").removesuffix("]")
    assert f'<mark class="redacted" title="redacted secret: {kind}">' in one(entry(text)).body


def test_what_only_looks_like_a_redaction_is_not_marked() -> None:
    assert within(one(entry(f"[redacted:{'x' * 65}] [redacted:<b>]")).body, "mark.redacted") == []


def test_a_huge_entry_shows_its_first_whole_lines_and_counts_the_rest() -> None:
    text = "0123456789\n" * 5000
    made = one(entry(text))
    assert len(shown(made.body)) + made.rest == len(text)
    assert SHOWN_MAX - 11 <= len(shown(made.body)) <= SHOWN_MAX
    assert shown(made.body).endswith("\n0123456789")
    assert (one(entry(text), complete=True).body, one(entry(text), complete=True).rest) == (text, 0)
    assert one(entry("x" * 50_000)).rest == 30_000


@pytest.mark.parametrize(
    "wrong", [None, 7, "<b>", ["<b>"], {}, {"text": ["<b>"], "kind": 3, "at": {}, "redacted": "x", "cut": -1, "data": "<b>"}]
)
def test_an_entry_that_another_program_wrote_wrongly_is_shown_all_the_same(wrong: Any) -> None:
    made = one(wrong)
    assert "<b>" not in made.body + made.head + (made.data or "")
    assert (made.redacted, made.cut) == (0, 0)
    assert hits([wrong], "<b>") == ([0] if "<b>" in str(wrong) else [])


def test_names_stay_on_their_line() -> None:
    assert one(entry("", kind="a\nb\u202e")).kind == "a␊b␦"


@pytest.mark.parametrize(
    ("asked", "given"),
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
def test_the_window_around_an_entry(asked: Any, given: TraceWindow) -> None:
    assert window(*asked) == given


def test_a_window_without_entries_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        window(5, 0, 0)
    assert caught.value.fields == {"size": 0}


def test_hits_are_found_in_what_is_shown_and_in_the_data() -> None:
    entries = [
        entry("Fai\x1b[31mled\x1b[0m"),
        entry("all is well"),
        entry("failed\rpassed"),
        entry("", data={"why": "FAILED"}),
        entry("\x1b]0;failed\x07"),
    ]
    assert hits(entries, "failed") == [0, 3]
    assert [each.number for each in view(entries, find="failed") if each.hit] == [0, 3]
    assert hits(entries, "") == []


def test_a_hit_is_marked_over_colours_in_text_head_and_data() -> None:
    made = one(entry("x Fai\x1b[31mled\x1b[0m y", data=["failed"]), find="FAILED")
    assert within(made.body, "mark.hit") == ["Fai", "led"]
    assert within(made.body, "span.ansi-fg-1") == ["led"]
    assert within(made.head, "mark.hit") == ["Failed"]
    assert made.data is not None
    assert within(made.data, "mark.hit") == ["failed"]


def test_a_hit_inside_a_redaction_is_marked_within_it() -> None:
    made = one(entry("[redacted:jwt]"), find="jwt")
    assert within(made.body, "mark.redacted") == ["[redacted:", "jwt", "]"]
    assert within(made.body, "mark.hit") == ["jwt"]


def test_a_page_has_so_many_marks_and_says_every_hit() -> None:
    made = view([entry("a" * 4000) for _ in range(3)], find="a")
    assert sum(len(within(each.body, "mark.hit")) + len(within(each.head, "mark.hit")) for each in made) == 5000
    assert [each.hit for each in made] == [True] * 3


def body(text: str, find: str) -> str:
    return view([entry(text)], find=find)[0].body


def test_looking_for_markup_marks_the_text_and_no_tag() -> None:
    assert body("<b>b</b>\n&amp;", "b") == (
        '&lt;<mark class="hit">b</mark>&gt;<mark class="hit">b</mark>&lt;/<mark class="hit">b</mark>&gt;\n&amp;amp;'
    )
    assert body("a<b", "<") == 'a<mark class="hit">&lt;</mark>b'
    assert within(body("a & b", "amp"), "mark.hit") == []


@pytest.mark.parametrize(
    ("text", "find", "seen"),
    [("İSTANBUL x", "X", "x"), ("ΟΔΟΣ x", "οδοσ", "ΟΔΟΣ"), ("a\u202eb", "\u202eB", "␦b"), ("STRASSE", "strasse", "STRASSE")],
)
def test_letters_of_any_language_are_found_where_they_stand(text: str, find: str, seen: str) -> None:
    assert "".join(within(body(text, find), "mark.hit")) == seen
