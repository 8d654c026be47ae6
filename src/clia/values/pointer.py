"""JSON pointers (RFC 6901)."""

from __future__ import annotations

import re

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


_INDEX = re.compile(r"0|[1-9][0-9]{0,15}")


def token(key: str | int) -> str:
    """One reference token, escaped."""
    return str(key) if isinstance(key, int) else key.replace("~", "~0").replace("/", "~1")


def join(parts: Iterable[str | int]) -> str:
    return "".join(f"/{token(part)}" for part in parts)


def split(pointer: str) -> list[str]:
    """The unescaped tokens of a pointer; ``""`` is the whole document."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise InvalidInput(
            f"{pointer!r} is not a JSON pointer",
            code="invalid-pointer",
            hints=["a pointer starts with '/': /guardrails/0, /persona/profilePath"],
            fields={"pointer": pointer},
        )
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def step(value: Any, part: str) -> Any:
    """The child of ``value`` named by one token; ``KeyError`` if there is none."""
    if isinstance(value, dict):
        return value[part]
    if isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
        return value[int(part)]
    raise KeyError(part)


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf below ``value`` with its pointer, in document order. An empty container is a leaf."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from leaves(child, f"{at}/{token(key)}")
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from leaves(child, f"{at}/{index}")
    else:
        yield at, value
