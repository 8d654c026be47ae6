"""``make man``: a manual page of each command in build/man/man1, from the parser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clia import __version__
from clia.cli import main, registry
from clia.cli.help import EXAMPLES, SECTIONS

TARGET = Path(__file__).resolve().parent.parent / "build" / "man" / "man1"


def pages() -> dict[str, str]:
    """The pages by file name."""
    parser = main.group_parser(whole=True)
    return {"clia.1": _overview(), **_of_group(parser, registry.TREE)}


def _of_group(parser: argparse.ArgumentParser, group: registry.Group) -> dict[str, str]:
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    pages: dict[str, str] = {}
    for name, entry in group.commands.items():
        own = commands.choices[name]
        if isinstance(entry, registry.Group):
            pages |= _of_group(own, entry)
        else:
            pages[f"{own.prog.replace(' ', '-')}.1"] = _command(own, entry)
    return pages


def _overview() -> str:
    parts = [_head("clia", registry.TREE.help), ".SH SYNOPSIS\n.B clia\nCOMMAND [OPTION]...\n"]
    for title, names in SECTIONS.items():
        parts.append(f'.SH "{title.upper()}"\n')
        for name in names:
            entry = registry.TREE.commands[name]
            parts.append(f".TP\n.B {_escaped(name)}\n{_escaped(entry.help)}\n")
    parts.append(".SH SEE ALSO\nEach command has a page of its own, such as\n.BR clia-spawn (1).\n")
    return "".join(parts)


def _command(parser: argparse.ArgumentParser, entry: registry.Command) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    parts = [_head(parser.prog.replace(" ", "-"), entry.help), f".SH SYNOPSIS\n{_escaped(usage)}\n"]
    if parser.epilog:
        parts.append(f".SH DESCRIPTION\n{_escaped(parser.epilog)}\n")
    parts.append(".SH OPTIONS\n")
    for action in parser._actions:  # noqa: SLF001  # argparse has no public list of its options
        spelled = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        parts.append(f".TP\n.B {_escaped(spelled)}\n{_escaped(action.help or '')}\n")
    example = EXAMPLES.get(entry.name)
    if example:
        parts.append(f".SH EXAMPLE\n.EX\n{_escaped(example)}\n.EE\n")
    parts.append(".SH SEE ALSO\n.BR clia (1)\n")
    return "".join(parts)


def _head(name: str, text: str) -> str:
    return f'.TH "{name.upper()}" 1 "" "clia {__version__}" "clia manual"\n.SH NAME\n{_escaped(name)} \\- {_escaped(text)}\n'


def _escaped(text: str) -> str:
    """Text for roff: backslashes and hyphens escaped, and no line that starts a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.splitlines())


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    for file_name, page in pages().items():
        (TARGET / file_name).write_text(page, encoding="utf-8")
    print(f"man: {TARGET.relative_to(Path.cwd())}")
    sys.exit(0)
