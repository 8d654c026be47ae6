"""The merge of two versions of an agenda."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.identities.agenda import find_item, items_of, marked_done
from clia.identities.agenda_union import merge_agendas

PATH = ".clia/agents/scout/scout@acme.agenda.triad.json"
BACKLOG = ["Draw the map", "Read the ledger", {"id": "boxes", "title": "Count boxes", "status": "open"}]


def agenda(*backlog: Any, **fields: Any) -> bytes:
    return (json.dumps({"slug": "scout", **fields, "backlog": list(backlog)}, indent=2) + "\n").encode()


def done(data: bytes, item: str) -> bytes:
    """The agenda with an item ticked, as a landing ticks it."""
    document = json.loads(data)
    text = marked_done(data.decode(), document, find_item(document, "scout", item))
    assert text is not None
    return text.encode()


def merged(base: bytes | None, ours: bytes, theirs: bytes) -> dict[str, Any] | None:
    result = merge_agendas(PATH, base, ours, theirs)
    return None if result is None else json.loads(result)


def states(document: dict[str, Any] | None) -> dict[str, str | None]:
    assert document is not None
    return {item.id: item.status for item in items_of(document)}


def test_ticks_of_adjacent_items_are_both_there() -> None:
    base = agenda(*BACKLOG)
    for one, other in (("draw-the-map", "read-the-ledger"), ("read-the-ledger", "boxes")):
        document = merged(base, done(base, one), done(base, other))
        assert {name for name, state in states(document).items() if state == "done"} == {one, other}
        assert document == merged(base, done(base, other), done(base, one))


def test_one_item_that_both_sides_ticked_is_there_once() -> None:
    base = agenda(*BACKLOG)
    document = merged(base, done(base, "boxes"), done(base, "boxes"))
    assert states(document) == {"draw-the-map": None, "read-the-ledger": None, "boxes": "done"}


def test_a_tick_and_a_change_of_another_field_of_one_item_are_both_there() -> None:
    base = agenda(*BACKLOG)
    theirs = agenda(*BACKLOG[:2], {**BACKLOG[2], "due": "2026-12-01"})  # type: ignore[dict-item]
    document = merged(base, done(base, "boxes"), theirs)
    assert document is not None
    assert document["backlog"][2] == {"id": "boxes", "title": "Count boxes", "status": "done", "due": "2026-12-01"}


def test_items_that_both_sides_added_are_all_there() -> None:
    document = merged(agenda("Old"), agenda("Old", "Ours"), agenda("Old", "Theirs", "Ours"))
    assert document is not None
    assert document["backlog"] == ["Old", "Ours", "Theirs"]


def test_items_of_a_group_are_merged_by_id() -> None:
    group = {"title": "Q4", "items": ["Sell", "Ship"]}
    base = agenda(group)
    document = merged(base, done(base, "sell"), done(base, "ship"))
    assert states(document) == {"sell": "done", "ship": "done"}


def test_an_item_that_one_side_removed_stays_removed() -> None:
    base = agenda(*BACKLOG)
    document = merged(base, agenda(*BACKLOG[1:]), done(base, "boxes"))
    assert states(document) == {"read-the-ledger": None, "boxes": "done"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (agenda(*BACKLOG[:2]), done(agenda(*BACKLOG), "boxes")),
        (done(agenda(*BACKLOG), "boxes"), agenda(*BACKLOG[:2])),
        (agenda(*BACKLOG[:2], {"id": "boxes", "title": "A"}), agenda(*BACKLOG[:2], {"id": "boxes", "title": "B"})),
        (agenda(*BACKLOG, role="a"), agenda(*BACKLOG, role="b")),
        (agenda(*BACKLOG), b"{"),
        (b"<<<<<<< ours\n", agenda(*BACKLOG)),
    ],
    ids=["removed and ticked", "ticked and removed", "two titles", "two roles", "theirs broken", "ours broken"],
)
def test_what_contradicts_leaves_the_conflict(ours: bytes, theirs: bytes) -> None:
    assert merge_agendas(PATH, agenda(*BACKLOG), ours, theirs) is None


def test_what_neither_side_changed_keeps_its_text() -> None:
    base = b'{"slug":"scout",   "weight": 1.0,\r\n  "backlog": [\r\n    "One",\r\n    "Two"\r\n  ]}'
    merged_bytes = merge_agendas(PATH, base, done(base, "one"), done(base, "two"))
    assert merged_bytes is not None
    assert merged_bytes.startswith(b'{"slug":"scout",   "weight": 1.0,\r\n  "backlog": [\r\n')
    assert states(json.loads(merged_bytes)) == {"one": "done", "two": "done"}


NAMES = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), unique=True, min_size=1)


@given(names=NAMES, data=st.data())
def test_ticks_never_conflict_and_none_is_lost(names: list[str], data: st.DataObject) -> None:
    base = agenda(*(data.draw(st.sampled_from([name, {"title": name}, {"title": name, "status": "open"}])) for name in names))
    sides = []
    for _ in range(2):
        side = base
        for name in data.draw(st.lists(st.sampled_from(names), unique=True)):
            side = done(side, name)
        sides.append(side)
    ticked = [{name for name, state in states(json.loads(side)).items() if state == "done"} for side in sides]
    both = states(merged(base, *sides))
    assert list(both) == names
    assert {name for name, state in both.items() if state == "done"} == ticked[0] | ticked[1]
