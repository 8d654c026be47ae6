"""The official client drives every tool, resource and prompt: over stdio and over HTTP, in both protocol versions in use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
from mcp_types import ResourceTemplateReference

import clia
from clia.mcp.server import CORE, TOOLS
from clia.users.service import users_of
from support import Tree, git, program, warm
from support.captured import hook, new_space
from support.forge_server import Api, ForgeProcess, new_forge_space
from support.mcp_client import LEGACY, MODERN, PROTOCOLS, Driver, fails, over_http, says, stdio, talking
from support.session_flows import PRODUCT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STDIO, HTTP = "stdio", "http"
LINES = [f"{transport} {protocol}" for transport in (STDIO, HTTP) for protocol in PROTOCOLS]
RULE = {"id": "ask-first", "text": "Ask a person before anything is deleted."}


class World(NamedTuple):
    root: Path
    forge: ForgeProcess
    admin: str
    viewer: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One repository with an agent for each transport and protocol, served by one forge."""
    root = tmp_path_factory.mktemp("mcp").resolve() / "repo"
    place = new_forge_space(root, "victim", *(f"scout-{number}" for number in range(len(LINES))))
    tree = Tree(root)
    for number in range(len(LINES)):
        tree.agent("", f"scout-{number}", title="Scout", guardrails=[RULE])
        tree.agenda("", f"scout-{number}", tasks=[{"title": "Look around"}])
    with clia.open(root) as space:
        space.sessions.define("product", PRODUCT, why="two numbers")
        users = users_of(space)
        users.add("vera", "viewer")
        viewer = users.make_token("vera")[0]
    with ForgeProcess(root) as forge:
        yield World(root, forge, place.token, viewer)


@pytest.mark.parametrize("line", LINES)
def test_the_client_drives_every_tool_resource_and_prompt(world: World, line: str) -> None:
    transport, protocol = line.split()
    agent = f"scout-{LINES.index(line)}"

    async def tour(server: Any, you: dict[str, str]) -> None:
        async with talking(server, protocol, says({"answer": "go", "rationale": "it is safe"})) as driver:
            await _tour(driver, agent, you)
            await _read_resources_and_prompts(driver, agent)

    async def main() -> None:
        if transport == STDIO:
            await tour(stdio(world.root, "--forge", world.forge.address, "--tools", "all"), {"agent": agent})
        else:
            async with over_http(world.forge.address, world.admin) as server:
                await tour(server, {"agent": agent})

    anyio.run(main)
    with clia.open(world.root) as space:
        assert space.verify().findings == ()
        (decision,) = [commit for commit in space.history.own(agent) if commit.kind == "decision"]
        assert decision.by == "Tess <tess@example.org>"


async def _tour(driver: Driver, agent: str, you: dict[str, str]) -> None:
    """Use every tool, as an agent would. ``you`` names the agent where the transport does not."""
    listed = {tool.name: tool for tool in (await driver.client.list_tools()).tools}
    assert list(listed) in (list(TOOLS), list(CORE))
    assert all(tool.title and tool.description and tool.annotations for tool in listed.values())
    await _identity(driver, agent, you)
    await _work(driver, agent, you)
    await _other_agents(driver, agent, you)
    await _people(driver, agent, you)
    await _sessions(driver, agent, you)
    await _behaviours(driver, agent, you)
    assert (await driver.do("verify"))["findings"] == []
    assert {"verify: checking", "verify: done", "merge: merging", "start: running the flow"} <= set(driver.progress)
    others = {"journal", "permission_prompt", "reprofile"}  # refused, for clients, and for people
    assert driver.used == set(TOOLS) - others, "every other tool must be called"


