"""Managed blocks: in a user's file, clia writes only its own part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.identities.exports.plan import DamagedMarkers, find_blocks, with_block

BEGIN = b"<!-- clia:begin scout -->"
END = b"<!-- clia:end scout -->"


def test_an_empty_file_becomes_the_block_alone() -> None:
    content = with_block(b"", "scout", "body\n")
    assert content.startswith(b"<!-- clia:begin scout: ")
    assert content.endswith(b"\n\nbody\n\n<!-- clia:end scout -->\n")


def test_a_file_without_a_block_gets_it_at_the_end_and_keeps_every_byte() -> None:
    assert with_block(b"# Mine", "scout", "body\n").startswith(b"# Mine\n\n<!-- clia:begin scout")
    assert with_block(b"# Mine\n", "scout", "body\n").startswith(b"# Mine\n\n<!-- clia:begin scout")


@given(st.binary(max_size=60), st.binary(max_size=60), st.sampled_from([b"\n", b"\r\n"]))
def test_text_around_a_block_is_kept_byte_for_byte(before: bytes, after: bytes, newline: bytes) -> None:
    before = before + newline
    data = before + BEGIN + newline + b"old" + newline + END + newline + after
    content = with_block(data, "scout", "new\n")
    start, end = find_blocks(content)["scout"]
    assert content[:start] == before
    assert content[end:] == newline + after
    assert with_block(content, "scout", "new\n") == content


def test_a_file_with_crlf_gets_a_block_with_crlf() -> None:
    content = with_block(b"# Mine\r\n\r\ntext\r\n", "scout", "one\ntwo\n")
    assert content.count(b"\n") == content.count(b"\r\n")
    assert with_block(content, "scout", "one\ntwo\n") == content


def test_a_crlf_file_with_only_the_block_keeps_crlf() -> None:
    content = with_block(b"", "scout", "one\n").replace(b"\n", b"\r\n")
    assert with_block(content, "scout", "one\n") == content


def test_a_byte_order_mark_stays_at_the_start() -> None:
    content = with_block(b"\xef\xbb\xbf", "scout", "one\n")
    assert content.startswith(b"\xef\xbb\xbf<!-- clia:begin scout")
    assert with_block(content, "scout", "one\n") == content


def test_a_block_at_the_end_without_a_newline_is_replaced_in_place() -> None:
    data = b"top\n" + BEGIN + b"\nold\n" + END
    assert with_block(data, "scout", "new\n").endswith(b"\nnew\n\n" + END)


def test_each_agent_has_its_own_block() -> None:
    both = with_block(with_block(b"", "scout", "one\n"), "cook", "two\n")
    content = with_block(both, "scout", "three\n")
    assert b"three" in content
    assert b"one\n" not in content
    start, end = find_blocks(both)["cook"]
    assert both[start:end] in content


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (BEGIN + b"\nx\n", "line 1 does not end"),
        (b"x\n" + END + b"\n", "line 2 ends a block of scout"),
        (END + b"\n" + BEGIN + b"\n", "line 1 ends"),
        (BEGIN + b"\n" + BEGIN + b"\n" + END + b"\n", "line 2 begins the block of scout inside"),
        (BEGIN + b"\n" + END + b"\n" + BEGIN + b"\n" + END + b"\n", "line 3 begins a second block"),
        (BEGIN + b"\n<!-- clia:begin cook -->\n<!-- clia:end cook -->\n" + END, "inside that of scout"),
        (BEGIN + b"\n<!-- clia:end cook -->\n", "ends a block of cook"),
        (b"<!-- clia:begin scout\n" + END + b"\n", "line 1 contains part"),
        (b"  " + BEGIN + b"\n" + END + b"\n", "line 1 contains part"),
        (b"<!-- clia:begin Scout -->\n", "line 1 contains part"),
        (b"<!--clia:end scout-->\n", "line 1 contains part"),
    ],
)
def test_damaged_markers_are_refused_and_the_line_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(DamagedMarkers, match=problem):
        with_block(data, "scout", "new\n")
