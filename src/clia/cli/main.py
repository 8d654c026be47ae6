"""The console program: find the command, run it, and turn errors into exit codes.

Exit codes: 0 success, 1 refused or findings, 2 bad input.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

from clia import __version__
from clia.cli.command import COMMANDS, configure, present_spelling, run
from clia.cli.output import show_error, use_utf8, write
from clia.cli.registry import ALIASES, TREE, Command, Group
from clia.errors import CliaError, FileError, InvalidInput, NotFound, did_you_mean, missing_extra
from clia.verbs import using_channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from clia.cli.command import Definition

DONE, REFUSED, BAD_INPUT = 0, 1, 2
AGENT_COMMANDS = ("profile", "plan", "agency", "journal", "context", "explain")
_UNKNOWN, _QUOTE = "unknown argument", "'"
_PLAIN = {"unrecognized arguments:": _UNKNOWN, "the following arguments are required:": "missing argument"}
"""How argparse starts a message, and how clia does."""
_AGENT_PROGRAM = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)-agent-cli")


def entry_point() -> int:
    """Run the installed program. A link named ``<slug>-agent-cli`` is the program of that identity."""
    name = os.path.basename(sys.argv[0])
    agent = _AGENT_PROGRAM.fullmatch(name)
    if agent and agent.group(1) != "clia":
        return guarded(sys.argv[1:], lambda: agent_cli(agent[1])(None))
    return main(sys.argv[1:])


def agent_cli(slug: str) -> Callable[[Sequence[str] | None], int]:
    """Return the program of one identity, for use as an entry point; ``--slug`` overrides its slug.

    >>> program = agent_cli("cadence")
    >>> program.__name__
    'cadence-agent-cli'
    """
    from clia.values.slugs import check_slug

    check_slug(slug)
    agents = TREE.commands["agents"]
    assert isinstance(agents, Group)  # noqa: S101  # for mypy
    own = Group(f"The identity {slug}.", {name: agents.commands[name] for name in AGENT_COMMANDS})

    def run(argv: Sequence[str] | None = None) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        return guarded(words, lambda: run_group(words, own, run.__name__, slug))

    run.__name__ = run.__qualname__ = f"{slug}-agent-cli"
    return run


def main(argv: Sequence[str]) -> int:
    words = list(argv)
    return guarded(words, lambda: run_group(_without_pager(words), TREE, "clia"))


def _without_pager(words: list[str]) -> list[str]:
    """The words without ``--no-pager``, which may stand anywhere; it is remembered."""
    ours = own_words(words)
    if "--no-pager" not in ours:
        return words
    from clia.cli.pager import turn_off

    turn_off()
    return [*(word for word in ours if word != "--no-pager"), *words[len(ours) :]]


def guarded(argv: Sequence[str], action: Callable[[], int]) -> int:
    """Run a command; the one place where an error becomes a message and an exit code."""
    use_utf8()
    as_json = "--json" in own_words(argv)
    try:
        with using_channel("command-line"):
            return action()
    except CliaError as error:
        show_error(error, as_json=as_json)
        return BAD_INPUT if isinstance(error, (InvalidInput, NotFound)) else REFUSED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader is gone (`clia … | head`): discard what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:  # no working directory, a full disk behind standard output
        show_error(FileError(str(error)), as_json=as_json)
        return REFUSED
    except UnicodeError:
        show_error(InvalidInput("a name or text is not Unicode", code="invalid-text"), as_json=as_json)
        return BAD_INPUT
    except ImportError as error:
        missing = missing_extra(error.name)
        if missing is None:
            return _show_bug(error, as_json=as_json)
        show_error(missing, as_json=as_json)
        return BAD_INPUT
    except Exception as error:  # noqa: BLE001  # people get a message, not a traceback
        return _show_bug(error, as_json=as_json)


def _show_bug(error: Exception, *, as_json: bool) -> int:
    if os.environ.get("CLIA_DEBUG"):
        raise error
    hints = ["please report it; CLIA_DEBUG=1 prints a traceback"]
    show_error(CliaError(f"a bug in clia: {type(error).__name__}: {error}", code="bug", hints=hints), as_json=as_json)
    return REFUSED


def run_group(words: list[str], group: Group, program: str, slug: str | None = None) -> int:
    """Run the command that the words name, of a group. ``slug``: the identity whose own program this is."""
    name = ALIASES.get(words[0], words[0]) if words else ""
    entry = group.commands.get(name)
    if entry is None and not words and group is TREE:
        return _status_or_help()
    if entry is None:
        return _no_command(words, group, program)
    program, words = f"{program} {name}", words[1:]
    if isinstance(entry, Group):
        return run_group(words, entry, program, slug)
    parser = new_parser(program, _sentence(entry.help))
    definition = load(entry)
    configure(definition, parser, slug)
    ours = own_words(words) if definition.runs_program else words
    # Options may stand between names: `clia diff scout --stat main`.
    args = parser.parse_intermixed_args(_joined(parser, present_spelling(definition, ours)))
    args.program_words = list(words[len(ours) + 1 :])
    return run(definition, args)


def _status_or_help() -> int:
    """``clia`` alone: the state of the space here; the list of commands where there is none."""
    try:
        return run_group(["status"], TREE, "clia")
    except NotFound as error:
        if error.code not in ("no-such-repository", "no-such-space"):
            raise
    from clia.cli.help import overview

    write(overview())
    return BAD_INPUT


def _no_command(words: list[str], group: Group, program: str) -> int:
    """Help on a group of commands, or the error for an unknown one."""
    if words and not words[0].startswith("-"):
        names = [*group.commands, *(ALIASES if group is TREE else ())]
        whole = f"{program} {words[0]}"
        message = f"unknown command {whole!r}{did_you_mean(words[0], names)}"
        raise InvalidInput(message, code="unknown-command", hints=[f"list the commands with: {program} --help"])
    if group is TREE and words[:1] != ["--version"] and {"-h", "--help"} & set(words):
        from clia.cli.help import overview

        write(overview())
        return DONE
    parser = group_parser(group, program)
    if words:
        parser.parse_args(words)  # exits: --help, --version or an unknown option
    write(parser.format_help())
    return BAD_INPUT


def command_help(words: Sequence[str]) -> str | None:
    """The help on a command or a group of commands; None if there is none of this name."""
    entry: Command | Group = TREE
    for word in words:
        if not isinstance(entry, Group) or ALIASES.get(word, word) not in entry.commands:
            return None
        entry = entry.commands[ALIASES.get(word, word)]
    program = " ".join(["clia", *words])
    if isinstance(entry, Group):
        return group_parser(entry, program).format_help()
    parser = new_parser(program, _sentence(entry.help))
    configure(load(entry), parser)
    return parser.format_help()


def load(entry: Command) -> Definition:
    """Import the module of a command and return its definition."""
    from importlib import import_module

    import_module(entry.module)
    return COMMANDS[entry.name]


def _joined(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Let a value start with a dash: ``--signature -CL`` becomes ``--signature=-CL``."""
    actions = parser._actions  # noqa: SLF001  # argparse has no public list of its options
    options = {name for action in actions for name in action.option_strings}
    takes_one = {name for action in actions for name in action.option_strings if action.nargs is None}
    joined: list[str] = []
    ours = own_words(words)
    for word in ours:
        if joined and joined[-1] in takes_one and word.startswith("-") and word.partition("=")[0] not in options:
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return [*joined, *words[len(ours) :]]


