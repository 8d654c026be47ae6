"""Which agent a call is attributed to: several sessions in one repository, killed ones, sub-agents, and bound servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

import clia
from clia.capture.ingest import ingest
from support.captured import agent_of, hook, new_space, put, run_ingest
from support.mcp_client import PROTOCOLS, Driver, talking
from support.mcp_server import drive, server_at
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ONE, TWO, KILLED = "11111111-aaaa", "22222222-bbbb", "33333333-cccc"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A space with three open sessions of Claude Code. One was killed, which no event reports."""
    root = new_space(tmp_path.resolve() / "repo")
    for session in (ONE, TWO, KILLED):
        hook(root, "SessionStart", session, source="startup")
        hook(root, "UserPromptSubmit", session, prompt="Go.")
    run_ingest(root)
    return root


@pytest.fixture
def opened(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as space:
        yield space


async def caller_of(driver: Driver, meta: Mapping[str, Any] | None = None, **args: Any) -> str:
    """The agent that ``whoami`` says, or the code of its error."""
    result = await driver.client.call_tool("whoami", args, meta=cast("Any", dict(meta or {})))
    content: dict[str, Any] = result.structured_content
    return str(content["code"] if result.is_error else content["agent"])


def callers(server: Any, *metas: Mapping[str, Any], protocol: str = PROTOCOLS[0]) -> list[str]:
    agents: list[str] = []

    async def work(driver: Driver) -> None:
        agents.extend([await caller_of(driver, meta) for meta in metas])

    drive(server, work, protocol)
    return agents


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_session_in_the_metadata_of_a_call_decides(opened: clia.Space, root: Path, protocol: str) -> None:
    one, two = (agent_of(opened, "claude-code", session) for session in (ONE, TWO))
    codex = {"x-codex-turn-metadata": {"session_id": TWO, "thread_id": TWO}}
    metas: tuple[dict[str, Any], ...] = ({"sessionId": ONE}, {"sessionId": TWO}, codex, {"sessionId": 7}, {})
    assert callers(server_at(opened, root), *metas, protocol=protocol) == [one, two, two, "missing-field", "missing-field"]


def test_a_session_that_is_not_recorded_is_not_taken_for_the_only_open_one(opened: clia.Space, root: Path) -> None:
    for captured in opened.captures.sessions():
        opened.captures.keep(captured._replace(open=captured.session == ONE))
    unknown = {"sessionId": "44444444-dddd"}
    assert callers(server_at(opened, root), {}, unknown) == [agent_of(opened, "claude-code", ONE), "missing-field"]


def test_the_session_that_started_the_server_decides_where_the_call_names_none(opened: clia.Space, root: Path) -> None:
    one, two = (agent_of(opened, "claude-code", session) for session in (ONE, TWO))
    assert callers(server_at(opened, root, session=ONE), {}, {"sessionId": TWO}) == [one, two]


def test_two_clients_at_once_are_two_agents(opened: clia.Space, root: Path) -> None:
    agents = {session: agent_of(opened, "claude-code", session) for session in (ONE, TWO)}

    async def work(session: str) -> None:
        async with talking(server_at(opened, root, session=session)) as driver:
            for number in range(5):
                assert (await driver.do("trace", kind="said", text=f"{session} {number}"))["agent"] == agents[session]

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for session in agents:
                group.start_soon(work, session)

    anyio.run(main)
    for session, agent in agents.items():
        notes = [entry["text"] for entry in opened.traces.pending(agent) if entry["kind"] == "said"]
        assert notes == [f"{session} {number}" for number in range(5)]


def test_a_session_that_has_just_begun_is_recorded_first(opened: clia.Space, root: Path) -> None:
    hook(root, "SessionStart", "44444444-dddd", source="startup")
    hook(root, "UserPromptSubmit", "44444444-dddd", prompt="Go.")
    server = server_at(opened, root, refresh=lambda space: ingest(space, settings(), {}))
    assert callers(server, {"sessionId": "44444444-dddd"}) == ["claude-44444444"]


def test_a_call_of_a_sub_agent_is_its_own(opened: clia.Space, root: Path) -> None:
    hook(root, "SubagentStart", ONE, agent_id="sub-1", agent_type="helper")
    run_ingest(root)
    one, sub = agent_of(opened, "claude-code", ONE), agent_of(opened, "claude-code", ONE, "sub-1")
    announced = {"tool_name": "mcp__clia__whoami", "tool_input": {}}
    hook(root, "PreToolUse", ONE, agent_id="sub-1", tool_use_id="toolu_1", **announced)
    hook(root, "PreToolUse", ONE, tool_use_id="toolu_2", **announced)
    metas = [{"sessionId": ONE, "claudecode/toolUseId": call} for call in ("toolu_1", "toolu_2", "toolu_unknown")]
    thread = {"x-codex-turn-metadata": {"session_id": ONE, "thread_id": "sub-1"}}
    assert callers(server_at(opened, root), *metas, thread) == [sub, one, one, sub]
    run_ingest(root)
    assert callers(server_at(opened, root), *metas) == [sub, one, one], "from the trace, once the events are ingested"


def test_a_client_without_metadata_is_the_session_whose_hook_announced_the_call(opened: clia.Space, root: Path) -> None:
    def gemini(name: str, session: str, **more: Any) -> None:
        put(root, json.dumps({"session_id": session, "hook_event_name": name, "cwd": str(root), **more}).encode(), "gemini")

    for session in (ONE, TWO):
        gemini("SessionStart", session, source="startup")
        gemini("BeforeAgent", session, prompt="Go.")
    run_ingest(root)
    call = {"tool_name": "mcp_clia_whoami", "tool_input": {}}
    gemini("BeforeTool", ONE, **call)
    gemini("AfterTool", ONE, **call, tool_response={})
    server = server_at(opened, root)
    assert callers(server, {}) == ["missing-field"], "the announced call has ended"
    gemini("BeforeTool", TWO, tool_name="mcp_clia_whoami", tool_input={"agent": "x"})
    assert callers(server, {}) == ["missing-field"], "the announced call has other arguments"
    gemini("BeforeTool", TWO, **call)
    assert callers(server, {}) == [agent_of(opened, "gemini", TWO)]
    gemini("BeforeTool", ONE, **call)
    assert callers(server, {}) == ["missing-field"], "two sessions announce the same call"


def test_a_call_whose_announcement_is_recorded_already_is_found_in_the_trace(opened: clia.Space, root: Path) -> None:
    """Another session's hook may start an ingest between the announcement of a call and the call."""

    def copilot(name: str, session: str, **more: Any) -> None:
        put(root, json.dumps({"session_id": session, "hook_event_name": name, "cwd": str(root), **more}).encode(), "copilot")

    for session in (ONE, TWO):
        copilot("UserPromptSubmit", session, prompt="Go.")
    whoami, log = ({"tool_name": f"clia-{tool}", "tool_input": {}} for tool in ("whoami", "log"))
    copilot("PreToolUse", ONE, **whoami)
    run_ingest(root)
    one = agent_of(opened, "copilot", ONE)
    server = server_at(opened, root)
    assert callers(server, {}) == [one]
    copilot("PreToolUse", ONE, **log)
    assert callers(server, {}) == [one], "both calls are open"
    copilot("PostToolUse", ONE, **whoami, tool_result={})
    assert callers(server, {}) == ["missing-field"], "the announced call has ended"
    copilot("PreToolUse", ONE, **whoami)
    copilot("PreToolUse", TWO, **whoami)
    run_ingest(root)
    assert callers(server, {}) == ["missing-field"], "two sessions announce the same call"
    copilot("Stop", TWO)
    assert callers(server, {}) == [one], "the turn of the other session has ended"


def test_a_bound_server_acts_as_no_other_agent(opened: clia.Space, root: Path, tmp_path: Path) -> None:
    for name in ("scout", "painter"):
        opened.spawn(name, BRIEFING)
    opened.checkout("scout", tmp_path.resolve() / "work")
    heads = {name: opened.head(name) for name in ("scout", "painter")}

    async def work(driver: Driver) -> None:
        assert await caller_of(driver, {"sessionId": ONE}) == "scout", "the server's agent, not the session's"
        assert await caller_of(driver, agent="scout") == "scout"
        for tool, args in (
            ("whoami", {"agent": "painter"}),
            ("plan", {"agent": "painter"}),
            ("journal", {"note": "x", "agent": "painter"}),
            ("commit", {"kind": "finding", "changes": {"a": "b"}, "agent": "painter"}),
            ("trace", {"text": "x", "agent": "painter"}),
            ("merge", {"from": "scout", "into": "painter"}),
            ("relate", {"src": "painter", "kind": "reviews", "dst": "scout"}),
            ("spawn", {"name": "new", "title": "New", "parent": "painter"}),
            ("request_decision", {"question": "May I?", "agent": "painter"}),
            ("start", {"flow": "x", "agent": "painter"}),
            ("cancel", {"agent": "painter"}),
            ("behaviour_propose", {"behaviour": "x", "body": "y", "why": "z", "kind": "prompt", "agent": "painter"}),
        ):
            error = await driver.refused("not-allowed", tool, **args)
            assert error["fields"] == {"agent": "scout", "requested": "painter"}
            assert "'scout'" in error["message"]
            assert "'painter'" in error["message"]
        assert (await driver.do("log", of="painter"))["commits"], "it reads other agents"
        await driver.refused("no-such-session", "session", agent="painter")

    drive(server_at(opened, root, agent="scout"), work)
    drive(server_at(opened, tmp_path.resolve() / "work"), work)
    assert {name: opened.head(name) for name in heads} == heads
    assert not opened.traces.pending("painter")
