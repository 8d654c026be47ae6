"""The merge of two versions of a journal."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clia.identities.journal_union import is_journal, merge_journals
from clia.values.canonical import digest

PATH = ".clia/agents/scout/scout@acme.agency.triad.json"


def entry(moment: int, text: str) -> dict[str, Any]:
    return {"timestamp": f"2026-11-18T00:00:{moment:02}Z", "summary": text}


def journal(*entries: Any, **fields: Any) -> bytes:
    return (json.dumps({"slug": "scout", **fields, "entries": list(entries)}, indent=2) + "\n").encode()


def merged(base: bytes | None, ours: bytes, theirs: bytes) -> dict[str, Any] | None:
    result = merge_journals(PATH, base, ours, theirs)
    return None if result is None else json.loads(result)


def test_paths_of_journals_are_recognized() -> None:
    assert is_journal(PATH)
    assert is_journal(f"services/payments/{PATH}")
    assert is_journal(".clia/agents/scout/scout.agency.json")
    assert not is_journal(".clia/agents/scout/scout@acme.agenda.triad.json")
    assert not is_journal("docs/scout@acme.agency.triad.json")
    assert not is_journal(".clia/agents/scout/legacy-imports/old/scout.agency.triad.json")


def test_both_sides_entries_are_kept_by_time_after_the_common_ones() -> None:
    base = journal(entry(5, "old"))
    ours = journal(entry(5, "old"), entry(3, "ours"), entry(9, "last"))
    theirs = journal(entry(5, "old"), entry(4, "theirs"), entry(9, "last"))
    expected = [entry(5, "old"), entry(3, "ours"), entry(4, "theirs"), entry(9, "last")]
    for left, right in ((ours, theirs), (theirs, ours)):
        document = merged(base, left, right)
        assert document is not None
        assert document["entries"] == expected


def test_a_journal_that_both_sides_created_is_joined() -> None:
    document = merged(None, journal(entry(1, "ours")), journal(entry(2, "theirs")))
    assert document == {"slug": "scout", "entries": [entry(1, "ours"), entry(2, "theirs")]}


def test_the_text_of_our_version_is_kept_if_their_entries_come_last() -> None:
    ours = b'{"slug":"scout",   "x-number": 1.0,\r\n  "entries": [\r\n    {"summary": "old"}\r\n  ]}'
    base = b'{"slug": "scout", "x-number": 1.0, "entries": []}'
    theirs = journal(entry(1, "theirs"), **{"x-number": 1.0})
    result = merge_journals(PATH, base, ours, theirs)
    assert result is not None
    assert result.startswith(ours[: ours.index(b"\r\n  ]}")])
    assert json.loads(result)["entries"] == [{"summary": "old"}, entry(1, "theirs")]


def test_an_entry_that_one_side_removed_stays_removed() -> None:
    base = journal(entry(1, "kept"), entry(2, "consolidated"))
    document = merged(base, journal(entry(1, "kept")), journal(entry(1, "kept"), entry(2, "consolidated"), entry(3, "new")))
    assert document is not None
    assert document["entries"] == [entry(1, "kept"), entry(3, "new")]


def test_other_fields_are_taken_from_the_side_that_changed_them() -> None:
    base = journal(title="Old", updated=None, owner="ada")
    document = merged(base, journal(title="New", updated=None), journal(title="Old", updated="2026", owner="ada"))
    assert document == {"slug": "scout", "title": "New", "updated": "2026", "entries": []}


def test_a_field_that_both_sides_changed_differently_leaves_the_conflict() -> None:
    assert merged(journal(title="Old"), journal(title="One"), journal(title="Two")) is None


def test_a_version_that_is_not_a_journal_leaves_the_conflict() -> None:
    good = journal(entry(1, "x"))
    for bad in (b"", b"{", b"[]", b'{"entries": {}}', b'{"a": 1, "a": 2}', b"\xff", b"<<<<<<< ours\n"):
        assert merge_journals(PATH, None, good, bad) is None
        assert merge_journals(PATH, None, bad, good) is None


def test_an_ancestor_with_conflict_markers_counts_as_none() -> None:
    """Git merges the ancestors of histories that cross, and leaves its conflicts in the result."""
    document = merged(b"<<<<<<< ours\n", journal(entry(1, "ours")), journal(entry(2, "theirs")))
    assert document == {"slug": "scout", "entries": [entry(1, "ours"), entry(2, "theirs")]}


ENTRIES = st.lists(st.builds(entry, st.integers(0, 9), st.sampled_from("abc")), max_size=5, unique_by=digest)


@given(base=ENTRIES, left=ENTRIES, right=ENTRIES)
def test_the_entries_do_not_depend_on_the_direction_and_each_is_there_once(base: Any, left: Any, right: Any) -> None:
    versions = [journal(*base), journal(*base, *new_entries(left, base)), journal(*base, *new_entries(right, base))]
    forward, backward = merged(*versions), merged(versions[0], versions[2], versions[1])
    assert forward is not None
    assert backward is not None
    assert forward["entries"] == backward["entries"]
    digests = [digest(item) for item in forward["entries"]]
    assert sorted(digests) == sorted({digest(item) for item in (*base, *left, *right)})
    assert forward["entries"][: len(base)] == base


def new_entries(entries: Any, base: Any) -> list[Any]:
    known = {digest(item) for item in base}
    return [item for item in entries if digest(item) not in known]


def test_entries_of_one_second_stay_in_the_order_of_writing() -> None:
    ours = [entry(5, text) for text in "zyxwv"]
    theirs = [entry(5, text) for text in "987654"]
    for left, right in ((ours, theirs), (theirs, ours)):
        document = merged(None, journal(*left), journal(*right))
        assert document is not None
        assert [item for item in document["entries"] if item in ours] == ours
        assert [item for item in document["entries"] if item in theirs] == theirs


@given(data=st.data())
def test_each_side_keeps_its_order_within_a_second(data: st.DataObject) -> None:
    """Also where both sides have some entries, from an earlier merge."""
    everything = [entry(5, text) for text in data.draw(st.permutations("abcdefgh"))]
    sides = [[item for item in everything if data.draw(st.booleans())] for _ in range(2)]
    document = merged(None, journal(*sides[0]), journal(*sides[1]))
    assert document is not None
    assert document == merged(None, journal(*sides[1]), journal(*sides[0]))
    for side in sides:
        assert [item for item in document["entries"] if item in side] == side
