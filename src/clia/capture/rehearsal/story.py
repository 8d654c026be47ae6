"""The story that a rehearsal tells when it is given no script: a parser of durations, and its tests.

Invariant: it prints and writes the same every time, wherever it is played: no output has a time or a place in it. It writes
into a directory of its own only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    """The script, for files in a directory of the working directory."""
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
