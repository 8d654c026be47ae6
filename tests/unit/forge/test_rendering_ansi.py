"""Terminal output as HTML."""

from __future__ import annotations

import pytest

from clia.forge.rendering import ansi
from support.markup import Piece, read, shown, within

ESC = "\x1b"


def styled(text: str) -> list[tuple[str, str]]:
    """The pieces of a text with their classes."""
    return [(piece.text, " ".join(piece.within)) for piece in read(ansi.to_html(text))]


def test_text_without_sequences_is_only_escaped() -> None:
    assert ansi.to_html("a <b> & \"c\" 'd'\n\té 日本 👩‍💻") == "a &lt;b&gt; &amp; &#34;c&#34; &#39;d&#39;\n\té 日本 👩‍💻"


@pytest.mark.parametrize(
    ("codes", "classes"),
    [
        ("31", "ansi-fg-1"),
        ("97", "ansi-fg-15"),
        ("44", "ansi-bg-4"),
        ("100", "ansi-bg-8"),
        ("1", "ansi-b"),
        ("3;4;7", "ansi-i.ansi-u.ansi-inv"),
        ("21", "ansi-u"),
        ("4:3", "ansi-u"),
        ("1;31;42", "ansi-fg-1.ansi-bg-2.ansi-b"),
        ("38;5;9", "ansi-fg-9"),
        ("38;5;16", "ansi-fg-0"),
        ("38;5;196", "ansi-fg-9"),
        ("38;5;231", "ansi-fg-15"),
        ("38;5;244", "ansi-fg-8"),
        ("48;5;21", "ansi-bg-4"),
        ("38;2;250;10;5", "ansi-fg-9"),
        ("38:2::250:10:5", "ansi-fg-9"),
        ("38:2:250:10:5", "ansi-fg-9"),
        ("38:5:12", "ansi-fg-12"),
        ("48;2;0;0;0;1", "ansi-bg-0.ansi-b"),
        ("58;5;31;3", "ansi-i"),
        ("58;2;1;1;31;3", "ansi-i"),
    ],
)
def test_a_sequence_becomes_css_classes(codes: str, classes: str) -> None:
    assert styled(f"{ESC}[{codes}mx") == [("x", f"span.{classes}")]


@pytest.mark.parametrize(
    "codes",
    [
        *(
            "",
            "0",
            "1;0",
            "1;22",
            "3;23",
            "4;24",
            "4;4:0",
            "7;27",
            "31;39",
            "41;49",
            "5",
            "8",
            "99",
            "999",
            "9" * 5000,
            "?1",
            ">4;1",
        ),
        *("38", "38;5", "38;5;256", "38;2;1;2", "38;2;1;2;300", "38;9", "38:2", "31;41"),
    ],
)
def test_reset_and_meaningless_codes_give_no_class(codes: str) -> None:
    """Including concealed text, and text in the colour of its background."""
    assert styled(f"{ESC}[{codes}mx") == [("x", "")]


def test_codes_very_late_in_a_sequence_are_ignored() -> None:
    assert styled(f"{ESC}[{'0;' * 100}31mx") == [("x", "span.ansi-fg-1")]
    assert styled(f"{ESC}[{'0;' * 500}31mx") == [("x", "")]


