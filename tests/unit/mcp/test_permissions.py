"""Permission prompts of clients over MCP."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.server.request_state import RequestStateSecurity

import clia
from clia.mcp.calls import Caller, SpaceContext
from clia.mcp.server import server_of
from support.mcp_client import MODERN, talking
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 60.0
CALL: dict[str, Any] = {"tool_name": "Bash", "input": {"command": "deploy prod"}, "tool_use_id": "toolu_1"}


def prompted(space: clia.Space, repo: Path, answer: str | None = None, **call: Any) -> dict[str, Any]:
    """The answer of the tool, while a person answers the question, if any."""

    def decide() -> None:
        with clia.open(repo, settings=settings()) as inbox:
            until = time.monotonic() + PATIENCE
            while not (pending := inbox.pending("scout")) and time.monotonic() < until:
                time.sleep(0.02)
            inbox.decide("scout", answer, "Not today.", request_id=pending[0].id)

    async def main() -> dict[str, Any]:
        place = SpaceContext(str(repo), lambda: space, agent="scout")
        server: Any = server_of(place, "1", lambda _: Caller(), RequestStateSecurity(keys=["s" * 32]))
        async with talking(server, MODERN) as driver:
            return await driver.do("permission_prompt", **(call or CALL))

    person = threading.Thread(target=decide) if answer is not None else None
    if person is not None:
        person.start()
    result = anyio.run(main)
    if person is not None:
        person.join()
    return result


@pytest.mark.parametrize(("answer", "behavior"), [("allow", "allow"), ("deny", "deny"), ("always", "allow")])
def test_the_answer_of_a_person_is_the_answer_of_the_tool(space: clia.Space, repo: Path, answer: str, behavior: str) -> None:
    result = prompted(space, repo, answer)
    assert (result["behavior"], result["updatedInput"]) == (behavior, CALL["input"])
    assert "Not today." in result["message"] or behavior == "allow"
    (question,) = space.sessions.questions("scout")
    assert question.input["command"] == "deploy prod"
    again = {**CALL, "tool_use_id": "toolu_2"}
    if answer == "always":
        assert prompted(space, repo, **again)["behavior"] == "allow"
        assert len(space.sessions.questions("scout")) == 1


def test_a_rule_decides_without_a_question(space: clia.Space, repo: Path) -> None:
    home = repo / ".clia" / "agents" / "root"
    home.mkdir(parents=True)
    rule = {"on": "tool", "match": {"command": "deploy *"}, "do": "deny"}
    document = {"slug": "root", "guardrails": [{"text": "No deploys.", "rules": [rule]}]}
    (home / "root@repo.agent.triad.json").write_text(json.dumps(document), encoding="utf-8")
    result = prompted(space, repo)
    assert result["behavior"] == "deny"
    assert "No deploys." in result["message"]
    assert space.sessions.questions("scout") == []


def test_without_an_answer_in_time_the_call_is_refused(repo: Path, space: clia.Space) -> None:
    file = repo / ".git" / "clia" / "config.toml"
    file.write_text("[prompts]\nwait_seconds = 0.1\n", encoding="utf-8")
    with clia.open(repo, settings=settings()) as impatient:
        result = prompted(impatient, repo)
    assert result["behavior"] == "deny"
    assert "in time" in result["message"]
    assert len(space.pending("scout")) == 1
