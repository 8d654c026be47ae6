"""The commands match their index, and help does not import them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from clia.cli.command import COMMANDS, configure, present_spelling
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


SPELLINGS = {
    "message": ["-m", "--message"],
    "title": ["-t", "--title"],
    "kind": ["-k", "--kind"],
    "number": ["-n", "--number"],
    "quiet": ["-q", "--quiet"],
    "briefing": ["-b", "--briefing"],
}
"""One spelling everywhere."""
INSTEAD = {"reason": "message", "note": "message", "why": "message", "limit": "number", "count": "number", "max": "number"}
"""Words for the same things, which no option has."""


def options_of(name: str) -> dict[str, list[str]]:
    """The shown spellings of each option of a command, by its long one."""
    parser = new_parser(f"clia {name}", "")
    configure(load(EVERY[name]), parser)
    spellings = [list(action.option_strings) for action in parser._actions if action.option_strings]  # noqa: SLF001
    return {names[-1].removeprefix("--"): names for names in spellings}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_the_same_option_is_spelled_the_same_everywhere(name: str) -> None:
    options = options_of(name)
    assert {word: names for word, names in options.items() if word in SPELLINGS} == {
        word: names for word, names in SPELLINGS.items() if word in options
    }
    assert not options.keys() & INSTEAD.keys()
    shorts = {names[0]: word for word, names in options.items() if len(names) > 1}
    known = {names[0]: word for word, names in SPELLINGS.items()}
    assert {short: word for short, word in shorts.items() if short in known and known[short] != word} == {}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_an_agent_is_a_positional_argument_called_agent(name: str) -> None:
    parser = new_parser(f"clia {name}", "")
    configure(load(EVERY[name]), parser)
    positional = {action.dest: action for action in parser._actions if not action.option_strings}  # noqa: SLF001
    for dest in ("agent", "agents"):
        assert dest not in positional or "AGENT" in str(positional[dest].metavar)
    starts = {str(action.metavar).partition("|")[0] for action in positional.values() if not action.choices}
    assert {start for start in starts if start.upper() != start} == set()


@pytest.mark.parametrize(
    ("words", "present"),
    [
        ("key accept CODE OBJECT --reason why", "key accept CODE OBJECT --message why"),
        ("key endorse --reason why", "key endorse --message why"),
        ("key revoke KEY --reason=why", "key revoke KEY --message=why"),
        ("policy set FILE --reason why", "policy set FILE --message why"),
        ("agents journal --agent-slug scout --note x --idempotency-key k", "agents journal --slug scout --message x --key k"),
        ("list --limit 2", "list --number 2"),
        ("spawn scout --title T --text why", "spawn scout --title T --briefing why"),
        ("session fork a b --title T --text why", "session fork a b --title T --briefing why"),
    ],
)
def test_a_former_spelling_still_works_and_is_not_shown(words: str, present: str) -> None:
    name = " ".join(words.split()[:2]) if " ".join(words.split()[:2]) in EVERY else words.split(maxsplit=1)[0]
    definition = load(EVERY[name])
    given, wanted = (shlex.split(text)[len(name.split()) :] for text in (words, present))
    assert present_spelling(definition, given) == wanted
    assert not {word.partition("=")[0].removeprefix("--") for word in given if word not in wanted} & options_of(name).keys()
