"""Completion scripts of shells. Names of agents and flows come from git, which is faster than starting clia."""

from __future__ import annotations

import json

from clia.cli.main import group_parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

AGENTS, FLOWS = "refs/heads/agents", "refs/clia/behaviours"
_SOURCES = {
    **dict.fromkeys(("AGENT", "INTO", "FROM", "SRC", "DST", "A", "B", "AGENT|COMMIT", "COMMIT|AGENT"), AGENTS),
    **dict.fromkeys(("FLOW", "BEHAVIOUR", "NAME|CID", "NAME|PEER/NAME", "NAME|CID|PEER/NAME"), FLOWS),
}
"""Which refs complete an argument, by its metavar."""
_NAMES = "git for-each-ref --format='%(refname:lstrip=3)' {0} 2>/dev/null"
_FUNCTIONS = {AGENTS: "_clia_agents", FLOWS: "_clia_flows"}
_BASH = """
{name}() {{ compgen -W "$({names})" -- "$1"; }}
"""
_ZSH = """
{name}() {{ compadd -- ${{(f)"$({names})"}} }}
"""
_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName clia -ScriptBlock {{
    param($word, $ast, $cursor)
    $tree = '{tree}' | ConvertFrom-Json
    $node = $tree
    foreach ($element in @($ast.CommandElements | Select-Object -Skip 1)) {{
        $text = "$element"
        if ($text -ne $word -and $node.commands.PSObject.Properties.Name -contains $text) {{ $node = $node.commands.$text }}
    }}
    $known = @($node.commands.PSObject.Properties.Name) + @($node.options)
    if ($node.refs) {{ $known += @(git for-each-ref "--format=%(refname:lstrip=3)" $node.refs 2>$null) }}
    $known | Where-Object {{ $_ -like "$word*" }} | ForEach-Object {{
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }}
}}
"""


def script_for(shell: str) -> str:
    """The completion script of a shell."""
    parser = group_parser(whole=True)
    if shell == "powershell":
        tree = json.dumps(_tree(parser), separators=(",", ":")).replace("'", "''")
        return _POWERSHELL.format(tree=tree)
    import shtab

    form = {"bash": _BASH, "zsh": _ZSH}.get(shell)
    if form is None:
        script: str = shtab.complete(parser, shell)
        return script
    for action in _actions(parser):
        source = _SOURCES.get(str(action.metavar))
        if source is not None:
            action.complete = {shell: _FUNCTIONS[source]}  # type: ignore[attr-defined]  # shtab reads it
    preamble = "".join(form.format(name=name, names=_NAMES.format(source)) for source, name in _FUNCTIONS.items())
    completed: str = shtab.complete(parser, shell, preamble=preamble)
    return completed


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public list of its options
        yield action
        for inner in _commands(action).values():
            yield from _actions(inner)


def _commands(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    import argparse

    return dict(action.choices) if isinstance(action, argparse._SubParsersAction) else {}  # noqa: SLF001  # as above


def _tree(parser: argparse.ArgumentParser) -> dict[str, object]:
    """The commands, options and names that complete each level."""
    actions = parser._actions  # noqa: SLF001  # as above
    commands = {name: _tree(inner) for action in actions for name, inner in _commands(action).items()}
    options = [option for action in actions for option in action.option_strings if option.startswith("--")]
    refs = next((source for action in actions if (source := _SOURCES.get(str(action.metavar)))), "")
    return {"commands": commands, "options": options, "refs": refs}
