"""Rules that can never match: they parse, and no action is what they describe.

Invariant: a rule that is named here matches nothing, whatever an agent does. The reverse does not hold: whether a file or program
exists is not looked up.
"""

from __future__ import annotations

import re
import shlex

from clia.rules.command_lines import program_name
from clia.rules.evaluation import EDIT_TOOLS, SHELL_TOOLS
from clia.rules.model import ALLOW, RUNS_OTHERS, TOOL
from clia.rules.patterns import REST, pattern_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clia.rules.model import GuardrailRule

_OPERATORS = frozenset("|&;<>()")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_KIND = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_REF = "refs/heads/"


def never_matches(rule: GuardrailRule) -> str | None:
    """Why no action can match a rule; None if one may."""
    if rule.problem:
        return None  # it asks about everything
    return next(_reasons(rule), None)


def _reasons(rule: GuardrailRule) -> Iterator[str]:
    allows, match = rule.do == ALLOW, rule.match
    tools = [tool.casefold() for tool in match.tool]
    yield from _all(match.command, lambda pattern: _command_problem(pattern, allows=allows))
    yield from _all(match.paths, lambda pattern: _path_problem(pattern, allows=allows))
    yield from _all(match.branch, _branch_problem)
    yield from _all(match.kind, _kind_problem)
    if match.command and tools and all(tool in EDIT_TOOLS for tool in tools):
        yield f"{match.tool[0]} runs no commands: leave out `command` or name a shell, such as Bash"
    if not allows or tuple(rule.on) != (TOOL,):
        return
    is_of_shells = bool(match.command) or (bool(tools) and all(tool in SHELL_TOOLS for tool in tools))
    if match.paths and is_of_shells:
        yield "no command line says all files that it uses, so `allow` with `paths` matches no shell: leave out `paths`"
    if match.command and tools and not any(_may_be_a_shell(tool) for tool in tools):
        yield f"an allowed `command` is one of a shell, and {match.tool[0]} is none: name Bash"


def _all(patterns: Sequence[str], problem: Callable[[str], str | None]) -> Iterator[str]:
    """The first problem, if every pattern has one: one that can match is enough for the rule."""
    problems = [reason for pattern in patterns if (reason := problem(pattern)) is not None]
    if problems and len(problems) == len(patterns):
        yield problems[0]


def _command_problem(pattern: str, *, allows: bool) -> str | None:
    words = pattern_words(pattern)
    operator = next((token for token in _tokens(pattern) if token and set(token) <= _OPERATORS), None)
    if operator is not None:
        return f"each command of a line is matched by itself, so none has {operator!r}: state the commands one by one"
    if words and _ASSIGNMENT.match(words[0]):
        return f"{words[0]!r} sets a variable and is no part of the command: begin with the program"
    if not allows:
        return None
    if len(words) == 2 and words[1] == REST and program_name(words[0]) in RUNS_OTHERS:
        return f"{words[0]} runs other programs, so `allow` must state which: add arguments before the `*`"
    if "$" in pattern or "`" in pattern:
        return "only the shell knows what a variable is, so `allow` never matches one: write the value"
    return None


def _tokens(pattern: str) -> list[str]:
    reader = shlex.shlex(pattern, posix=False, punctuation_chars="".join(sorted(_OPERATORS)))
    reader.whitespace_split, reader.commenters = True, ""
    try:
        return list(reader)
    except ValueError:  # an unbalanced quote: its words are taken as they are
        return []


def _path_problem(pattern: str, *, allows: bool) -> str | None:
    parts = pattern.replace("\\", "/").split("/")
    if all(part in ("", ".") for part in parts):
        return f"{pattern!r} names no file: for every file, leave out `paths` or write `**`"
    if allows and ("\\" in pattern or any(part in (".", "..") for part in parts)):
        return f"`allow` matches paths as they are, from the top of the repository: write {pattern!r} without `.`, `..` and `\\`"
    return None


def _branch_problem(pattern: str) -> str | None:
    if pattern.startswith(_REF):
        return f"branches are matched by their short names: write {pattern.removeprefix(_REF)!r}"
    return None


def _kind_problem(pattern: str) -> str | None:
    if _KIND.fullmatch(pattern):
        return None
    return f"{pattern!r} is no kind of commit: kinds are lowercase words with hyphens, and wildcards do not apply to them"


def _may_be_a_shell(pattern: str) -> bool:
    return pattern in SHELL_TOOLS or any(character in pattern for character in "*?[")
