"""Text that a model reads and a person does not see: hidden characters, comments, terminal escapes.

Invariant: a character is hidden by the table below and by nothing else; what an emoji is built with is not hidden as
long as it stands inside an emoji.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from clia.identities.diagnostics import diagnostic
from clia.values.pointer import token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.identities.diagnostics import Diagnostic

_HIDDEN_RANGES = (
    ("\x00", "\x08"), ("\x0b", "\x0c"), ("\x0e", "\x1a"), ("\x1c", "\x1f"), ("\x7f", "\x9a"), ("\x9c", "\x9f"),  # controls
    ("\u00ad", "\u00ad"), ("\u034f", "\u034f"), ("\u180b", "\u180f"),  # soft hyphen, grapheme joiner, Mongolian selectors
    ("\u061c", "\u061c"), ("\u200e", "\u200f"), ("\u202a", "\u202e"), ("\u2066", "\u2069"),  # bidirectional controls
    ("\u200b", "\u200d"), ("\u2060", "\u2065"), ("\ufeff", "\ufeff"),  # zero width
    ("\u115f", "\u1160"), ("\u3164", "\u3164"), ("\uffa0", "\uffa0"),  # Hangul fillers
    ("\u206a", "\u206f"), ("\ufff9", "\ufffb"),  # deprecated formatting, annotations
    ("\ufe00", "\ufe0f"), ("\U000e0100", "\U000e01ef"), ("\U000e0000", "\U000e007f"),  # variation selectors, tags
)  # fmt: skip
_HIDDEN = re.compile("[" + "".join(f"{first}-{last}" for first, last in _HIDDEN_RANGES) + "]")
_ESCAPE = re.compile("[\x1b\x9b]")
_COMMENT = "<!--"
_JOINER, _TEXT_STYLE, _EMOJI_STYLE = "\u200d", "\ufe0e", "\ufe0f"
# The flag of a part of a country: a black flag, its code in tag letters, an end tag.
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_NAMED = 4


def texts(path: str, document: Any) -> Iterator[Diagnostic]:
    """Findings for each string of a document, keys included."""
    for pointer, text in _strings(document, ""):
        if text.isascii() and text.isprintable() and _COMMENT not in text:
            continue
        hidden = hidden_characters(text)
        if hidden:
            names = ", ".join(f"U+{ord(char):04X} {unicodedata.name(char, 'control')}" for char in hidden[:_NAMED])
            more = f" and {len(hidden) - _NAMED} more" if len(hidden) > _NAMED else ""
            yield diagnostic("hidden-text", path, f"{path}: {pointer} holds {names}{more}", pointer)
        if _COMMENT in text:
            yield diagnostic("html-comment", path, f"{path}: {pointer} holds an HTML comment", pointer)
        if _ESCAPE.search(text):
            yield diagnostic("ansi-escape", path, f"{path}: {pointer} holds a terminal escape", pointer)


def hidden_characters(text: str) -> list[str]:
    """The kinds of hidden characters in a text, in order of first appearance."""
    shown = _FLAG.sub("", text)
    found = (match for match in _HIDDEN.finditer(shown) if not _is_part_of_emoji(shown, match.start()))
    return list(dict.fromkeys(match.group() for match in found))


def _is_part_of_emoji(text: str, at: int) -> bool:
    char = text[at]
    before = text[at - 1] if at else ""
    if char in (_TEXT_STYLE, _EMOJI_STYLE):
        return _is_pictorial(before) or (before != "" and before in "#*0123456789\u203c\u2049\u2139\u3030\u303d")
    if char == _JOINER:
        if before in (_TEXT_STYLE, _EMOJI_STYLE):
            before = text[at - 2] if at > 1 else ""
        return _is_pictorial(before) and _is_pictorial(text[at + 1 : at + 2])
    return False


def _is_pictorial(char: str) -> bool:
    """Symbols and skin tones; the emoji planes count as a whole, since new ones come every year."""
    return char != "" and ("\U0001f000" <= char <= "\U0001faff" or unicodedata.category(char) in ("So", "Sm"))


def _strings(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, child in value.items():
            pointer = f"{at}/{token(key)}"
            yield pointer, key
            yield from _strings(child, pointer)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _strings(child, f"{at}/{index}")
