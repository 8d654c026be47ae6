"""Schemathesis tests the forge's whole OpenAPI document, with valid and invalid requests.

Invariant: every answer has a documented status below 500, its documented media type, and its documented shape.
Existing values (agents, commits, requests) are mixed in, so that many requests pass the first check of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

import clia
from clia.facade.config import ForgeOptions
from clia.forge.api.openapi import document
from support.forge import open_forge
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import BaseSchema, Case

FLOW = 'def main(input):\n    while True:\n        request("human", {"question": "Go on?"})\n'
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
]
METHODS = ("get", "post", "put")
# A stream does not end; other tests read it.
OPERATIONS = [
    (method, path)
    for path, operations in document()["paths"].items()
    for method in METHODS
    if method in operations and operations[method]["operationId"] != "events"
]


class Prey(NamedTuple):
    schema: BaseSchema
    space: clia.Space
    token: str
    peer: tuple[str, str]  # its key and its address

    def revive(self) -> None:
        """Restore what the last example removed."""
        for name in ("scout", "wise"):
            if name not in self.space.agents():
                self.space.agents.restore(name) if name in self.space.agents(archived=True) else self.space.spawn(name, BRIEFING)
            if not self.space.pending(name):
                self.space.ask(name, {"question": "Go on?"})
        if all(peer.space not in self.peer[0] for peer in self.space.peers()):
            self.space.peers.add("wise", *self.peer)
            self.space.peers.share("wise", agents=["*"])

    def known(self) -> dict[str, st.SearchStrategy[Any]]:
        """Existing values, by the fields that accept them."""
        space = self.space
        heads = [space.head("scout"), space.agents.genesis("scout"), space.head("wise")]
        agents = st.sampled_from(["scout", "wise", "newt"])
        commits = st.sampled_from([*heads, "scout", "scout~1", "main"])
        requests = space.pending()
        strategies: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(("name", "agent", "parent", "into", "from"), agents)
        strategies |= dict.fromkeys(("reviewer", "reviewee", "src", "dst", "touching"), agents)
        strategies |= dict.fromkeys(("commit", "text", "one", "other", "ours", "theirs", "base", "at", "cid"), commits)
        strategies |= {
            "request_id": st.sampled_from([request.id for request in requests]),
            "session_id": st.sampled_from([request.session for request in requests]),
            "by": st.none(),
            "kind": st.sampled_from(["finding", "test", "reviews", "note"]),
            "flow": st.just("plan"),
            "source": st.just(FLOW),
            "path": st.just("a.txt"),
            "files": st.just({"a.txt": {"text": "three\n"}, "b": {"base64": "/w=="}}),
            "changes": st.just({"a.txt": "four\n", "b": None}),
            "timezone": st.just("UTC"),
            "peer": st.just("wise"),
            "type": st.sampled_from(["finding", "agent-commit", "briefing"]),
            "trigger": st.sampled_from(["spawn", "head-move", "note"]),
            "url": st.just(self.peer[1]),
            "document": st.sampled_from(["agent", "agenda", "agency"]),
        }
        return strategies

    def aimed(self, case: Case[Any], data: st.DataObject) -> None:
        """Puts existing values into most fields that accept them, and drops most fields that only cause refusals."""
        strategies = self.known()
        for fields in (case.path_parameters, case.query, case.body if isinstance(case.body, dict) else {}):
            for key in [key for key in fields or () if key in strategies]:
                if data.draw(st.integers(0, 9)):
                    fields[key] = data.draw(strategies[key])
        if "If-Match" in case.headers and data.draw(st.integers(0, 4)):
            del case.headers["If-Match"]
        if "cursor" in case.query and data.draw(st.integers(0, 4)):
            del case.query["cursor"]


def headers_of(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "host": "127.0.0.1"}


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prey]:
    root = tmp_path_factory.mktemp("fuzz")
    with open_forge(root, options=ForgeOptions(per_minute=10**9, logins_per_minute=10**9)) as opened:
        space, users = opened.space, opened.forge.users
        for name, text in (("scout", b"one\n"), ("wise", b"two\n")):
            space.spawn(name, BRIEFING)
            space.trace(name, "note", "looking")
            space.commit_with_trace(name, "finding", {"a.txt": text, "b": b"\xff"}, message="look")
        space.sessions.define("plan", FLOW)
        users.add("ada", "admin")
        token = users.make_token("ada")[0]
        with clia.init(root / "peer") as peer_space:
            peer_space.spawn("scout", BRIEFING)
            peer_space.peers.add("us", space.peers.key().text)
            peer_space.peers.share("us", agents=["*"])
            peer_space.peers.announce()
            peer = (peer_space.peers.key().text, str(root / "peer"))
        schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", opened.app, headers=headers_of(token))
        yield Prey(schema, space, token, peer)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "broken"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_conforms_to_the_document(prey: Prey, method: str, path: str, mode: GenerationMode, soak: bool) -> None:
    examples = 200 if soak else 5 if mode is GenerationMode.POSITIVE else 2
    operation = prey.schema[path][method]

    # Deterministic in the suite; a soak explores.
    @settings(
        max_examples=examples,
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def try_one(case: Case[Any], data: st.DataObject) -> None:
        prey.revive()
        if "space" in case.path_parameters:
            case.path_parameters["space"] = "repo"
        if mode is GenerationMode.POSITIVE:
            prey.aimed(case, data)
        response = case.call(headers=headers_of(prey.token))
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=CHECKS)

    try_one()
