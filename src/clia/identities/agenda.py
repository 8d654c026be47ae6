"""Items of an agenda: their ids, and how one is marked as done.

Invariant: the id of an item is the one that it states, or else is derived from its title, so that it is the same in every checkout.
Marking an item as done changes nothing else in its document.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NamedTuple

from clia.errors import Ambiguous, NotFound
from clia.identities.merge_rules import label_of, projected_text
from clia.values import json_text
from clia.values.canonical import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clia.verbs import Text

LISTS = ("initiatives", "milestones", "backlog", "horizons")
"""The fields of an agenda whose items are work."""
DONE = "done"
META = "agenda"
"""The field of a briefing's metadata that names its item."""
_ID = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
_ID_MAX = 48
_DETAILS = ("text", "summary", "statement", "description")


class AgendaItem(NamedTuple):
    """An item of an agenda."""

    id: Text  # its id: stated in the document, or derived from the title
    list: str  # the field of the agenda that it is in
    title: str  # what is to be done
    text: str  # details
    status: str | None  # `done`, or any other
    due: str | None  # when it is due


def items_of(agenda: Mapping[str, Any]) -> list[AgendaItem]:
    """The items of an agenda, in the order of the document; those of a group one by one."""
    ids: dict[str, int] = {}
    items = []
    for path, value in _walk(agenda):
        title = _title(value)
        item_id = _stated_id(value) or _derived_id(title)
        ids[item_id] = ids.get(item_id, 0) + 1
        if ids[item_id] > 1:
            item_id = f"{item_id}-{ids[item_id]}"
        items.append(AgendaItem(item_id, str(path[0]), title, _details(value, title), *_texts(value, "status", "due")))
    return items


def item_key(value: Any) -> str:
    """What identifies an entry of a list of items: its id, or its content if it is no item."""
    title = _title(value)
    return _stated_id(value) or (_derived_id(title) if title else digest(value))


def find_item(agenda: Mapping[str, Any], slug: str, text: str) -> AgendaItem:
    """The item with an id, or with the only id that starts with a text."""
    items = items_of(agenda)
    exact = [item for item in items if item.id == text]
    matches = exact or [item for item in items if text and item.id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    fields = {"slug": slug, "item": text}
    if matches:
        fields["matches"] = ", ".join(item.id for item in matches)
        raise Ambiguous(f"{text!r} is the start of several items of the agenda: {fields['matches']}", fields=fields)
    listed = ", ".join(item.id for item in items[:20])
    hints = [f"items: {listed}" if items else f"its agenda has no items: clia agents plan --slug {slug}"]
    raise NotFound(f"the agenda of {slug} has no item {text!r}", code="no-such-item", hints=hints, fields=fields)


def marked_done(text: str, document: Mapping[str, Any], item: AgendaItem) -> str | None:
    """The text of a document with the item marked as done; None if the document does not have the item."""
    for path, value in _walk(document):
        if path[0] != item.list or _title(value) != item.title:
            continue
        if not isinstance(value, dict):
            return json_text.put(text, path, {"title": item.title, "status": DONE})
        if value.get("status") == DONE:
            return text
        return json_text.put(text, [*path, "status"], DONE) if "status" in value else json_text.add(text, path, DONE, "status")
    return None


def _walk(agenda: Mapping[str, Any]) -> Iterator[tuple[Sequence[str | int], Any]]:
    """The path and the value of each item."""
    for field in LISTS:
        values = agenda.get(field)
        waiting: list[tuple[Sequence[str | int], Any]] = [((field, index), value) for index, value in _reversed(values)]
        while waiting:
            path, value = waiting.pop()
            inner = value.get("items") if isinstance(value, dict) else None
            if isinstance(inner, list) and inner:
                waiting += [((*path, "items", index), child) for index, child in _reversed(inner)]
            elif _title(value):
                yield path, value


def _reversed(values: Any) -> Iterator[tuple[int, Any]]:
    return reversed(list(enumerate(values))) if isinstance(values, list) else iter(())


def _title(value: Any) -> str:
    if isinstance(value, dict):
        return label_of(value).strip()
    return projected_text(value).strip() if isinstance(value, str) else ""


def _details(value: Any, title: str) -> str:
    if not isinstance(value, dict):
        return ""
    texts = (value.get(key) for key in _DETAILS)
    return next((text for text in texts if isinstance(text, str) and text.strip() and text.strip() != title), "")


def _texts(value: Any, *keys: str) -> list[str | None]:
    texts = (value.get(key) if isinstance(value, dict) else None for key in keys)
    return [text if isinstance(text, str) and text.strip() else None for text in texts]


def _stated_id(value: Any) -> str | None:
    stated = value.get("id") if isinstance(value, dict) else None
    return stated if isinstance(stated, str) and len(stated) <= _ID_MAX and _ID.fullmatch(stated) else None


def _derived_id(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    while len("-".join(words)) > _ID_MAX and len(words) > 1:
        words.pop()
    return "-".join(words)[:_ID_MAX] or f"item-{digest(title)[:8]}"
