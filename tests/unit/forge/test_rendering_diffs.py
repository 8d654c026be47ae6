"""Diffs, rendered from patches of a real space wherever git can produce them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.forge.rendering import diffs
from clia.forge.rendering.diffs import DiffLine, FileView
from support import git
from support.markup import shown, within
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Patch = Callable[[dict[str, Any], dict[str, Any]], str]


@pytest.fixture
def patch(tmp_path: Path) -> Patch:
    """The patch between two sets of files, as a space returns it."""
    root = tmp_path / "repository"
    root.mkdir()
    git("init", "-q", cwd=root)

    def commit(files: dict[str, Any]) -> str:
        git("rm", "-r", "-q", "--cached", "--ignore-unmatch", ".", cwd=root)
        for entry in root.iterdir():
            if entry.name != ".git":
                entry.unlink()
        for name, content in files.items():
            path = root / name
            mode = 0o755 if isinstance(content, tuple) else 0o644
            data = content[0] if isinstance(content, tuple) else content
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
            path.chmod(mode)
        git("add", "-A", cwd=root)
        git("commit", "-q", "--allow-empty", "-m", "x", cwd=root)
        return git("rev-parse", "HEAD", cwd=root).strip()

    def diff_between(old: dict[str, Any], new: dict[str, Any]) -> str:
        first, second = commit(old), commit(new)
        with clia.init(root, settings=settings()) as space:
            return space.diff(first, second)

    return diff_between


def only_file(text: str) -> FileView:
    (file,) = diffs.view(text).files
    return file


def test_lines_have_their_numbers_and_counts(patch: Patch) -> None:
    text = patch({"f": "a\nb\nc\n"}, {"f": "a\nB\nc\nd\n"})
    (file,) = diffs.parse(text)
    assert (file.path, file.old_path, file.status, file.modes, file.binary) == ("f", None, "modified", None, False)
    assert (file.added, file.deleted, file.rest) == (2, 1, 0)
    assert file.hunks[0].head == "@@ -1,3 +1,4 @@"
    assert file.hunks[0].lines == [
        DiffLine(" ", 1, 1, "a"),
        DiffLine("-", 2, None, "b"),
        DiffLine("+", None, 2, "B"),
        DiffLine(" ", 3, 3, "c"),
        DiffLine("+", None, 4, "d"),
    ]
    file_view = only_file(text)
    assert within(file_view.body, "tr.del") == ["2", "-", "b"]
    assert within(file_view.body, "tr.add") == ["2", "+", "B", "4", "+", "d"]
    assert within(file_view.body, "tr.ctx") == ["1", "1", " ", "a", "3", "3", " ", "c"]
    assert within(file_view.body, "tr.hunk") == ["@@ -1,3 +1,4 @@"]


def test_a_later_hunk_has_its_own_numbers_and_section(patch: Patch) -> None:
    old = ["def <one>():", *map(str, range(40))]
    (file,) = diffs.parse(patch({"f.py": "\n".join(old)}, {"f.py": "\n".join([*old[:20], "x", *old[20:], "y"])}))
    assert [hunk.section for hunk in file.hunks] == ["def <one>():"] * 2
    first = file.hunks[1].lines[0]
    assert (first.text, first.old, first.new) == ("36", 38, 39)
    assert "&lt;one&gt;" in diffs.view(patch({"f.py": "\n".join(old)}, {"f.py": "\n".join([*old, "y"])})).files[0].body


def test_added_deleted_and_renamed_files_and_changed_modes_are_recognized(patch: Patch) -> None:
    one, two = ("".join(f"{word} {number}\n" for number in range(20)) for word in ("one", "two"))
    text = patch(
        {"gone": "x\n", "moved": one, "edited": two, "mode": "m\n", "both": "1\n"},
        {"new": "n\n", "renamed": one, "rewritten": two + "more\n", "mode": ("m\n",), "both": ("2\n",)},
    )
    files = {file.path: file for file in diffs.view(text).files}
    assert {path: (file.status, file.old_path, file.added, file.deleted, file.modes) for path, file in files.items()} == {
        "gone": ("deleted", None, 0, 1, None),
        "new": ("added", None, 1, 0, None),
        "renamed": ("renamed", "moved", 0, 0, None),
        "rewritten": ("renamed", "edited", 1, 0, None),
        "mode": ("modified", None, 0, 0, ("100644", "100755")),
        "both": ("modified", None, 1, 1, ("100644", "100755")),
    }
    assert files["mode"].body == files["renamed"].body == ""


def test_binary_and_empty_files_have_no_lines(patch: Patch) -> None:
    files = {file.path: file for file in diffs.view(patch({"b": b"\0\1"}, {"b": b"\0\2", "new b": b"\0", "empty": ""})).files}
    assert {path: (file.status, file.binary, file.body) for path, file in files.items()} == {
        "b": ("modified", True, ""),
        "new b": ("added", True, ""),
        "empty": ("added", False, ""),
    }


def test_a_missing_newline_is_noted_on_either_side(patch: Patch) -> None:
    (file,) = diffs.parse(patch({"f": "a"}, {"f": "b"}))
    assert [line.sign for line in file.hunks[0].lines] == ["-", "\\", "+", "\\"]
    assert (file.added, file.deleted) == (1, 1)
    assert within(only_file(patch({"f": "a"}, {"f": "b"})).body, "tr.note") == ["\\", " No newline at end of file"] * 2


@pytest.mark.parametrize(
    "name", ["with space", 'quo"te', "new\nline", "tab\there", "back\\slash", "é", "a b", " b x", "<b>", "bell\a\x01", "日本\u202e"]
)
@pytest.mark.parametrize("content", ["x\n", b"\0", ""])
def test_any_path_is_read_back(patch: Patch, name: str, content: str | bytes) -> None:
    (file,) = diffs.parse(patch({}, {name: content}))
    assert file.path == name
    (file,) = diffs.parse(patch({name: content}, {name: (content,)}))
    assert file.path == name


def test_a_path_cannot_be_mistaken_for_another_line(patch: Patch) -> None:
    assert only_file(patch({}, {"a\nb\u202e": "x\n"})).path == "a␊b␦"


@pytest.mark.parametrize(
    "line",
    ["-- a/evil", "++ b/evil", "@@ -1 +1 @@", "diff --git a/evil b/evil", "\\ No newline", "Binary files a/x and b/x differ"],
)
def test_content_is_never_mistaken_for_a_header(patch: Patch, line: str) -> None:
    for old, new in (({"f": f"{line}\n"}, {"f": ""}), ({"f": ""}, {"f": f"{line}\n"}), ({"f": f"{line}\n"}, {"f": f"{line}\nx\n"})):
        (file,) = diffs.parse(patch(old, new))
        assert file.path == "f"
        assert not file.binary
        assert file.hunks[0].lines[0].text == line


def test_markup_and_controls_in_content_are_text(patch: Patch) -> None:
    file = only_file(patch({}, {"f": "<script>alert('&')</script>\x1b[31m\u202e\r\n"}))
    assert shown(file.body).endswith("<script>alert('&')</script>␛[31m␦␍")


def test_changed_words_are_marked_in_pairs(patch: Patch) -> None:
    file = only_file(patch({"f": "keep\ntotal = one + <two>\n"}, {"f": "keep\ntotal = one + <three>\n"}))
    assert within(file.body, "mark.word") == ["two", "three"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("alpha beta gamma", "1 2 3 4 5"), ("x " * 120 + "a", "x " * 120 + "b"), ("same words here", "")],
    ids=["nothing in common", "too long", "no counterpart"],
)
def test_words_are_not_marked_if_the_lines_are_too_different(patch: Patch, old: str, new: str) -> None:
    assert within(only_file(patch({"f": f"{old}\n"}, {"f": f"{new}\n" if new else ""})).body, "mark.word") == []


def test_corresponding_lines_are_paired(patch: Patch) -> None:
    file = only_file(patch({"f": "a one\nb two\nkeep\nc three\n"}, {"f": "a ONE\nb TWO\nc more\nkeep\nc THREE\nd four\n"}))
    assert within(file.body, "mark.word") == ["one", "two", "ONE", "TWO", "three", "THREE"]


def test_lines_are_not_paired_across_unchanged_lines(patch: Patch) -> None:
    file = only_file(patch({"f": "a one\nb two\nkeep\nz\n"}, {"f": "a ONE\nkeep\nb TWO\nz\n"}))
    assert within(file.body, "mark.word") == ["one", "ONE"]


def test_adjacent_changes_are_kept_apart() -> None:
    """Git lists deleted lines first; other programs may not."""
    file = only_file("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n-a one\n-b two\n+a ONE\n-b six\n+b SIX\n")
    assert within(file.body, "mark.word") == ["one", "ONE", "six", "SIX"]


def test_a_large_file_is_folded_and_its_first_lines_are_rendered(patch: Patch) -> None:
    assert not only_file(patch({}, {"f": "x\n" * 400})).folded
    file = only_file(patch({}, {"f": "x\n" * 2501}))
    assert (file.folded, file.added, file.rest) == (True, 2501, 501)
    assert file.body.count('<tr class="add">') == 2000
    assert within(file.body, "tr.rest") == ["501 more lines, not shown"]


def test_a_large_patch_is_bounded_as_a_whole(patch: Patch) -> None:
    view = diffs.view(patch({}, {f"f{number:02}": "x\n" * 2000 for number in range(12)}))
    assert sum(file.body.count('<tr class="add">') for file in view.files) == 20_000
    assert [file.rest for file in view.files] == [0] * 10 + [2000] * 2
    assert (view.added, view.deleted, view.rest) == (24_000, 0, 0)
    assert within(view.files[-1].body, "tr.rest") == ["2,000 more lines, not shown"]


def test_files_beyond_the_limit_are_counted(patch: Patch) -> None:
    view = diffs.view(patch({}, {f"f{number:04}": "x\n" for number in range(1003)}))
    assert (len(view.files), view.rest, view.added) == (1000, 3, 1003)


def test_a_very_long_line_is_truncated_and_the_rest_is_counted(patch: Patch) -> None:
    assert within(only_file(patch({}, {"f": "<" * 5000})).body, "span.cut") == [" … 3,000 more characters"]


@pytest.mark.parametrize("text", ["", "\n", "no patch at all", "@@ -1 +1 @@\n-a\n+b\n"])
def test_text_that_is_not_a_patch_has_no_files(text: str) -> None:
    assert diffs.view(text) == diffs.PatchView([], 0, 0, 0)


def test_old_and_new_lines_stand_side_by_side(patch: Patch) -> None:
    text = patch({"f": "a\nb\nc\nd\n"}, {"f": "a\nB\nd\ne\nf\n"})
    (file,) = diffs.view(text, split=True).files
    rows = [row.split("</td>")[:-1] for row in file.body.partition("<tbody>")[2].split("<tr>")[1:]]
    assert [[re.sub("<[^>]*>", "", cell) for cell in row] for row in rows] == [
        ["1", "a", "1", "a"],
        ["2", "deleted: b", "2", "added: B"],
        ["3", "deleted: c", "", ""],
        ["4", "d", "3", "d"],
        ["", "", "4", "added: e"],
        ["", "", "5", "added: f"],
    ]
