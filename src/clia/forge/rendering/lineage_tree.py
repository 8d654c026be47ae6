"""A merged document as a tree with links to the origin of each value.

Invariant: the order is that of the document. Long lists, deep levels and large documents end in a link to the rest.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from clia.errors import NotFound
from clia.forge.rendering import json_view
from clia.forge.rendering.texts import escaped
from clia.identities.merge import ComputedValue, MergedFields, MergedItems, TakenValue
from clia.values import pointer as pointers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.identities.merge import Provenance

CHILDREN, LINES, LEVELS, CHARACTERS = 200, 1500, 16, 300
"""Limits: children per value, lines, levels, characters per value."""
_NOTHING = ComputedValue("")


class DocumentBranch(NamedTuple):
    """A value of a merged document and its provenance; None below a value that comes from one file."""

    pointer: str
    value: Any
    origin: Provenance | None


class TreeView(NamedTuple):
    """The visible part of a tree: the value at ``under``, from child ``first``; ``at`` is selected."""

    query: str  # start of the query: ``?document=plan``
    under: str = ""
    first: int = 0
    at: str | None = None

    def opening(self, pointer: str, first: int = 0) -> str:
        """The URL of a part of the tree."""
        return self.query + (f"&under={_quoted(pointer)}" if pointer else "") + (f"&first={first}" if first else "")

    def explaining(self, pointer: str) -> str:
        """The URL of a value's explanation."""
        return f"{self.opening(self.under, self.first)}&at={_quoted(pointer)}"


def branch(document: Mapping[str, Any], provenance: Mapping[str, Provenance], pointer: str) -> DocumentBranch:
    """The value at a pointer; raises ``NotFound``."""
    current = DocumentBranch("", document, MergedFields(dict(provenance)))
    for part in pointers.split(pointer):
        try:
            value = pointers.step(current.value, part)
        except KeyError:
            raise NotFound(
                f"the merged document has no value at {pointer}", code="no-such-value", fields={"pointer": pointer}
            ) from None
        current = DocumentBranch(f"{current.pointer}/{pointers.token(part)}", value, _below(current.origin, part))
    return current


def to_html(top: DocumentBranch, view: TreeView) -> Markup:
    """The tree below a value."""
    return _TreeWriter(view).children(top, view.first, 0)


def _below(origin: Provenance | None, part: str) -> Provenance | None:
    if isinstance(origin, MergedFields):
        return origin.fields.get(part, _NOTHING)
    if isinstance(origin, MergedItems):
        return origin.items[int(part)]
    return None


def _quoted(pointer: str) -> str:
    return quote(pointer, safe="/", errors="replace")


class _TreeWriter:
    """Writes lines within a limit."""

    def __init__(self, view: TreeView) -> None:
        self._view = view
        self._left = LINES

    def children(self, top: DocumentBranch, first: int, level: int) -> Markup:
        value = top.value
        if not (value and isinstance(value, (dict, list))):
            return Markup("")
        parts = [self._item(key, child, level) for key, child in _children(top, first)]
        rest = len(value) - first - len(parts)
        if rest > 0:
            address = self._view.opening(top.pointer, first + len(parts))
            parts.append(Markup('<li class="more"><a href="{}">… {} more</a></li>').format(address, f"{rest:,}"))
        return Markup("<ul>{}</ul>").format(Markup("").join(parts))

    def _item(self, key: str | int, child: DocumentBranch, level: int) -> Markup:
        self._left -= 1
        address = self._view.explaining(child.pointer)
        chosen = Markup(' id="at" aria-current="true"') if child.pointer == self._view.at else Markup("")
        line = Markup('<a class="value" href="{}#at" hx-get="{}"{}><span class="{}">{}</span> {}</a>{}').format(
            address, address, chosen, "doc-key" if isinstance(key, str) else "doc-index", _cut(str(key)), _said(child), _from(child)
        )
        return Markup("<li>{}{}</li>").format(line, self._inside(child, level + 1))

    def _inside(self, child: DocumentBranch, level: int) -> Markup:
        if not (child.value and isinstance(child.value, (dict, list))):
            return Markup("")
        if self._left > 0 and level < LEVELS:
            return self.children(child, 0, level)
        address = self._view.opening(child.pointer)
        return Markup('<ul><li class="more"><a href="{}">… show contents</a></li></ul>').format(address)


def _children(top: DocumentBranch, first: int) -> Iterator[tuple[str | int, DocumentBranch]]:
    if isinstance(top.value, dict):
        for key in list(top.value)[first : first + CHILDREN]:
            yield key, DocumentBranch(f"{top.pointer}/{pointers.token(key)}", top.value[key], _below(top.origin, key))
    else:
        for index in range(first, min(first + CHILDREN, len(top.value))):
            yield index, DocumentBranch(f"{top.pointer}/{index}", top.value[index], _below(top.origin, str(index)))


def _said(child: DocumentBranch) -> Markup:
    """A value on one line; containers show their size."""
    value = child.value
    if value and isinstance(value, (dict, list)):
        name = "key" if isinstance(value, dict) else "item"
        return Markup('<span class="json-count">{} {}{}</span>').format(f"{len(value):,}", name, "" if len(value) == 1 else "s")
    kind = "string" if isinstance(value, str) else "number" if type(value) in (int, float) else "word"
    return Markup('<span class="json-{}">{}</span>').format(kind, _cut(value if isinstance(value, str) else json_view.plain(value)))


def _cut(text: str) -> Markup:
    rest = len(text) - CHARACTERS
    return escaped(text) if rest <= 0 else escaped(f"{text[:CHARACTERS]}… {rest:,} more characters")


def _from(child: DocumentBranch) -> Markup:
    """The number of the file that set the value; empty for merged values and below a value from one file."""
    origin = child.origin
    if isinstance(origin, TakenValue):
        numbers = sorted({origin.source[0], *(layer for layer, _ in origin.also)})
        listed = ", ".join(str(number + 1) for number in numbers[:8])
        name = "file" if len(numbers) == 1 else "files"
        return Markup(' <span class="from" title="set by {} {}">{}</span>').format(name, listed, listed)
    if isinstance(origin, ComputedValue):
        return Markup(' <span class="from none" title="{}">no file</span>').format(origin.reason)
    return Markup("")