async def _identity(driver: Driver, agent: str, you: dict[str, str]) -> None:
    identity = await driver.do("whoami", **you)
    assert (identity["agent"], identity["guardrails"], identity["profile"]["title"]) == (agent, [RULE], "Scout")
    assert identity["standing"]["briefing"]["title"] == "Look around"
    assert (await driver.do("plan", **you))["agenda"]["tasks"] == [{"title": "Look around"}]
    # It was spawned before its documents existed; a journal in the directory would be in a person's worktree.
    await driver.refused("no-identity", "journal", note="began", tags=["start"], key="one", **you)
    explained = await driver.do("explain_rule", on="tool", tool="Bash", command="make deploy", **you)
    assert (explained["do"], explained["matches"]) == ("", [])
    assert agent in [row["agent"] for row in (await driver.do("agents"))["agents"]]


async def _work(driver: Driver, agent: str, you: dict[str, str]) -> None:
    await driver.do("trace", text=f"{agent} reads the build files", kind="said", data={"n": 1}, **you)
    changes = {"a.txt": "one\n", "b.bin": {"base64": "/wA="}, "run": {"text": "#!/bin/sh\n", "executable": True}}
    commit = await driver.do("commit", kind="finding", message="Found it", changes=changes, **you)
    assert (commit["agent"], commit["traced"]) == (agent, 1)
    shown_commit = await driver.do("show", commit=commit["cid"], diff=True, trace=True)
    assert shown_commit["trace"]["entries"][0]["data"] == {"n": 1}
    assert "+one" in shown_commit["diff"]
    (hit,) = (await driver.do("trace_search", text=f"{agent} READS"))["hits"]
    assert hit["commit"] == commit["cid"]
    assert [commit["kind"] for commit in (await driver.do("log", of=agent))["commits"]] == ["finding", "spawn"]
    assert {"path": "b.bin", "bytes": 2} in (await driver.do("files", at=agent))["listed"]
    assert (await driver.do("files", at=agent, paths=["b.bin"]))["files"] == {"b.bin": {"base64": "/wA="}}
    assert {change["path"] for change in (await driver.do("diff", of=agent))["changed"]} == set(changes)
    (reason,) = (await driver.do("why", path="a.txt", line=1, commit=agent))["reasons"]
    assert (reason["author"], reason["lines"], reason["result"]) == (agent, ["one"], "verified")
    (open_change,) = [change for change in (await driver.do("changes"))["changes"] if change["agent"] == agent]
    assert (open_change["head"], open_change["onto"], open_change["files"]) == (commit["cid"], "main", 3)
    change = await driver.do("change", **you)
    assert ([own["cid"] for own in change["commits"]], change["forecast"]["outcome"]) == ([commit["cid"]], "lands")


async def _other_agents(driver: Driver, agent: str, you: dict[str, str]) -> None:
    helper = f"{agent}-helper"
    into = {"into": agent} if you else {}
    spawned = await driver.do("spawn", name=helper, title="Help", text="Say it in German.", parent=agent)
    assert spawned["agent"] == helper
    await driver.do("commit", kind="refactor", message="theirs", changes={"a.txt": "eins\n"}, agent=helper)
    base = (await driver.do("whoami", **you))["standing"]["head"]["cid"]
    await driver.do("commit", kind="refactor", message="ours", changes={"a.txt": "uno\n"}, base=base, **you)
    clash = await driver.do("merge", **{"from": helper}, **into)
    assert (clash["outcome"], [conflict["path"] for conflict in clash["paths"]]) == ("conflicts", ["a.txt"])
    heads = {"ours": clash["ours"], "theirs": clash["theirs"]}
    assert {"first": agent, "second": helper, "paths": ["a.txt"]} in (await driver.do("changes"))["clashes"]
    await driver.do("resolve", **{"from": helper}, **heads, changes={"a.txt": "one, eins\n"}, message="both", **into)
    assert (await driver.do("merge", **{"from": helper}, **into))["outcome"] == "up_to_date"
    await driver.do("relate", kind="reviews", dst=agent, src=helper)
    edges = (await driver.do("relations", touching=helper))["relations"]
    assert {(edge["src"], edge["kind"]) for edge in edges} >= {(helper, "reviews"), (agent, "merges")}
    assert (await driver.do("peers"))["peers"] == (await driver.do("remotes"))["remotes"] == []


