"""Declaring and running commands.

A command is a function with the decorator ``@command``. Its parameters are filled by name: options by their destination,
``space`` with the open space, ``settings``, ``lineage`` and ``target`` as the options describe them, and ``json_output`` with
whether ``--json`` was given. The first line of its docstring is the help, the rest is printed below the options.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.cli.output import emit_json, one_line, write
from clia.errors import NoSuchAgent, NoSuchObject

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias, TypeVar

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.identities.lineage import Lineage
    from clia.identities.writing import WriteLocation

    CommandFunction = TypeVar("CommandFunction", bound="Callable[..., Answer | int]")
    Declared: TypeAlias = "Option | OptionGroup"

SYNC_HINT = "fetch the work of other machines with: clia hub sync"
_UNPUBLISHED = "the hub is unreachable; unpublished work is kept and sent later (see: clia hub status)"


class Answer(NamedTuple):
    """The result of a command: the value that ``--json`` prints, and one line or a function that shows it to people."""

    value: Any
    show: Callable[[], object] | str
    exit_code: int = 0


class Option(NamedTuple):
    """An argument or option, as ``ArgumentParser.add_argument`` takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]


class OptionGroup(NamedTuple):
    """Options under a title, or options that exclude each other."""

    options: tuple[Declared, ...]
    title: str | None = None
    exclusive: bool = False


class Definition(NamedTuple):
    name: str
    function: Callable[..., Answer | int]
    options: tuple[Declared, ...]
    example: str
    runs_program: bool  # everything after ``--`` belongs to another program
    check: Callable[..., object] | None  # called with the options before the space is opened

    @property
    def parameters(self) -> tuple[str, ...]:
        return _parameters(self.function)


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


COMMANDS: dict[str, Definition] = {}
"""The commands of the modules loaded so far, by name: ``trace pending``."""


