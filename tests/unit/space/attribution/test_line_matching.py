"""Matching of a commit's lines with lines that agents wrote."""

from __future__ import annotations

import pytest

from clia.space.attribution.line_matching import WrittenVersion, added_lines, lines_of, match_lines, written_lines

BASE = b"one\ntwo\nthree\n"


def version(data: bytes, *previous: bytes | None) -> WrittenVersion:
    return WrittenVersion(lines_of(data), written_lines(data, previous))


def matched(data: bytes, before: bytes | None, *versions: WrittenVersion) -> list[tuple[bytes, int]]:
    """The text of each matched line, and the number of its version."""
    lines = lines_of(data)
    matches = match_lines(lines, added_lines(data, [before]), versions)
    return [(lines[line], matches[line]) for line in sorted(matches)]


AGENTS = b"one\nalpha()\nbeta()\n}\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("committed", "texts"),
    [
        (AGENTS, [b"alpha()", b"beta()", b"}"]),
        (b"one\nbeta()\ntwo\nthree\n", [b"beta()"]),
        (b"one\nalpha()\nmine()\nbeta()\n}\ntwo\nthree\n", [b"alpha()", b"beta()", b"}"]),
        (b"one\nalpha(1)\nbeta()\n}\ntwo\nthree\n", [b"beta()", b"}"]),
        (b"one\n    alpha()\n    beta()\n    }\ntwo\nthree\n", [b"    alpha()", b"    beta()", b"    }"]),
        (b"one\ntwo\nthree\nbeta()\nalpha()\n", [b"beta()", b"alpha()"]),
        (b"one\nalpha()\nbeta()\n}\ntwo\nthree", [b"alpha()", b"beta()", b"}"]),
        (b"one\r\nalpha()\r\nbeta()\r\n}\r\ntwo\r\nthree\r\n", [b"alpha()\r", b"beta()\r", b"}\r"]),
        (b"one\ntwo\nthree\nmine()\n}\n", []),
        (BASE, []),
        (b"", []),
    ],
    ids=[
        *(
            "unchanged",
            "staged in part",
            "with lines of a person",
            "changed by a person",
            "reformatted",
            "moved",
            "without newline",
        ),
        *("with CRLF", "a bracket of a person", "nothing committed", "emptied"),
    ],
)
def test_lines_of_an_agent_are_found(committed: bytes, texts: list[bytes]) -> None:
    assert [text for text, _ in matched(committed, BASE, version(AGENTS, BASE))] == texts


def test_a_new_file_is_the_agents() -> None:
    assert matched(b"a\n\nb\n", None, version(b"a\n\nb\n", None)) == [(b"a", 0), (b"", 0), (b"b", 0)]


def test_ties_go_to_the_newest_version() -> None:
    older, newer = version(b"same()\nold()\n", None), version(b"same()\nnew()\n", None)
    assert matched(b"same()\nold()\nnew()\n", None, newer, older) == [(b"same()", 0), (b"old()", 1), (b"new()", 0)]


def test_an_exact_line_of_an_old_version_wins_over_a_reformatted_one_of_a_new_version() -> None:
    assert matched(b"x = 1\n", None, version(b"  x = 1\n", None), version(b"x = 1\n", None)) == [(b"x = 1", 1)]


def test_a_line_that_is_in_the_file_already_is_used_up() -> None:
    """The agent wrote one; the person commits it and later writes the same line again."""
    agents = version(b"one\nlog()\ntwo\nthree\n", BASE)
    assert matched(b"one\nlog()\ntwo\nthree\nlog()\n", b"one\nlog()\ntwo\nthree\n", agents) == []


def test_a_line_that_the_agent_found_in_the_file_is_not_the_agents() -> None:
    """The agent's version has the person's line and a copy of it that the agent wrote."""
    agents = version(b"one\nlog()\nthree\nlog()\n", b"one\nlog()\nthree\n")
    assert matched(b"one\nlog()\nthree\n", b"one\nthree\n", agents) == []


def test_lines_that_an_agent_only_moved_are_not_written() -> None:
    assert written_lines(b"three\none\ntwo\n", [BASE]) == set()


def test_which_of_two_equal_lines_is_new_does_not_matter() -> None:
    """A diff may draw an added block one line higher or lower."""
    base = b"f {\n  a\n}\n"
    agents = version(b"f {\n  a\n}\ng {\n  b\n}\n", base)
    mine = b"// top\nf {\n  a\n}\n"
    assert [text for text, _ in matched(b"// top\nf {\n  a\n}\ng {\n  b\n}\n", mine, agents)] == [b"g {", b"  b", b"}"]


def test_lines_of_a_merge_are_those_that_no_parent_has() -> None:
    assert added_lines(b"one\nx\ny\nz\n", [b"one\nx\n", b"one\ny\n"]) == {3}


def test_texts_are_bytes() -> None:
    assert [text for text, _ in matched(b"\xff\xfe()\nmine\n", None, version(b"\xff\xfe()\n", None))] == [b"\xff\xfe()"]
