"""JSON Schemas (2020-12) of the three documents.

Invariant: ``schema(kind)`` is self-contained, so that editors and other programs can use it as it is. Shared definitions are in
``common.schema.json``.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from clia.errors import UnknownKind
from clia.identities.contexts import KINDS
from clia.values import pointer as pointers
from clia.values.documents import type_name

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

_COMMON = "common.schema.json"
_LONGEST = 200


def schema(kind: str) -> dict[str, Any]:
    """The self-contained schema of one kind of document."""
    if kind not in KINDS:
        raise UnknownKind(f"unknown document kind {kind!r}", hints=[f"one of {', '.join(KINDS)}"], fields={"kind": kind})
    own: dict[str, Any] = _local(_load(f"{kind}.schema.json"))
    return {**own, "$defs": {**own.get("$defs", {}), **_load(_COMMON)["$defs"]}}


def can_validate() -> bool:
    """Whether the extra ``lint`` is installed."""
    return find_spec("jsonschema") is not None


def problems(kind: str, document: Any) -> list[tuple[str, str]]:
    """(JSON pointer, problem) for each violation of the schema, sorted; nothing without the extra ``lint``."""
    if not can_validate():
        return []
    return sorted({(pointers.join(error.absolute_path), _message(error)) for error in _validator(kind).iter_errors(document)})


@cache
def _validator(kind: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # takes 60 ms, needed by checks only

    return Draft202012Validator(schema(kind))


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(resources.files(__name__).joinpath(name).read_text("utf-8"))
    return loaded


def _local(value: Any) -> Any:
    """The value with references to the shared file replaced by local ones."""
    if isinstance(value, dict):
        return {key: child.removeprefix(_COMMON) if key == "$ref" else _local(child) for key, child in value.items()}
    return [_local(item) for item in value] if isinstance(value, list) else value


def _message(error: ValidationError) -> str:
    """A short message; text of the document is included only if it is short."""
    rule: Any = error.validator_value
    if error.validator == "type":
        names = [rule] if isinstance(rule, str) else rule
        kinds = [name if name == "null" else f"{'an' if name[0] in 'aio' else 'a'} {name}" for name in names]
        return f"must be {' or '.join(kinds)}, not {type_name(error.instance)}"
    if error.validator == "required":
        instance: Any = error.instance
        return f"is missing {', '.join(name for name in rule if name not in instance)}"
    if error.validator == "enum":
        return f"must be one of {', '.join(str(choice) for choice in rule if choice is not None)}"
    if error.validator == "const":
        return f"must be {rule!r}"
    return error.message if len(error.message) <= _LONGEST else f"{error.message[:_LONGEST]}…"
