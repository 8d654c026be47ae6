"""Documents as Markdown: sections of parts, each part with its origins.

Invariant: guardrails come first, a waived one is marked and still there, and nothing a document says can leave the
place it is shown in.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from clia.identities.exports import text
from clia.identities.merge import Items, is_empty
from clia.identities.projection import name_of
from clia.identities.waivers import guardrail_digest
from clia.values.pointer import token

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import Any

    from clia.identities.view import MergedDocument

    # A file's path as it may be shown to others.
    Shown = Callable[[str], str]

_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")
GUARDRAILS = "guardrails"
PURPOSE = "purpose"


class Part(NamedTuple):
    """Lines that come from the same files; none named: the whole document is one file."""

    origins: tuple[str, ...]
    lines: list[str]


class Section(NamedTuple):
    title: str
    parts: list[Part]


def render(title: str, opening: str, sections: Iterable[Section], level: int) -> str:
    """A heading, an opening, and the sections below it; ends with a newline."""
    mark = "#" * level
    blocks = [f"{mark} {text.markdown_line(title)}", *([opening] if opening else [])]
    for section in sections:
        blocks.append(f"{mark}# {section.title}")
        for part in section.parts:
            if part.origins:
                blocks.append(f"From {', '.join(text.code(each) for each in part.origins)}:")
            blocks.append("\n".join(part.lines))
    return "\n\n".join(blocks) + "\n"


def merged_sections(merged: MergedDocument, fields: Iterable[str], shown: Shown) -> list[Section]:
    """One section a field that says something, each part with the files it comes from."""
    found = [Section(words(field), list(_merged_parts(merged, field, shown))) for field in fields]
    return [each for each in found if each.parts]


def facts(entries: Iterable[tuple[str, Any, tuple[str, ...]]]) -> list[Section]:
    """Single values, one line each: (field, value, origins)."""
    parts = _grouped((origins, [f"- **{words(field)}**: {_scalar(value, '  ')}"]) for field, value, origins in entries)
    return [Section("Facts", parts)] if parts else []


def plain_section(field: str, value: Any) -> Section:
    """A field of one document."""
    return Section(words(field), [Part((), _field_lines(field, value, ()))])


def is_single(value: Any) -> bool:
    """Whether a value is one thing rather than a list or an object."""
    return not isinstance(value, (dict, list))


def origins_of(merged: MergedDocument, field: str, shown: Shown) -> tuple[str, ...]:
    """The files a whole field comes from, outer first."""
    places = merged.explain(f"/{token(field)}").contributors
    return tuple(dict.fromkeys(shown(each.path) for each in places))


def words(field: str) -> str:
    """A field's name as people say it."""
    spaced = _HUMP.sub(lambda found: f" {found.group().lower()}", text.line(field))
    return text.markdown_line(spaced[:1].upper() + spaced[1:])


def bullets(value: Any, indent: str = "") -> list[str]:
    """A value as list items, with all that it holds."""
    if isinstance(value, dict):
        return [line for key, child in value.items() if not is_empty(child) for line in _pair(key, child, indent)]
    return [line for item in (value if isinstance(value, list) else [value]) for line in _item(item, indent)]


def _merged_parts(merged: MergedDocument, field: str, shown: Shown) -> Iterator[Part]:
    value, provenance = merged.get(field), merged.provenance.get(field)
    if is_empty(value):
        return
    waived = _waived(merged)
    if not isinstance(provenance, Items):
        yield Part(origins_of(merged, field, shown), _field_lines(field, value, waived))
        return
    described = []
    for item, taken in zip(value, provenance.items, strict=True):
        sources = sorted([taken.source, *taken.also])
        origins = tuple(dict.fromkeys(shown(merged.layers[layer].path) for layer, _ in sources))
        described.append((origins, _field_lines(field, [item], waived)))
    yield from _grouped(described)


def _waived(merged: MergedDocument) -> set[str]:
    return {each["guardrail"] for each in merged.get("waivedGuardrails") or ()}


def _grouped(described: Iterable[tuple[tuple[str, ...], list[str]]]) -> list[Part]:
    """Neighbours of the same origin share a part; the order never changes."""
    parts: list[Part] = []
    for origins, lines in described:
        if parts and parts[-1].origins == origins:
            parts[-1].lines.extend(lines)
        else:
            parts.append(Part(origins, list(lines)))
    return parts


def _field_lines(field: str, value: Any, waived: Collection[str]) -> list[str]:
    if field == GUARDRAILS and isinstance(value, list):
        return [line for item in value for line in _guardrail(item, waived)]
    if isinstance(value, str):
        return ["\n\n".join(text.prose(each) for each in text.paragraphs(value))]
    return bullets(value)


def _guardrail(item: Any, waived: Collection[str]) -> Iterator[str]:
    lines = _item(item, "")
    first = next(lines, None)
    if first is not None:
        is_waived = guardrail_digest(item) in waived
        yield f"- **Waived by an operator:** {first[2:]}" if is_waived else first
        yield from lines


def _item(value: Any, indent: str) -> Iterator[str]:
    inner = indent + "  "
    if is_empty(value):
        return
    if isinstance(value, dict):
        head, rest = _headed(value, inner)
        yield f"{indent}- {head or '(object)'}"  # a bare dash would underline the line above it
        for key, child in rest.items():
            yield from _pair(key, child, inner)
    elif isinstance(value, list):
        yield f"{indent}- (list)"
        yield from bullets(value, inner)
    else:
        yield f"{indent}- {_scalar(value, inner)}"


def _headed(value: Mapping[str, Any], indent: str) -> tuple[str, dict[str, Any]]:
    """What an object is called, and what else it says."""
    rest = {key: child for key, child in value.items() if not is_empty(child)}
    name = name_of(dict(value))
    if name:
        del rest[next(key for key, child in rest.items() if child is name)]
        return text.prose(name, indent), rest
    single = [key for key, child in rest.items() if is_single(child)]
    return "; ".join(f"{words(key)}: {_scalar(rest.pop(key), indent)}" for key in single), rest


def _pair(key: str, child: Any, indent: str) -> Iterator[str]:
    if is_single(child):
        yield f"{indent}- **{words(key)}**: {_scalar(child, indent + '  ')}"
    elif key == "items":
        yield from bullets(child, indent)
    else:
        yield f"{indent}- **{words(key)}**:"
        yield from bullets(child, indent + "  ")


def _scalar(value: Any, indent: str) -> str:
    return text.prose(value, indent) if isinstance(value, str) else json.dumps(value)
