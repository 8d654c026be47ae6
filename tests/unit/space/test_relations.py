"""Relations and the recency index: caches that are never trusted over the refs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from clia.space import relations
from clia.testing import components
from support.plain_git import git_in
from support.spaces import BRIEFING

if TYPE_CHECKING:
    import clia

HEADS = "refs/heads/agents/"


pytestmark = pytest.mark.usefixtures("trusted_packed_refs")


def spawn_without_refs(space: clia.Space, name: str, parent: str = "scout") -> str:
    """Spawn a sub-agent and delete its refs; return its first commit, as a fetch could bring it."""
    cid = space.spawn_from(name, BRIEFING, parent).genesis
    for ref in (HEADS + name, f"refs/clia/agents/{name}"):
        git_in(space, "update-ref", "-d", ref)
    assert space.relations.sub_agents(parent) == []
    return cid


@pytest.mark.parametrize("packed", [False, True])
def test_a_query_sees_what_git_did_a_moment_ago(scout: clia.Space, packed: bool) -> None:
    cid = spawn_without_refs(scout, "sub")
    for step in (("update-ref", HEADS + "sub", cid), ("update-ref", "-d", HEADS + "sub")):
        git_in(scout, *step)
        if packed:
            git_in(scout, "pack-refs", "--all")
        assert scout.relations.sub_agents("scout") == ([] if "-d" in step else ["sub"])
    git_in(scout, "update-ref", "refs/clia/archive/agents/sub", cid)
    assert scout.relations.sub_agents("scout") == ["sub"]  # archived agents count too
    assert components(scout).relations.rebuild() == 1


def test_a_query_after_one_move_lists_no_refs_and_without_moves_writes_nothing(
    scout: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    scout.spawn_from("sub", BRIEFING, "scout")
    git_in(scout, "pack-refs", "--all")
    assert scout.relations.tree("scout") == ["sub"]
    scout.spawn_from("deep", BRIEFING, "sub")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the cost of this grows with the space")

    monkeypatch.setattr(components(scout).core.refs, "under", never)
    assert scout.relations.tree("scout") == ["deep", "sub"]
    monkeypatch.setattr(scout.local.store, "writing", never)
    assert scout.relations.tree("scout") == ["deep", "sub"]


# The recency index


def test_the_newest_heads_are_right_after_any_sequence_of_changes(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of five heads, asked for three, against all heads sorted by date; if it cannot tell, it returns all agents."""
    monkeypatch.setattr(relations, "RECENT_MAX", 5)
    monkeypatch.setattr(relations, "RECENT_MIN", 3)
    chance, agents, answered = random.Random(9), ["scout"], 0  # noqa: S311  # the same every time
    for number in range(60):
        name = chance.choice(agents)
        action = chance.randrange(6)
        if action < 2:
            agents.append(scout.spawn(f"a{number}", BRIEFING).agent)
        elif action < 4:
            scout.commit(name, "finding", changes={"n": b"%d" % number})
        elif action == 4 and len(agents) > 4:
            agents.remove(name)
            scout.agents.archive(name)
        else:
            git_in(scout, "update-ref", HEADS + name, scout.agents.genesis(name))  # back to an older commit, by plain git
        dated = sorted((-scout.show(name).committer.at, name) for name in agents)
        newest = components(scout).relations.newest(3)
        answered += len(newest) == 3
        assert newest == [name for _, name in dated][:3] or sorted(newest) == sorted(agents), number
    assert answered > 40
    assert sorted(components(scout).relations.newest(1_000)) == sorted(agents)


def test_a_recency_index_that_became_too_short_is_discarded() -> None:
    index = relations.RecencyIndex(
        [(9, "a"), (8, "b")] + [(1, f"c{number:03}") for number in range(relations.RECENT_MIN)], complete=False
    )
    assert index.moved({"a": None}) == index._replace(heads=index.heads[1:])
    # A head that is now older than all listed ones leaves the index, too.
    assert index.moved({"a": None, "b": None, "c007": 0}) is None
    assert index._replace(complete=True).moved({"c007": 0}) is not None
    assert relations.RecencyIndex.from_json({"heads": [["?"]]}) is relations.RecencyIndex.from_json(None) is None