def own_words(words: Sequence[str]) -> Sequence[str]:
    """The words before ``--``; those after it belong to another program."""
    return words[: words.index("--")] if "--" in words else words


class Parser(argparse.ArgumentParser):
    """Reports usage errors as JSON if ``--json`` is given."""

    def error(self, message: str) -> NoReturn:
        for start, plain in _PLAIN.items():
            if message.startswith(start):
                message = f"{plain} {message.removeprefix(start).strip()}"
        if message.startswith(_UNKNOWN):
            word = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
            options = [name for action in self._actions for name in action.option_strings]
            message += did_you_mean(word, options) if word.startswith("-") else ""
        message = re.sub(r"\(choose from (.*)\)$", lambda match: f"(choose from {match[1].replace(_QUOTE, '')})", message)
        error = InvalidInput(message, code="usage", hints=[f"{self.prog} --help"])
        show_error(error, as_json="--json" in own_words(sys.argv))
        sys.exit(BAD_INPUT)

    def format_help(self) -> str:
        """The help, with an example at its end."""
        from clia.cli.help import EXAMPLES

        example = EXAMPLES.get(self.prog.partition(" ")[2], self.get_default("example"))
        return super().format_help() + (f"\nexample:\n  {example}\n" if example else "")


def new_parser(program: str, description: str) -> argparse.ArgumentParser:
    return Parser(prog=program, description=description, allow_abbrev=False, formatter_class=_formatter)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # argparse makes a formatter for every option; without a width it loads shutil, bz2 and lzma to find one: 3 ms.
    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isascii() and columns.isdigit() else os.get_terminal_size().columns
    except OSError:
        width = 80
    return argparse.HelpFormatter(prog, width=max(width - 2, 40))


def group_parser(group: Group = TREE, program: str = "clia", *, whole: bool = False) -> argparse.ArgumentParser:
    """A parser that knows the names of a group's commands. ``whole``: with their options, which loads every command."""
    parser = new_parser(program, group.help)
    if group is TREE:
        parser.add_argument("--version", action="version", version=f"clia {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if whole:
        _fill(commands, group, program)
    else:
        for name, entry in group.commands.items():
            commands.add_parser(name, help=entry.help, add_help=False)
    return parser


def _fill(commands: argparse._SubParsersAction[argparse.ArgumentParser], group: Group, program: str) -> None:
    for name, entry in group.commands.items():
        parser = commands.add_parser(name, help=entry.help, description=_sentence(entry.help), prog=f"{program} {name}")
        if isinstance(entry, Group):
            _fill(parser.add_subparsers(metavar="COMMAND", required=True), entry, f"{program} {name}")
        else:
            configure(load(entry), parser)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")
