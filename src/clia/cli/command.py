"""Declaring and running commands.

A command is a function with the decorator ``@command``. Each of its options is the default of the parameter that it fills. A
parameter without a default is filled by name: ``space`` with the open space, ``settings`` as the options describe them,
``json_output`` with whether ``--json`` was given. The first line of the docstring is the help, the rest is printed below the
options.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Generic, NamedTuple, TypeVar

from clia.cli.output import console, emit_json, one_line, show_diagnostics, write
from clia.errors import NoSuchAgent, NoSuchObject

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.facade.settings import Settings
    from clia.identities.diagnostics import Diagnostic
    from clia.trust.statements import EnrolledKey, PersonalStatement, StatementProof

    CommandFunction = TypeVar("CommandFunction", bound="Callable[..., Answer[Any] | int]")

ValueType = TypeVar("ValueType")
SYNC_HINT = "fetch the work of other machines with: clia hub sync"


class Answer(NamedTuple, Generic[ValueType]):
    """The result of a command: the value that ``--json`` prints, and one line or a function that shows it to people.

    The type of the value is the shape in the reference. A command that prints its own output returns the exit code;
    ``Annotated[int, Shape]`` states the shape.
    """

    value: ValueType
    show: Callable[[], object] | str
    exit_code: int = 0
    diagnostics: Sequence[Diagnostic] = ()  # shown to people after the rest


class Option(NamedTuple):
    """An argument or option, as ``ArgumentParser.add_argument`` takes it."""

    names: tuple[str, ...]  # empty: after the parameter, ``dry_run`` as ``--dry-run``
    settings: dict[str, Any]
    one_of: str | None  # options of a command with the same word exclude each other
    section: str | None  # heading in the help
    positional: bool = False
    former: tuple[str, ...] = ()  # earlier spellings, which still work and are not shown

    def spelled(self, name: str) -> list[str]:
        """The spellings of an option whose value has this name; the long one last."""
        return list(self.names) or [f"--{name.replace('_', '-')}"]


class Definition(NamedTuple):
    name: str
    function: Callable[..., Answer[Any] | int]
    others: dict[str, Option]
    example: str  # unless ``clia.cli.help.EXAMPLES`` has one
    runs_program: bool  # everything after ``--`` belongs to another program

    @property
    def parameters(self) -> tuple[str, ...]:
        code = self.function.__code__
        return code.co_varnames[: code.co_argcount]

    @property
    def options(self) -> dict[str, Option]:
        """The options in the order of the help, by the names of their values."""
        defaults = self.function.__defaults__ or ()
        options: dict[str, Option] = {}
        for name, default in zip(self.parameters[-len(defaults) :], defaults, strict=False):
            options |= {name: default} if isinstance(default, Option) else default
        options |= self.others
        if "space" in self.parameters:
            options |= IN_SPACE
        options.setdefault("json_output", JSON)
        return options


COMMANDS: dict[str, Definition] = {}
"""The commands of the modules loaded so far, by name: ``trace pending``."""


def command(
    name: str, *, example: str = "", runs_program: bool = False, **others: Any
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function as a command.

    ``others``: options without a parameter, listed last. A function with a ``space`` parameter also has those of ``IN_SPACE``.
    """

    def register(function: CommandFunction) -> CommandFunction:
        COMMANDS[name] = Definition(name, function, others, example, runs_program)
        return function

    return register


# The functions below return Any, because their result is the default of a parameter of another type.


def arg(metavar: str | None, text: str, **settings: Any) -> Any:
    """A positional argument."""
    return Option((), {"metavar": metavar, "help": text, **settings}, None, None, positional=True)


def opt(
    metavar: str | None,
    text: str,
    names: str = "",
    *,
    one_of: str | None = None,
    section: str | None = None,
    former: str = "",
    **settings: Any,
) -> Any:
    """An option with a value; ``names`` and ``former`` (earlier names, which still work) are separated by blanks."""
    spellings = tuple(names.split()), {"metavar": metavar, "help": text, **settings}
    return Option(*spellings, one_of, section, former=tuple(former.split()))


def many(metavar: str, text: str, names: str = "") -> Any:
    """An option that may be repeated."""
    return opt(metavar, text, names, action="append", default=[])


def several(metavar: str, text: str, names: str = "") -> Any:
    """An option that takes one or more values and may be repeated."""
    return opt(metavar, text, names, nargs="+", action="extend", default=[])


def flag(text: str, names: str = "", *, one_of: str | None = None, section: str | None = None, **settings: Any) -> Any:
    return Option(tuple(names.split()), {"action": "store_true", "help": text, **settings}, one_of, section)


JSON = flag("print JSON for a program", "--json")
PATH = opt("DIR", "a directory in the repository (default: current directory)", default=".")
STORE = opt("URL", "postgresql://… for a store on a server (default: CLIA_STORE, else a file beside the repository)")
CONFIG = opt("FILE", "operator configuration (default: CLIA_CONFIG, else .git/clia/config.toml)")
IN_SPACE = {"path": PATH, "store": STORE, "json_output": JSON}
AGENT = arg("AGENT", "agent name")
NUMBER = "-n --number"
"""The spelling of a limit of what is listed."""
NO_REDACT = flag("record secrets unredacted; use with care")
IDENTITY = opt("SLUG", "identity to work under (default: the one with the agent's name, if it exists)", "--as")
INCOMPLETE = opt("REASON", "work although documents of the identity cannot be read; recorded", "--accept-incomplete")
MESSAGE = opt("TEXT", "what was done and why ('-': standard input)", "-m --message", default="")
WHY = opt("WHY", "reason ('-': standard input)", "-m --message", default="")
META = many("KEY=VALUE", "metadata field (repeatable); VALUE is JSON, or else text")
ASCII = flag("draw with ASCII characters", "--ascii")

