"""The commands match their index, and help does not import them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from clia.cli.command import COMMANDS, configure
from clia.cli.help import EXAMPLES, SECTIONS, TOPICS, help_on, overview
from clia.cli.main import load, new_parser, own_words
from clia.cli.registry import TREE, Command, Group
from clia.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

PROVIDED = {
    "space": {"store", "no_redact"},
    "settings": {"store", "config", "no_redact"},
    "lineage": {"slug", "path", "ceiling", "allow_uncontained", "agents_dir"},
    "target": {"path", "write_scope", "agents_dir"},
    "program_words": set(),
}
"""Parameters that are not options, and the options that they replace."""


def entries(group: Group = TREE) -> Iterator[Command]:
    for entry in group.commands.values():
        if isinstance(entry, Group):
            yield from entries(entry)
        else:
            yield entry


EVERY = {entry.name: entry for entry in entries()}


@pytest.mark.parametrize("name", EVERY)
def test_the_index_has_the_first_line_of_the_docstring(name: str) -> None:
    definition = load(EVERY[name])
    first = (definition.function.__doc__ or "").partition("\n")[0]
    assert first == f"{EVERY[name].help[:1].upper()}{EVERY[name].help[1:]}."
    assert definition.function.__module__ == EVERY[name].module


@pytest.mark.parametrize("name", EVERY)
def test_every_option_is_a_parameter_and_every_parameter_an_option(name: str) -> None:
    definition = load(EVERY[name])
    options = {option.settings.get("dest", name) for name, option in definition.options.items()}
    parameters = set(definition.parameters)
    replaced = set().union(*(PROVIDED[parameter] for parameter in parameters & PROVIDED.keys()))
    assert parameters - PROVIDED.keys() <= options
    assert options - parameters - replaced <= {"json_output", "path"}
    assert "path" in parameters or "space" in parameters or "path" not in options - replaced


def test_the_index_has_every_command() -> None:
    for entry in EVERY.values():
        import_module(entry.module)
    assert set(COMMANDS) == set(EVERY)


@pytest.mark.parametrize("words", [["--help"], ["trace", "--help"], ["agents", "--help"]])
def test_help_imports_no_command(words: list[str]) -> None:
    code = "import sys, clia.cli.main as m\ntry: m.main(sys.argv[1:])\nfinally: print(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    loaded = {name for name in result.stderr.split() if name.startswith("clia.")}
    assert loaded <= {
        "clia.cli",
        "clia.cli.main",
        "clia.cli.help",
        "clia.cli.command",
        "clia.cli.output",
        "clia.cli.registry",
        "clia.errors",
        "clia.verbs",
    }


OF_TOOLS = {name for name in EVERY if name.startswith("hook ")} - {"hook install", "hook uninstall", "hook rehearse"}


def test_every_command_that_people_run_has_an_example() -> None:
    assert {name for name in EVERY.keys() - EXAMPLES.keys() if not load(EVERY[name]).example} == OF_TOOLS
    assert EXAMPLES.keys() <= EVERY.keys()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_is_a_valid_command(name: str) -> None:
    text = EXAMPLES[name].removeprefix('eval "$(').removesuffix(')"')
    words = shlex.split(text.replace('"$(clia key show --path ../friends)"', "KEY"))
    start = ["clia", *name.split()]
    assert words[: len(start)] == start
    parser = new_parser(f"clia {name}", "")
    definition = load(EVERY[name])
    configure(definition, parser)
    parser.parse_intermixed_args(list(own_words(words[len(start) :])))


def test_the_overview_lists_every_command_once() -> None:
    listed = [name for section in SECTIONS.values() for name in section]
    assert sorted(listed) == sorted(TREE.commands)
    text = overview()
    assert all(f"\n  {name} " in text for name in listed)


def test_help_knows_commands_groups_and_topics() -> None:
    assert "Append an entry" in help_on(["trace", "add"])
    assert "example:\n  clia trace add" in help_on(["trace", "add"])
    assert "pending" in help_on(["trace"])
    assert all(help_on([topic]) for topic in TOPICS)
    with pytest.raises(NotFound, match="did you mean 'landing'"):
        help_on(["landin"])
