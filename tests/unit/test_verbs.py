"""Acts of people are refused to agents, whatever the way in, and a decision records its channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.api.derivation import all_verbs
from clia.users.service import users_of
from clia.verbs import channel, is_for_people, person_answers, require_person, set_channel
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ACTS: dict[str, Callable[[clia.Space], object]] = {
    "decide": lambda space: space.decide("scout", "yes"),
    "decide with proofs": lambda space: space.sessions.decide_with_proofs("scout", "{}", []),
    "define a flow": lambda space: space.sessions.define("f", "def main(input):\n    return 1\n"),
    "land another": lambda space: space.land("helper", "main"),
    "archive another": lambda space: space.agents.archive("helper"),
    "restore": lambda space: space.agents.restore("helper"),
    "claim": lambda space: space.agents.claim("helper"),
    "purge": lambda space: space.traces.purge("scout", "secret"),
    "add a behaviour": lambda space: space.behaviours.add("b", "text", "prompt"),
    "adopt a behaviour": lambda space: space.behaviours.adopt("b", "a" * 40),
    "retire a behaviour": lambda space: space.behaviours.retire("b"),
    "follow the policy": lambda space: space.behaviours.follow_policy("b"),
    "rotate the key": lambda space: space.peers.rotate_key(),
    "add a peer": lambda space: space.peers.add("bob", "key"),
    "change a peer": lambda space: space.peers.change("bob", trusted=True),
    "share": lambda space: space.peers.share("bob", agents=[]),
    "remove a peer": lambda space: space.peers.remove("bob"),
    "grant": lambda space: space.peers.grant("bob", "finding", "merge"),
    "record another profile": lambda space: space.identities.reprofile("scout"),
    "retry a session": lambda space: space.sessions.retry("scout"),
    "accept a lost guardrail": lambda space: space.identities.accept_loss("I say so"),
    "accept an incomplete profile": lambda space: space.spawn("kid", BRIEFING, accept_incomplete="I say so"),
    "accept one for a sub-agent": lambda space: space.spawn_from("kid", BRIEFING, "scout", accept_incomplete="I say so"),
    "accept one at a commit": lambda space: space.spawn_at("kid", BRIEFING, "scout", accept_incomplete="I say so"),
    "accept one for work": lambda space: space.identities.start_of_work("scout", "I say so"),
    "land another by its name": lambda space: space.land(onto="scout", name="helper"),
    "archive another by its name": lambda space: space.agents.archive(name="helper"),
    "undo the last change": lambda space: space.undoing.undo(),
    "rename another": lambda space: space.agents.rename("helper", "aide"),
    "delete another": lambda space: space.agents.delete("helper"),
    "trust a witness": lambda space: space.witnesses.trust("key"),
    "endorse the history": lambda space: space.witnesses.endorse("I say so"),
    "archive idle agents": lambda space: space.maintain(archive_idle_days=0),
    "revoke": lambda space: space.peers.revoke("bob", "finding", "merge"),
    "start to sign": lambda space: space.trust.init(),
    "enrol a key": lambda space: space.trust.enrol("Ada", "key"),
    "revoke a key": lambda space: space.trust.revoke("key"),
    "rotate the machine's key": lambda space: space.trust.rotate_machine(),
    "set the policy": lambda space: space.trust.set_policy({"rules": []}),
    "accept a finding": lambda space: space.trust.accept("code", "ref", "fine"),
    "abandon": lambda space: space.hub.sync(abandon=["helper"]),
    "fork at the hub": lambda space: space.hub.sync(forks={"helper": "other"}),
    "add a user": lambda space: users_of(space).add("eve", "admin"),
    "change a user": lambda space: users_of(space).update("eve", role="admin"),
    "remove a user": lambda space: users_of(space).remove("eve"),
    "make a token": lambda space: users_of(space).make_token("eve"),
    "revoke a token": lambda space: users_of(space).revoke_token("eve", "x"),
    "make a login link": lambda space: users_of(space).login_link("eve"),
}


@pytest.fixture
def agents_space(space: clia.Space, repo: Path) -> Iterator[clia.Space]:
    """The space as the agent ``scout`` opens it, which asks a question."""
    for name in ("scout", "helper"):
        space.spawn(name, BRIEFING)
    space.ask("scout", {"question": "?"})
    environment = {"CLIA_AGENT": "scout", "PATH": "/usr/bin:/bin"}
    with clia.open(repo, settings=settings(environment=environment)) as opened:
        yield opened


@pytest.mark.parametrize("act", ACTS)
def test_an_agent_is_refused(agents_space: clia.Space, act: str) -> None:
    error = refused("person-needed", lambda: ACTS[act](agents_space))
    assert error.fields["agent"] == "scout"
    assert error.hints


def test_every_verb_for_people_is_tried() -> None:
    marked = {verb.name for verb in all_verbs() if is_for_people(_function(verb))}
    assert marked == {
        *("decide", "define", "land", "archive", "restore", "claim", "trace_purge", "add_behaviour", "adopt_behaviour"),
        *("retire_behaviour", "follow_policy", "rotate_key", "add_peer", "change_peer", "share", "remove_peer", "grant", "revoke"),
        *("init_trust", "enrol_key", "revoke_key", "rotate_machine_key", "set_trust_policy", "accept_finding"),
        *("reprofile", "retry", "decide_with_proofs", "accept_loss", "undo", "rename_agent", "delete_agent"),
        *("trust_witness", "endorse_history"),
    }


def _function(verb: Any) -> object:
    home = getattr(clia.Space, verb.service) if verb.service else clia.Space
    return getattr(home, verb.attribute)


def test_an_agent_may_land_and_archive_itself(agents_space: clia.Space, repo: Path) -> None:
    agents_space.commit("scout", "finding", changes={"a": b"1"})
    refused("no-such-branch", lambda: agents_space.land("scout", "nowhere"))
    agents_space.cancel("scout", session_id="ask-1")
    agents_space.agents.archive("scout")
    assert agents_space.agents(archived=True) == ["scout"]


def test_an_agent_records_and_asks(agents_space: clia.Space) -> None:
    agents_space.trace("scout", "note", "hello")
    agents_space.commit_with_trace("scout", "finding", changes={"a": b"1"})
    assert agents_space.ask("scout", {"question": "may I?"}).kind == "human"


def test_who_acts_can_be_given_instead_of_the_variable(repo: Path, space: clia.Space) -> None:
    space.spawn("scout", BRIEFING)
    with clia.open(repo, settings=settings(agent="scout")) as opened:
        refused("person-needed", opened.peers.rotate_key)
    with clia.open(repo, settings=settings(agent="", environment={"CLIA_AGENT": "scout"})) as opened:
        opened.agents.archive("scout")


def test_a_form_of_a_client_is_a_persons_answer(agents_space: clia.Space) -> None:
    with person_answers("form"):
        decision = agents_space.decide("scout", "yes")
    assert agents_space.show(decision.cid).channel == "form"
    refused("person-needed", lambda: agents_space.agents.restore("helper"))
    assert channel() == "library"


def test_a_decision_records_its_channel(scout: clia.Space) -> None:
    scout.ask("scout", {"question": "?"})
    set_channel("command-line")
    try:
        decision = scout.decide("scout", "yes")
    finally:
        set_channel("library")
    assert scout.show(decision.cid).channel == "command-line"
    assert scout.show(scout.genesis("scout")).channel is None


def test_a_person_is_not_refused() -> None:
    require_person(None, "…")
