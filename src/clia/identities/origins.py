"""The origin of every leaf of a merged document, and the explanation of one value.

Invariant: every leaf has an origin, including values that no layer provides.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, NamedTuple

from clia.errors import NotFound
from clia.identities import merge_rules
from clia.identities.merge import ComputedValue, MergedFields, MergedItems, TakenValue, is_empty
from clia.values import pointer as pointers
from clia.values.canonical import digest, text_digest
from clia.values.records import fields_json, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.inheritance import Layer
    from clia.identities.merge import Provenance, Source


@json_form(note="note?")
class ValueOrigin(NamedTuple):
    """A value in a file."""

    path: str  # the file
    pointer: str  # JSON pointer into the file
    sha256: str  # of the whole file
    value: Any  # the value there
    note: str = ""  # why it does not count

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


_SHOWN = ("pointer", "value", "value_sha256", "rule", "story", "winner", "contributors", "shadowed", "note")


@json_form(*_SHOWN, value_sha256="valueSha256")
class Explanation(NamedTuple):
    """How one merged value came about."""

    pointer: str  # JSON pointer into the merged document
    value: Any  # the merged value
    value_sha256: str  # of the text of a string or a guardrail, by which waivers name it; else of the canonical JSON
    rule: str  # the merge rule that applies
    story: str  # the rule in words
    winner: ValueOrigin | None  # the value that decided; null if several files or no file provide it
    contributors: tuple[ValueOrigin, ...]  # every place that provides the value or a part of it
    shadowed: tuple[ValueOrigin, ...]  # values of other files, each with a note on why it does not count
    note: str  # why no file provides it; empty if one does
    diagnostics: tuple[Diagnostic, ...] = ()  # of the whole merged document

    def to_json(self) -> dict[str, Any]:
        """Every field but the diagnostics."""
        return fields_json(self)


def leaf_origins(document: dict[str, Any], provenance: dict[str, Provenance], layers: Sequence[Layer]) -> dict[str, Any]:
    """JSON pointer of each leaf -> ``{path, pointer, rule, contributors}``; ``path`` is null if no file provides it."""
    return {
        at: _origin(origin, below, merge_rules.rule_for(field).strategy, layers)
        for field, value in document.items()
        for at, origin, below in _walk(value, provenance[field], f"/{pointers.token(field)}")
    }


def _walk(value: Any, provenance: Provenance, at: str) -> Iterator[tuple[str, TakenValue | ComputedValue, str]]:
    """The pointer of each leaf, its provenance node, and its pointer below that node."""
    if isinstance(provenance, MergedFields):
        for key, child in provenance.fields.items():
            yield from _walk(value[key], child, f"{at}/{pointers.token(key)}")
    elif isinstance(provenance, MergedItems):
        for index, taken in enumerate(provenance.items):
            yield from _walk(value[index], taken, f"{at}/{index}")
    else:
        for below, _ in pointers.leaves(value):
            yield at + below, provenance, below


def _origin(origin: TakenValue | ComputedValue, below: str, rule: str, layers: Sequence[Layer]) -> dict[str, Any]:
    if isinstance(origin, ComputedValue):
        places = [{"path": layers[layer].path, "pointer": at} for layer, at in origin.sources]
        return {"path": None, "pointer": None, "rule": rule, "contributors": places, "note": origin.reason}
    places = [{"path": layers[layer].path, "pointer": at + below} for layer, at in _once([origin.source, *origin.also], layers)]
    layer, at = origin.source
    return {"path": layers[layer].path, "pointer": at + below, "rule": rule, "contributors": places}


def _value_sha256(parts: Sequence[str], value: Any) -> str:
    if isinstance(value, str):
        return text_digest(value)
    if len(parts) == 2 and parts[0] == "guardrails":
        return text_digest(merge_rules.projected_text(value))  # waivers name it by this
    return digest(value)


def explain(document: dict[str, Any], provenance: dict[str, Provenance], layers: Sequence[Layer], pointer: str) -> Explanation:
    """Explain the value at ``pointer`` in a merged document."""
    parts = pointers.split(pointer)
    value = _value_at(document, parts, pointer)
    if not parts:
        node: Provenance = MergedFields(provenance)
        rule = merge_rules.MergeRule("by-field", None, "each field has its own rule; explain one of them")
        rest: list[str] = []
    else:
        rule = merge_rules.rule_for(parts[0])
        node, rest = provenance[parts[0]], parts[1:]
    while rest and isinstance(node, (MergedFields, MergedItems)):
        node = node.fields[rest[0]] if isinstance(node, MergedFields) else node.items[int(rest[0])]
        rest = rest[1:]
    below = pointers.join(rest)
    winner = _value_origin(layers, node.source, below) if isinstance(node, TakenValue) else None
    contributors = [_value_origin(layers, source, below) for source in _once(_sources(node), layers)]
    return Explanation(
        pointer,
        value,
        _value_sha256(parts, value),
        rule.strategy,
        rule.story,
        winner,
        tuple(contributor for contributor in contributors if contributor is not None),
        tuple(_shadowed(layers, node, parts, below, rule.strategy)),
        node.reason if isinstance(node, ComputedValue) else "",
    )


def _once(sources: list[Source], layers: Sequence[Layer]) -> list[Source]:
    """The sources in layer order. A file that takes part twice, as root directives that are also inherited, counts once."""
    places: dict[tuple[str, str], Source] = {}
    for source in sorted(sources):
        places.setdefault((layers[source[0]].path, source[1]), source)
    return list(places.values())


def _value_at(document: dict[str, Any], parts: list[str], pointer: str) -> Any:
    value: Any = document
    for part in parts:
        try:
            value = pointers.step(value, part)
        except KeyError:
            names = list(value) if isinstance(value, dict) else []
            message, fields = f"the merged document has no value at {pointer}", {"pointer": pointer}
            hints = [f"available: {', '.join(sorted(names)[:20])}"] if names else []
            raise NotFound(message, code="no-such-value", hints=hints, fields=fields) from None
    return value


def _sources(node: Provenance) -> list[Source]:
    """Every source of a value, in layer order, each once."""
    if isinstance(node, TakenValue):
        sources = [node.source, *node.also]
    elif isinstance(node, ComputedValue):
        sources = list(node.sources)
    else:
        children = node.fields.values() if isinstance(node, MergedFields) else node.items
        sources = [source for child in children for source in _sources(child)]
    return sorted(dict.fromkeys(sources), key=lambda source: source[0])


def _shadowed(layers: Sequence[Layer], node: Provenance, parts: list[str], below: str, strategy: str) -> Iterator[ValueOrigin]:
    """Values of other layers at the same pointer, with the reason why they do not count."""
    if not isinstance(node, TakenValue):
        return
    if strategy in (merge_rules.UNION, merge_rules.UNION_BY_TEXT, merge_rules.BY_TYPE, merge_rules.BY_LINK):
        lost = list(node.shadowed)
    else:
        used = {node.source[0], *(layer for layer, _ in node.also)}
        at = pointers.join(parts[: len(parts) - len(pointers.split(below))])
        lost = [(index, at) for index, layer in enumerate(layers) if index not in used and layer.only is None]
    for source in lost:
        origin = _value_origin(layers, source, below)
        if origin is not None:
            why = "empty" if is_empty(origin.value) else "not the innermost" if strategy == merge_rules.LOCAL else "overridden"
            yield origin._replace(note=why)


@lru_cache(maxsize=32)
def _sha256(data: bytes) -> str:
    """Cached: a list may come from thousands of places in a few files."""
    return hashlib.sha256(data).hexdigest()


def _value_origin(layers: Sequence[Layer], source: Source, below: str) -> ValueOrigin | None:
    layer, pointer = layers[source[0]], source[1] + below
    value: Any = layer.document
    try:
        for part in pointers.split(pointer):
            value = pointers.step(value, part)
    except KeyError:
        return None
    return ValueOrigin(layer.path, pointer, _sha256(layer.data), value)
