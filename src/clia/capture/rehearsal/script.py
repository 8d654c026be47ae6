"""The script of a rehearsal: a JSON list of steps, each an object with one verb (see ``VERBS``).

Invariant: a script that is read is one that can be played: every step's verb and fields are known and of the right type, and
every path stays inside the working directory and out of ``.git``.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
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


class _ScriptVerb(NamedTuple):
    """The types of a verb's value, and the types of its other fields."""

    value: tuple[type, ...]
    required: Mapping[str, type] = {}
    optional: Mapping[str, type] = {}


_TEXT, _NUMBER, _ABOUT = _ScriptVerb((str,)), _ScriptVerb((int,)), _ScriptVerb((str,), optional={"about": str})
VERBS: Mapping[str, _ScriptVerb] = {
    "prompt": _TEXT,  # a person asks for something; a turn begins
    "say": _TEXT,
    "think": _TEXT,
    "read": _TEXT,  # the tool fails if the file does not exist
    "write": _ScriptVerb((str,), {"text": str}),
    "edit": _ScriptVerb((str,), {"old": str, "new": str}),  # the tool fails if the file does not contain the old text
    "bash": _ABOUT,  # a command, run in the working directory
    "fail": _ABOUT,  # a command that must fail
    "subagent": _ScriptVerb((str,), {"task": str, "steps": list}, {"about": str, "parallel": bool}),  # parallel ones take turns
    "stop": _ScriptVerb((bool, str)),  # the turn ends; a text is the model's error
    "compact": _ScriptVerb((str,), optional={"summary": str}),  # auto or manual
    "end": _TEXT,  # the reason
    # The number makes the ids differ from those of other starts. As the first step of a script, these continue an earlier
    # rehearsal of the same seed; any other script begins with a new session.
    "resume": _NUMBER,
    "fork": _NUMBER,
    "miss": _NUMBER,  # the next hooks are not run
    "lag": _NUMBER,  # the transcript's lines of the next steps are written after the last of them
    "truncated": _NUMBER,  # the next hooks get the first half of their JSON
    "unknown-event": _ScriptVerb((str,), optional={"fields": dict}),
    "unknown-line": _ScriptVerb((dict, list, str, int)),  # text is written as it is
    "crash": _ScriptVerb((bool,)),  # the tool is killed (kill -9)
}
_OF_SESSIONS = frozenset(("prompt", "subagent", "stop", "compact", "end", "resume", "fork", "unknown-event", "crash"))
_MAX = 100_000


def parse(value: object, *, where: str = "", by_sub_agent: bool = False) -> tuple[ScriptStep, ...]:
    """Parse a JSON value into steps; ``ScriptError`` names the first invalid one."""
    if not isinstance(value, list):
        raise ScriptError(where, "a list of steps is needed")
    return tuple(_step(step, f"{where}[{index}]", by_sub_agent) for index, step in enumerate(value))


def _step(step: object, where: str, by_sub_agent: bool) -> ScriptStep:
    if not isinstance(step, dict):
        raise ScriptError(where, "a step is an object")
    verbs = [name for name in step if name in VERBS]
    if len(verbs) != 1:
        raise ScriptError(where, f"a step has one verb, not {', '.join(verbs) or 'none'}: one of {', '.join(VERBS)}")
    name = verbs[0]
    if by_sub_agent and name in _OF_SESSIONS:
        raise ScriptError(where, f"a sub-agent has no {name}")
    arguments = dict(step)
    value = arguments.pop(name)
    problem = _type_problem(name, value, arguments) or _value_problem(name, value)
    if problem:
        raise ScriptError(where, problem)
    steps = parse(arguments.pop("steps", []), where=f"{where}.steps", by_sub_agent=True)
    return ScriptStep(name, value, where, arguments, steps)


def _type_problem(name: str, value: object, arguments: Mapping[str, object]) -> str:
    verb = VERBS[name]
    if not isinstance(value, verb.value) or (isinstance(value, bool) and bool not in verb.value):
        return f"{name} takes {' or '.join(kind.__name__ for kind in verb.value)}"
    fields = {**verb.required, **verb.optional}
    for key, field in arguments.items():
        if key not in fields:
            return f"{name} has no field {key}"
        if not isinstance(field, fields[key]):
            return f"{key} of {name} must be {fields[key].__name__}"
    missing = [key for key in verb.required if key not in arguments]
    return f"{name} needs {', '.join(missing)}" if missing else ""


def _value_problem(name: str, value: Any) -> str:
    match name:
        case "read" | "write" | "edit" if not _inside(value):
            return f"{value!r} is not a path inside the working directory"
        case "resume" | "fork" | "miss" | "lag" | "truncated" if not 1 <= value <= _MAX:
            return f"{name} takes a number from 1 on"
        case "compact" if value not in ("auto", "manual"):
            return "compact takes auto or manual"
        case "stop" | "crash" if value is False:
            return f"{name} takes true"
        case "subagent" | "end" | "unknown-event" if not value:
            return f"{name} needs a name"
    return ""


def _inside(path: str) -> bool:
    return "\0" not in path and not any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/"))


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


def story(directory: str = "durations") -> list[dict[str, Any]]:
    """The default script, for files in this directory."""
    parser = f"{directory}/parser.py"
    run, about = f"python3 -B {directory}/test_parser.py", "Run the tests"
    writer = [
        {"read": parser},
        {"write": f"{directory}/README.md", "text": _README},
        {"say": f"{directory}/README.md tells what is understood, in three lines."},
    ]
    reviewer = [
        {"think": "What is not a number before a unit? An empty one, and a sign."},
        {"bash": f"grep -n 'int(number)' {parser}", "about": "Find where numbers are read"},
        {"read": f"{directory}/missing.py"},
        {"say": "One finding: a unit without a number, as in 'h', ends in a ValueError that does not name the text."},
    ]
    write = f"Write {directory}/README.md: what the parser understands, in a few lines."
    review = f"Review {parser}. Change nothing; tell me what can go wrong."
    summary = "The parser of durations and its tests are written and pass. A review found one vague error."
    old = "            total += int(number) * UNITS[char]\n"
    new = '            if not number:\n                raise ValueError(f"no number before {char!r} in {text!r}")\n' + old
    return [
        {"prompt": "Write a small parser for durations like 2h30m, with tests."},
        {"think": "A table of units and one pass over the text will do. The tests should say what fails."},
        {"say": "I write the parser first, then tests that also try a blank between hours and minutes."},
        {"bash": f"ls -d {directory}", "about": "See where it goes"},
        {"write": parser, "text": _PARSER},
        {"write": f"{directory}/test_parser.py", "text": _TESTS},
        {"fail": run, "about": about},
        {"say": "A blank between hours and minutes is not understood. I let the parser pass over it."},
        {"read": parser},
        {"edit": parser, "old": "        else:\n", "new": "        elif not char.isspace():\n"},
        {"bash": run, "about": about},
        {"say": "All four cases pass now."},
        {"stop": True},
        {"prompt": "Have it reviewed, and write a short README."},
        {"say": "Two can work on this at once: one writes, one reviews."},
        {"subagent": "general-purpose", "about": "Write the README", "task": write, "steps": writer, "parallel": True},
        {"subagent": "code-reviewer", "about": "Review the parser", "task": review, "steps": reviewer, "parallel": True},
        {"compact": "auto", "summary": summary},
        {"think": "The finding is right: the error should name the text."},
        {"edit": parser, "old": old, "new": new},
        {"bash": run, "about": about},
        {"say": "The README is written, and a unit without a number is now refused with the text in the message."},
        {"stop": True},
        {"end": "prompt_input_exit"},
    ]
