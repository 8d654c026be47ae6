"""Items of an agenda and the agents that work for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.identities.writing import NewIdentity, WriteLocation, init
from support import git
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from pathlib import Path

AGENDA = ".clia/agents/scout/scout@acme.agenda.triad.json"
ITEMS = {"slug": "scout", "backlog": [{"id": "refunds", "title": "Retry refunds", "text": "Three times."}, "Count boxes"]}


@pytest.fixture
def planned(space: clia.Space, repo: Path) -> clia.Space:
    """A space whose branch ``main`` has the identity ``scout`` with an agenda."""
    init("scout", NewIdentity(title="Scout"), WriteLocation(str(repo)))
    for path in (repo / ".clia/agents/scout").glob("*.agenda.triad.json"):
        path.unlink()
    (repo / AGENDA).write_text(json.dumps(ITEMS, indent=2) + "\n")
    git("add", ".", cwd=repo)
    git("commit", "--quiet", "--message=Scout", cwd=repo)
    return space


def spawned_for(space: clia.Space, name: str, item: str) -> None:
    space.spawn_at(name, space.identities.brief("scout", item), "main", slug="scout")


def agenda_of(space: clia.Space, revision: str) -> Any:
    return json.loads(space.files(revision)[AGENDA])  # type: ignore[arg-type]


def test_the_briefing_of_an_item_has_its_title_and_text(planned: clia.Space) -> None:
    meta = {"agenda": {"identity": "scout", "item": "refunds"}}
    assert planned.identities.brief("scout", "ref") == clia.Briefing("Retry refunds", "Three times.", meta=meta)
    assert planned.identities.brief("scout", "refunds", title="Other", text="").title == "Other"
    refused("no-such-item", lambda: planned.identities.brief("scout", "nothing"))
    refused("agent-not-found", lambda: planned.identities.brief("nobody", "refunds"))


def test_the_work_of_an_item_lists_its_agents_sessions_and_landings(planned: clia.Space) -> None:
    spawned_for(planned, "one", "refunds")
    spawned_for(planned, "two", "refunds")
    planned.spawn_at("other", BRIEFING, "main")
    planned.define("waits", 'def main(input):\n    return request("box", {})\n')
    planned.start("one", "waits")
    landed_commit = planned.commit("two", "finding", changes={"new.txt": b"1\n"})
    landed = planned.land("two", "main", how="fast-forward")
    assert isinstance(landed, clia.Landed)
    planned.agents.archive("two")
    refunds, boxes = planned.identities.agenda("scout")
    assert (refunds.item.id, boxes.item.id, boxes.agents) == ("refunds", "count-boxes", ())
    one, two = refunds.agents
    assert (one.agent, one.archived, one.landings) == ("one", False, ())
    assert [(session.id, session.flow, session.status) for session in one.sessions] == [("1", "waits", "suspended")]
    assert (two.agent, two.archived, two.sessions) == ("two", True, ())
    assert [(landing.onto, landing.commit) for landing in two.landings] == [("main", landed.cid)]
    assert landed.cid == landed_commit


def test_an_item_is_done_once_in_a_commit_that_changes_nothing_else(planned: clia.Space) -> None:
    spawned_for(planned, "one", "refunds")
    tick = planned.agents.finish("one")
    commit = planned.show("one")
    assert (tick.identity, tick.item, tick.path, tick.commit) == ("scout", "refunds", AGENDA, commit.cid)
    assert (commit.kind, commit.subject) == ("agenda-update", "done: Retry refunds")
    assert commit.meta["agenda"] == {"identity": "scout", "item": "refunds", "status": "done"}
    assert agenda_of(planned, "one")["backlog"] == [{**ITEMS["backlog"][0], "status": "done"}, "Count boxes"]  # type: ignore[dict-item]
    assert [change.path for change in planned.history.changed("one", commit.parents[0])] == [AGENDA]
    assert planned.agents.finish("one").commit is None
    assert planned.head("one") == commit.cid


def test_two_agents_finish_different_items_and_land_without_a_conflict(planned: clia.Space) -> None:
    spawned_for(planned, "one", "refunds")
    spawned_for(planned, "two", "count-boxes")
    for name in ("one", "two"):
        planned.agents.finish(name)
        assert isinstance(planned.land(name, "main"), clia.Landed)
    assert [planned_item.item.status for planned_item in planned.identities.agenda("scout")] == ["done", "done"]


def test_an_agent_without_an_item_names_one(planned: clia.Space) -> None:
    planned.spawn_at("scout", BRIEFING, "main")
    planned.spawn("alone", BRIEFING)
    refused("no-agenda-item", lambda: planned.agents.finish("scout"))
    refused("no-agenda-item", lambda: planned.agents.finish("alone", "refunds"))
    assert planned.agents.finish("scout", "refunds").commit is not None


def test_an_item_that_the_agents_files_do_not_have_is_refused(planned: clia.Space) -> None:
    planned.spawn("one", planned.identities.brief("scout", "refunds"), slug="scout")  # without files
    refused("agenda-item-elsewhere", lambda: planned.agents.finish("one"))
    spawned_for(planned, "two", "refunds")
    head = planned.commit("two", "finding", changes={AGENDA: b"{"})
    refused("invalid-json", lambda: planned.agents.finish("two"))
    assert planned.head("two") == head


def test_two_agents_that_tick_adjacent_items_merge_and_land(planned: clia.Space) -> None:
    for name, item in (("one", "refunds"), ("two", "count-boxes")):
        spawned_for(planned, name, item)
        assert planned.agents.finish(name).item == item
    assert isinstance(planned.merge("two", "one"), clia.Merged)
    for name in ("one", "two"):
        assert isinstance(planned.land(name, "main"), clia.Landed)
    for revision in ("agents/two", "main"):
        assert [item["status"] for item in agenda_of(planned, revision)["backlog"]] == ["done", "done"]