WORKING_PATH = opt("DIR", "working path (default: current directory)", default=".")
CEILING = opt("DIR", "do not read contexts above this directory")
SLUG = opt("SLUG", "identity", "--slug", former="--agent-slug", required=True)
AGENTS_DIR = opt("DIR", "directory of identities, if the path is not in a repository")
LINEAGE: Any = {
    "agents_dir": AGENTS_DIR,
    "slug": SLUG,
    "path": WORKING_PATH,
    "ceiling": CEILING,
    "allow_uncontained": flag("as the operator, honour a root chain with enforceContainment: false"),
    "json_output": JSON,
}
WRITE_SCOPE = opt(
    None,
    "write to the working path, the nearest repository (default) or the outermost repository",
    choices=("local", "submodule", "workspace"),
    default="submodule",
)
TARGET: Any = {"path": WORKING_PATH, "write_scope": WRITE_SCOPE}


def configure(definition: Definition, parser: argparse.ArgumentParser, slug: str | None = None) -> None:
    """Add a command's options to a parser. ``slug``: the identity whose own program this is."""
    groups: dict[str | None, Any] = {None: parser}
    for name, option in definition.options.items():
        settings = option.settings
        if slug is not None and option is SLUG:
            settings = settings | {"required": False, "default": slug, "help": f"identity (default: {slug})"}
        if option.section not in groups:
            groups[option.section] = parser.add_argument_group(option.section)
        if option.one_of not in groups:
            groups[option.one_of] = groups[option.section].add_mutually_exclusive_group()
        group = groups[option.one_of or option.section]
        if option.positional:
            group.add_argument(name, **settings)
        else:
            group.add_argument(*option.spelled(name), **{"dest": name} | settings)
    notes = (definition.function.__doc__ or "").strip().partition("\n")[2].split()
    parser.epilog = " ".join(notes) or None
    parser.set_defaults(example=definition.example)


def present_spelling(definition: Definition, words: Sequence[str]) -> list[str]:
    """The words with former spellings of options replaced by the present ones."""
    present = {old: option.spelled(name)[-1] for name, option in definition.options.items() for old in option.former}
    if not present:
        return list(words)
    parts = (word.partition("=") for word in words)
    return [f"{present.get(name, name)}{equals}{value}" for name, equals, value in parts]


def run(definition: Definition, args: argparse.Namespace) -> int:
    """Run a command and print its answer; return the exit code."""
    values: dict[str, Any] = vars(args)
    parameters = definition.parameters
    if "lineage" in parameters:
        from clia.identities.lineage import lineage

        values["lineage"] = lineage(
            args.path, args.slug, ceiling=args.ceiling, allow_uncontained=args.allow_uncontained, agents_dir=args.agents_dir
        )
    if "target" in parameters:
        from clia.identities.writing import WriteLocation

        values["target"] = WriteLocation(args.path, args.write_scope, getattr(args, "agents_dir", None))
    if "settings" in parameters or "space" in parameters:
        values["settings"] = _settings(args)
    if "space" not in parameters:
        return _call(definition, values)
    from clia.facade.opening import open_space

    with open_space(args.path, settings=values["settings"]) as space:
        try:
            exit_code = _call(definition, values | {"space": space})
        except (NoSuchAgent, NoSuchObject) as err:
            if space.has_hub and err.code != "agent-not-here":  # a sync does not bring that one
                err.hints = (*err.hints, SYNC_HINT)
            raise
        if space.has_hub and not args.json_output:
            exchange = space.hub.exchange
            if exchange is not None and exchange.unpublished.recorded_any and exchange.hub.outage() is not None:
                note = "the hub is unreachable; unpublished work is kept and sent later (see: clia hub status)"
                console(stderr=True).print(note, style="dim", soft_wrap=True)
        problem = space.local.store_problem()
        if problem is not None:
            write(f"warning: {problem.code}: {one_line(problem.message)} (see: clia doctor)\n", sys.stderr)
        return exit_code


def _settings(args: argparse.Namespace) -> Settings:
    from clia.facade.settings import Settings, check_address

    store_option = getattr(args, "store", None)
    check_address(store_option)  # an empty variable counts as unset; an empty option is a mistake
    store = store_option or os.environ.get("CLIA_STORE") or None
    config = getattr(args, "config", None) or os.environ.get("CLIA_CONFIG") or None

    def notify(text: str) -> None:
        write(f"{one_line(text)}\n", sys.stderr)

    def prove(statement: PersonalStatement, keys: Sequence[EnrolledKey]) -> list[StatementProof]:
        from clia.trust.ssh_agent import SshProver  # few commands state anything

        return SshProver(dict(os.environ), os.path.expanduser("~"))(statement, keys)

    return Settings(store=store, redact=not getattr(args, "no_redact", False), notify=notify, person_config=config, prove=prove)


def _paged(name: str) -> AbstractContextManager[None]:
    """The pager, on a terminal."""
    if not sys.stdout.isatty():
        return nullcontext()
    from clia.cli.pager import paged  # not for programs

    return paged(name)


def _call(definition: Definition, values: dict[str, Any]) -> int:
    answer = definition.function(**{name: values[name] for name in definition.parameters})
    if isinstance(answer, int):
        return answer
    if values["json_output"]:
        emit_json(answer.value)
        return answer.exit_code
    if isinstance(answer.show, str):
        write(f"{one_line(answer.show)}\n")
    else:
        with _paged(definition.name):
            answer.show()
    show_diagnostics(answer.diagnostics, as_json=False)
    return answer.exit_code
