"""The commands match their index, and help does not import them."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from clia.cli.command import COMMANDS
from clia.cli.main import load
from clia.cli.registry import TREE, Command, Group

if TYPE_CHECKING:
    from collections.abc import Iterator

PROVIDED = {
    "space": {"store", "no_redact"},
    "settings": {"store", "config", "no_redact"},
    "lineage": {"slug", "path", "ceiling", "allow_uncontained"},
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
    assert loaded <= {"clia.cli", "clia.cli.main", "clia.cli.command", "clia.cli.output", "clia.cli.registry", "clia.errors"}
