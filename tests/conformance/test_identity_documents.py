"""Versions of an identity's documents, locally and over HTTP: proposals, trials, statistics and adoption."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from clia.values.typed_objects import Briefing
from support import git
from support.plain_git import commit_file
from support.remote import local_of, remote_session_space, root_of
from support.session_spaces import session_space_on, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia

PATH = ".clia/agents/scout/shop.agent.triad.json"
RULE, NEW_RULE = "Never push to main.", "Count twice."


def text_of(role: str, *rules: str, **fields: str) -> str:
    return json.dumps({"slug": "scout", "role": role, "guardrails": list(rules), **fields}, indent=2) + "\n"


FIRST, BETTER, LOOSE = text_of("counts", RULE), text_of("counts twice", RULE, NEW_RULE), text_of("counts", NEW_RULE)


def repo_of(space: clia.Space) -> Path:
    root = root_of(space)
    return root.parent if root.name == ".git" else root


@pytest.fixture(params=["local", "remote"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[clia.Space]:
    place = (
        remote_session_space(request.getfixturevalue("served"), tmp_path)
        if request.param == "remote"
        else session_space_on(request, tmp_path, "sqlite")
    )
    with place.open() as opened:
        (repo_of(opened) / PATH).parent.mkdir(parents=True)
        commit_file(repo_of(opened), PATH, FIRST)
        yield with_agents(opened, "lead")


def branch_text(space: clia.Space) -> str:
    return git("show", f"main:{PATH}", cwd=root_of(space))


def profile_of(space: clia.Space, name: str) -> dict[str, object]:
    profile = space.types.read(space.show(name).profile or "")
    assert isinstance(profile, dict)
    return profile


def test_a_document_from_its_proposal_to_its_adoption_on_evidence(space: clia.Space) -> None:
    behaviours = space.behaviours
    first = behaviours.add("scout-agent", FIRST, document=PATH)
    assert (first.kind, first.document, first.state) == ("identity-document", PATH, "current")
    better = behaviours.propose("scout-agent", BETTER, why="Miscounted", agent="lead")
    assert (better.state, better.parent, better.document) == ("proposed", first.cid, PATH)
    refused("not-adopted", lambda: space.spawn_at("early", BRIEFING._replace(behaviour=better.cid), "main"))

    behaviours.adopt("scout-agent", better.cid, trial=True)
    for name, version in (("one", first.cid), ("two", better.cid)):
        space.spawn_at(name, behaviours.brief(version, "Count", "Every box."), "main")
        space.commit(name, "finding", changes={name: b"1\n"}, meta={"outcome": "passed" if name == "two" else "failed"})
    profile = profile_of(space, "two")
    assert (profile["slug"], profile["proposal"]) == ("scout", {"version": better.cid, "path": PATH, "text": BETTER})
    assert profile["document"]["role"] == "counts twice"  # type: ignore[index]
    assert profile["document"]["guardrails"] == [RULE, NEW_RULE]  # type: ignore[index]
    assert branch_text(space) == FIRST
    stats = {stats.cid: stats for stats in behaviours.stats("scout-agent")}
    assert [dict(stats[cid].outcomes) for cid in (first.cid, better.cid)] == [{"failed": 1}, {"passed": 1}]
    (measure,) = [measure for measure in behaviours.compare(first.cid, better.cid).measures if measure.measure == "passed"]
    assert (measure.before.n, measure.after.n) == (1, 1)

    assert behaviours.adopt("scout-agent", better.cid, expect=first.cid, why="Counts right").state == "current"
    assert branch_text(space) == BETTER
    assert behaviours.adopt("scout-agent", better.cid).state == "current"


def test_work_of_sessions_counts_for_the_version_that_is_tried(space: clia.Space) -> None:
    version = space.behaviours.add("scout-agent", FIRST, document=PATH)
    space.spawn_at("one", Briefing("Count", behaviour=version.cid), "main")
    space.define("sell", 'def main(input):\n    return request("human", {"question": "Sell?"})\n')
    space.start("one", "sell")
    space.decide("one", "yes")
    (stats,) = space.behaviours.stats("scout-agent")
    assert dict(stats.decisions) == {"approved": 1}


def test_a_trial_keeps_guardrails_and_an_adoption_that_loses_one_waits_for_approval(space: clia.Space) -> None:
    first = space.behaviours.add("scout-agent", FIRST, document=PATH)
    loose = space.behaviours.propose("scout-agent", LOOSE)
    space.behaviours.adopt("scout-agent", loose.cid, trial=True)
    space.spawn_at("one", Briefing("Count", behaviour=loose.cid), "main")
    assert profile_of(space, "one")["document"]["guardrails"] == [RULE, NEW_RULE]  # type: ignore[index]
    assert local_of(space).identities.drifted() == []

    error = refused("guardrail-change", lambda: space.behaviours.adopt("scout-agent", loose.cid))
    assert space.behaviours.get("scout-agent").current == first.cid
    assert branch_text(space) == FIRST
    agent = f"adopt-{loose.cid[:12]}"
    space.decide(agent, "approve", request_id=str(error.fields["request"]))
    space.land(agent, "main")  # as if the adoption had died after landing
    assert space.behaviours.get("scout-agent").current == first.cid
    assert space.behaviours.adopt("scout-agent", loose.cid).state == "current"
    assert branch_text(space) == LOOSE


def test_bad_versions_are_refused_and_change_nothing(space: clia.Space) -> None:
    behaviours = space.behaviours
    first = behaviours.add("scout-agent", FIRST, document=PATH)
    before = git("for-each-ref", cwd=root_of(space))
    for path in ("a.json", ".clia/agents/scout/notes.json", "../.clia/agents/scout/x.agent.json", ".clia/agents/S T/x.agent.json"):
        refused("invalid-document-path", partial(behaviours.propose, "other", BETTER, document=path))
    refused("invalid-document-path", lambda: behaviours.propose("other", BETTER, "identity-document"))
    refused("invalid-document-path", lambda: behaviours.propose("other", BETTER, "prompt", document=PATH))
    refused("invalid-json", lambda: behaviours.propose("scout-agent", "{"))
    refused("wrong-identity", lambda: behaviours.propose("scout-agent", '{"slug": "clerk"}'))
    other = PATH.replace("shop.agent", "shop.agenda")
    refused("wrong-document", lambda: behaviours.propose("scout-agent", BETTER, document=other))
    refused("document-differs", lambda: behaviours.add("scout-agent", BETTER))
    refused("wrong-identity", lambda: space.spawn_at("one", Briefing("x", behaviour=first.cid), "main", slug="clerk"))
    assert git("for-each-ref", cwd=root_of(space)) == before


def test_an_adoption_does_not_overwrite_a_document_that_was_changed_meanwhile(space: clia.Space) -> None:
    first = space.behaviours.add("scout-agent", FIRST, document=PATH)
    better = space.behaviours.propose("scout-agent", BETTER)
    edited = text_of("counts boxes", RULE)
    commit_file(repo_of(space), PATH, edited)
    refused("document-differs", lambda: space.behaviours.adopt("scout-agent", better.cid))
    assert (branch_text(space), space.behaviours.get("scout-agent").current) == (edited, first.cid)


def test_an_adoption_lands_no_work_of_an_agent_that_took_its_name(space: clia.Space) -> None:
    first = space.behaviours.add("scout-agent", FIRST, document=PATH)
    better = space.behaviours.propose("scout-agent", BETTER)
    name = f"adopt-{better.cid[:12]}"
    space.spawn_at(name, BRIEFING, "main")
    space.commit(name, "finding", changes={"evil": b"1\n"})
    refused("other-work", lambda: space.behaviours.adopt("scout-agent", better.cid))
    assert (branch_text(space), space.behaviours.get("scout-agent").current) == (FIRST, first.cid)


def test_reprofiling_ends_a_trial(space: clia.Space) -> None:
    space.behaviours.add("scout-agent", FIRST, document=PATH)
    role = text_of("counts twice", RULE)
    tried = space.behaviours.propose("scout-agent", role)
    space.behaviours.adopt("scout-agent", tried.cid, trial=True)
    space.spawn_at("one", Briefing("Count", behaviour=tried.cid), "main")
    own = local_of(space)
    assert own.identities.drifted() == []
    space.identities.reprofile("one")
    profile = profile_of(space, "one")
    assert "proposal" not in profile
    assert profile["document"]["role"] == "counts"  # type: ignore[index]
