"""Patterns of rules: command lines, files and names.

Invariant: a restricting rule matches generously, an allowing one exactly. Generously: options in any order, spelling and grouping;
a part that only the shell knows could be anything; files without regard to case and to compatible characters. Exactly: word by
word, with everything written out.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache

from clia.rules.command_lines import SimpleCommand, program_name, program_of
from clia.rules.model import RUNS_OTHERS
from clia.rules.shell_scripts import SEVERAL, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

REST = "*"
"""As the last word of a pattern: any further arguments, or none."""
_LETTERS = {
    "all": "a",
    "delete": "d",
    "force": "f",
    "no-verify": "n",
    "recursive": "rR",
    "yes": "y",
}
"""Options that most programs know by a letter, too."""
_SAME_LETTER = {"R": "r"}
_UNKNOWN_MAX = 20


@lru_cache(maxsize=512)
def pattern_words(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(pattern))
    except ValueError:  # an unbalanced quote
        return tuple(pattern.split())


def command_may_match(pattern: str, command: SimpleCommand) -> bool:
    """Whether a command could be what the pattern of a restricting rule describes."""
    program, *arguments = pattern_words(pattern) or ("*",)
    if command.code and program != REST and _mentions(command.code, program):
        return True
    word = command.words[0]
    if word == SEVERAL or command.words == (UNKNOWN,):
        return True  # nothing is known about it
    if not _could_name(program.casefold(), word.casefold()):
        return False
    rest = bool(arguments) and arguments[-1] == REST
    wanted = arguments[:-1] if rest else arguments
    passed = command.words[1:]
    options = [word for word in wanted if _is_option(word)]
    if not all(_has_option(option, passed) for option in options):
        return False
    return _operands_may_match([word for word in wanted if not _is_option(word)], passed, rest=rest)


def _could_name(pattern: str, word: str) -> bool:
    """Whether a word could name the program of a pattern, seen from another directory: `bin/deploy` is also `./deploy`."""
    wanted, steps = _steps(pattern), _steps(word)
    count = min(len(wanted), len(steps))
    return count > 0 and all(map(could_equal, wanted[-count:], steps[-count:]))


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    for step in re.split(r"[/\\]", path.removesuffix(".exe")):
        if step == ".." and steps:
            steps.pop()
        elif step not in ("", ".", "..", "~"):
            steps.append(step)
    return steps


def command_matches(pattern: str, command: SimpleCommand) -> bool:
    """Whether a command is exactly what the pattern of an allowing rule describes."""
    words = pattern_words(pattern)
    if any(UNKNOWN in word for word in command.words):
        return False
    if len(words) > 1 and words[-1] == REST:
        stated = words[:-1]
        if len(stated) == 1 and program_name(stated[0]) in RUNS_OTHERS:
            return False  # the program runs others: an allowance must state arguments
        return len(command.words) >= len(stated) and all(map(_equals, stated, command.words))
    return len(words) == len(command.words) and all(map(_equals, words, command.words))


def _equals(pattern: str, word: str) -> bool:
    return fnmatchcase(word, pattern)


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and word != "--"


def _has_option(option: str, given: Sequence[str]) -> bool:
    """Whether an option is given in any spelling: `-rf` also as `-f -r`, `--force` also as `--force=yes`."""
    if any(
        UNKNOWN in word and could_equal(option, word) and (word.startswith(SEVERAL) or not _is_option(before))
        for before, word in zip(("", *given), given, strict=False)
    ):
        return True
    if any(fnmatchcase(word, option) or fnmatchcase(word.partition("=")[0], option) for word in given):
        return True
    names = [word.partition("=")[0][2:] for word in given if re.match("--[^-]", word)]
    letters = {letter for word in given if re.match("-[^-]", word) for letter in word[1:]}
    if option.startswith("--"):  # also its beginning, and its letter
        long = option[2:]
        return any(long.startswith(name) for name in names) or not letters.isdisjoint(_LETTERS.get(long, ""))
    letters |= {letter for name in names for long, same in _LETTERS.items() if long.startswith(name) for letter in same}
    return {_SAME_LETTER.get(letter, letter) for letter in option[1:]} <= {_SAME_LETTER.get(letter, letter) for letter in letters}


def _operands_may_match(wanted: Sequence[str], given: Sequence[str], *, rest: bool) -> bool:
    """Whether the operands can be the wanted ones in this order. A word after an option may be its value, or an operand."""
    places = {0}  # how many wanted operands are found so far
    after_option = False
    for word in given:
        skippable = word == "--" or _is_option(word)
        reached = set(places) if skippable or after_option else set()
        if not skippable:
            reached |= {at + 1 for at in places if at < len(wanted) and could_equal(wanted[at], word)}
            if rest and len(wanted) in places:
                reached.add(len(wanted))
        if word == UNKNOWN:  # may be several words, or none
            reached |= {further for at in places for further in range(at, len(wanted) + 1)}
        places, after_option = reached, skippable
    return len(wanted) in places


def _mentions(text: str, program: str) -> bool:
    """Whether the text of a program names another program."""
    name = re.escape(program_of(program)).replace(r"\*", r"\S*").replace(r"\?", r"\S")
    return re.search(rf"(?<![\w-]){name}(?![\w-])", text, re.IGNORECASE) is not None


def could_equal(pattern: str, word: str) -> bool:
    """Whether a word with unknown parts could match a pattern with wildcards."""
    if UNKNOWN not in word:
        return fnmatchcase(word, pattern)
    if word.count(UNKNOWN) > _UNKNOWN_MAX:
        return True  # keeps the time bounded
    return _overlap(_tokens(pattern, wild="*", single="?"), _tokens(word, wild=UNKNOWN, single=""))


def _tokens(text: str, *, wild: str, single: str) -> tuple[str, ...]:
    """Characters, with ``**`` for any text and ``??`` for any character. A set of characters counts as any character."""
    plain = re.sub(r"\[[^\]]+\]", "?", text) if single else text
    return tuple("**" if char == wild else "??" if single and char == single else char for char in plain)


def _overlap(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether two patterns have a text in common."""
    reached = [False] * (len(right) + 1)
    reached[0] = True
    for at, char in enumerate(right):
        reached[at + 1] = reached[at] and char == "**"
    for char in left:
        row = [reached[0] and char == "**"]
        for at, other in enumerate(right):
            both = reached[at] and (char == other or "??" in (char, other))
            row.append(reached[at + 1] or row[at] if "**" in (char, other) else both)
        reached = row
    return reached[-1]


