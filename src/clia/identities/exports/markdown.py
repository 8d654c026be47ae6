"""Documents rendered as Markdown, with the origins of each part.

Invariant: text from a document stays text. It cannot open or close an HTML comment, a heading, a code fence or front matter,
cannot make a tool import a file, and contains no invisible characters. The character tables are written out, so that the output
does not depend on the interpreter's Unicode version. Guardrails come first; a waived one is marked, not removed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.identities.guardrails.waivers import guardrail_digest
from clia.identities.merge import MergedItems, is_empty
from clia.identities.merge_rules import MARKS, label_of
from clia.values.pointer import token

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from clia.identities.lineage import MergedDocument

# Controls, format characters, fillers, variation selectors (except in emoji), tags, surrogates and the two noncharacters
# that make a YAML parser reject the whole file.
_HIDDEN = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff"
)
_EMOJI = r"\u2190-\u2bff\U0001f000-\U0001faff"
_JOINER = "\u200d"
_INVISIBLE = re.compile(rf"[{_HIDDEN}]|(?<![{_EMOJI}\ufe0f])\u200d|\u200d(?![{_EMOJI}])")

# Starts of lines that are more than paragraph text, in CommonMark or to a front matter parser.
_BLOCK_START = re.compile(
    r"""
      \#{1,6}(?=\s|$)               # heading
    | [-+*](?=\s|$)                 # list
    | >                             # quotation
    | (?=(?P<fence>`|~)(?P=fence){2})       # code fence
    | (?=(?P<rule>[-_*])\s*(?:(?P=rule)\s*)+$)  # thematic break, underline of a heading, end of front matter
    | =+\s*$                        # underline of a heading
    | <                             # HTML
    | \[[^\]]*\]:                   # link definition: shows nothing
    | \+\+\+                        # TOML front matter
    """,
    re.VERBOSE,
)
_ORDERED = re.compile(r"(\d{1,9})(?=[.)](?:\s|$))")
# Claude Code, Gemini and Cursor import a file where a word starts with '@'.
_IMPORT = re.compile(r"(?<!\S)@")
# Claude Code runs commands between these marks before the model reads the file.
_COMMAND = re.compile(r"!(?=`)|(?<=```)!|(?<=~~~)!")
# Some front matter parsers, including the reference one for skills, end it at the first three dashes on any line.
_FRONT_MATTER_END = re.compile(r"-(?=--)")


def visible(text: str) -> str:
    """The text with invisible characters written as escapes."""
    return _INVISIBLE.sub(lambda match: f"\\u{{{ord(match.group()):x}}}", text)


def one_line(text: str) -> str:
    """The text on one line."""
    return visible(" ".join(text.split()))


def markdown_line(text: str) -> str:
    """One line of Markdown that is plain text in any paragraph or list item."""
    safe = one_line(text).replace("<!--", "&lt;!--")
    safe = _IMPORT.sub(r"\\@", safe)
    if _BLOCK_START.match(safe):
        return f"\\{safe}"
    return _ORDERED.sub(r"\1\\", safe, count=1) if _ORDERED.match(safe) else safe


def inert_markdown(text: str) -> str:
    """Markdown as people wrote it, except for what a tool would act on or a reader could not see."""
    lines = ("\t".join(visible(part) for part in line.split("\t")) for line in text.replace("\r\n", "\n").split("\n"))
    safe = "\n".join(lines).strip("\n").replace("<!--", "&lt;!--")
    return _IMPORT.sub(r"\\@", _COMMAND.sub(" ! ", safe)) + "\n"


def prose(text: str, indent: str = "") -> str:
    """The lines as one paragraph; lines after the first are indented, to stay in their list item."""
    return f"\n{indent}".join(markdown_line(line) for line in text.splitlines() if line.strip())


def paragraphs(text: str) -> list[str]:
    """The paragraphs: runs of lines that are not blank."""
    runs: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    return ["\n".join(run) for run in runs if run]


def code_span(text: str) -> str:
    """A code span. Imports are escaped too, because Gemini pairs backticks across the whole file."""
    safe = one_line(text).replace(" @", r" \u{40}").replace("`", r"\u{60}").replace("<!--", "&lt;!--")
    return f"`{safe}`"


def quoted_string(text: str) -> str:
    """A double-quoted string on one line, valid in JSON and YAML, without three dashes in a row."""
    return _FRONT_MATTER_END.sub(r"\\u002d", json.dumps(one_line(text), ensure_ascii=False))


def shortened(text: str, room: int) -> str:
    """One line of at most ``room`` UTF-16 code units, as JavaScript tools count; an ellipsis marks a cut."""
    line = one_line(text)
    units = line.encode("utf-16-le")
    if len(units) <= 2 * room:
        return line
    cut = units[: 2 * (room - 1)].decode("utf-16-le", "ignore")
    words = cut.rpartition(" ")[0]
    start = words if 2 * len(words) > len(cut) else cut  # text without spaces is cut inside a word
    return f"{start.rstrip(_JOINER)}…"


if TYPE_CHECKING:
    # Turns a file's path into the one shown in an export.
    ShownPath = Callable[[str], str]

_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")
GUARDRAILS = "guardrails"
PURPOSE = "purpose"


class MarkdownPart(NamedTuple):
    """Lines with the same origins; no origins if the whole document is one file."""

    origins: tuple[str, ...]
    lines: list[str]


class MarkdownSection(NamedTuple):
    title: str
    parts: list[MarkdownPart]


def render(title: str, opening: str, sections: Iterable[MarkdownSection], level: int) -> str:
    """A heading, an opening paragraph and the sections; ends with a newline."""
    mark = "#" * level
    blocks = [f"{mark} {markdown_line(title)}", *([opening] if opening else [])]
    for section in sections:
        blocks.append(f"{mark}# {section.title}")
        for part in section.parts:
            if part.origins:
                blocks.append(f"From {', '.join(code_span(origin) for origin in part.origins)}:")
            blocks.append("\n".join(part.lines))
    return "\n\n".join(blocks) + "\n"


def merged_sections(merged: MergedDocument, fields: Iterable[str], shown: ShownPath) -> list[MarkdownSection]:
    """One section per field that is not empty, each part with its files."""
    sections = [MarkdownSection(field_title(field), list(_merged_parts(merged, field, shown))) for field in fields]
    return [section for section in sections if section.parts]


def facts_section(entries: Iterable[tuple[str, Any, tuple[str, ...]]]) -> list[MarkdownSection]:
    """A section of single values: (field, value, origins)."""
    parts = _grouped((origins, [f"- **{field_title(field)}**: {_scalar(value, '  ')}"]) for field, value, origins in entries)
    return [MarkdownSection("Facts", parts)] if parts else []


def plain_section(field: str, value: Any) -> MarkdownSection:
    """A section for a field of a single document."""
    return MarkdownSection(field_title(field), [MarkdownPart((), _field_lines(field, value, ()))])


def is_single(value: Any) -> bool:
    """Whether a value is neither a list nor an object."""
    return not isinstance(value, (dict, list))


def origins_of(merged: MergedDocument, field: str, shown: ShownPath) -> tuple[str, ...]:
    """The files that a field comes from, outermost first."""
    places = merged.explain(f"/{token(field)}").contributors
    return tuple(dict.fromkeys(shown(place.path) for place in places))


def field_title(field: str) -> str:
    """A field's name as a title: focusDomains -> Focus domains."""
    spaced = _CAMEL_HUMP.sub(lambda match: f" {match.group().lower()}", one_line(field))
    return markdown_line(spaced[:1].upper() + spaced[1:])


def bullets(value: Any, indent: str = "") -> list[str]:
    """A value as list items, including nested values."""
    if isinstance(value, dict):
        return [line for key, child in value.items() if not is_empty(child) for line in _pair(key, child, indent)]
    return [line for item in (value if isinstance(value, list) else [value]) for line in _item(item, indent)]


def _merged_parts(merged: MergedDocument, field: str, shown: ShownPath) -> Iterator[MarkdownPart]:
    value, provenance = merged.get(field), merged.provenance.get(field)
    if is_empty(value):
        return
    waived = {mark["guardrail"] for mark in merged.get(MARKS) or ()}
    if not isinstance(provenance, MergedItems):
        yield MarkdownPart(origins_of(merged, field, shown), _field_lines(field, value, waived))
        return
    described = []
    for item, taken in zip(value, provenance.items, strict=True):
        sources = sorted([taken.source, *taken.also])
        origins = tuple(dict.fromkeys(shown(merged.layers[layer].path) for layer, _ in sources))
        described.append((origins, _field_lines(field, [item], waived)))
    yield from _grouped(described)


def _grouped(described: Iterable[tuple[tuple[str, ...], list[str]]]) -> list[MarkdownPart]:
    """Parts in the given order; neighbours with the same origins are joined."""
    parts: list[MarkdownPart] = []
    for origins, lines in described:
        if parts and parts[-1].origins == origins:
            parts[-1].lines.extend(lines)
        else:
            parts.append(MarkdownPart(origins, list(lines)))
    return parts


def _field_lines(field: str, value: Any, waived: Collection[str]) -> list[str]:
    if field == GUARDRAILS and isinstance(value, list):
        rules = [(item, list(_item(item, ""))) for item in value]
        for item, lines in rules:
            if lines and guardrail_digest(item) in waived:
                lines[0] = f"- **Waived by an operator:** {lines[0][2:]}"
        return [line for _, lines in rules for line in lines]
    if isinstance(value, str):
        return ["\n\n".join(prose(paragraph) for paragraph in paragraphs(value))]
    return bullets(value)


def _item(value: Any, indent: str) -> Iterator[str]:
    inner = indent + "  "
    if is_empty(value):
        return
    if isinstance(value, dict):
        head, rest = _headed(value, inner)
        yield f"{indent}- {head or '(object)'}"  # a bare dash would underline the line above
        for key, child in rest.items():
            yield from _pair(key, child, inner)
    elif isinstance(value, list):
        yield f"{indent}- (list)"
        yield from bullets(value, inner)
    else:
        yield f"{indent}- {_scalar(value, inner)}"


def _headed(value: Mapping[str, Any], indent: str) -> tuple[str, dict[str, Any]]:
    """The label of an object, and its other values."""
    rest = {key: child for key, child in value.items() if not is_empty(child)}
    name = label_of(dict(value))
    if name:
        del rest[next(key for key, child in rest.items() if child is name)]
        return prose(name, indent), rest
    single = [key for key, child in rest.items() if is_single(child)]
    return "; ".join(f"{field_title(key)}: {_scalar(rest.pop(key), indent)}" for key in single), rest


def _pair(key: str, child: Any, indent: str) -> Iterator[str]:
    if is_single(child):
        yield f"{indent}- **{field_title(key)}**: {_scalar(child, indent + '  ')}"
    elif key == "items":
        yield from bullets(child, indent)
    else:
        yield f"{indent}- **{field_title(key)}**:"
        yield from bullets(child, indent + "  ")


def _scalar(value: Any, indent: str) -> str:
    return prose(value, indent) if isinstance(value, str) else json.dumps(value)
