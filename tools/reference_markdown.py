"""Markdown for the reference pages, valid on forges and on the site."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def code(text: object) -> str:
    """A code span for use in a table."""
    shown = str(text)
    return f"<code>{html.escape(shown).replace('|', '&#124;')}</code>" if set(shown) & set("|`") else f"`{shown}`"


def prose(text: str) -> str:
    """Text for use in a table; double backticks, as in docstrings, become single ones."""
    return " ".join(text.replace("``", "`").split()).replace("|", "&#124;").replace("<", "&lt;")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