async def _people(driver: Driver, agent: str, you: dict[str, str]) -> None:
    decided = await driver.do("request_decision", question="Delete it?", context={"path": "b.bin"}, choices=["go", "stop"], **you)
    assert (decided["status"], decided["value"], decided["rationale"]) == ("decided", "go", "it is safe")
    repeated = await driver.do("decision", request=decided["request"], **you)
    assert repeated == decided
    assert (await driver.do("pending", agent=agent))["requests"] == []


async def _sessions(driver: Driver, agent: str, you: dict[str, str]) -> None:
    (behaviour,) = (await driver.do("behaviours", kind="session-flow"))["behaviours"]
    assert (behaviour["name"], behaviour["why"]) == ("product", "two numbers")
    assert (await driver.do("flow", name="product"))["source"] == PRODUCT
    assert (await driver.do("start", flow="product", **you))["status"] == "suspended"
    assert (await driver.do("resume", value=6, **you))["resumed"] == 1
    forked = await driver.do("fork", as_agent=f"{agent}-fork", **you)
    assert (await driver.do("resume", value=7, **you))["result"] == 42
    assert (await driver.do("cancel", reason="enough", agent=forked["agent"]))["status"] == "cancelled"
    session = await driver.do("session", given=True, **you)
    assert [resume["value"] for resume in session["given"]["resumes"]] == [6, 7]


async def _behaviours(driver: Driver, agent: str, you: dict[str, str]) -> None:
    described = await driver.do("behaviour_show", behaviour="product")
    assert (described["version"]["body"], described["evidence"]) == (PRODUCT, "clia://behaviours/product/evidence")
    head = (await driver.do("log", of=agent))["commits"][0]["cid"]
    better = {"behaviour": "product", "body": f"{PRODUCT}# {agent}\n", "why": "shorter", "evidence": [head]}
    version = (await driver.do("behaviour_propose", **better, **you))["version"]
    assert (version["state"], version["by"].partition(" ")[0], version["evidence"]) == ("proposed", agent, [head])
    stats = (await driver.do("behaviour_stats", behaviour="product"))["stats"]
    assert [stat["sessions"]["finished"] > 0 for stat in stats if stat["state"] == "current"] == [True]
    compared = await driver.do("behaviour_compare", before="product", after=version["cid"])
    assert f"+# {agent}" in compared["diff"]
    assert (await driver.do("behaviour_suggest", behaviour="product"))["action"] == "not-enough-data"


async def _read_resources_and_prompts(driver: Driver, agent: str) -> None:
    """Read every resource and prompt."""
    client = driver.client
    addresses = {resource.uri for resource in (await client.list_resources()).resources}
    assert {f"clia://agents/{agent}", f"clia://lineage/{agent}"} <= addresses
    templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
    assert templates == {
        "clia://agents/{name}",
        "clia://traces/{cid}",
        "clia://lineage/{slug}",
        "clia://behaviours/{name}/evidence",
        "clia://behaviours/{name}/versions/{cid}",
    }
    version = (await driver.do("behaviour_show", behaviour="product"))["version"]["cid"]
    commit = (await driver.do("log", of=agent))["commits"][-2]["cid"]
    for uri, key in (
        (f"clia://agents/{agent}", "briefing"),
        (f"clia://traces/{commit}", "entries"),
        (f"clia://lineage/{agent}", "plan"),
        ("clia://behaviours/product/evidence", "went_badly"),
        (f"clia://behaviours/product/versions/{version}", "body"),
    ):
        (content,) = (await client.read_resource(uri)).contents
        assert content.mime_type == "application/json"
        assert key in json.loads(getattr(content, "text", ""))
    for uri in ("clia://agents/nobody", "clia://traces/0000", "clia://elsewhere/x", "file:///etc/passwd"):
        err = await fails(client.read_resource(uri))
        assert (err.code, err.data["uri"]) == (-32602, uri)
    assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["clia"]
    (message,) = (await client.get_prompt("clia")).messages
    assert "whoami" in getattr(message.content, "text", "")
    assert (await fails(client.get_prompt("nothing"))).code == -32602
    ref = ResourceTemplateReference(uri="clia://agents/{name}")
    completion = await client.complete(ref, {"name": "name", "value": f"{agent}-h"})
    assert completion.completion.values == [f"{agent}-helper"]
    assert (await fails(client.call_tool("rm", {}))).code == -32602


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_viewer_over_http_can_read_and_not_change(world: World, protocol: str) -> None:
    before = git("for-each-ref", cwd=world.root)

    async def main() -> None:
        async with over_http(world.forge.address, world.viewer, "/mcp/repo") as server, talking(server, protocol) as driver:
            identity = await driver.do("whoami", agent="scout-0")
            error = await driver.refused("agent-not-found", "plan", agent="nobody")
            assert (identity["agent"], identity["contexts"]) == ("scout-0", ["."])
            assert str(world.root.parent) not in json.dumps([identity, error]), (
                "the answers must not contain paths of the forge's machine"
            )
            for tool, args in (
                ("commit", {"kind": "finding", "changes": {}}),
                ("request_decision", {"question": "May I?"}),
                ("journal", {"note": "no"}),
                ("cancel", {}),
            ):
                error = await driver.refused("role-too-low", tool, agent="scout-0", **args)
                assert error["fields"] == {"user": "vera", "role": "viewer", "needed": "admin"}

    anyio.run(main)
    assert git("for-each-ref", cwd=world.root) == before


