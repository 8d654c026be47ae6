"""``clia tree``."""

from __future__ import annotations

from typing import NamedTuple

from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, nobody_yet, only_ascii, require_agent, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from rich.text import Text

    from clia.facade.space import Space

_EDGE = "sub-agent-of"


class _Member(NamedTuple):
    """One agent of the tree; a flat list of these holds circles too."""

    agent: str
    archived: bool
    parents: list[str]
    children: list[str]


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="only this agent and those below it")
    parser.add_argument("--ascii", action="store_true", help="draw with plain characters")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = _members(space, args.agent)
        subjects = {} if args.json else {each.agent: each.subject for each in space.states()}
        nobody = nobody_yet(space)
    if args.json:
        emit_json(as_json(list(found.values())))
    elif found:
        _show(found, subjects, plain_characters=args.ascii or only_ascii())
    else:
        write(nobody)
    return 0


def _members(space: Space, top: str | None) -> dict[str, _Member]:
    """Those to draw: at and below one agent, or everyone at work with the archived agents above them."""
    edges = [(each.src, each.dst) for each in space.relations() if each.kind == _EDGE]
    working, archived = space.agents(), space.agents(archived=True)
    if top is None:
        chosen = _closure(working, [(child, parent) for parent, child in edges])
    else:
        require_agent(space, top)
        chosen = _closure([top], edges)
    members = {name: _Member(name, name in archived, [], []) for name in sorted(chosen & {*working, *archived})}
    for parent, child in dict.fromkeys(edges):
        if parent in members and child in members:
            members[parent].children.append(child)
            members[child].parents.append(parent)
    return members


def _closure(start: list[str], edges: list[tuple[str, str]]) -> set[str]:
    """Everything that can be reached along the edges."""
    ahead: dict[str, list[str]] = {}
    for source, target in edges:
        ahead.setdefault(source, []).append(target)
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(ahead.get(name, ()))
    return found


def _show(found: dict[str, _Member], subjects: dict[str, str], *, plain_characters: bool) -> None:
    from rich.text import Text  # only people see it

    from clia.cli.drawing import tree_lines

    def label(name: str) -> Text:
        if found[name].archived:
            return Text(f"{name}  archived", style="dim")
        return Text.assemble((name, "bold"), (f"  {one_line(subjects.get(name, ''))}", "dim"))

    terminal = console()
    children = {name: member.children for name, member in found.items()}
    for line in tree_lines(found, children, label, ascii=plain_characters):
        terminal.print(line, soft_wrap=not terminal.is_terminal)
