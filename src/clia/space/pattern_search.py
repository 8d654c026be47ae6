"""Regular expression search in a subprocess.

Invariant: whatever the pattern, the search ends within its time and memory limits and blocks nothing else. The pattern is not even
compiled in this process. Texts are sent in batches, so only a few are in memory at a time.
"""

from __future__ import annotations

import re

from clia.engine.limited_process import SubprocessFailed, limited_subprocess, serve
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

SECONDS = 5.0
BATCH_SIZE = 1000  # texts
_CHARACTERS = 1024 * 1024  # characters of a batch, unless one text is longer


def matching(pattern: str, texts: Iterable[tuple[str, T]]) -> list[T]:
    """The items whose texts match, in order."""
    matches: list[T] = []
    try:
        with limited_subprocess(__name__, SECONDS) as ask:
            for batch in _batches(texts):
                answer = ask([pattern, [text for text, _ in batch]])
                if isinstance(answer, str):
                    raise InvalidInput(f"{pattern!r} is not a valid regular expression: {answer}", code="invalid-pattern")
                matches += (batch[place][1] for place in answer)
    except SubprocessFailed as err:
        message = f"cannot search for {pattern!r}: {err}"
        hints = ["avoid nested repetition, as in (a+)+", "search one agent, or search for plain text"]
        raise InvalidInput(message, code="pattern-too-slow", hints=hints, fields={"field": "text"}) from None
    return matches


def _batches(texts: Iterable[tuple[str, T]]) -> Iterator[list[tuple[str, T]]]:
    """Batches of texts. The last may be empty: the pattern is checked even if there is nothing to search."""
    batch: list[tuple[str, T]] = []
    characters = 0
    for item in texts:
        batch.append(item)
        characters += len(item[0])
        if len(batch) >= BATCH_SIZE or characters >= _CHARACTERS:
            yield batch
            batch, characters = [], 0
    yield batch


def _places(question: Any) -> list[int] | str:
    """The matching texts, or what is wrong with the pattern."""
    pattern, texts = question
    try:
        compiled = re.compile(pattern)  # compiled once: the module caches it
    except (re.error, OverflowError) as err:
        return str(err)
    except RecursionError:
        return "it is nested too deeply"
    return [place for place, text in enumerate(texts) if compiled.search(text)]


if __name__ == "__main__":
    serve(_places, SECONDS)