def test_requests_without_a_token_and_from_browser_pages_are_refused(world: World) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    anonymous, admin = Api(world.forge.address), Api(world.forge.address, world.admin)
    for headers in ({}, {"cookie": "clia_login=x"}, {"authorization": "Bearer clia_wrong"}):
        refused = anonymous("POST", "/mcp", ping, **headers)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer realm="clia"')
    login = world.forge.said["link"].removeprefix(world.forge.pages)
    key = login.partition("key=")[2]
    browser = Api(world.forge.pages)
    page = browser("POST", "/login", f"key={key}".encode(), content_type="application/x-www-form-urlencoded")
    cookie = page.headers["set-cookie"].partition(";")[0]
    assert browser("GET", "/s/repo/", cookie=cookie).status == 200, "the login itself is valid"
    assert browser("POST", "/mcp", ping, cookie=cookie).status == 401
    accept = "application/json, text/event-stream"
    cross_origin = admin("POST", "/mcp", ping, accept=accept, origin="https://evil.example")
    assert (cross_origin.status, cross_origin.json()["code"]) == (403, "other-origin")
    assert (admin("GET", "/mcp").status, admin("POST", "/mcp/nowhere", ping).status) == (405, 404)
    assert admin("POST", "/mcp", b"x" * 9_000_000, content_type="application/json").status == 413


def test_a_session_of_an_older_client_belongs_to_its_user(world: World) -> None:
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    accept = "application/json, text/event-stream"
    opened = Api(world.forge.address, world.admin)("POST", "/mcp", start, accept=accept)
    session = opened.headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    vera = Api(world.forge.address, world.viewer)("POST", "/mcp", ping, accept=accept, mcp_session_id=session)
    assert (opened.status, vera.status) == (200, 404)
    statuses = [Api(world.forge.address, world.viewer)("POST", "/mcp", start, accept=accept).status for _ in range(65)]
    assert statuses == [200] * 64 + [503], "one user has at most a quarter of the sessions"
    assert Api(world.forge.address, world.admin)("POST", "/mcp", start, accept=accept).status == 200