def command(
    name: str, *options: Declared, example: str = "", runs_program: bool = False, check: Callable[..., object] | None = None
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function as a command. A function with a ``space`` parameter also takes the options of ``IN_SPACE``."""

    def register(function: CommandFunction) -> CommandFunction:
        definition = Definition(name, function, options, example, runs_program, check)
        if "space" in definition.parameters:
            definition = definition._replace(options=(*options, *IN_SPACE))
        COMMANDS[name] = definition
        return function

    return register


def arg(name: str, metavar: str | None, text: str, **settings: Any) -> Option:
    """A positional argument."""
    return Option((name,), {"metavar": metavar, "help": text, **settings})


def opt(names: str, metavar: str | None, text: str, **settings: Any) -> Option:
    """An option with a value; ``names`` are separated by blanks."""
    return Option(tuple(names.split()), {"metavar": metavar, "help": text, **settings})


def many(names: str, metavar: str, text: str, **settings: Any) -> Option:
    """An option that may be repeated."""
    return opt(names, metavar, text, action="append", default=[], **settings)


def several(names: str, metavar: str, text: str, **settings: Any) -> Option:
    """An option that takes one or more values and may be repeated."""
    return opt(names, metavar, text, nargs="+", action="extend", default=[], **settings)


def flag(names: str, text: str, **settings: Any) -> Option:
    return Option(tuple(names.split()), {"action": "store_true", "help": text, **settings})


def one_of(*options: Option) -> OptionGroup:
    """Options that exclude each other."""
    return OptionGroup(options, exclusive=True)


def titled(title: str, *options: Declared) -> OptionGroup:
    return OptionGroup(options, title)


JSON = flag("--json", "print JSON for a program")
PATH = opt("--path", "DIR", "a directory in the repository (default: current directory)", default=".")
STORE = opt("--store", "URL", "postgresql://… for a store on a server (default: CLIA_STORE, else a file beside the repository)")
CONFIG = opt("--config", "FILE", "operator configuration (default: CLIA_CONFIG, else .git/clia/config.toml)")
IN_SPACE = (PATH, STORE, JSON)
AGENT = arg("agent", "AGENT", "agent name")
NO_REDACT = flag("--no-redact", "record secrets unredacted; use with care")
IDENTITY = opt("--as", "SLUG", "identity to work under (default: the one with the agent's name, if it exists)", dest="slug")
MESSAGE = opt("-m --message", "TEXT", "what was done and why ('-': standard input)", default="")
WHY = opt("-m --message", "WHY", "reason ('-': standard input)", default="")
META = many("--meta", "KEY=VALUE", "metadata field (repeatable); VALUE is JSON, or else text")
ASCII = flag("--ascii", "draw with ASCII characters", dest="ascii_only")

WORKING_PATH = opt("--path", "DIR", "working path (default: current directory)", default=".")
CEILING = opt("--ceiling", "DIR", "do not read contexts above this directory")
SLUG = opt("--slug --agent-slug", "SLUG", "identity", dest="slug", required=True)
LINEAGE = (
    SLUG,
    WORKING_PATH,
    CEILING,
    flag("--allow-uncontained", "as the operator, honour a root chain with enforceContainment: false"),
    JSON,
)
TARGET = (
    WORKING_PATH,
    opt(
        "--write-scope",
        None,
        "write to the working path, the nearest repository (default) or the outermost repository",
        choices=("local", "submodule", "workspace"),
        default="submodule",
    ),
)


def configure(definition: Definition, parser: argparse.ArgumentParser, slug: str | None = None) -> None:
    """Add a command's options to a parser. ``slug``: the identity whose own program this is."""
    _add_options(parser, definition.options, slug)
    notes = (definition.function.__doc__ or "").strip().partition("\n")[2].split()
    example = f"Example: {definition.example}" if definition.example else ""
    parser.epilog = " ".join([*notes, example]).strip() or None


def _add_options(parser: Any, options: Sequence[Declared], slug: str | None) -> None:
    for option in options:
        if isinstance(option, OptionGroup):
            inner = parser.add_mutually_exclusive_group() if option.exclusive else parser.add_argument_group(option.title)
            _add_options(inner, option.options, slug)
        elif slug is not None and option is SLUG:
            settings = option.settings | {"required": False, "default": slug, "help": f"identity (default: {slug})"}
            parser.add_argument(*option.names, **settings)
        else:
            parser.add_argument(*option.names, **option.settings)


def run(definition: Definition, args: argparse.Namespace) -> int:
    """Run a command and print its answer; return the exit code."""
    values: dict[str, Any] = vars(args) | {"json_output": getattr(args, "json", False)}
    parameters = definition.parameters
    if definition.check is not None:
        definition.check(**{name: values[name] for name in _parameters(definition.check)})
    if "lineage" in parameters:
        values["lineage"] = _lineage(args)
    if "target" in parameters:
        values["target"] = _target(args)
    if "settings" in parameters or "space" in parameters:
        values["settings"] = _settings(args)
    if "space" not in parameters:
        return _call(definition, values, records=False)
    from clia.facade.opening import open_space

    with open_space(args.path, settings=values["settings"]) as space:
        try:
            exit_code = _call(definition, values | {"space": space}, records=True)
        except (NoSuchAgent, NoSuchObject) as err:
            if space.has_hub and err.code != "agent-not-here":  # a sync does not bring that one
                err.hints = (*err.hints, SYNC_HINT)
            raise
        if space.has_hub and not args.json:
            _note_unpublished(space)
        return exit_code


def _call(definition: Definition, values: dict[str, Any], *, records: bool) -> int:
    answer = definition.function(**{name: values[name] for name in definition.parameters})
    if isinstance(answer, int):
        return answer
    if values["json_output"]:
        emit_json(_as_json(answer.value) if records else answer.value)
    elif isinstance(answer.show, str):
        write(f"{one_line(answer.show)}\n")
    else:
        answer.show()
    return answer.exit_code


def _as_json(value: Any) -> Any:
    from clia.space.model import as_json

    return as_json(value)


def _note_unpublished(space: Space) -> None:
    from clia.cli.output import console
    from clia.workers.hub_inspection import has_unpublished

    if has_unpublished(space):
        console(stderr=True).print(_UNPUBLISHED, style="dim", soft_wrap=True)


def _settings(args: argparse.Namespace) -> Settings:
    from clia.facade.settings import Settings, check_address

    check_address(args.store)  # an empty variable counts as unset; an empty option is a mistake
    store = args.store or os.environ.get("CLIA_STORE") or None
    config = getattr(args, "config", None) or os.environ.get("CLIA_CONFIG") or None
    return Settings(store=store, redact=not getattr(args, "no_redact", False), config=config)


def _lineage(args: argparse.Namespace) -> Lineage:
    from clia.identities.lineage import lineage

    return lineage(args.path, args.slug, ceiling=args.ceiling, allow_uncontained=args.allow_uncontained)


def _target(args: argparse.Namespace) -> WriteLocation:
    from clia.identities.writing import WriteLocation

    return WriteLocation(args.path, args.write_scope, getattr(args, "agents_dir", None))