def path_may_match(pattern: str, path: str) -> bool:
    """Whether a change to a file, or below a directory that ends in ``/``, is about the files of a pattern.

    As in ``.gitignore``, a pattern matches what is below a directory that it names, and without a slash it matches anywhere.
    """
    wanted, parts = _parts(_anchored(pattern)), _parts(path)
    if any(_path_matches(wanted, parts[:end]) for end in range(1, len(parts) + 1)):
        return True
    if path.endswith("/") or not parts:  # anything below may have changed
        return any(_path_matches(wanted[:end], parts) for end in range(len(wanted)))
    return False


def path_matches(pattern: str, path: str) -> bool:
    """Whether a file is exactly one of a pattern's."""
    return ".." not in path.split("/") and _path_matches(_anchored(pattern).strip("/").split("/"), path.split("/"))


def _anchored(pattern: str) -> str:
    return pattern if "/" in pattern.strip("/") or pattern.startswith("/") else f"**/{pattern.strip('/')}"


def _parts(text: str) -> tuple[str, ...]:
    """The parts of a path without regard to case, width, invisible characters and ``..``."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\\", "/")
    parts: list[str] = []
    for part in plain.split("/"):
        visible = "".join(char for char in part if unicodedata.category(char) != "Cf").rstrip(" .") or part
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", ".", ".."):
            parts.append(visible)
    return tuple(parts)


def _path_matches(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    """``**`` stands for any number of directories, also none; ``*`` for a part of a name."""
    places = {0}
    for part in parts:
        places = _closure(places, wanted)
        places = {at if wanted[at] == "**" else at + 1 for at in places if at < len(wanted) and _part_matches(wanted[at], part)}
        if not places:
            return False
    return len(wanted) in _closure(places, wanted)


def _closure(places: set[int], wanted: Sequence[str]) -> set[int]:
    """The places, and those behind each ``**`` that stands for nothing."""
    closed = set(places)
    for at in sorted(places):
        while at < len(wanted) and wanted[at] == "**":
            at += 1  # noqa: PLW2901  # moves over a run of `**`
            closed.add(at)
    return closed


def _part_matches(pattern: str, part: str) -> bool:
    return pattern == "**" or could_equal(pattern, part)
