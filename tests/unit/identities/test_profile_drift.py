"""The difference between an agent's recorded profile and its identity now, and recording the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.testing import Crash, crash_at
from support import clia as command
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import Tree

RULE, MORE = "No force pushes", "Run the tests"


@pytest.fixture
def space(tree: Tree) -> Iterator[clia.Space]:
    with clia.init(tree.path("w"), settings=settings()) as opened:
        tree.agent("w", "scout", title="Scout", guardrails=[RULE])
        opened.spawn("scout", BRIEFING)
        yield opened


def drift(space: clia.Space, agent: str = "scout") -> Any:
    return space.identities.of_agent(agent)


def guardrails(space: clia.Space, agent: str = "scout") -> Any:
    return space.record_of(agent)["profile.json"]["document"]["guardrails"]


def test_an_agent_whose_documents_are_as_they_were_has_not_drifted(space: clia.Space) -> None:
    assert not drift(space).drifted
    assert (drift(space).slug, drift(space).guardrails) == ("scout", (RULE,))
    assert space.identities.drifted() == []
    assert space.identities.reprofile("scout").commit is None


def test_guardrails_that_were_added_and_lost_both_bind_the_agent(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "scout", title="Pathfinder", guardrails=[MORE])
    identity = drift(space)
    assert (identity.missing, identity.added, identity.changed) == ((RULE,), (MORE,), ("title",))
    assert identity.guardrails == (RULE, MORE)
    assert [item.agent for item in space.identities.drifted()] == ["scout"]


def test_an_agent_of_an_older_space_without_a_profile_gets_the_root_rules(space: clia.Space, tree: Tree) -> None:
    space.spawn("nobody", BRIEFING)
    assert "profile.json" not in space.record_of("nobody")
    tree.agent("w", "root", guardrails=[MORE])
    assert (drift(space, "nobody").slug, drift(space, "nobody").added) == (None, (MORE,))
    space.identities.reprofile("nobody")
    assert guardrails(space, "nobody") == [MORE]
    assert not drift(space, "nobody").drifted


def test_documents_that_are_gone_or_cannot_be_read_are_findings_and_nothing_is_recorded(space: clia.Space, tree: Tree) -> None:
    path = tree.agent("w", "scout", guardrails=[RULE])
    path.write_text("{")
    assert [item.code for item in drift(space).findings] == ["invalid-json"]
    assert drift(space).guardrails == (RULE,)
    assert not str(drift(space).findings[0].path).startswith("/")
    refused("incomplete-profile", lambda: space.identities.reprofile("scout"))
    refused("empty-value", lambda: space.identities.reprofile("scout", accept_incomplete=" "))
    path.unlink()
    path.parent.rmdir()
    assert drift(space).missing == (RULE,)
    assert len(drift(space).findings) == 1
    refused("incomplete-profile", lambda: space.identities.reprofile("scout"))
    assert guardrails(space) == [RULE]


def test_reprofile_records_the_present_profile_as_a_commit(space: clia.Space, tree: Tree) -> None:
    before = space.show("scout")
    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    done = space.identities.reprofile("scout")
    commit = space.show("scout")
    assert (done.commit, done.profile, done.added, done.lost) == (commit.cid, commit.profile, (MORE,), ())
    assert (commit.kind, commit.parents, commit.briefing) == ("reprofile", (before.cid,), before.briefing)
    assert commit.profile != before.profile
    assert f"+ {MORE}" in commit.message
    assert space.history.changed(before.cid, commit.cid) == []
    assert guardrails(space) == [RULE, MORE]
    assert not drift(space).drifted
    assert space.show(space.commit("scout", "finding", {"a": b"1"})).profile == done.profile
    assert space.verify().findings == ()
    assert space.identities.reprofile("scout").commit is None


def test_a_loss_is_recorded_only_with_a_persons_approval_of_exactly_this_loss(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    space.identities.reprofile("scout")
    tree.agent("w", "scout", title="Scout", guardrails=[MORE])
    error = refused("guardrail-change", lambda: space.identities.reprofile("scout"))
    assert RULE in str(error.fields["losses"])
    assert refused("guardrail-change", lambda: space.identities.reprofile("scout")).fields["request"] == error.fields["request"]
    (question,) = space.pending("scout")
    assert RULE in str(question.payload["losses"])
    assert guardrails(space) == [RULE, MORE]
    decision = space.decide("scout", "approve", request_id=question.id, by="Ada", rationale="moved to the server")
    tree.agent("w", "scout", title="Scout", guardrails=[])
    refused("guardrail-change", lambda: space.identities.reprofile("scout"))
    tree.agent("w", "scout", title="Scout", guardrails=[MORE])
    done = space.identities.reprofile("scout")
    assert (done.lost, done.decision) == ((RULE,), decision.cid)
    assert space.show("scout").decisions == (decision.cid,)
    assert guardrails(space) == [MORE]
    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    space.identities.reprofile("scout")
    tree.agent("w", "scout", title="Scout", guardrails=[MORE])
    refused("guardrail-change", lambda: space.identities.reprofile("scout"))  # an approval counts once
    assert guardrails(space) == [RULE, MORE]
    assert space.verify().findings == ()


def test_a_rejected_loss_and_one_that_the_agent_approves_itself_stay_unrecorded(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "scout", title="Scout", guardrails=[])
    request = refused("guardrail-change", lambda: space.identities.reprofile("scout")).fields["request"]
    refused("not-a-person", lambda: space.decide("scout", "approve", request_id=request, by="scout"))
    space.decide("scout", "reject", request_id=request, by="Ada")
    error = refused("guardrail-change", lambda: space.identities.reprofile("scout"))
    assert "rejected by Ada" in error.hints[-1]
    assert guardrails(space) == [RULE]


def test_a_profile_that_another_process_records_meanwhile_is_not_overwritten(
    space: clia.Space, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clia.identities import profile_drift

    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    with clia.open(tree.path("w"), settings=settings()) as other:
        prepare = profile_drift.new_profile

        def raced(*arguments: Any) -> Any:
            new = prepare(*arguments)
            monkeypatch.setattr(profile_drift, "new_profile", prepare)
            other.identities.reprofile("scout")
            return new

        monkeypatch.setattr(profile_drift, "new_profile", raced)
        refused("stale-ref", lambda: space.identities.reprofile("scout"))
    assert len(space.log("scout")) == 2


def test_people_see_the_difference_and_agents_cannot_record_it(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "scout", title="Scout", guardrails=[MORE])
    where = tree.root / "w"
    shown = command("show", "scout", cwd=where).out
    assert f"{RULE}  missing at its place now" in shown
    assert f"{MORE}  not recorded yet" in shown
    assert command("show", "scout", "--json", cwd=where).json()["identity"]["missing"] == [RULE]
    ran = command("doctor", cwd=where)
    assert (ran.code, "scout: 1 guardrail missing; 1 guardrail not recorded" in ran.out) == (1, True)
    agent = command("reprofile", "scout", cwd=where, env={"CLIA_AGENT": "scout"})
    assert (agent.code, "person-needed" in agent.err) == (1, True)
    assert "guardrail-change" in command("reprofile", "scout", cwd=where).err
    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    assert f"+ {MORE}" in command("reprofile", "scout", cwd=where).out
    assert "up to date" in command("reprofile", "scout", cwd=where).out


@pytest.mark.parametrize("step", ["objects-written", "intent-recorded", "secondary-refs", "committed", "notes-bound"])
def test_a_crash_while_a_profile_is_recorded_leaves_the_old_or_the_new_one(space: clia.Space, tree: Tree, step: str) -> None:
    before = space.head("scout")
    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    with clia.open(tree.path("w"), settings=settings(reached=crash_at(step))) as crashing, pytest.raises(Crash):
        crashing.identities.reprofile("scout")
    with clia.open(tree.path("w"), settings=settings()) as again:
        landed = again.head("scout") != before
        assert landed == (step in ("committed", "notes-bound"))
        assert guardrails(again) == ([RULE, MORE] if landed else [RULE])
        assert again.verify().findings == ()
        assert (again.identities.reprofile("scout").commit is None) == landed
        assert guardrails(again) == [RULE, MORE]


def test_doctor_shows_the_first_drifted_agents_and_counts_the_others(space: clia.Space, tree: Tree) -> None:
    for number in range(21):
        space.spawn(f"agent-{number}", BRIEFING, slug="scout")
    tree.agent("w", "scout", title="Scout", guardrails=[RULE, MORE])
    ran = command("doctor", cwd=tree.root / "w")
    assert ran.out.count("1 guardrail not recorded") == 20
    assert "2 more agents have drifted" in ran.out
    assert len(command("doctor", "--json", cwd=tree.root / "w").json()["space"]["drifted"]) == 22
