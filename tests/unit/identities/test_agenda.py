"""Items of an agenda."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clia.identities.agenda import find_item, items_of, marked_done
from support.spaces import refused

AGENDA: dict[str, Any] = {
    "slug": "scout",
    "initiatives": ["Retry refunds", {"id": "ledger", "title": "Rewrite the ledger", "text": "In two steps.", "due": "2026-12-01"}],
    "milestones": [{"title": "Q4", "items": ["Count boxes", {"title": "Sell", "status": "open"}]}],
    "backlog": ["Retry refunds", "数える", "", None, 3],
    "themes": ["Not work"],
}
TEXT = json.dumps(AGENDA, ensure_ascii=False, indent=2) + "\n"


def ids(agenda: dict[str, Any]) -> list[str]:
    return [item.id for item in items_of(agenda)]


def test_items_have_stated_or_derived_ids_and_groups_are_opened() -> None:
    assert ids(AGENDA)[:5] == ["retry-refunds", "ledger", "count-boxes", "sell", "retry-refunds-2"]
    assert ids(AGENDA)[5].startswith("item-")
    ledger = items_of(AGENDA)[1]
    assert (ledger.list, ledger.title, ledger.text, ledger.due) == (
        "initiatives",
        "Rewrite the ledger",
        "In two steps.",
        "2026-12-01",
    )
    assert items_of(AGENDA)[3].status == "open"


@pytest.mark.parametrize("stated", ["Has Blanks", "", 3, None, "a" * 60, "-x"])
def test_an_invalid_id_is_ignored(stated: Any) -> None:
    assert ids({"backlog": [{"id": stated, "title": "Count"}]}) == ["count"]


def test_a_derived_id_is_cut_at_a_word() -> None:
    (item_id,) = ids({"backlog": ["word " * 30]})
    assert item_id == "-".join(["word"] * 9)


@pytest.mark.parametrize("agenda", [{}, {"backlog": None}, {"backlog": "text"}, {"backlog": {"items": []}}])
def test_an_agenda_without_items_has_none(agenda: dict[str, Any]) -> None:
    assert items_of(agenda) == []
    assert "no items" in refused("no-such-item", lambda: find_item(agenda, "scout", "x")).hints[0]


def test_an_item_is_found_by_its_id_or_the_start_of_it() -> None:
    assert find_item(AGENDA, "scout", "led").id == "ledger"
    assert find_item(AGENDA, "scout", "retry-refunds").list == "initiatives"
    refused("ambiguous", lambda: find_item(AGENDA, "scout", "retry"))
    refused("no-such-item", lambda: find_item(AGENDA, "scout", ""))
    assert "ledger" in refused("no-such-item", lambda: find_item(AGENDA, "scout", "nothing")).hints[0]


@pytest.mark.parametrize("item_id", ["retry-refunds", "ledger", "count-boxes", "sell"])
def test_an_item_is_marked_and_nothing_else_changes(item_id: str) -> None:
    item = find_item(AGENDA, "scout", item_id)
    after = marked_done(TEXT, AGENDA, item)
    assert after is not None
    document = json.loads(after)
    assert [(found.id, found.status) for found in items_of(document)] == [
        (other.id, "done" if other.id == item_id else other.status) for other in items_of(AGENDA)
    ]
    changed = {line.strip(" ,") for line in after.splitlines()} - {line.strip(" ,") for line in TEXT.splitlines()}
    assert len(changed) <= 2
    assert marked_done(after, document, item) == after


def test_an_item_of_another_document_is_not_marked() -> None:
    item = find_item(AGENDA, "scout", "ledger")
    assert marked_done('{"slug": "scout"}', {"slug": "scout"}, item) is None


def test_an_item_on_one_line_stays_there() -> None:
    text = '{"backlog": ["Count", "Sell"]}'
    item = find_item(json.loads(text), "scout", "sell")
    assert marked_done(text, json.loads(text), item) == '{"backlog": ["Count", {"title": "Sell", "status": "done"}]}'
