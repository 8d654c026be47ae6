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


class ScriptStep(NamedTuple):
    verb: str
    value: Any
    where: str
    more: Mapping[str, Any] = {}
    steps: tuple[ScriptStep, ...] = ()


class _Verb(NamedTuple):
    """The types of a verb's value, and its other fields with type and whether they are required."""

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


def parse(given: object, *, where: str = "", by_sub_agent: bool = False) -> tuple[ScriptStep, ...]:
    """Parse a JSON value into steps; ``ScriptError`` names the first invalid one."""
    if not isinstance(given, list):
        raise ScriptError(where, "a list of steps is needed")
    return tuple(_step(each, f"{where}[{place}]", by_sub_agent) for place, each in enumerate(given))


def _step(given: object, where: str, by_sub_agent: bool) -> ScriptStep:
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
    return ScriptStep(name, value, where, more, steps)


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
        raise ScriptError(where, f"{value!r} is not a path inside the working directory")
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


# The default script: a parser of durations and its tests. It prints and writes the same every time, in its own directory.

_PARSER = '''"""Durations as people write them: 90m, 1h, 2h30m."""

UNITS = {"h": 60, "m": 1}


def minutes(text):
    total = 0
    number = ""
    for char in text:
        if char.isdigit():
            number += char
        else:
            total += int(number) * UNITS[char]
            number = ""
    return total
'''
_TESTS = '''"""Run me: I say what fails, and how many passed."""

import sys

from parser import minutes

CASES = {"90m": 90, "1h": 60, "2h30m": 150, "1h 15m": 75}


def outcome(text, expected):
    try:
        found = minutes(text)
    except (KeyError, ValueError) as error:
        found = type(error).__name__
    return [] if found == expected else [f"FAIL {text!r}: {found}, not {expected}"]


failures = [line for text, expected in CASES.items() for line in outcome(text, expected)]
print("\\n".join([*failures, f"{len(CASES) - len(failures)} of {len(CASES)} passed"]))
sys.exit(bool(failures))
'''
_README = """# Durations

`minutes("2h30m")` is 150. Hours and minutes are known, and blanks between them do not count.
"""
_RUN = "python3 -B {0}/test_parser.py"
_RUN_ABOUT = "Run the tests"


def story(directory: str = "durations") -> list[dict[str, Any]]:
    """The default script, for files in this directory."""
    return [*_first_turn(directory), *_second_turn(directory), {"end": "prompt_input_exit"}]


def _first_turn(place: str) -> list[dict[str, Any]]:
    run = {"bash": _RUN.format(place), "about": _RUN_ABOUT}
    return [
        {"prompt": "Write a small parser for durations like 2h30m, with tests."},
        {"think": "A table of units and one pass over the text will do. The tests should say what fails."},
        {"say": "I write the parser first, then tests that also try a blank between hours and minutes."},
        {"bash": f"ls -d {place}", "about": "See where it goes"},
        {"write": f"{place}/parser.py", "text": _PARSER},
        {"write": f"{place}/test_parser.py", "text": _TESTS},
        {"fail": run["bash"], "about": _RUN_ABOUT},
        {"say": "A blank between hours and minutes is not understood. I let the parser pass over it."},
        {"read": f"{place}/parser.py"},
        {"edit": f"{place}/parser.py", "old": "        else:\n", "new": "        elif not char.isspace():\n"},
        run,
        {"say": "All four cases pass now."},
        {"stop": True},
    ]


def _second_turn(place: str) -> list[dict[str, Any]]:
    writer = [
        {"read": f"{place}/parser.py"},
        {"write": f"{place}/README.md", "text": _README},
        {"say": f"{place}/README.md tells what is understood, in three lines."},
    ]
    reviewer = [
        {"think": "What is not a number before a unit? An empty one, and a sign."},
        {"bash": f"grep -n 'int(number)' {place}/parser.py", "about": "Find where numbers are read"},
        {"read": f"{place}/missing.py"},
        {"say": "One finding: a unit without a number, as in 'h', ends in a ValueError that does not name the text."},
    ]
    old = "            total += int(number) * UNITS[char]\n"
    new = '            if not number:\n                raise ValueError(f"no number before {char!r} in {text!r}")\n' + old
    return [
        {"prompt": "Have it reviewed, and write a short README."},
        {"say": "Two can work on this at once: one writes, one reviews."},
        {
            "subagent": "general-purpose",
            "about": "Write the README",
            "task": f"Write {place}/README.md: what the parser understands, in a few lines.",
            "steps": writer,
            "parallel": True,
        },
        {
            "subagent": "code-reviewer",
            "about": "Review the parser",
            "task": f"Review {place}/parser.py. Change nothing; tell me what can go wrong.",
            "steps": reviewer,
            "parallel": True,
        },
        {
            "compact": "auto",
            "summary": "The parser of durations and its tests are written and pass. A review found one vague error.",
        },
        {"think": "The finding is right: the error should name the text."},
        {"edit": f"{place}/parser.py", "old": old, "new": new},
        {"bash": _RUN.format(place), "about": _RUN_ABOUT},
        {"say": "The README is written, and a unit without a number is now refused with the text in the message."},
        {"stop": True},
    ]
