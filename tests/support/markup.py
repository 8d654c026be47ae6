"""A strict parser for HTML made from foreign text: it accepts only the tags that clia writes, closed in order."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

_TAG = re.compile(r"<(/?)([a-z]+)((?: [a-z]+(?:=\"[^\"<>]*\")?)*)>")
_ATTRIBUTE = re.compile(r" ([a-z]+)(?:=\"([^\"<>]*)\")?")
_ENTITY = re.compile(r"&(?:amp|lt|gt|#34|#39);")
_TAGS = {"span", "mark", "div", "details", "summary", "time", "table", "thead", "tbody", "tr", "td", "th"}
_ATTRIBUTES = {"class", "title", "open", "datetime", "colspan", "scope"}
_CLASSES = re.compile(
    r"ansi-[fb]g-(?:[0-9]|1[0-5])|ansi-(?:b|i|u|inv)|ctl|hit|redacted|long-line|word|cut|visually-hidden"
    r"|json(?:-(?:fold|mark|key|string|number|word|count|deep))?|diff|hunk|add|del|ctx|note|rest|num|sign"
)


class Piece(NamedTuple):
    """Text, and the tags around it with their attributes: ``span.ansi-fg-1``, ``mark.hit``."""

    text: str
    within: tuple[str, ...]


def read(markup: str) -> list[Piece]:
    pieces: list[Piece] = []
    within: list[tuple[str, str]] = []
    at, markup = 0, str(markup)
    for tag in [*_TAG.finditer(markup), None]:
        text = markup[at : tag.start()] if tag else markup[at:]
        assert not re.search("[<>\"']", text), text
        assert "&" not in _ENTITY.sub("", text), text
        if text:
            pieces.append(Piece(html.unescape(text), tuple(described for _, described in within)))
        if tag is None:
            break
        at = tag.end()
        if tag[1]:
            assert within, markup
            assert within.pop()[0] == tag[2], markup
        else:
            within.append((tag[2], _described(tag[2], tag[3])))
    assert not within, markup
    return pieces


def _described(name: str, attributes: str) -> str:
    assert name in _TAGS, name
    values = dict(_ATTRIBUTE.findall(attributes))
    assert values.keys() <= _ATTRIBUTES, attributes
    assert "&" not in _ENTITY.sub("", attributes), attributes
    classes = values.get("class", "").split()
    assert all(map(_CLASSES.fullmatch, classes)), attributes
    return ".".join([name, *classes])


def shown(markup: str) -> str:
    """The text that a reader sees."""
    return "".join(piece.text for piece in read(markup))


def within(markup: str, tag: str) -> list[str]:
    """The texts inside a tag, in order, as ``mark.hit``."""
    return [piece.text for piece in read(markup) if tag in piece.within]
