"""Syntax colours of source lines, by Pygments.

Invariant: the text of the runs is the given text, so that escaping and marks work as without colours. Work is bounded: long lines
and large pages get no colours, and neither does text in an unknown language.
"""

from __future__ import annotations

from functools import lru_cache

from clia.forge.rendering.texts import TextRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pygments.lexer import Lexer
    from pygments.token import _TokenType

CHARACTERS_MAX, LINE_MAX = 200_000, 500
"""Of a page, and of a line."""
_CLASSES = (
    ("Comment", "hl-comment"),
    ("Literal.String", "hl-string"),
    ("Literal.Number", "hl-number"),
    ("Keyword", "hl-keyword"),
    ("Name.Tag", "hl-keyword"),
    ("Name.Function", "hl-name"),
    ("Name.Class", "hl-name"),
    ("Name.Decorator", "hl-name"),
    ("Name.Attribute", "hl-name"),
)


class HighlightBudget:
    """The characters of a page that may still get colours."""

    def __init__(self, characters: int = CHARACTERS_MAX) -> None:
        self._left = characters

    def lines(self, path: str, texts: Sequence[str]) -> list[list[TextRun]] | None:
        """The runs of each line of a file; None without colours."""
        size = sum(map(len, texts))
        if not texts or size > self._left or any(len(text) > LINE_MAX for text in texts):
            return None
        lexer = _lexer(path)
        if lexer is None:
            return None
        self._left -= size
        lines = _split(lexer.get_tokens("\n".join(texts)))
        # A lexer may normalize text, such as line ends.
        return lines if ["".join(run.text for run in runs) for runs in lines] == list(texts) else None


def _split(tokens: Iterable[tuple[_TokenType, str]]) -> list[list[TextRun]]:
    """Tokens as the runs of each line."""
    lines: list[list[TextRun]] = [[]]
    for token, text in tokens:
        for number, part in enumerate(text.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append(TextRun(part, _class_of(token)))
    return lines


@lru_cache(maxsize=512)
def _class_of(token: _TokenType) -> str:
    name = str(token).removeprefix("Token.")
    return next((classes for prefix, classes in _CLASSES if name == prefix or name.startswith(f"{prefix}.")), "")


@lru_cache(maxsize=256)
def _lexer(path: str) -> Lexer | None:
    """The lexer for a file by its name; None for an unknown language and for plain text."""
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(path.rpartition("/")[2], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return None if isinstance(lexer, TextLexer) else lexer
