"""JSON values that may cross a boundary, and how one is refused.

Invariant: what passes is JSON that every store, canonical JSON and the engine hold alike: keys are strings, numbers are
finite and exact, texts are Unicode without halves of characters; it is neither nested too deeply nor too large.
"""

from __future__ import annotations

import json
import math

from clia.kernel.documents import MAX_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 2**53 - 1
SIZE_MAX = 1024 * 1024


class CannotCross(ValueError):
    """What is wrong with a value, and where in it."""


def crossing(value: Any, name: str) -> Any:
    """The value as JSON (tuples become lists); ``CannotCross`` says what cannot cross, and where."""
    made = _checked(value, name, 0)
    size = len(json.dumps(made, ensure_ascii=False))
    if size > SIZE_MAX:
        raise CannotCross(f"{name} has {size} characters as JSON; at most {SIZE_MAX} can cross")
    return made


def inward(value: Any, name: str) -> Any:
    """A value on its way into a record: as ``crossing``, with each number in the one spelling that canonical JSON has for it.

    There 1.0 is 1, and a float such as 1e20 reads back as an integer that no float is: a flow that is given the value again
    from a record must be given the same.
    """
    return _spelled(crossing(value, name), name)


def _spelled(value: Any, where: str) -> Any:
    if type(value) is float:
        if not value.is_integer():
            return value
        if abs(value) <= LARGEST:
            return int(value)
        if abs(value) < 1e21:
            raise CannotCross(f"{where} is a whole number beyond 2**53; give it as text")
        return value
    if type(value) is dict:
        return {key: _spelled(each, f"{where}.{key}") for key, each in value.items()}
    if type(value) is list:
        return [_spelled(each, f"{where}[{index}]") for index, each in enumerate(value)]
    return value


def _checked(value: Any, where: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value, where)
    if kind is int or kind is float:
        return _number(value, where)
    if depth >= MAX_DEPTH:
        raise CannotCross(f"{where} is nested deeper than {MAX_DEPTH} levels")
    if kind is dict:
        return {_key(key, where): _checked(each, f"{where}.{key}", depth + 1) for key, each in value.items()}
    if kind is list or kind is tuple:
        return [_checked(each, f"{where}[{index}]", depth + 1) for index, each in enumerate(value)]
    raise CannotCross(f"{where} is {_named(kind)}, which cannot cross; JSON can")


def _text(value: str, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise CannotCross(f"{where} is text with half of a character") from None
    return value


def _number(value: float, where: str) -> float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CannotCross(f"{where} is {value}, which JSON does not have")
    elif abs(value) > LARGEST:
        raise CannotCross(f"{where} is an integer beyond 2**53; give it as text")
    return value


def _key(key: Any, where: str) -> str:
    if type(key) is not str:
        raise CannotCross(f"{where} has the key {key!r}, which is {_named(type(key))}; keys are text")
    return _text(key, f"a key of {where}")


def _named(kind: type) -> str:
    name = kind.__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
