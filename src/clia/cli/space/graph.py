"""``clia graph``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, nobody_yet, only_ascii, positive, short, space_of
from clia.values.graph_lanes import GraphNode, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rich.text import Text

    from clia.space.model import AgentCommit
    from clia.values.graph_lanes import GraphRow


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="whose commits, or those of which branch (default: all agents)")
    parser.add_argument("-n", "--number", type=positive, default=50, metavar="N", help="how many commits (default: 50)")
    parser.add_argument("--ascii", action="store_true", help="draw with plain characters")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        commits = {each.cid: each for each in space.window(args.agents, args.number)}
        heads: dict[str, list[str]] = {}
        for name in space.agents():
            heads.setdefault(space.head(name), []).append(name)
        nobody = nobody_yet(space)
    rows = layout([GraphNode(each.cid, each.parents, each.agent or "") for each in commits.values()])
    if args.json:
        emit_json(_as_json(rows, commits, heads))
    elif rows:
        _show(rows, commits, heads, plain_characters=args.ascii or only_ascii())
    else:
        write(nobody)
    return 0


def _as_json(rows: Sequence[GraphRow], commits: Mapping[str, AgentCommit], heads: Mapping[str, list[str]]) -> dict[str, Any]:
    """Nodes newest first; an edge's lane is the one in which its line leaves the child."""
    nodes = []
    for row in rows:
        commit = commits[row.node.id]
        said = {"agent": commit.agent, "kind": commit.kind, "subject": commit.subject, "at": commit.committer.at}
        nodes.append({"id": commit.cid, "lane": row.lane, **said, "heads": heads.get(commit.cid, [])})
    edges = [
        {"from": row.node.id, "to": parent, "lane": lane}
        for row in rows
        for parent, lane in zip(row.node.parents, row.edges, strict=True)
    ]
    return {"nodes": nodes, "edges": edges}


def _show(
    rows: Sequence[GraphRow], commits: Mapping[str, AgentCommit], heads: Mapping[str, list[str]], *, plain_characters: bool
) -> None:
    from clia.cli.drawing import graph_lines

    terminal = console()
    lines = graph_lines(rows, lambda node: _label(commits[node.id], heads.get(node.id, ())), ascii=plain_characters)
    for line in lines:
        terminal.print(line, soft_wrap=not terminal.is_terminal)


def _label(commit: AgentCommit, heads: Sequence[str]) -> Text:
    from rich.text import Text  # only people see it

    label = Text.assemble((short(commit.cid), "yellow"))
    for name in heads:
        label.append(f" [{one_line(name)}]", style="bold")
    if commit.agent and commit.agent not in heads:
        label.append(f" {one_line(commit.agent)}")
    if commit.kind and not commit.subject.startswith(f"{commit.kind}:"):  # which clia writes where nobody else did
        label.append(f" {one_line(commit.kind)}", style="cyan")
    label.append(f" {one_line(commit.subject)}")
    return label
