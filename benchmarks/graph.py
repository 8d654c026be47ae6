"""The graph of a space: read, laid out and drawn, against libgit2's walk over the same commits."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pygit2
from pygit2.enums import SortMode

import clia
from benchmarks.measure import Row, in_turns
from benchmarks.places import place
from clia.forge.rendering.graph_layout import layout
from clia.forge.rendering.graph_svg import svg
from clia.space.model import AGENT, TYPE
from clia.values import commit_messages as messages
from clia.values import graph_lanes as lanes
from clia.values import refs

if TYPE_CHECKING:
    from clia.forge.rendering.graph_layout import GraphLayout

COMMITS, AGENTS, SHOWN = 5_000, 40, 200


def rows(rounds: int) -> list[Row]:
    with place() as top, clia.init(top, settings=clia.Settings(durable=False, person=("Bench", "bench@example.org"))) as space:
        plant(pygit2.Repository(str(top)))
        return _rows(space, pygit2.Repository(str(top)), rounds)


def _rows(space: clia.Space, repo: pygit2.Repository, rounds: int) -> list[Row]:
    heads = {name: space.head(name) for name in space.agents()}
    commits = space.history.window((), COMMITS)
    graph_layout = layout(commits, heads)
    assert (len(commits), len(heads), graph_layout.height) == (COMMITS, AGENTS, COMMITS)

    def picture(graph: GraphLayout) -> str:
        return svg(graph, base="/s/bench", first=COMMITS // 2, rows=SHOWN, now=COMMITS)

    def page() -> str:
        heads_now = {name: space.head(name) for name in space.agents()}
        return picture(layout(space.history.window((), COMMITS), heads_now, types=space.types()))

    def walk() -> int:
        walker = repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)
        for head in heads.values():
            walker.push(head)
        return sum(len(commit.parents) for commit in walker)

    def terminal() -> object:
        return lanes.layout([lanes.GraphNode(commit.cid, commit.parents, commit.agent or "") for commit in commits])

    complete, floor, placed, lined, drawn, collapsed = in_turns(
        [
            page,
            walk,
            lambda: layout(commits, heads),
            terminal,
            lambda: svg(graph_layout, base="/s/bench", now=COMMITS),
            lambda: layout(commits, heads, collapse=True),
        ],
        rounds,
    )
    return [
        Row("graph", complete, floor),
        Row("graph-layout", placed, lined),
        Row("graph-collapsed", collapsed, lined),
        Row("graph-whole", drawn, lined),
    ]


def plant(repo: pygit2.Repository) -> None:
    """40 agents commit in turn, each starting at another agent's head or the main branch; one commit in twelve is a merge."""
    chance = random.Random(5)  # noqa: S311  # the same history every time
    tree = pygit2.Index().write_tree(repo)
    heads: dict[str, pygit2.Oid] = {}
    start = _commit(repo, 0, "begin", tree, [])
    for number in range(1, COMMITS):
        name = f"agent-{chance.randrange(AGENTS)}" if number > AGENTS else f"agent-{number - 1}"
        agents = sorted(heads)
        if name not in heads:
            kind, parents = "spawn", [heads[chance.choice(agents)] if agents and chance.random() < 0.5 else start]
        elif number % 12 == 0:
            kind, parents = "session-merge", [heads[name], heads[chance.choice([agent for agent in agents if agent != name])]]
        else:
            kind, parents = chance.choice(["finding", "refactor", "test", "decision"]), [heads[name]]
        text = messages.compose(f"{kind}: what agent number {name} did in step {number}", [(AGENT, name), (TYPE, kind)], kind)
        heads[name] = _commit(repo, number, text, tree, parents)
    for name, head in heads.items():
        repo.references.create(refs.head(name), head)
    subprocess.run(["git", "-C", repo.path, "repack", "-adq"], check=True)  # as after maintenance


def _commit(repo: pygit2.Repository, at: int, text: str, tree: pygit2.Oid, parents: list[pygit2.Oid]) -> pygit2.Oid:
    by = pygit2.Signature("bench", "bench@example.org", at, 0)
    return repo.create_commit(None, by, by, text, tree, parents)
