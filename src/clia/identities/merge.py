"""Merging layers into one document with provenance.

Invariant: merging is a pure function of the layers and idempotent: ``merge(x, x) == merge(x)``. The provenance tree has the shape
of the document, so that every leaf has an origin.
"""

from __future__ import annotations

import json

from clia.identities import merge_rules
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.inheritance import CONTEXT, Layer
from clia.identities.merge_rules import contribution_type
from clia.identities.merge_rules import projected_text as projected
from clia.values.documents import type_name
from clia.values.pointer import token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeAlias

    # A candidate value: the layer's index, the pointer in its document, and the value.
    Offer = tuple[int, str, Any]
    Source = tuple[int, str]
    Provenance: TypeAlias = "TakenValue | MergedItems | MergedFields | ComputedValue"
    Merged = tuple[Any, Provenance]

_MISSING = object()


class TakenValue:
    """A value from one source; ``also`` provided the same value, ``shadowed`` a different one that lost."""

    __slots__ = ("also", "shadowed", "source")

    def __init__(self, source: Source, also: Sequence[Source] = (), shadowed: Sequence[Source] = ()) -> None:
        self.source = source
        self.also = also
        self.shadowed = shadowed

    def add(self, source: Source) -> None:
        """Record another source of the same value."""
        if not isinstance(self.also, list):
            self.also = list(self.also)
        self.also.append(source)


class MergedItems:
    """An array whose items come from different sources."""

    __slots__ = ("items",)

    def __init__(self, items: list[TakenValue]) -> None:
        self.items = items


class MergedFields:
    """An object merged key by key."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Provenance]) -> None:
        self.fields = fields


class ComputedValue:
    """A value that no layer provides: the requested slug, a null, a mark."""

    __slots__ = ("reason", "sources")

    def __init__(self, reason: str, sources: Sequence[Source] = ()) -> None:
        self.reason = reason
        self.sources = sources


def merge(kind: str, slug: str | None, layers: Sequence[Layer]) -> tuple[dict[str, Any], dict[str, Provenance], list[Diagnostic]]:
    """The merged document, the provenance of each field, and diagnostics for wrong types."""
    diagnostics: list[Diagnostic] = []
    offers = _offers(layers, diagnostics)
    innermost = max((index for index, layer in enumerate(layers) if layer.origin == CONTEXT and layer.only is None), default=-1)
    document: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for field, candidates in offers.items():
        strategy = merge_rules.rule_for(field).strategy
        counted = [offer for offer in candidates if offer[0] == innermost] if strategy == merge_rules.LOCAL else candidates
        if counted:
            document[field], provenance[field] = _STRATEGIES[strategy](counted)
    document["slug"], provenance["slug"] = slug, ComputedValue("the requested slug")
    for field in merge_rules.ALWAYS[kind]:
        if field not in document:
            document[field], provenance[field] = None, ComputedValue("no layer provides a value")
    return document, provenance, diagnostics


def _offers(layers: Sequence[Layer], diagnostics: list[Diagnostic]) -> dict[str, list[Offer]]:
    """The values of each field, outermost layer first; fields in order of first appearance."""
    offers: dict[str, list[Offer]] = {}
    places: dict[str, str] = {}
    for index, layer in enumerate(layers):
        for field, value in layer.document.items():
            if field == merge_rules.MARKS or (layer.only is not None and field not in layer.only):
                continue
            if field not in places:
                places[field] = f"/{token(field)}"
            shaped = _shaped(layer, field, value, diagnostics)
            if shaped is not _MISSING:
                offers.setdefault(field, []).append((index, places[field], shaped))
    return offers


def is_empty(value: Any) -> bool:
    """Whether a value is null, blank, or a container of empty values. ``false`` and ``0`` are not empty."""
    kind = type(value)
    if kind is str:
        return not value or value.isspace()
    if kind is dict or isinstance(value, list):
        for child in value.values() if kind is dict else value:  # noqa: SIM110  # hot path: a generator doubles the cost
            if not is_empty(child):
                return False
        return True
    return value is None


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, but neither equals true."""
    # Python considers 1 and True equal, at any depth; comparing repr() first is fast and nearly always enough.
    return bool(left == right) and (repr(left) == repr(right) or _same_kinds(left, right))