def test_a_style_continues_over_lines_until_it_is_reset() -> None:
    text = f"a{ESC}[31mb\nc{ESC}[1md\n\n{ESC}[22me{ESC}[mf"
    red, bold = "span.ansi-fg-1", "span.ansi-fg-1.ansi-b"
    first, second, fourth = [("a", ""), ("b", red), ("\n", "")], [("c", red), ("d", bold), ("\n\n", "")], [("e", red), ("f", "")]
    assert styled(text) == first + second + fourth


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10%\r50%\r100%", "100%"),
        ("long line\rshort", "shortline"),
        ("long line\rshort\x1b[K", "short"),
        ("long line\r\x1b[Kshort", "short"),
        ("long line\x1b[2K\rshort", "short"),
        ("long line\x1b[1G\x1b[0Kshort", "short"),
        ("abc\x1b[2Gx", "axc"),
        ("abc\x1b[999Gx", "abcx"),
        ("abc\r\ndef\r\n", "abc\ndef\n"),
        ("abc\r\r\r\ndef\r", "abc\ndef"),
        ("ab\bc", "ac"),
        ("ab\b\b\b\bc", "cb"),
        ("ab\b", "ab"),
        ("N\bNA\bAME", "NAME"),
        ("one\ntwo\rT", "one\nTwo"),
        ("abc\x1b[K", "abc"),
        ("\r\x1b[Kx", "x"),
    ],
)
def test_a_line_is_what_a_terminal_would_show_in_the_end(text: str, expected: str) -> None:
    assert shown(ansi.to_html(text)) == expected
    assert ansi.plain(text) == expected


def test_overwritten_text_has_the_new_style() -> None:
    assert styled("aaa\r\x1b[31mb\x1b[0m\x1b[2Gc") == [("b", "span.ansi-fg-1"), ("ca", "")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b]8;;https://evil.example/\x1b\\safe\x1b]8;;\x1b\\ end", "safe end"),
        ("\x1b]8;id=1;javascript:alert(1)\x07click\x1b]8;;\x07", "click"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1bPq#0;2;0;0;0#0~~\x1b\\x", "x"),
        ("\x1b[2J\x1b[3A\x1b[?25lx\x1b[?25h\x1b(B\x1b=\x1b7\x1bc", "x"),
        ("\x9b31mx\x9d0;t\x9cy", "xy"),
    ],
)
def test_links_are_text_and_other_sequences_are_dropped(text: str, expected: str) -> None:
    assert shown(ansi.to_html(text)) == ansi.plain(text) == expected
    assert "evil" not in ansi.to_html(text)


def test_a_coloured_link_keeps_its_colour() -> None:
    assert styled("\x1b[34m\x1b]8;;x\x07t\x1b]8;;\x07") == [("t", "span.ansi-fg-4")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\x1b", "␛"), ("\x1b[31", "␛[31"), ("\x1b]0;never ends\nx", "␛]0;never ends\nx"), ("\x1b]0;a\nb\x07c", "␛]0;a\nb␇c")],
)
def test_an_unfinished_sequence_hides_nothing(text: str, expected: str) -> None:
    assert shown(ansi.to_html(text)) == ansi.plain(text) == expected


@pytest.mark.parametrize(
    ("char", "stand_in"),
    [("\0", "␀"), ("\a", "␇"), ("\x7f", "␡"), ("\x85", "␦"), ("\u202e", "␦"), ("\u200b", "␦"), ("\ufeff", "␦")],
)
def test_control_and_invisible_characters_are_visible_and_named(char: str, stand_in: str) -> None:
    assert ansi.to_html(f"a{char}b") == f'a<span class="ctl" title="U+{ord(char):04X}">{stand_in}</span>b'


@pytest.mark.parametrize("char", ["\u2066", "\u061c", "\u2028", "\u3164", "\u115f", "\U000e0041", "\U000e0101", "\ud800"])
def test_no_invisible_character_or_surrogate_is_left(char: str) -> None:
    assert within(ansi.to_html(f"a{char}b"), "span.ctl") == ["␦"]
    ansi.to_html(char).encode("utf-8")


def test_several_control_characters_share_a_tag() -> None:
    assert read(ansi.to_html("\x01" * 20)) == [Piece("␁" * 16, ("span.ctl",)), Piece("␁" * 4, ("span.ctl",))]


def test_coloured_markup_stays_text() -> None:
    assert ansi.to_html('\x1b[31m<script>"') == '<span class="ansi-fg-1">&lt;script&gt;&#34;</span>'
