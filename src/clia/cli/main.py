"""The console program: finds the command, runs it, turns errors into exit codes.

Exit codes: 0 done, 1 refused or findings, 2 bad input.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

from clia import __version__
from clia.cli.output import show_error, speak_utf8, write
from clia.cli.registry import ALSO, TREE, Command, Group
from clia.errors import CliaError, FileError, InvalidInput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

DONE, REFUSED, BAD_INPUT = 0, 1, 2
_AGENT_PROGRAM = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)-agent-cli")


def entry_point() -> int:
    """What the installed programs run. A link named ``<slug>-agent-cli`` is that agent's own program."""
    name = os.path.basename(sys.argv[0])
    agent = _AGENT_PROGRAM.fullmatch(name)
    if agent and agent.group(1) != "clia":
        from clia.cli.agent_program import agent_cli

        slug = agent.group(1)
        return guarded(sys.argv[1:], lambda: agent_cli(slug)(sys.argv[1:]))
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    return guarded(argv, lambda: run_group(list(argv), TREE, "clia"))


def guarded(argv: Sequence[str], run: Callable[[], int]) -> int:
    """Runs a command; the one place where an error becomes what a person sees and an exit code."""
    speak_utf8()
    as_json = "--json" in own_words(argv)
    try:
        return run()
    except CliaError as error:
        show_error(error, as_json=as_json)
        return BAD_INPUT if isinstance(error, (InvalidInput, NotFound)) else REFUSED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader went away (`clia … | head`); what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:  # no working directory, a full disk behind standard output
        show_error(FileError(str(error)), as_json=as_json)
        return REFUSED
    except UnicodeError:
        show_error(InvalidInput("a name or text is not Unicode", code="invalid-text"), as_json=as_json)
        return BAD_INPUT
    except Exception as error:  # the last line of defence: people get a sentence, not a traceback
        if os.environ.get("CLIA_DEBUG"):
            raise
        hints = ["please report it; CLIA_DEBUG=1 shows where it happened"]
        show_error(CliaError(f"a bug in clia: {type(error).__name__}: {error}", code="bug", hints=hints), as_json=as_json)
        return REFUSED


def run_group(words: list[str], group: Group, program: str, slug: str | None = None) -> int:
    name = words[0] if words else ""
    name = ALSO.get(name, name)
    found = group.commands.get(name)
    if found is None:
        return _no_command(words, group, program)
    if isinstance(found, Group):
        return run_group(words[1:], found, f"{program} {name}", slug)
    return run_command(found, f"{program} {name}", words[1:], slug)


def run_command(command: Command, program: str, words: Sequence[str], slug: str | None = None) -> int:
    parser = new_parser(program, _sentence(command.help))
    module = _load(command)
    module.configure(parser, slug)
    ours = own_words(words) if getattr(module, "RUNS_A_PROGRAM", False) else words
    # Options may stand between names: `clia diff scout --stat main`.
    args = parser.parse_intermixed_args(_joined(parser, ours))
    args.behind_dashes = list(words[len(ours) + 1 :])
    result: int = module.run(args)
    return result


def _joined(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Lets a value start with a dash, as signatures do: ``--signature -CL`` becomes ``--signature=-CL``."""
    actions = parser._actions  # noqa: SLF001  # argparse has no public list of its options
    known = {name for action in actions for name in action.option_strings}
    takes_one = {name for action in actions for name in action.option_strings if action.nargs is None}
    found: list[str] = []
    ours = own_words(words)
    for word in ours:
        if found and found[-1] in takes_one and word.startswith("-") and word.partition("=")[0] not in known:
            found[-1] = f"{found[-1]}={word}"
        else:
            found.append(word)
    return [*found, *words[len(ours) :]]


def own_words(words: Sequence[str]) -> Sequence[str]:
    """The words before ``--``: what comes after it is another program's."""
    return words[: words.index("--")] if "--" in words else words


class Parser(argparse.ArgumentParser):
    """Complains as every other part does: to programs in JSON."""

    def error(self, message: str) -> NoReturn:
        if "--json" in own_words(sys.argv):
            show_error(InvalidInput(message, code="usage", hints=[f"{self.prog} --help"]), as_json=True)
            sys.exit(BAD_INPUT)
        super().error(message)


def new_parser(program: str, description: str) -> argparse.ArgumentParser:
    return Parser(prog=program, description=description, allow_abbrev=False, formatter_class=_formatter)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # argparse makes a formatter for every option, and without a width loads shutil, bz2 and lzma to find one: 3 ms.
    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isascii() and columns.isdigit() else os.get_terminal_size().columns
    except OSError:
        width = 80
    return argparse.HelpFormatter(prog, width=max(width - 2, 40))


def _load(command: Command) -> Any:
    """The command's module, known by its two functions: ``configure`` and ``run``."""
    from importlib import import_module

    return import_module(command.module)


def _no_command(words: list[str], group: Group, program: str) -> int:
    """Help, the version, or a complaint about an unknown command."""
    parser = group_parser(group, program)
    if not words:
        write(parser.format_help())
        return BAD_INPUT
    parser.parse_args(words)  # --help and --version end here, and so does anything unknown
    return DONE


def group_parser(group: Group, program: str) -> argparse.ArgumentParser:
    """A parser that knows a group's commands by name only."""
    parser = new_parser(program, group.help)
    if group is TREE:
        parser.add_argument("--version", action="version", version=f"clia {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in group.commands.items():
        commands.add_parser(name, help=command.help, add_help=False)
    return parser


def full_parser(group: Group = TREE, program: str = "clia") -> argparse.ArgumentParser:
    """A parser with every option of every command: for completion and documentation; loads every command."""
    parser = new_parser(program, group.help)
    if group is TREE:
        parser.add_argument("--version", action="version", version=f"clia {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _fill(commands, group, program)
    return parser


def _fill(commands: argparse._SubParsersAction[argparse.ArgumentParser], group: Group, program: str) -> None:
    for name, command in group.commands.items():
        each = commands.add_parser(name, help=command.help, description=_sentence(command.help), prog=f"{program} {name}")
        if isinstance(command, Group):
            _fill(each.add_subparsers(metavar="COMMAND", required=True), command, f"{program} {name}")
        else:
            _load(command).configure(each, None)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")
