"""Arguments of listed programs: which ones a flow may pass.

Invariant: a program that runs others (a shell, an interpreter, a wrapper such as `env`) does not become any program by its
arguments. It runs only with a script of its own in ``run``, or with the arguments that the operator listed.
"""

from __future__ import annotations

from clia.errors import NotAllowed
from clia.rules.command_lines import SimpleCommand, program_name
from clia.rules.model import INTERPRETERS, SHELLS, WRAPPERS
from clia.rules.patterns import command_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.facade.config import ProgramRule

_TAKES_VALUE = frozenset(("-X", "-W", "-o", "+o", "-O", "--rcfile", "--init-file", "-r", "--require", "-I", "-M"))


def bare_program(rule: ProgramRule) -> str | None:
    """The program of a rule that would run whatever a flow passes; None if it is limited."""
    if rule.arguments is not None:
        return None
    name = program_name(rule.run[0])
    if name in WRAPPERS:
        return name
    return name if (name in SHELLS or name in INTERPRETERS) and not _has_script(rule.run[1:]) else None


def _has_script(words: Sequence[str]) -> bool:
    """Whether arguments name what an interpreter runs: a file, a module or a text."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _TAKES_VALUE:
            skip = True
        elif not word.startswith(("-", "+")):
            return True
    return False


def how_to_limit(name: str, program: str) -> str:
    """The problem with a bare program, and what to write."""
    return (
        f"the program {name!r} is {program}, which runs any other program that it is passed; list its arguments: "
        f'[effects.command.programs.{name}] arguments = ["…"], or a script in run'
    )


def check_arguments(name: str, rule: ProgramRule, arguments: Sequence[str]) -> None:
    """Raise ``NotAllowed`` if a program may not be run with these arguments."""
    program = bare_program(rule)
    fields = {"program": name, "args": list(arguments)}
    if program is not None:
        message = f"command: {how_to_limit(name, program)}"
        hints = [f'as before, for any arguments: [effects.command.programs.{name}] arguments = ["*"]']
        raise NotAllowed(message, code="program-needs-arguments", hints=hints, fields=fields)
    command = SimpleCommand((name, *arguments))
    if rule.arguments is not None and arguments and not any(_fits(pattern, command) for pattern in rule.arguments):
        hints = [f"it takes: {', '.join(rule.arguments) or 'none'}"]
        raise NotAllowed(f"command: {name} does not take these arguments", code="arguments-not-listed", hints=hints, fields=fields)


def _fits(pattern: str, command: SimpleCommand) -> bool:
    # The arguments are compared after a program that is not a wrapper.
    return command_matches(f"program {pattern}", command._replace(words=("program", *command.words[1:])))
