"""What a flow may call outside of itself, and what it is told where it may not.

Invariant: a call either becomes a ``Call`` that waits for an answer, or gets a reply at once that depends on nothing but the
call itself, so that a replay comes to the same. The words of a reply are part of what a flow can see: whoever changes one
raises ``RULES`` of the engine.
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

SLEEPS = ("time.sleep", "asyncio.sleep")
_KIND = re.compile(r"[A-Za-z0-9._/-]+", re.ASCII)
_SIGNATURES: dict[str, tuple[tuple[str, ...], int]] = {
    REQUEST: (("kind", "payload", "tag"), 1),
    SUSPEND: (("tag", "payload"), 1),
}
_DENIED = {
    "os.getenv": "a flow has no environment",
    "os.environ": "a flow has no environment",
    "os.urandom": "a flow has no randomness but the module random",
}


class ImmediateReply(NamedTuple):
    """A reply at once, without a call that anyone hears of."""

    reply: Settled


class CallSite(NamedTuple):
    """Where a call stands in the flow's text."""

    line: int
    is_async: bool  # the flow, not the place
    discarded: bool  # the call is a statement of its own


def read_call(snapshot: FunctionSnapshot, site: CallSite) -> FlowCall | ImmediateReply:
    """What to do about a call that has left the sandbox."""
    name = str(snapshot.function_name)
    try:
        if snapshot.is_os_function:
            return _of_the_system(name, snapshot, site)
        if name not in _SIGNATURES:
            return _raising("NameError", _unknown(name))
        _check_awaited(name, site)
        return _asked(name, snapshot, site)
    except CannotCross as refused:
        return _raising(refused.error, refused.problem)


def _of_the_system(name: str, snapshot: FunctionSnapshot, site: CallSite) -> FlowCall | ImmediateReply:
    if name in SLEEPS:
        return _sleep(name, snapshot, site)
    if name == "import":
        return _raising("ModuleNotFoundError", f"No module named '{snapshot.args[0]}'")
    return _raising("PermissionError", f"{name}: {_DENIED.get(name, 'a flow has no files')}")


def _sleep(name: str, snapshot: FunctionSnapshot, site: CallSite) -> FlowCall | ImmediateReply:
    seconds = float(snapshot.args[0])
    if name == "time.sleep" and site.is_async:
        raise CannotCross("RuntimeError", "time.sleep() would hold up everything else: write `await asyncio.sleep(…)`")
    if name == "asyncio.sleep":
        _check_awaited(name, site)
    if seconds <= 0:
        return ImmediateReply({"return_value": None})
    return FlowCall(snapshot.call_id + 1, TIMER, None, {"seconds": coming_out(seconds, SLEEP)}, site.line)


def _asked(name: str, snapshot: FunctionSnapshot, site: CallSite) -> FlowCall:
    given = bound_arguments(name, snapshot.args, snapshot.kwargs)
    tag = None if given.get("tag") is None and name == REQUEST else label("tag", given["tag"])
    kind = label("kind", given["kind"]) if name == REQUEST else SUSPEND
    return FlowCall(snapshot.call_id + 1, kind, tag, coming_out(given.get("payload"), "payload"), site.line)


def bound_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, as a Python function with this signature would take them."""
    names, required = _SIGNATURES[name]
    if len(args) > len(names):
        raise CannotCross(
            "TypeError", f"{name}() takes at most {len(names)} arguments ({', '.join(names)}), {len(args)} were given"
        )
    given = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key not in names:
            raise CannotCross("TypeError", f"{name}() got an unexpected keyword argument '{key}'; it takes {', '.join(names)}")
        if key in given:
            raise CannotCross("TypeError", f"{name}() got multiple values for argument '{key}'")
        given[key] = value
    for key in names[:required]:
        if key not in given:
            raise CannotCross("TypeError", f"{name}() missing its argument '{key}'")
    return given


def label(field: str, value: object) -> str:
    """A kind or a tag as it may be."""
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


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _SIGNATURES, n=1)
    return f"name '{name}' is not defined" + (f". Did you mean: '{close[0]}'?" if close else "")


def _raising(error: str, message: str) -> ImmediateReply:
    return ImmediateReply({"exc_type": error, "message": message})  # type: ignore[typeddict-item]  # the names above are all known to it


# The engine hands these out as text, in a form that is its own but for the last. A whole string of it is a mistake, not data.
_SHOWN = re.compile(
    r"<(?:coroutine [^<>\n]*|function '[^'\n]*' (?:at 0x[0-9a-f]+|external)|gather\(\d+\)|module '[^'\n]*'|\w+ object)>"
    r"|dict_(?:keys|values|items)\(.*\)|\[\.\.\.\]|\{\.\.\.\}",  # and a list or a dictionary inside itself
    re.DOTALL,
)


def coming_out(value: Any, where: str) -> Any:
    """A value that a flow made, as JSON; ``CannotCross`` names the place under ``where``."""
    return crossing(value, where, _text_of_a_flow)


def _text_of_a_flow(value: str) -> str:
    check_unicode(value)
    if value[:1] in ("<", "d", "[", "{") and _SHOWN.fullmatch(value):
        hint = "; is an `await` missing?" if value.startswith("<coroutine") else ""
        raise CannotCross("TypeError", f"is {value[:80]}, which cannot cross{hint}")
    return value
