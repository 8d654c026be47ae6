"""Work of agents as changes to a branch, tested against every implementation of the interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import StaleRef
from clia.space.changes import CONFLICTS, LANDS, UP_TO_DATE, Clash, Forecast
from clia.space.model import Landed
from support import git
from support.spaces import refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture(params=["local", "remote"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[clia.Space]:
    """Three agents from main: two change the same line, one has done nothing."""
    root = tmp_path / "repo"
    with clia.init(root, settings=settings()) as local:
        git("commit", "-q", "--allow-empty", "-m", "start", cwd=root)
        local.spawn_at("base", clia.Briefing("Start"), "main")
        local.commit("base", "refactor", {"a.txt": TEXT.encode()})
        local.land("base", "main")
        for name in ("rival", "scout", "idle"):
            local.spawn_at(name, clia.Briefing(f"Work of {name}"), "main")
        for name in ("rival", "scout"):
            local.commit(name, "finding", changes={"a.txt": TEXT.replace("line 3\n", f"{name}\n").encode()})
        if request.param == "local":
            yield local
            return
    with request.getfixturevalue("served").open(root) as remote:
        yield remote


def test_changes_list_the_agents_with_work_that_a_branch_lacks(space: clia.Space) -> None:
    changes = {change.agent: change for change in space.changes("main")}
    assert changes.keys() == {"rival", "scout"}
    scout = changes["scout"]
    assert (scout.title, scout.onto, scout.head) == ("Work of scout", "main", space.head("scout"))
    assert (scout.commits, scout.files, scout.added, scout.removed, scout.outcome) == (1, 1, 1, 1, LANDS)
    assert scout.tip == space.find("main")
    assert space.changes() == space.changes("main")


def test_a_change_has_commits_files_and_a_forecast_that_changes_nothing(space: clia.Space) -> None:
    heads = space.find("main"), space.head("scout")
    change = space.changes.get("scout")
    assert [commit.cid for commit in change.commits] == [space.head("scout")]
    assert [(file.status, file.path, file.added, file.removed) for file in change.files] == [("M", "a.txt", 1, 1)]
    assert change.forecast == Forecast(LANDS, fast_forward=True)
    assert (space.find("main"), space.head("scout")) == heads
    assert space.pending() == []


def test_agents_that_change_the_same_line_clash_and_one_conflicts_after_the_other_landed(space: clia.Space) -> None:
    assert space.changes.clashes() == [Clash("rival", "scout", ("a.txt",))]
    assert isinstance(space.land("scout", "main"), Landed)
    assert space.changes.clashes() == []
    (rival,) = space.changes()
    assert (rival.outcome, rival.conflicts) == (CONFLICTS, ("a.txt",))
    assert space.changes.get("rival").forecast == Forecast(CONFLICTS, fast_forward=False, conflicts=("a.txt",))
    landed = space.changes.get("scout")
    assert (landed.forecast.outcome, landed.commits, landed.files) == (UP_TO_DATE, [], [])


def test_after_a_squashed_landing_only_later_work_is_a_change(space: clia.Space) -> None:
    space.land("scout", "main")
    cid = space.commit("scout", "finding", changes={"b.txt": b"b\n"})
    change = space.changes.get("scout")
    assert [commit.cid for commit in change.commits] == [cid]
    assert [file.path for file in change.files] == ["b.txt"]
    assert next(summary for summary in space.changes() if summary.agent == "scout").files == 1


def test_a_landing_names_the_head_that_was_looked_at(space: clia.Space) -> None:
    shown_head = space.changes.get("scout").head
    space.commit("scout", "finding", changes={"b.txt": b"b\n"})
    before = space.find("main")
    with pytest.raises(StaleRef) as stale:
        space.land("scout", "main", head=shown_head)
    assert stale.value.fields["expected"] == shown_head
    assert space.find("main") == before
    assert isinstance(space.land("scout", "main", head=space.head("scout")), Landed)


def test_a_forecast_names_the_rules_that_ask_for_more(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    rule = '{"on": "land", "match": {"paths": ["a.txt"]}, "do": "require", "need": ["decision"]}'
    folder = root / ".clia/agents/root"
    folder.mkdir(parents=True)
    (folder / "root.agent.triad.json").write_text(f'{{"guardrails": [{{"text": "Ask first.", "rules": [{rule}]}}]}}')
    git("init", "-q", "-b", "main", cwd=root)
    git("add", ".", cwd=root)
    git("commit", "-qm", "rules", cwd=root)
    with clia.init(root, settings=settings()) as space:
        space.spawn_at("scout", clia.Briefing("Work"), "main")
        space.commit("scout", "finding", changes={"a.txt": b"a\n"})
        forecast = space.changes.get("scout").forecast
        assert forecast.outcome == "refused"
        assert forecast.reasons[0].startswith("a.txt needs a person's decision")
        assert space.pending() == [], "nobody is asked"
        refused("required-by-rule", lambda: space.land("scout", "main"))
        assert len(space.pending()) == 1


def test_a_branch_that_git_created_is_not_listed_and_is_refused(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    tree = git("write-tree", cwd=root).strip()
    commit = git("commit-tree", "-m", "by hand", tree, cwd=root).strip()
    git("update-ref", "refs/heads/agents/wild", commit, cwd=root)
    assert {change.agent for change in space.changes("main")} == {"rival", "scout"}
    assert refused("foreign-branch", lambda: space.changes.get("wild")).fields["agent"] == "wild"


def test_an_unknown_branch_or_agent_is_refused(space: clia.Space) -> None:
    refused("no-such-branch", lambda: space.changes("mian"))
    refused("no-such-agent", lambda: space.changes.get("nobody"))
    refused("not-a-branch-of-people", lambda: space.changes.get("scout", "agents/rival"))
