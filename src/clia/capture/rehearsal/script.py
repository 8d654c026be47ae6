"""What a script may say.

Invariant: a script that is read is one that can be played: every step's verb and fields are known and of the right type, and
every path stays inside the working directory and out of ``.git``.

A script is a JSON list of steps, and a step an object with one verb. What a tool does:

- ``{"prompt": TEXT}``: a person asks for something; a turn begins
- ``{"say": TEXT}``, ``{"think": TEXT}``: what the model says, and what it thinks
- ``{"read": PATH}``, ``{"write": PATH, "text": TEXT}``, ``{"edit": PATH, "old": TEXT, "new": TEXT}``: as the tools do; a file that
  is not there, or an old text that does not stand in it, is a failure of the tool
- ``{"bash": COMMAND, "about": TEXT}``: runs in the working directory; a code other than 0 is what the tool makes of it
- ``{"fail": COMMAND}``: the same, and it must fail
- ``{"subagent": TYPE, "task": TEXT, "about": TEXT, "steps": [STEP…], "parallel": true}``: a sub-agent with steps of its own (say,
  think, read, write, edit, bash, fail, miss, lag, truncated, unknown-line); neighbours that are ``parallel`` take turns by steps
- ``{"stop": true}``: the turn ends; ``{"stop": "rate_limit"}``: it ends with that error of the model's
- ``{"compact": "auto"}`` or ``"manual"``, with ``"summary": TEXT``: the conversation is cut short
- ``{"end": REASON}``: the session ends
- ``{"resume": N}``: the session is started again; ``{"fork": N}``: a copy of it goes on under another id. N makes the ids that
  follow differ from those of other starts. As a script's first step they go on with an earlier rehearsal of the same seed;
  any other script begins with a new session

What goes wrong:

- ``{"miss": N}``: the next N hooks are not run; ``{"truncated": N}``: the next N hooks get only the first half of their JSON
- ``{"lag": N}``: the transcript's lines of the next N steps come only after the last of them
- ``{"unknown-event": NAME, "fields": {…}}``: a hook of an event that nobody knows; ``{"unknown-line": VALUE}``: a line that nobody
  knows; text goes into the transcript as it is
- ``{"crash": true}``: the tool is killed at once (kill -9)
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class ScriptError(ValueError):
    """A script that cannot be played; ``where`` names the step."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class Step(NamedTuple):
    verb: str
    value: Any
    where: str
    more: Mapping[str, Any] = {}
    steps: tuple[Step, ...] = ()


class _Verb(NamedTuple):
    """The types of a verb's value, and its other fields, each with its type and whether it must be there."""

    takes: tuple[type, ...]
    fields: Mapping[str, tuple[type, bool]] = {}
    by_sub_agents: bool = True


_TEXT, _NUMBER, _FLAG = (str,), (int,), (bool,)
_SUB_AGENT = {"task": (str, True), "about": (str, False), "steps": (list, True), "parallel": (bool, False)}
VERBS: Mapping[str, _Verb] = {
    "prompt": _Verb(_TEXT, by_sub_agents=False),
    "say": _Verb(_TEXT),
    "think": _Verb(_TEXT),
    "read": _Verb(_TEXT),
    "write": _Verb(_TEXT, {"text": (str, True)}),
    "edit": _Verb(_TEXT, {"old": (str, True), "new": (str, True)}),
    "bash": _Verb(_TEXT, {"about": (str, False)}),
    "fail": _Verb(_TEXT, {"about": (str, False)}),
    "subagent": _Verb(_TEXT, _SUB_AGENT, by_sub_agents=False),
    "stop": _Verb((bool, str), by_sub_agents=False),
    "compact": _Verb(_TEXT, {"summary": (str, False)}, by_sub_agents=False),
    "end": _Verb(_TEXT, by_sub_agents=False),
    "resume": _Verb(_NUMBER, by_sub_agents=False),
    "fork": _Verb(_NUMBER, by_sub_agents=False),
    "miss": _Verb(_NUMBER),
    "lag": _Verb(_NUMBER),
    "truncated": _Verb(_NUMBER),
    "unknown-event": _Verb(_TEXT, {"fields": (dict, False)}, by_sub_agents=False),
    "unknown-line": _Verb((dict, list, str, int)),
    "crash": _Verb(_FLAG, by_sub_agents=False),
}
_PATHS = ("read", "write", "edit")
_MAX = 100_000


def parse(given: object, *, where: str = "", by_sub_agent: bool = False) -> tuple[Step, ...]:
    """The steps that a JSON value says; ``ScriptError`` names the first that cannot be played."""
    if not isinstance(given, list):
        raise ScriptError(where, "a list of steps is needed")
    return tuple(_step(each, f"{where}[{place}]", by_sub_agent) for place, each in enumerate(given))


def _step(given: object, where: str, by_sub_agent: bool) -> Step:
    if not isinstance(given, dict):
        raise ScriptError(where, "a step is an object")
    verbs = [name for name in given if name in VERBS]
    if len(verbs) != 1:
        raise ScriptError(where, f"a step has one verb, not {', '.join(verbs) or 'none'}: one of {', '.join(VERBS)}")
    name, known = verbs[0], VERBS[verbs[0]]
    if by_sub_agent and not known.by_sub_agents:
        raise ScriptError(where, f"a sub-agent has no {name}")
    value, more = given[name], {key: each for key, each in given.items() if key != name}
    _check_types(name, known, value, more, where)
    _check_value(name, value, where)
    steps = parse(more.pop("steps", []), where=f"{where}.steps", by_sub_agent=True)
    return Step(name, value, where, more, steps)


def _check_types(name: str, known: _Verb, value: object, more: Mapping[str, object], where: str) -> None:
    if not isinstance(value, known.takes) or (isinstance(value, bool) and bool not in known.takes):
        raise ScriptError(where, f"{name} takes {' or '.join(each.__name__ for each in known.takes)}")
    for key, found in more.items():
        if key not in known.fields:
            raise ScriptError(where, f"{name} has no field {key}")
        if not isinstance(found, known.fields[key][0]):
            raise ScriptError(where, f"{key} of {name} must be {known.fields[key][0].__name__}")
    lacking = [key for key, (_, needed) in known.fields.items() if needed and key not in more]
    if lacking:
        raise ScriptError(where, f"{name} needs {', '.join(lacking)}")


def _check_value(name: str, value: Any, where: str) -> None:
    if name in _PATHS and not _inside(value):
        raise ScriptError(where, f"{value!r} is no path inside the working directory")
    if name in ("resume", "fork", "miss", "lag", "truncated") and not 1 <= value <= _MAX:
        raise ScriptError(where, f"{name} takes a number from 1 on")
    if name == "compact" and value not in ("auto", "manual"):
        raise ScriptError(where, "compact takes auto or manual")
    if name in ("stop", "crash") and value is False:
        raise ScriptError(where, f"{name} takes true")
    if name in ("subagent", "end", "unknown-event") and not value:
        raise ScriptError(where, f"{name} needs a name")


def _inside(path: str) -> bool:
    parts: Sequence[str] = path.split("/")
    return bool(path) and "\0" not in path and not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
