"""Journals in merges and landings."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import clia
from clia.identities.journal import Note
from clia.identities.writing import WriteLocation, journal
from support.plain_git import commit_file
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL = ".clia/agents/scout/scout@acme.agency.triad.json"


def content(*entries: str) -> bytes:
    """A journal with these entries; the text gives the order."""
    listed = [{"timestamp": text[:1], "summary": text} for text in entries]
    return (json.dumps({"slug": "scout", "entries": listed}, indent=2) + "\n").encode()


def summaries(space: clia.Space, revision: str, path: str = JOURNAL) -> list[str]:
    data: Any = space.files(revision)[path]
    return [entry["summary"] for entry in json.loads(data)["entries"]]


def two_agents(space: clia.Space, base: bytes | None, ours: bytes, theirs: bytes) -> None:
    space.spawn("lead", BRIEFING)
    if base is not None:
        space.commit("lead", "finding", changes={JOURNAL: base})
    space.spawn_from("helper", BRIEFING, "lead")
    space.commit("lead", "finding", changes={JOURNAL: ours})
    space.commit("helper", "finding", changes={JOURNAL: theirs})


def test_a_merge_joins_journals_that_both_agents_appended_to(space: clia.Space) -> None:
    two_agents(space, content("1 old"), content("1 old", "2 ours"), content("1 old", "3 theirs"))
    assert isinstance(space.merge("lead", "helper"), clia.Merged)
    assert summaries(space, "agents/lead") == ["1 old", "2 ours", "3 theirs"]


def test_a_merge_joins_journals_that_both_agents_created(space: clia.Space) -> None:
    two_agents(space, None, content("3 ours"), content("2 theirs"))
    assert isinstance(space.merge("lead", "helper"), clia.Merged)
    assert summaries(space, "agents/lead") == ["2 theirs", "3 ours"]


def test_other_conflicts_are_reported_and_resolved_beside_a_joined_journal(space: clia.Space) -> None:
    two_agents(space, None, content("3 ours"), content("2 theirs"))
    space.commit("lead", "finding", changes={"plan": b"1\n"})
    space.commit("helper", "finding", changes={"plan": b"2\n"})
    conflicts = space.merge("lead", "helper")
    assert isinstance(conflicts, clia.Conflicts)
    assert [path.path for path in conflicts.paths] == ["plan"]
    space.resolve("lead", "helper", ours=conflicts.ours, theirs=conflicts.theirs, changes={"plan": b"3\n"})
    assert summaries(space, "agents/lead") == ["2 theirs", "3 ours"]


def test_a_broken_or_removed_journal_stays_a_conflict(space: clia.Space) -> None:
    two_agents(space, content("1 old"), content("1 old", "2 ours"), b"{")
    conflicts = space.merge("lead", "helper")
    assert isinstance(conflicts, clia.Conflicts)
    assert [path.path for path in conflicts.paths] == [JOURNAL]
    space.commit("helper", "finding", changes={JOURNAL: None})
    assert isinstance(space.merge("lead", "helper"), clia.Conflicts)


def test_the_second_landing_joins_the_journal_of_the_first(space: clia.Space, people: Path) -> None:
    space.spawn_at("helper", BRIEFING, "main")
    space.commit("scout", "finding", changes={JOURNAL: content("1 scout's")})
    space.commit("helper", "finding", changes={JOURNAL: content("2 helper's")})
    assert isinstance(space.land("scout", "main"), clia.Landed)
    assert isinstance(space.land("helper", "main"), clia.Landed)
    assert summaries(space, "main") == ["1 scout's", "2 helper's"]
    assert (people / JOURNAL).is_file()


STEPS = 200
ITEMS = [f"Item {number}" for number in range(60)]
AGENDA = ".clia/agents/scout/scout@acme.agenda.triad.json"


def test_two_agents_of_one_identity_journal_tick_merge_and_land_in_any_order(space: clia.Space, repo: Path, tmp_path: Path) -> None:
    """Every entry reaches the main branch once and in order, and every tick, without a conflict."""
    choose = random.Random(20261118)  # noqa: S311  # the same every time
    (repo / AGENDA).parent.mkdir(parents=True)
    commit_file(repo, AGENDA, json.dumps({"slug": "scout", "backlog": ITEMS}, indent=2) + "\n")
    places = {name: tmp_path / "trees" / name for name in ("one", "two")}
    for name, place in places.items():
        space.spawn_at(name, BRIEFING, "main", slug="scout")
        space.checkout(name, place)
    notes: dict[str, list[str]] = {"one": [], "two": []}
    left, acts = list(ITEMS), Counter[str]()
    for number in range(STEPS):
        name = choose.choice(["one", "two"])
        other = "two" if name == "one" else "one"
        act = choose.choice(["journal", "journal", "tick", "merge", "land", "squash"])
        acts[act] += 1
        if act == "journal":
            notes[name].append(f"note {number} of {name}")
            journal("scout", Note(notes[name][-1]), WriteLocation(str(places[name])))
            space.commit_dir(name, "finding", places[name])
        elif act == "tick" and left:
            space.agents.finish(name, left.pop(choose.randrange(min(2, len(left)))).lower().replace(" ", "-"))
            space.checkout(name, places[name])
        elif act == "merge":
            assert not isinstance(space.merge(name, other), clia.Conflicts)
            space.checkout(name, places[name])
        else:
            assert not isinstance(space.land(name, "main", squash=act == "squash"), clia.Conflicts)
    for name in places:
        assert not isinstance(space.land(name, "main"), clia.Conflicts)
    assert len(acts) == 5
    path = f".clia/agents/scout/scout@{repo.name}.agency.triad.json"
    entries = summaries(space, "main", path)
    assert sorted(entries) == sorted([*notes["one"], *notes["two"]])
    for written in notes.values():
        assert [entry for entry in entries if entry in written] == written
    data: Any = space.files("main")[AGENDA]
    items = [item if isinstance(item, dict) else {"title": item} for item in json.loads(data)["backlog"]]
    assert [item["title"] for item in items] == ITEMS
    assert {item["title"] for item in items if item.get("status") != "done"} == set(left)
