"""Reading what a request asks for.

Invariant: a payload is taken whole or refused with the name of the field; nothing in it is passed over in silence.
"""

from __future__ import annotations

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Payload:
    """The object that a request of a kind carries."""

    def __init__(self, kind: str, payload: Any, *known: str) -> None:
        self._kind = kind
        if not isinstance(payload, dict):
            raise self.refusal("payload", "is an object")
        self._values = payload
        for key in payload:
            if known and key not in known:
                raise self.refusal(key, f"is not known; known are {', '.join(known)}")

    def refusal(self, field: str, problem: str) -> InvalidInput:
        return InvalidInput(f"{self._kind}: {field} {problem}", code="invalid-payload", fields={"kind": self._kind, "field": field})

    def has(self, field: str) -> bool:
        return self._values.get(field) is not None

    def text(self, field: str, default: str | None = None) -> str:
        value = self._values.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not (value or default is not None):
            raise self.refusal(field, "is a text, and needed" if default is None else "is a text")
        return value

    def texts(self, field: str) -> list[str]:
        value = self._values.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
            raise self.refusal(field, "is a list of texts")
        return value

    def truth(self, field: str, default: bool) -> bool:
        value = self._values.get(field, default)
        if not isinstance(value, bool):
            raise self.refusal(field, "is true or false")
        return value

    def object(self, field: str) -> Mapping[str, Any]:
        value = self._values.get(field)
        if not isinstance(value, dict):
            raise self.refusal(field, "is an object, and needed")
        return value

    def value(self, field: str) -> Any:
        return self._values.get(field)
