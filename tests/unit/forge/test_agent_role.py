"""The role agent: it records and asks for its own agents, and does nothing that people do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from clia.api.derivation import all_verbs
from clia.verbs import VIEWER
from support.forge import OpenForge, open_forge, problem_of
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

API = "/api/v1/spaces/repo"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as opened:
        opened.space.spawn("scout", BRIEFING)
        opened.space.spawn("helper", BRIEFING)
        opened.forge.users.add("bot", "agent", agents=["scout"])
        yield opened


def call(forge: OpenForge, method: str, path: str, body: Any = None) -> Any:
    return forge.stranger().client.request(method, API + path, json=body, headers=forge.bearer("bot"))


def test_it_records_and_asks_for_its_own_agent(forge: OpenForge) -> None:
    assert call(forge, "POST", "/agents/scout/trace", {"kind": "note", "text": "hello"}).status_code == 200
    assert (
        call(forge, "POST", "/agents/scout/traced-commits", {"kind": "finding", "changes": {}, "message": "x"}).status_code == 200
    )
    assert call(forge, "POST", "/agents/scout/asks", {"payload": {"question": "?"}}).status_code == 200
    assert call(forge, "GET", "/agents").json()["items"] == ["helper", "scout"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/agents/helper/trace", {"kind": "note", "text": "hello"}),
        ("/agents/helper/commits", {"kind": "finding", "changes": {}}),
        ("/agents/helper/asks", {"payload": {"question": "?"}}),
        ("/agents/helper/merges/scout", {}),
        ("/agents/helper/landings", {"onto": "main"}),
        ("/agents/helper/journal-entries", {"note": "x"}),
        ("/behaviours/b/proposals", {"body": "x", "kind": "prompt"}),
        ("/behaviours/b/proposals", {"body": "x", "kind": "prompt", "agent": "helper"}),
    ],
)
def test_it_does_not_act_for_other_agents(forge: OpenForge, path: str, body: Any) -> None:
    head = forge.space.head("helper")
    assert problem_of(call(forge, "POST", path, body)) == (403, "not-your-agent")
    assert forge.space.head("helper") == head


@pytest.mark.parametrize("name", sorted(verb.name for verb in all_verbs() if verb.role != VIEWER and verb.route.agent is None))
def test_it_calls_no_other_verb(forge: OpenForge, name: str) -> None:
    verb = next(verb for verb in all_verbs() if verb.name == name)
    path = re.sub(r"\{\w+\}", "scout", verb.path)
    assert problem_of(call(forge, verb.method, path, None if verb.method == "GET" else {})) == (403, "role-too-low")


def test_it_does_not_decide(forge: OpenForge) -> None:
    request = forge.space.ask("scout", {"question": "?"})
    answer = call(forge, "POST", "/agents/scout/decisions", {"value": "yes", "request_id": request.id})
    assert problem_of(answer) == (403, "role-too-low")
    assert forge.space.pending("scout") == [request]


def test_verbs_for_agents_never_decide_adopt_grant_or_purge() -> None:
    names = {verb.name for verb in all_verbs() if verb.route.agent is not None}
    assert names == {
        *(
            "spawn_from",
            "commit",
            "commit_with_trace",
            "merge",
            "resolve",
            "land",
            "trace",
            "trace_once",
            "relate",
            "start",
            "resume",
        ),
        *("give_up", "cancel", "ask", "propose_behaviour", "add_journal_entry"),
    }


def test_decisions_over_the_api_and_in_the_forge_record_their_channel(forge: OpenForge) -> None:
    forge.space.ask("scout", {"question": "?"})
    ada = forge.bearer("ada")
    client = forge.stranger().client
    assert client.post(f"{API}/agents/scout/decisions", json={"value": "yes"}, headers=ada).status_code == 200
    assert forge.space.show("scout").channel == "api"
