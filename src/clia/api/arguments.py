"""The arguments of a verb as an HTTP request.

Invariant: an argument that cannot be sent is refused here, with the error code that the library uses locally, before anything is
sent. The forge checks everything else.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from clia.api.derivation import PATH, QUERY
from clia.api.shapes import ANY, TEXT, Listed, Mapped, Optional
from clia.errors import InvalidAnswer, InvalidInput
from clia.values import paths
from clia.values.commit_messages import check_text
from clia.values.json_values import CannotCross, copied, crossing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.api.derivation import Param, Verb
    from clia.api.shapes import Shape

TARGET_MAX = 60_000
"""Characters of a request target; servers accept little more."""
_CODES = {
    "briefing": "invalid-object",
    "thing": "invalid-object",
    "request": "invalid-request",
    "files": "invalid-content",
    "changes": "invalid-content",
    "meta": "invalid-meta",
    "data": "invalid-entry",
    "entries": "invalid-entry",
    "input": "invalid-json",
    "payload": "invalid-json",
    "evidence": "invalid-evidence",
}


def request_for(verb: Verb, args: Mapping[str, Any], pages: Mapping[str, str | int] | None = None) -> tuple[str, dict[str, Any]]:
    """The target, below the space's address, and the body of a request for a verb; arguments by the library's names."""
    path, query, body = verb.path, [], {}
    for param in verb.params:
        value = args[param.name]
        if param.where == PATH:
            text = check_text(value, param.key, nul=True)
            path = path.replace("{" + param.key + "}", quote(text, safe=""))
        elif value is param.default or (not param.required and value == param.default and type(value) is type(param.default)):
            continue
        elif param.where == QUERY:
            query += _words(param, value)
        else:
            body[param.key] = _sendable(param, value)
    target = path + (f"?{urlencode([*query, *(pages or {}).items()])}" if query or pages else "")
    if len(target) > TARGET_MAX:
        raise InvalidInput("the arguments are too long for a URL", code="too-long", fields={"most": TARGET_MAX})
    return target, body


def _words(param: Param, value: Any) -> list[tuple[str, str]]:
    """A parameter in the query."""
    if isinstance(param.shape, Listed) or _is_text(param.shape):
        values = list(value) if isinstance(param.shape, Listed) and not isinstance(value, str) else [value]
        return [(param.key, check_text(text, param.key, nul=True)) for text in values]
    return [(param.key, str(value).lower() if type(value) is bool else str(value))]


def _is_text(shape: Shape) -> bool:
    return shape is TEXT or (isinstance(shape, Optional) and shape.inner is TEXT)


def _sendable(param: Param, value: Any) -> Any:
    """A parameter in the body."""
    if _is_text(param.shape):
        return check_text(value, param.key, nul=True)
    inner = param.shape.inner if isinstance(param.shape, Optional) else param.shape
    if isinstance(inner, Listed) and isinstance(value, (str, bytes)):
        raise _refused(param, f"{param.key} must be a list, not a text")  # else each letter would be sent
    if isinstance(inner, Mapped) and param.key in ("files", "changes"):
        _check_paths(value)
    try:
        # Values for sessions have limits of their own; the verb checks the others.
        return crossing(value, param.key) if inner is ANY else copied(param.shape.encode(value), param.key)
    except CannotCross as err:
        raise _refused(param, str(err)) from None
    except (InvalidInput, TypeError, ValueError, AttributeError, KeyError) as err:
        code = getattr(err, "code", None)
        if code not in (None, "invalid-field"):
            raise
        raise _refused(param, f"{param.key} cannot be sent: {err}") from None


def _check_paths(files: Any) -> None:
    """A tree may hold any path, but only text can be sent."""
    for path in files if isinstance(files, dict) else ():
        try:
            check_text(path, "path", nul=True)
        except InvalidInput:
            paths.check(path)


def _refused(param: Param, problem: str) -> InvalidInput:
    if param.name == "value":
        return InvalidAnswer(problem, fields={"field": param.key})
    return InvalidInput(problem, code=_CODES.get(param.key, "invalid-field"), fields={"field": param.key})
