"""The MCP server: refusals, the default agent, schemas, and internal errors."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from jsonschema import Draft202012Validator

import clia
from clia.api.derivation import all_verbs
from clia.api.shapes import COUNT, TEXT_MAX
from clia.capture.service import CapturedSession
from clia.cli.forge import site_address
from clia.forge.forge import unique_names
from clia.git.records import FILE, TreeEntry
from clia.identities.service import RelativePaths
from clia.mcp import resources, space_tools, toolbox
from clia.mcp.calls import Caller
from clia.mcp.server import TOOLS, core_tools, described
from clia.testing import components
from clia.users.service import User
from clia.values.typed_objects import Behaviour, as_bytes
from clia.verbs import ADMIN, Count
from support import Tree
from support import clia as run_clia
from support.mcp_client import PROTOCOLS, Driver
from support.mcp_server import drive, server_at
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.mcp.calls import ToolCall


def test_every_schema_is_valid_and_self_contained() -> None:
    for tool in map(described, TOOLS.values()):
        for schema in (tool.input_schema, tool.output_schema or {}):
            Draft202012Validator.check_schema(schema)
            assert "#/components" not in json.dumps(schema)
            assert schema["type"] == "object"


def test_the_default_list_is_small() -> None:
    core = core_tools({name: described(tool) for name, tool in TOOLS.items()})
    assert len(core) <= 12
    listed = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in core]
    assert len(json.dumps({"tools": listed}).encode()) <= 20_000


def test_a_tool_is_derived_from_its_function() -> None:
    @toolbox.tool("Count words", role=ADMIN, returns=toolbox.ResultShape(words=Count, longest=str | None), idempotent=True)
    def count_(
        call: ToolCall,
        from_: Annotated[str, "the text"],
        limit: Annotated[Count, "maximum"] = 5,
        words: Annotated[Sequence[str], "only these"] = (),
        meta: Annotated[Mapping[str, Any] | None, "more"] = None,
    ) -> Mapping[str, Any]:
        """Counts the words
        of a text."""
        return {"words": min(len(from_.split()), limit), "longest": None}

    tool = described(count_)
    assert (tool.name, tool.title, tool.description) == ("count_", "Count words", "Counts the words of a text.")
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "from": {"type": "string", "maxLength": TEXT_MAX, "description": "the text"},
            "limit": {**COUNT.schema(), "description": "maximum", "default": 5},
            "words": {
                "type": "array",
                "items": {"type": "string", "maxLength": TEXT_MAX},
                "description": "only these",
                "default": [],
            },
            "meta": {"anyOf": [{"type": "object"}, {"type": "null"}], "description": "more"},
        },
        "additionalProperties": False,
        "required": ["from"],
    }
    assert tool.output_schema == {
        "type": "object",
        "properties": {"words": COUNT.schema(), "longest": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["words", "longest"],
        "additionalProperties": False,
    }
    hints = tool.annotations
    assert hints is not None
    assert (hints.read_only_hint, hints.idempotent_hint, hints.destructive_hint) == (False, True, False)


def test_a_tool_takes_what_it_does_not_state_from_its_verb() -> None:
    @toolbox.tool("Log", "log", you="text", names={"text": "of"}, returns=toolbox.ResultShape(commits="log", more=bool))
    def newest(call: ToolCall, own: bool = True, extra: Annotated[str, "one more"] = "", **arguments: Any) -> Mapping[str, Any]:
        """The newest first."""
        return {"commits": call.space.log(own=own, **arguments), "more": bool(extra)}

    tool, verb = described(newest), toolbox.verb_named("log")
    assert (newest.role, tool.description) == (verb.role, f"{verb.summary} The newest first.")
    properties, described_by_verb = tool.input_schema["properties"], {param.name: param.description for param in verb.params}
    assert list(properties) == ["of", "own", "limit", "extra"]
    assert properties["of"]["description"] == f"{described_by_verb['text']} (default: yourself)"
    assert (properties["own"]["description"], properties["own"]["default"]) == (described_by_verb["own"], True)
    assert "required" not in tool.input_schema
    assert (tool.output_schema or {})["properties"]["commits"]["items"] == {"$ref": "#/$defs/AgentCommit"}


def test_every_argument_of_a_tool_is_described() -> None:
    assert not [(tool.name, param.key) for tool in TOOLS.values() for param in tool.params if not param.description]


def test_a_tool_named_like_a_verb_requires_the_role_of_that_verb() -> None:
    verbs = {
        verb.name: verb.role for verb in all_verbs() if verb.name != "journal"
    }  # the verb of this name reads a session's record
    shared = {name: tool.role for name, tool in TOOLS.items() if name in verbs}
    assert shared == {name: verbs[name] for name in shared}
    assert len(shared) > 15


def test_the_page_about_mcp_has_every_tool_with_its_role() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/mcp.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\w+) \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((tool.name, tool.role) for tool in TOOLS.values())


def test_only_tools_that_read_have_the_read_only_hint() -> None:
    for tool in TOOLS.values():
        hints = described(tool).annotations
        assert hints is not None
        assert hints.read_only_hint == (tool.role == "viewer"), tool.name
        assert hints.destructive_hint == (tool.name == "cancel")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wrong_types_unknown_and_missing_arguments_are_named_and_change_nothing(
    space: clia.Space, tmp_path: Path, protocol: str
) -> None:
    async def work(driver: Driver) -> None:
        for code, field, tool, args in (
            ("invalid-field", "kind", "commit", {"kind": 7}),
            ("invalid-field", "changes.a", "commit", {"kind": "finding", "changes": {"a": 5}}),
            ("invalid-field", "changes.a", "commit", {"kind": "finding", "changes": {"a": {"base64": "%"}}}),
            ("invalid-field", "with_trace", "commit", {"kind": "finding", "with_trace": "yes"}),
            ("unknown-field", "files_", "commit", {"kind": "finding", "files_": {}}),
            ("missing-field", "kind", "commit", {}),
            ("invalid-field", "limit", "log", {"limit": 0}),
            ("missing-field", "value", "resume", {}),
            ("invalid-field", "paths[0]", "diff", {"paths": [1]}),
        ):
            assert (await driver.refused(code, tool, **args))["fields"]["field"] == field
        await driver.refused("unknown-kind", "commit", kind="nonsense", changes={})
        await driver.refused("unsafe-path", "commit", kind="finding", changes={"../x": "y"})
        await driver.refused("stale-ref", "commit", kind="finding", changes={"a": "b"}, base="0" * 40)

    async def unknown(driver: Driver) -> None:
        await driver.refused("no-such-agent", "commit", kind="finding", changes={}, agent="nobody")
        await driver.refused("no-such-agent", "whoami", agent="nobody")

    before = space.head("scout")
    drive(server_at(space, tmp_path, agent="scout"), work, protocol)
    drive(server_at(space, tmp_path), unknown, protocol)
    assert space.head("scout") == before


def test_the_agent_is_the_servers_or_the_checkouts_or_the_argument_or_the_open_sessions(space: clia.Space, tmp_path: Path) -> None:
    space.spawn("painter", BRIEFING)
    work = tmp_path.resolve() / "work"
    space.checkout("painter", work)

    def agent_of(server: Any, **args: str) -> str:
        agents: list[str] = []

        async def ask(driver: Driver) -> None:
            agents.append((await driver.do("whoami", **args))["agent"])

        drive(server, ask)
        return agents[0]

    assert agent_of(server_at(space, tmp_path), agent="painter") == "painter"
    assert agent_of(server_at(space, work, agent="scout")) == "scout"
    assert agent_of(server_at(space, work)) == "painter"

    async def nobody(driver: Driver) -> None:
        refusal = await driver.refused("missing-field", "whoami")
        assert refusal["fields"]["agents"] == ["painter", "scout"]

    drive(server_at(space, tmp_path), nobody)

    repo = tmp_path.resolve() / "repo"
    session = CapturedSession("claude-code", "s1", "", "scout", str(repo))
    space.captures.keep(session)
    space.captures.keep(session._replace(session="s2", agent="painter", open=False))
    (repo / "below").mkdir()
    assert agent_of(server_at(space, repo / "below")) == "scout", "the only open session in this directory decides"
    space.captures.keep(session._replace(session="s3", agent="painter"))
    drive(server_at(space, repo), nobody)


def test_an_internal_error_has_no_traceback_and_the_server_continues(
    space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(clia.Space, "states", broken)

    async def work(driver: Driver) -> None:
        refusal = await driver.refused("internal", "agents")
        assert "secret" not in json.dumps(refusal)
        assert (await driver.do("whoami"))["agent"] == "scout"

    drive(server_at(space, tmp_path, agent="scout"), work)
    assert "ZeroDivisionError" in caplog.text


def test_a_full_disk_is_reported_to_the_local_user_and_not_to_a_remote_one(
    space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/srv/private")

    monkeypatch.setattr(clia.Space, "states", full)

    async def local(driver: Driver) -> None:
        assert "No space left on device" in (await driver.refused("file-error", "agents"))["message"]

    async def remote(driver: Driver) -> None:
        assert "private" not in json.dumps(await driver.refused("internal", "agents"))

    drive(server_at(space, tmp_path), local)
    drive(server_at(space, tmp_path, paths=RelativePaths(str(tmp_path))), remote)


def test_the_role_is_checked_before_anything_is_read(space: clia.Space, tmp_path: Path) -> None:
    vera = Caller(User("vera", "viewer"), lambda _: User("vera", "viewer"))

    async def work(driver: Driver) -> None:
        await driver.refused("role-too-low", "commit", nonsense=1)

    drive(server_at(space, tmp_path, vera, agent="scout"), work)


def test_long_output_is_cut_and_marked(space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_tools, "DIFF_MAX", 20)
    monkeypatch.setattr(space_tools, "FILES_MAX", 20)
    cid = space.commit("scout", "finding", {"a": b"x" * 100}, message="long")

    async def work(driver: Driver) -> None:
        commit = await driver.do("show", commit=cid, diff=True)
        assert (len(commit["diff"]), commit["cut"]) == (20, True)
        assert (await driver.refused("too-large", "files", at="scout", paths=["a"]))["fields"] == {"field": "paths"}
        assert (await driver.refused("no-such-file", "files", at="scout", paths=["b"]))["fields"]["path"] == "b"

    drive(server_at(space, tmp_path), work)


def test_an_agent_sees_peers_and_merges_their_work_but_cannot_trust_a_peer(space: clia.Space, tmp_path: Path) -> None:
    with clia.init(tmp_path / "theirs", settings=settings()) as theirs:
        theirs.spawn("helper", BRIEFING)
        head = theirs.commit("helper", "finding", {"theirs.txt": b"x"})
        theirs.peers.add("us", space.peers.key().text)
        theirs.peers.share("us", agents=["*"])
        theirs.peers.announce()
        space.peers.add("ann", theirs.peers.key().text, str(tmp_path / "theirs"))
    space.peers.grant("ann", "agent-commit", "head-move")
    space.peers.sync("ann")

    async def work(driver: Driver) -> None:
        assert [(peer["name"], peer["agents"]) for peer in (await driver.do("peers"))["peers"]] == [("ann", 1)]
        assert [remote["head"] for remote in (await driver.do("remotes", peer="ann"))["remotes"]] == [head]
        assert (await driver.do("show", commit="ann/helper"))["commit"]["cid"] == head
        assert (await driver.do("merge", **{"from": "ann/helper"}))["outcome"] == "merged"
        await driver.refused("no-such-peer", "remotes", peer="bob")

    drive(server_at(space, tmp_path, agent="scout"), work)
    assert space.files("scout") == {"theirs.txt": b"x"}
    changing = {verb.name for verb in all_verbs() if verb.route.tag == "federation" and verb.role == ADMIN}
    assert not changing & set(TOOLS)


def test_file_names_that_are_not_unicode_are_shown(space: clia.Space, tmp_path: Path) -> None:
    tree = Tree(tmp_path.resolve())
    tree.write("odd/a.txt", "x")
    (tmp_path / "odd" / b"\xff".decode("utf-8", "surrogateescape")).write_text("y")
    space.commit_dir("scout", "finding", tmp_path / "odd")

    async def work(driver: Driver) -> None:
        assert len((await driver.do("files", at="scout"))["listed"]) == 2

    drive(server_at(space, tmp_path), work)


def test_a_behaviour_of_the_kind_prompt_is_a_prompt(space: clia.Space, tmp_path: Path) -> None:
    core = components(space).core
    body = as_bytes(Behaviour("review", "prompt", "Review the change.").to_object())
    cid = core.objects.write_blob(body)
    files = {
        f"versions/{cid}.json": TreeEntry(FILE, cid),
        "current": TreeEntry(FILE, core.objects.write_blob(f"{cid}\n".encode())),
    }
    by = core.person_stamp()
    tip = core.objects.write_commit(core.objects.update_tree(None, files), [], by, by, "How we review")
    core.refs.move("refs/clia/behaviours/review", None, tip, "test")

    async def work(driver: Driver) -> None:
        assert [prompt.name for prompt in (await driver.client.list_prompts()).prompts] == ["clia", "review"]
        (message,) = (await driver.client.get_prompt("review")).messages
        assert getattr(message.content, "text", "") == "Review the change."
        behaviours = (await driver.do("behaviours"))["behaviours"]
        assert [(behaviour["name"], behaviour["kind"], behaviour["cid"]) for behaviour in behaviours] == [("review", "prompt", cid)]

    drive(server_at(space, tmp_path), work)


def test_instructions_and_the_prompt_name_only_existing_tools() -> None:
    for name in ("whoami", "trace", "commit", "spawn", "merge", "journal", "request_decision", "decision"):
        assert name in TOOLS
        assert name in resources.INSTRUCTIONS


def test_links_use_the_name_that_the_forge_gives_a_space(space: clia.Space, tmp_path: Path) -> None:
    (name,) = unique_names([str(tmp_path / "repo")])
    assert site_address("http://forge.example", space) == f"http://forge.example/s/{name}"
    assert site_address("http://forge.example/s/other", space) == "http://forge.example/s/other"
    assert site_address(None, space) is None


def test_the_command_refuses_invalid_arguments(tmp_path: Path) -> None:
    assert run_clia("mcp", "--forge", "forge.example").code == 2
    assert run_clia("mcp", "--path", str(tmp_path / "nowhere")).code == 2