def _same_kinds(left: Any, right: Any) -> bool:
    """Whether booleans in two equal values are only equal to booleans."""
    if isinstance(left, dict):
        return all(_same_kinds(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return all(map(_same_kinds, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


class _ValueIndex:
    """Finds equal values. Equal values have equal outlines, so few are compared; crowded outlines use a finer one."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._by_outline: dict[int, list[int]] = {}
        self._crowds: dict[int, dict[int, list[int]]] = {}

    def place(self, item: Any, values: list[Any]) -> int | None:
        """The position of an equal item; None if it is new, and the caller then appends it to ``values``."""
        if type(item) is str:
            place = self._strings.get(item)
            if place is None:
                self._strings[item] = len(values)
            return place
        outline = _outline(item)
        if outline not in self._by_outline:  # most items are new
            self._by_outline[outline] = [len(values)]
            return None
        rivals = self._rivals(outline, item, values)
        for at in rivals:
            if same(values[at], item):
                return at
        rivals.append(len(values))
        return None

    def moved(self, item: Any, at: int, values: list[Any]) -> None:
        """Record that ``item`` replaced the value at ``at``."""
        self._rivals(_outline(item), item, values).append(at)

    def _rivals(self, outline: int, item: Any, values: list[Any]) -> list[int]:
        """The positions of values with the outline of ``item``."""
        rivals = self._by_outline.setdefault(outline, [])
        if len(rivals) < _CROWDED:
            return rivals
        if outline not in self._crowds:
            crowd = self._crowds[outline] = {}
            for at in rivals:
                crowd.setdefault(_deep_outline(values[at]), []).append(at)
        return self._crowds[outline].setdefault(_deep_outline(item), [])


_CROWDED = 16


def _outline(value: Any) -> int:
    """A cheap hash that equal values share, independent of key order."""
    if type(value) is dict:
        return sum([hash(child) for child in value.values() if type(child) is str])
    return len(value) if isinstance(value, list) else hash(value)


def _deep_outline(value: Any) -> int:
    """As ``_outline``, including nested values."""
    if type(value) is dict:
        return sum([hash((key, _deep_outline(child))) for key, child in value.items()])
    if isinstance(value, list):
        return hash(tuple([_deep_outline(child) for child in value]))
    return hash(value)


def _shaped(layer: Layer, field: str, value: Any, diagnostics: list[Diagnostic]) -> Any:
    """The value in the shape of the field's rule, or ``_MISSING`` if it cannot be used."""
    shape = merge_rules.rule_for(field).shape
    if shape is None or value is None:
        return value
    if shape == merge_rules.LIST_OR_OBJECT and isinstance(value, (list, dict)):
        return value
    if shape == merge_rules.LIST:
        if isinstance(value, list):
            return value
        if isinstance(value, (str, dict)):
            # Dropping it would silently lose a guardrail.
            message = f"{layer.path}: /{field} is {type_name(value)}; it was read as a list with one item"
            diagnostics.append(diagnostic("scalar-for-list", layer.path, message, f"/{token(field)}"))
            return _SingleItem((value,))
    elif shape == (merge_rules.STRING if isinstance(value, str) else merge_rules.OBJECT if isinstance(value, dict) else None):
        return value
    message = f"{layer.path}: /{field} must be {shape}, not {type_name(value)}; it was ignored"
    diagnostics.append(diagnostic("wrong-type", layer.path, message, f"/{token(field)}"))
    return _MISSING


class _SingleItem(list):  # type: ignore[type-arg]
    """A single value read as a list; the pointer of its item is the field's own."""


def _items(offer: Offer) -> Iterator[tuple[Source, Any]]:
    """The non-empty items of an array, each with its source."""
    layer, at, value = offer
    single = type(value) is _SingleItem
    for position, item in enumerate(value or ()):
        if not is_empty(item):
            yield (layer, at if single else f"{at}/{position}"), item


def _last(offers: list[Offer]) -> Merged:
    """The innermost non-empty value."""
    for offer in reversed(offers):
        if not is_empty(offer[2]):
            return offer[2], TakenValue(offer[:2])
    return None, ComputedValue("the value is empty in every layer", [offer[:2] for offer in offers])


def _last_or_empty(offers: list[Offer]) -> Merged:
    """As ``_last``, but if all values are empty, the innermost is kept: unknown keys survive."""
    offer = next((offer for offer in reversed(offers) if not is_empty(offer[2])), offers[-1])
    return offer[2], TakenValue(offer[:2])


def _deep(candidates: list[Offer]) -> Merged:
    """Merge objects key by key; otherwise the innermost value wins and hides the objects above it."""
    objects: list[Offer] = []
    for offer in reversed(candidates):
        value = offer[2]
        if isinstance(value, dict):
            objects.append(offer)
        elif not is_empty(value):
            if not objects or all(is_empty(candidate[2]) for candidate in objects):
                return value, TakenValue(offer[:2])
            break
    if not objects:
        return _last_or_empty(candidates)
    keys: dict[str, list[Offer]] = {}
    for layer, at, value in reversed(objects):
        for key, child in value.items():
            keys.setdefault(key, []).append((layer, f"{at}/{token(key)}", child))
    if not keys:
        return {}, TakenValue(objects[0][:2])
    return _merged_fields(
        {key: _deep(offers) if len(offers) > 1 else (offers[0][2], TakenValue(offers[0][:2])) for key, offers in keys.items()}
    )


def _merged_fields(fields: dict[str, Merged]) -> Merged:
    values = {key: value for key, (value, _) in fields.items()}
    return values, MergedFields({key: provenance for key, (_, provenance) in fields.items()})


def _union_by_text(offers: list[Offer]) -> Merged:
    """As ``_union``; a string equals an object with the same text."""
    kinds = {type(item) for _, _, value in offers for item in value or ()}
    return _union(offers, by_text=str in kinds and dict in kinds)


def _union(offers: list[Offer], *, by_text: bool = False) -> Merged:
    """All non-empty items in order, without duplicates."""
    values: list[Any] = []
    sources: list[TakenValue] = []
    index = _ValueIndex()
    texts: dict[str, int] = {}  # text -> position
    for offer in offers:
        for source, item in _items(offer):
            at = _same_text(item, values, texts) if by_text else None
            if at is None:
                at = index.place(item, values)
            if by_text:
                texts.setdefault(projected(item), len(values) if at is None else at)
            if at is None:
                values.append(item)
                sources.append(TakenValue(source))
            elif isinstance(values[at], str) and not isinstance(item, str):
                # The object replaces the string, which is still found by its text.
                sources[at] = TakenValue(source, [sources[at].source, *sources[at].also])
                values[at] = item
                index.moved(item, at, values)
            else:
                sources[at].add(source)
    return _merged_items(values, sources, offers)


def _same_text(item: Any, values: list[Any], texts: dict[str, int]) -> int | None:
    """The position of an object with the same text as a string, or vice versa."""
    at = texts.get(projected(item)) if isinstance(item, (str, dict)) else None
    return at if at is not None and isinstance(item, str) != isinstance(values[at], str) else None


def _merged_items(values: list[Any], sources: list[TakenValue], offers: list[Offer]) -> Merged:
    if not values:
        return [], ComputedValue("no layer provides an item", [offer[:2] for offer in offers])
    return values, MergedItems(sources)


def _keyed(offers: list[Offer], key_of: Callable[[Any], Any]) -> Merged:
    """One item per key, in order of first appearance; the innermost wins."""
    values: list[Any] = []
    sources: list[TakenValue] = []
    places: dict[Any, int] = {}
    for offer in offers:
        for source, item in _items(offer):
            at = places.setdefault(key_of(item), len(values))
            if at == len(values):
                values.append(item)
                sources.append(TakenValue(source))
            elif same(values[at], item):
                sources[at].add(source)
            else:
                lost = sources[at]
                values[at], sources[at] = item, TakenValue(source, (), [*lost.shadowed, lost.source, *lost.also])
    return _merged_items(values, sources, offers)


def _link_key(link: Any) -> Any:
    if isinstance(link, str):
        return (None, link)
    if isinstance(link, dict):
        title, url = _text_or_none(link.get("title")), _text_or_none(link.get("url")) or _text_or_none(link.get("href"))
        if title is not None or url is not None:
            return (title, url)
    return _json_key(link)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _contributions(candidates: list[Offer]) -> Merged:
    """A list of contributions, or an object of such lists (primary, secondary)."""
    filled = [offer for offer in candidates if not is_empty(offer[2])]
    if not filled:
        return _last_or_empty(candidates)
    if _are_lists(filled):
        return _keyed(filled, _type_key)
    keys: dict[str, list[Offer]] = {}
    for layer, at, value in filled:
        if isinstance(value, list):  # next to objects, a plain list counts as primary
            keys.setdefault("primary", []).append((layer, at, value))
        else:
            for key, child in value.items():
                keys.setdefault(key, []).append((layer, f"{at}/{token(key)}", child))
    return _merged_fields({key: _keyed(offers, _type_key) if _are_lists(offers) else _deep(offers) for key, offers in keys.items()})


def _are_lists(offers: list[Offer]) -> bool:
    return all(isinstance(value, list) for _, _, value in offers)


def _type_key(item: Any) -> Any:
    return contribution_type(item) or _json_key(item)


def _json_key(value: Any) -> tuple[str]:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False),)


_STRATEGIES: dict[str, Callable[[list[Offer]], Merged]] = {
    merge_rules.LAST: _last,
    merge_rules.WHOLE: _last_or_empty,
    merge_rules.REQUEST: _last,
    merge_rules.DEEP: _deep,
    merge_rules.LOCAL: _last_or_empty,
    merge_rules.UNION: _union,
    merge_rules.UNION_BY_TEXT: _union_by_text,
    merge_rules.BY_TYPE: _contributions,
    merge_rules.BY_LINK: lambda offers: _keyed(offers, _link_key),
}
