"""What may cross into and out of a flow: JSON, and nothing that only looks like it.

Invariant: what passes goes through JSON and comes back equal; a tuple has become a list. What is refused is named
with its place, and the words are part of what a flow can see: whoever changes one raises ``RULES`` of the engine.
"""

from __future__ import annotations

import json
import math
import re

from clia.kernel.documents import MAX_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_BYTES = 1_048_576
"""Of a payload or a result, as JSON."""
LARGEST = 2**53 - 1
"""The largest whole number that every reader of JSON reads alike."""

_MAX_PLACE = 80
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# The engine hands these out as text, in a form that is its own but for the last. A whole string of it is a mistake, not data.
_SHOWN = re.compile(
    r"<(?:coroutine [^<>\n]*|function '[^'\n]*' (?:at 0x[0-9a-f]+|external)|gather\(\d+\)|module '[^'\n]*'|\w+ object)>"
    r"|dict_(?:keys|values|items)\(.*\)",
    re.DOTALL,
)


class Refused(Exception):
    """A value that cannot cross: ``error`` is what Python would raise, ``problem`` what is wrong at ``place``."""

    def __init__(self, error: str, problem: str) -> None:
        super().__init__(problem)
        self.error = error
        self.problem = problem
        self.place = ""

    def below(self, step: str) -> Refused:
        self.place = step + self.place
        return self


def going_in(value: Any, where: str) -> Any:
    """The value as JSON holds it; ``Refused`` names the place under ``where``."""
    return _placed(value, where, _text)


def coming_out(value: Any, where: str) -> Any:
    """As ``going_in``, of a value that a flow made: nothing that the engine only shows, and no more than ``MAX_BYTES``."""
    made = _placed(value, where, _text_of_a_flow)
    size = len(json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_BYTES:
        raise Refused("ValueError", f"{where} takes {size} bytes as JSON, more than {MAX_BYTES}")
    return made


def _placed(value: Any, where: str, text: Callable[[str], str]) -> Any:
    try:
        return _copied(value, 1, text)
    except Refused as refused:
        place = refused.place if len(refused.place) <= _MAX_PLACE else f"{refused.place[:_MAX_PLACE]}…"
        refused.problem = f"{where}{place} {refused.problem}"
        raise


def _copied(value: Any, depth: int, text: Callable[[str], str]) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int) and type(value) is int:
        if -LARGEST <= value <= LARGEST:
            return value
        raise Refused("ValueError", "is a whole number beyond 2**53 - 1, which JSON does not carry exactly")
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise Refused("ValueError", f"is {value}, which JSON does not have")
    if isinstance(value, (dict, list, tuple)):
        if depth > MAX_DEPTH:
            raise Refused("ValueError", f"is nested deeper than {MAX_DEPTH} levels")
        return _entries(value, depth, text) if isinstance(value, dict) else _items(value, depth, text)
    raise Refused("TypeError", f"is {_kind_of(value)}, which cannot cross")


def _entries(value: dict[Any, Any], depth: int, text: Callable[[str], str]) -> dict[str, Any]:
    made = {}
    for key, entry in value.items():
        if type(key) is not str:
            raise Refused("TypeError", f"has a key that is {_kind_of(key)}: the keys must be strings")
        try:
            made[_text(key)] = _copied(entry, depth + 1, text)
        except Refused as refused:
            raise refused.below(f".{key}" if _IDENTIFIER.fullmatch(key) else f"[{json.dumps(key)[:60]}]") from None
    return made


def _items(value: list[Any] | tuple[Any, ...], depth: int, text: Callable[[str], str]) -> list[Any]:
    made = []
    for index, item in enumerate(value):
        try:
            made.append(_copied(item, depth + 1, text))
        except Refused as refused:
            raise refused.below(f"[{index}]") from None
    return made


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("ValueError", "holds half of a surrogate pair") from None
    return value


def _text_of_a_flow(value: str) -> str:
    _text(value)
    if value[:1] in ("<", "d") and _SHOWN.fullmatch(value):
        hint = "; is an `await` missing?" if value.startswith("<coroutine") else ""
        raise Refused("TypeError", f"is {value[:80]}, which cannot cross{hint}")
    return value


def _kind_of(value: object) -> str:
    """What a value is, as a flow's author would say it."""
    name = type(value).__name__
    if name == "MontyClassProxy":
        return f"a {getattr(value, 'name', 'class')} object"
    if name in ("MontyStdTypeProxy", "MontyClassTypeProxy"):
        return f"the type or function {getattr(value, 'name', '')}"
    if isinstance(value, type):
        return f"the type {value.__name__}"
    if name in ("NoneType", "bytes", "ellipsis"):
        return {"NoneType": "None", "bytes": "bytes", "ellipsis": "..."}[name]
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
