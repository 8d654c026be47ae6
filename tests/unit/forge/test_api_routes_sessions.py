"""Session routes of the API: who answered, and requests for workers."""

from __future__ import annotations

import pytest

from support.forge import OpenForge, problem_of
from support.session_flows import APPROVAL


@pytest.mark.parametrize(("verb", "body"), [("resume", {"value": "a plan"}), ("give-up", {"reason": "no model"})])
def test_an_answer_for_a_worker_is_recorded_as_the_tokens_user(forge: OpenForge, verb: str, body: dict[str, str]) -> None:
    forge.space.sessions.define("approval", APPROVAL)
    forge.space.start("scout", "approval", {"goal": "x"})
    token = forge.bearer("will", display="Will Worker")
    forged = forge.post_to_agents(f"/scout/{verb}", {**body, "by": "Ann"}, **token)
    assert (*problem_of(forged), forged.json()["fields"]["by"]) == (403, "not-the-user", "Will Worker")
    assert forge.space.session("scout").given() == []
    assert forge.post_to_agents(f"/scout/{verb}", body, **token).status_code == 200
    assert [answer.by for answer in forge.space.session("scout").given()] == ["Will Worker"]
    forge.space.start("smith", "approval", {"goal": "x"})
    assert forge.post_to_agents(f"/smith/{verb}", {**body, "by": "Will Worker"}, **token).status_code == 200, (
        "their own name is accepted"
    )


def test_a_decision_on_a_request_for_workers_is_a_conflict(forge: OpenForge) -> None:
    forge.space.sessions.define("approval", APPROVAL)
    forge.space.start("scout", "approval", {"goal": "x"})
    answer = forge.post_to_agents("/scout/decisions", {"value": "yes", "request_id": "1.1"}, **forge.bearer("will"))
    assert problem_of(answer) == (409, "not-a-human-request")
    assert (answer.json()["kind"], answer.json()["hints"]) == ("not-allowed", ["clia session resume scout VALUE --request 1.1"])
