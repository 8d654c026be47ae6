from __future__ import annotations

import pytest

from clia.forge.rendering import ansi
from support.markup import Piece, read, shown, within

ESC = "\x1b"


def looks(text: str) -> list[tuple[str, str]]:
    """Each piece of a text with its classes."""
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
def test_a_sequence_gives_classes(codes: str, classes: str) -> None:
    assert looks(f"{ESC}[{codes}mx") == [("x", f"span.{classes}")]


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
def test_what_is_reset_or_means_nothing_gives_none(codes: str) -> None:
    """Among them: text concealed, and text of the colour of its ground, which nobody could read."""
    assert looks(f"{ESC}[{codes}mx") == [("x", "")]


def test_what_comes_very_late_in_a_sequence_is_not_read() -> None:
    assert looks(f"{ESC}[{'0;' * 100}31mx") == [("x", "span.ansi-fg-1")]
    assert looks(f"{ESC}[{'0;' * 500}31mx") == [("x", "")]


def test_a_look_goes_on_over_lines_until_it_is_reset() -> None:
    text = f"a{ESC}[31mb\nc{ESC}[1md\n\n{ESC}[22me{ESC}[mf"
    red, bold = "span.ansi-fg-1", "span.ansi-fg-1.ansi-b"
    first, second, fourth = [("a", ""), ("b", red), ("\n", "")], [("c", red), ("d", bold), ("\n\n", "")], [("e", red), ("f", "")]
    assert looks(text) == first + second + fourth


@pytest.mark.parametrize(
    ("text", "seen"),
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
def test_a_line_is_what_a_terminal_would_show_at_last(text: str, seen: str) -> None:
    assert shown(ansi.to_html(text)) == seen
    assert ansi.plain(text) == seen


def test_what_is_written_over_has_the_new_look() -> None:
    assert looks("aaa\r\x1b[31mb\x1b[0m\x1b[2Gc") == [("b", "span.ansi-fg-1"), ("ca", "")]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b]8;;https://evil.example/\x1b\\safe\x1b]8;;\x1b\\ end", "safe end"),
        ("\x1b]8;id=1;javascript:alert(1)\x07click\x1b]8;;\x07", "click"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1bPq#0;2;0;0;0#0~~\x1b\\x", "x"),
        ("\x1b[2J\x1b[3A\x1b[?25lx\x1b[?25h\x1b(B\x1b=\x1b7\x1bc", "x"),
        ("\x9b31mx\x9d0;t\x9cy", "xy"),
    ],
)
def test_links_are_text_and_other_sequences_are_dropped(text: str, seen: str) -> None:
    assert shown(ansi.to_html(text)) == ansi.plain(text) == seen
    assert "evil" not in ansi.to_html(text)


def test_a_link_in_colour_keeps_the_colour() -> None:
    assert looks("\x1b[34m\x1b]8;;x\x07t\x1b]8;;\x07") == [("t", "span.ansi-fg-4")]


@pytest.mark.parametrize(
    ("text", "seen"),
    [("\x1b", "␛"), ("\x1b[31", "␛[31"), ("\x1b]0;never ends\nx", "␛]0;never ends\nx"), ("\x1b]0;a\nb\x07c", "␛]0;a\nb␇c")],
)
def test_a_sequence_that_does_not_end_hides_nothing(text: str, seen: str) -> None:
    assert shown(ansi.to_html(text)) == ansi.plain(text) == seen


@pytest.mark.parametrize(
    ("char", "stand_in"),
    [("\0", "␀"), ("\a", "␇"), ("\x7f", "␡"), ("\x85", "␦"), ("\u202e", "␦"), ("\u200b", "␦"), ("\ufeff", "␦")],
)
def test_what_would_act_or_hide_is_visible_and_named(char: str, stand_in: str) -> None:
    assert ansi.to_html(f"a{char}b") == f'a<span class="ctl" title="U+{ord(char):04X}">{stand_in}</span>b'


@pytest.mark.parametrize("char", ["\u2066", "\u061c", "\u2028", "\u3164", "\u115f", "\U000e0041", "\U000e0101", "\ud800"])
def test_no_invisible_character_and_no_surrogate_is_left(char: str) -> None:
    assert within(ansi.to_html(f"a{char}b"), "span.ctl") == ["␦"]
    ansi.to_html(char).encode("utf-8")


def test_several_controls_share_a_tag() -> None:
    assert read(ansi.to_html("\x01" * 20)) == [Piece("␁" * 16, ("span.ctl",)), Piece("␁" * 4, ("span.ctl",))]


def test_markup_in_colours_stays_text() -> None:
    assert ansi.to_html('\x1b[31m<script>"') == '<span class="ansi-fg-1">&lt;script&gt;&#34;</span>'
