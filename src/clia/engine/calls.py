"""Calls that leave a flow, and the replies to those that are refused.

Invariant: a call either becomes a ``FlowCall`` that waits for an answer, or gets an immediate reply that depends on the call alone,
so that a replay has the same result. Flows can see the text of a reply: if you change one, raise ``RULES`` of the engine.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from clia.engine.records import REQUEST, SLEEP, SUSPEND, TIMER, FlowCall
from clia.values.json_values import CannotCross, check_unicode, crossing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pydantic_monty import ExternalSettledResult as Settled
    from pydantic_monty import FunctionSnapshot

MAX_NAME = 100
_KIND = re.compile(r"[A-Za-z0-9._/-]+", re.ASCII)
# Parameters, and how many of them are required.
_SIGNATURES = {REQUEST: (("kind", "payload", "tag"), 1), SUSPEND: (("tag", "payload"), 1)}
_DENIED = {
    "os.getenv": "a flow has no environment",
    "os.environ": "a flow has no environment",
    "os.urandom": "a flow has no randomness but the module random",
}


class CallSite(NamedTuple):
    """Where a call is in the flow's source."""

    line: int
    is_async: bool  # the flow, not the call
    discarded: bool  # the call is a statement, so its result is not used


def read_call(snapshot: FunctionSnapshot, site: CallSite) -> FlowCall | Settled:
    """Return the call to answer, or the immediate reply."""
    name = str(snapshot.function_name)
    try:
        if name in ("time.sleep", "asyncio.sleep") and snapshot.is_os_function:
            return _sleep(name, snapshot, site)
        if snapshot.is_os_function:
            if name == "import":
                return _raising("ModuleNotFoundError", f"No module named '{snapshot.args[0]}'")
            return _raising("PermissionError", f"{name}: {_DENIED.get(name, 'a flow has no files')}")
        if name not in _SIGNATURES:
            close = difflib.get_close_matches(name, _SIGNATURES, n=1)
            return _raising("NameError", f"name '{name}' is not defined" + (f". Did you mean: '{close[0]}'?" if close else ""))
        _check_awaited(name, site)
        arguments = bound_arguments(name, snapshot.args, snapshot.kwargs)
        tag = None if arguments.get("tag") is None and name == REQUEST else label("tag", arguments["tag"])
        kind = label("kind", arguments["kind"]) if name == REQUEST else SUSPEND
        return FlowCall(snapshot.call_id + 1, kind, tag, coming_out(arguments.get("payload"), "payload"), site.line)
    except CannotCross as refused:
        return _raising(refused.error, refused.problem)


def _sleep(name: str, snapshot: FunctionSnapshot, site: CallSite) -> FlowCall | Settled:
    seconds = float(snapshot.args[0])
    if name == "time.sleep" and site.is_async:
        raise CannotCross("RuntimeError", "time.sleep() would hold up everything else: write `await asyncio.sleep(…)`")
    if name == "asyncio.sleep":
        _check_awaited(name, site)
    if seconds <= 0:
        return {"return_value": None}
    return FlowCall(snapshot.call_id + 1, TIMER, None, {"seconds": coming_out(seconds, SLEEP)}, site.line)


def bound_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, as a Python function with this signature binds them."""
    names, required = _SIGNATURES[name]
    if len(args) > len(names):
        message = f"{name}() takes at most {len(names)} arguments ({', '.join(names)}), {len(args)} were given"
        raise CannotCross("TypeError", message)
    arguments = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key not in names:
            raise CannotCross("TypeError", f"{name}() got an unexpected keyword argument '{key}'; it takes {', '.join(names)}")
        if key in arguments:
            raise CannotCross("TypeError", f"{name}() got multiple values for argument '{key}'")
        arguments[key] = value
    for key in names[:required]:
        if key not in arguments:
            raise CannotCross("TypeError", f"{name}() missing its argument '{key}'")
    return arguments


def label(field: str, value: object) -> str:
    """Return a valid kind or tag."""
    if not isinstance(value, str):
        raise CannotCross("TypeError", f"{field} must be a string, not {type(value).__name__}")
    if not 1 <= len(value) <= MAX_NAME:
        raise CannotCross("ValueError", f"{field} must have 1 to {MAX_NAME} characters, not {len(value)}")
    if field == "kind" and not _KIND.fullmatch(value):
        raise CannotCross("ValueError", "kind must consist of letters, digits and . _ / -")
    return str(coming_out(value, field))


def _check_awaited(name: str, site: CallSite) -> None:
    if site.is_async and site.discarded:
        raise CannotCross("RuntimeError", f"{name}() is never awaited: in an async flow write `await {name}(…)`")


def _raising(error: str, message: str) -> Settled:
    return {"exc_type": error, "message": message}  # type: ignore[typeddict-item]  # all names above are known to it


# The engine passes these objects out as text. Only the engine produces these forms, except for the last two: such a string is a
# mistake, not data.
_SHOWN = re.compile(
    r"<(?:coroutine [^<>\n]*|function '[^'\n]*' (?:at 0x[0-9a-f]+|external)|gather\(\d+\)|module '[^'\n]*'|\w+ object)>"
    r"|dict_(?:keys|values|items)\(.*\)|\[\.\.\.\]|\{\.\.\.\}",  # a list or dictionary inside itself
    re.DOTALL,
)


def coming_out(value: Any, where: str) -> Any:
    """Return a flow's value as JSON; ``CannotCross`` names the place under ``where``."""
    return crossing(value, where, _check_text)


def _check_text(value: str) -> str:
    check_unicode(value)
    if value[:1] in ("<", "d", "[", "{") and _SHOWN.fullmatch(value):
        hint = "; is an `await` missing?" if value.startswith("<coroutine") else ""
        raise CannotCross("TypeError", f"is {value[:80]}, which cannot cross{hint}")
    return value
