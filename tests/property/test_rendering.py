"""Text of agents is shown as text, and only clia's own tags are written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clia.forge.rendering import ansi, diffs, json_view, texts, traces
from support.documents import values
from support.markup import read, shown, within

PIECES = [
    *("<", ">", "&", '"', "'", "<script>", "&lt;", "a", "B", " ", "\t", "é", "日", "İ", "ς", "👩‍💻"),
    *("\n", "\r", "\r\n", "\b", "\0", "\a", "\x7f", "\x85", "\x9b", "\x9d", "\x9c", "\u202e", "\u200b", "\ufeff", "\ud800"),
    *("\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b\\", "\x1b[m", "\x1b[31m", "\x1b[1;42m", "\x1b[38;5;200m", "\x1b[38;2;1;2;3m"),
    *(
        "\x1b[K",
        "\x1b[2K",
        "\x1b[1K",
        "\x1b[1G",
        "\x1b[3G",
        "\x1b[2J",
        "\x1b]8;;http://x\x07",
        "\x1b]8;;\x1b\\",
        "31m",
        ";",
        "[redacted:jwt]",
    ),
]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join), st.text(st.characters(exclude_categories=[])))
letters = st.text(
    st.characters(categories=["L", "N", "P", "S"], exclude_characters="\u115f\u1160\u3164\uffa0") | st.sampled_from(" \t\n")
)


@given(hostile)
def test_terminal_text_is_shown_as_plain_text_with_our_tags_only(text: str) -> None:
    assert shown(ansi.to_html(text)) == ansi.plain(text)


@given(hostile)
def test_plain_text_has_the_same_lines(text: str) -> None:
    """Plain text has a faster implementation."""
    assert ansi.plain(text) == "\n".join(texts.text_of(line) for line in ansi.lines(text))


@given(letters)
def test_text_without_controls_comes_back_unchanged(text: str) -> None:
    assert ansi.plain(text) == shown(ansi.to_html(text)) == text


@given(hostile)
def test_plain_text_has_no_control_characters(text: str) -> None:
    plain_text = ansi.plain(text)
    assert ansi.plain(plain_text) == plain_text
    assert texts.visible(plain_text) == plain_text
    plain_text.encode("utf-8")


@given(st.lists(st.tuples(letters.map(lambda text: text.replace("\n", "")), st.integers(0, 107)), max_size=5))
def test_colours_change_no_text(parts: list[tuple[str, int]]) -> None:
    assert ansi.plain("".join(f"\x1b[{code}m{text}" for text, code in parts)) == "".join(text for text, _ in parts)


@given(st.text())
def test_folding_keeps_every_character_in_its_place(text: str) -> None:
    assert len(texts.folded(text)) == len(texts.visible(text)) == len(text)


@given(hostile, hostile)
def test_highlighting_changes_no_visible_text(text: str, find: str) -> None:
    entry = {"text": text, "data": {text: text}}
    (unmarked,), (marked,) = traces.view([entry], complete=True), traces.view([entry], find=find, complete=True)
    assert shown(marked.body) == shown(unmarked.body) == ansi.plain(text)
    assert shown(marked.head) == shown(unmarked.head)
    assert shown(marked.data or "") == shown(unmarked.data or "")
    assert marked.hit == (traces.hits([entry], find) == [0])


@given(hostile, st.data())
def test_any_visible_part_of_a_line_is_found_and_highlighted(text: str, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(ansi.plain(text).split("\n")))
    start = data.draw(st.integers(0, len(line)))
    needle = line[start : data.draw(st.integers(start, len(line)))]
    (entry,) = traces.view([{"text": text}], find=needle.upper() if needle.isascii() else needle, complete=True)
    assert entry.hit == bool(needle)
    assert bool(within(entry.body, "mark.hit")) == bool(needle)


@given(st.integers(0, 2000), st.integers(-10, 2100), st.integers(1, 300))
def test_windows_tile_the_trace(count: int, at: int, size: int) -> None:
    window = traces.window(count, at, size)
    assert window.last - window.first <= size
    if 0 <= at < count:
        assert window.first <= at < window.last
    tiles = [window]
    while (before := tiles[0].previous) is not None:
        tiles.insert(0, traces.window(count, before, size))
    while (after := tiles[-1].next) is not None:
        tiles.append(traces.window(count, after, size))
    assert [number for tile in tiles for number in range(tile.first, tile.last)] == list(range(count))


@given(
    st.recursive(st.one_of(values, hostile), lambda inner: st.lists(inner) | st.dictionaries(hostile, inner), max_leaves=10),
    hostile,
)
def test_any_json_gives_only_our_tags(value: Any, find: str) -> None:
    html = json_view.to_html(value, find)
    read(html)
    html.encode("utf-8")


@given(hostile, hostile)
def test_any_patch_gives_only_our_tags(content: str, path: str) -> None:
    lines = content.split("\n")
    head = f"diff --git a/{path} b/{path}\nold mode 100644\nnew mode 100755\n--- a/{path}\n+++ b/{path}\n"
    text = f"{head}@@ -1,{len(lines)} +1,{len(lines)} @@ {path}\n" + "".join(f"-{line}\n+{line}x\n" for line in lines)
    for file in diffs.view(text).files + diffs.view(content).files:
        read(file.body)
        file.path.encode("utf-8")


@given(st.lists(st.tuples(letters, letters), min_size=1, max_size=4))
def test_marked_words_change_no_line(pairs: list[tuple[str, str]]) -> None:
    olds, news = [old.replace("\n", "") for old, _ in pairs], [new.replace("\n", "") for _, new in pairs]
    diff_lines = "".join(f"-{line}\n" for line in olds) + "".join(f"+{line}\n" for line in news)
    (file,) = diffs.view(f"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,{len(olds)} +1,{len(news)} @@\n{diff_lines}").files
    assert (file.added, file.deleted) == (len(news), len(olds))
    assert "".join(within(file.body, "tr.del")) == "".join(f"{number}-{line}" for number, line in enumerate(olds, 1))
    assert "".join(within(file.body, "tr.add")) == "".join(f"{number}+{line}" for number, line in enumerate(news, 1))


@given(st.one_of(hostile, st.floats(), st.datetimes()), st.datetimes())
def test_any_time_can_be_shown(when: Any, now: Any) -> None:
    read(texts.stamp(when))
    read(texts.stamp(when, now))
    texts.stamp(when).encode("utf-8")
