"""JSON values that may cross the boundary between flows and clia, and the refusal of other values.

Invariant: an accepted value is the same in every store, in canonical JSON and in the engine: keys are strings, numbers finite and
exact, texts valid Unicode, nesting limited; a tuple becomes a list. A refusal names the place. Flows can see the messages: if
you change one, raise ``RULES`` of the engine.
"""

from __future__ import annotations

import json
import math
import re

from clia.values.canonical import canonical_bytes
from clia.values.documents import MAX_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LARGEST = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""
MAX_BYTES = 1_048_576
"""The largest value that may cross at once, as JSON."""

_MAX_PLACE = 80
_SHORT = frozenset({int, float, bool, type(None)})
_EXACT = _SHORT - {float}
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class CannotCross(ValueError):
    """A value that cannot cross: ``error`` names the exception Python would raise, ``problem`` says what is wrong at ``place``."""

    def __init__(self, error: str, problem: str) -> None:
        super().__init__(problem)
        self.error = error
        self.problem = problem
        self.place = ""

    def __str__(self) -> str:
        return self.problem

    def below(self, step: str) -> CannotCross:
        self.place = step + self.place
        return self


def copied(value: Any, where: str, text: Callable[[str], str] | None = None) -> Any:
    """A copy of the value as JSON has it; ``CannotCross`` names the place below ``where``. ``text`` may refuse more texts."""
    try:
        return _copied(value, 1, text or check_unicode)
    except CannotCross as refused:
        place = refused.place if len(refused.place) <= _MAX_PLACE else f"{refused.place[:_MAX_PLACE]}…"
        refused.problem = f"{where}{place} {refused.problem}"
        raise


def crossing(value: Any, where: str, text: Callable[[str], str] | None = None) -> Any:
    """As ``copied``, with a limit on the size."""
    copy = copied(value, where, text)
    if type(copy) not in _SHORT:
        size = len(_compact(copy).encode())
        if size > MAX_BYTES:
            raise CannotCross("ValueError", f"{where} takes {size} bytes as JSON, more than {MAX_BYTES}")
    return copy


def inward(value: Any, where: str) -> Any:
    """A value for a record: checked like ``crossing``, and in the form of canonical JSON. Canonical JSON writes 1.0 as 1, sorts
    keys, and would read a float such as 1e20 back as an integer; a flow must get the same value again when it is read from the
    record.
    """
    copy = crossing(value, where)
    if type(copy) in _EXACT:
        return copy
    _check_exact(copy, where)
    return json.loads(canonical_bytes(copy))


def _check_exact(value: Any, where: str) -> None:
    if type(value) is float and value.is_integer() and LARGEST < abs(value) < 1e21:
        raise CannotCross("ValueError", f"{where} is a whole number beyond 2**53 - 1; give it as text")
    if type(value) is dict:
        for key, item in value.items():
            _check_exact(item, f"{where}.{key}")
    elif type(value) is list:
        for index, item in enumerate(value):
            _check_exact(item, f"{where}[{index}]")


def _copied(value: Any, depth: int, text: Callable[[str], str]) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return text(value)
    if type(value) is int:
        if -LARGEST <= value <= LARGEST:
            return value
        raise CannotCross("ValueError", "is a whole number beyond 2**53 - 1, which JSON does not carry exactly")
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise CannotCross("ValueError", f"is {value}, which JSON does not have")
    if isinstance(value, (dict, list, tuple)):
        if depth > MAX_DEPTH:
            raise CannotCross("ValueError", f"is nested deeper than {MAX_DEPTH} levels")
        return _entries(value, depth, text) if isinstance(value, dict) else _items(value, depth, text)
    raise CannotCross("TypeError", f"is {_kind_of(value)}, which cannot cross")


def _entries(value: dict[Any, Any], depth: int, text: Callable[[str], str]) -> dict[str, Any]:
    copy = {}
    for key, entry in value.items():
        if type(key) is not str:
            raise CannotCross("TypeError", f"has a key that is {_kind_of(key)}: the keys must be strings")
        try:
            copy[check_unicode(key)] = _copied(entry, depth + 1, text)
        except CannotCross as refused:
            raise refused.below(f".{key}" if _IDENTIFIER.fullmatch(key) else f"[{json.dumps(key)[:60]}]") from None
    return copy


def _items(value: list[Any] | tuple[Any, ...], depth: int, text: Callable[[str], str]) -> list[Any]:
    copy = []
    for index, item in enumerate(value):
        try:
            copy.append(_copied(item, depth + 1, text))
        except CannotCross as refused:
            raise refused.below(f"[{index}]") from None
    return copy


def check_unicode(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CannotCross("ValueError", "holds half of a surrogate pair") from None
    return value


def _kind_of(value: object) -> str:
    """The kind of a value, in the terms of the flow's author; for a proxy of the engine, that of the object behind it."""
    name = type(value).__name__
    if name == "MontyClassProxy":
        return f"a {getattr(value, 'name', 'class')} object"
    if name in ("MontyStdTypeProxy", "MontyClassTypeProxy"):
        return f"the type or function {getattr(value, 'name', '')}"
    if isinstance(value, type):
        return f"the type {value.__name__}"
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    return {"NoneType": "None", "bytes": "bytes", "ellipsis": "..."}.get(name, f"{article} {name}")