def test_invalid_input_does_not_end_the_server_and_its_output_is_only_the_protocol(world: World) -> None:
    lines = [
        b"\xff\xfe garbage",
        b"{",
        b"[1, 2]",
        b'"text"',
        b'{"jsonrpc": "2.0", "id": 1, "method": "no/such/method"}',
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "initialize",
                "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
            }
        ).encode(),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": 7}}',
        b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "agents", "arguments": {}}}',
    ]
    # The input stays open until the last answer arrives: at its end, the server cancels what it is doing.
    command = [warm.program(), "mcp", "--path", str(world.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers: list[Any] = []
        while not any(answer.get("id") == 4 for answer in answers):
            answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
        answers += [json.loads(line) for line in server.stdout]
        assert server.wait(timeout=60) == 0
    (agents,) = [answer["result"] for answer in answers if answer.get("id") == 4]
    assert not agents["isError"]


def test_without_a_space_identities_work_and_the_other_tools_explain_how_to_create_one(tmp_path: Path) -> None:
    tree = Tree(tmp_path.resolve())
    tree.repository()
    tree.agent("", "scout", guardrails=[RULE])

    async def main() -> None:
        async with talking(stdio(tree.root, CLIA_AGENT="scout"), MODERN) as driver:
            identity = await driver.do("whoami")
            assert (identity["guardrails"], identity["space"], identity["standing"]) == ([RULE], None, None)
            error = await driver.refused("no-such-repository", "commit", kind="finding", changes={})
            assert "clia init" in error["hints"][0]
            git("init", "--quiet", cwd=tree.root)
            error = await driver.refused("no-such-space", "commit", kind="finding", changes={})
            assert "clia init" in error["hints"][0]
            assert [resource.uri for resource in (await driver.client.list_resources()).resources] == ["clia://lineage/scout"]

    anyio.run(main)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_killed_while_a_form_is_open_leaves_one_request_for_the_next_one(
    world: World, signal_number: signal.Signals
) -> None:
    capable = {"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "1"}}
    arguments = {"question": "Kill it?", "choices": ["yes"], "agent": "victim"}
    lines: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": capable},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "request_decision", "arguments": arguments}},
    ]
    with subprocess.Popen([program(), "mcp", "--path", str(world.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for line in lines:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
        server.stdin.flush()
        while json.loads(server.stdout.readline()).get("method") != "elicitation/create":
            pass
        server.send_signal(signal_number)
        assert server.wait(timeout=60) == -signal_number, "it ends at once although its input is open"

    async def main() -> None:
        async with over_http(world.forge.address, world.admin) as transport, talking(transport, MODERN) as driver:
            (waits,) = (await driver.do("pending", agent="victim"))["requests"]
            pending = await driver.do("request_decision", **arguments)
            assert (pending["status"], pending["request"]) == ("held", waits["request"]["id"])
            assert pending["url"] == f"{world.forge.pages}/s/repo/inbox/victim/{pending['request']}"
            assert Api(world.forge.address, world.admin).decide(waits["request"]).status == 200
            decision = await driver.do("decision", request=pending["request"], agent="victim")
            assert (decision["status"], decision["by"]) == ("decided", "Tess <tess@example.org>")

    anyio.run(main)


def test_two_sessions_at_once_and_a_killed_one_are_told_apart(tmp_path: Path) -> None:
    root = new_space(tmp_path.resolve() / "repo")
    sessions = ["11111111-aaaa", "22222222-bbbb", "33333333-cccc"]
    for session in sessions:
        hook(root, "SessionStart", session, source="startup")
        hook(root, "UserPromptSubmit", session, prompt="Go.")
    *live, killed = sessions
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    start = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode() + b"\n"
    environment = {**os.environ, "CLAUDE_CODE_SESSION_ID": killed}
    command = [warm.program(), "mcp", "--path", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(start)
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.kill()

    async def work(session: str) -> None:
        async with talking(stdio(root, CLAUDE_CODE_SESSION_ID=session)) as driver:
            assert (await driver.do("whoami"))["agent"] == f"claude-{session[:8]}"
            commit = await driver.do("commit", kind="finding", message=session, changes={f"{session}.txt": "x\n"})
            assert commit["agent"] == f"claude-{session[:8]}"

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for session in live:
                group.start_soon(work, session)

    anyio.run(main)
    with clia.open(root) as space:
        newest = {session: space.history.own(f"claude-{session[:8]}")[0].subject for session in sessions}
    assert newest == {session: session for session in live} | {killed: newest[killed]}
    assert newest[killed] not in live
