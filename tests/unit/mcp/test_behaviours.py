"""Behaviours over MCP, with the official client: an agent reads how one does and proposes a better version; people let it run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ResourceTemplateReference

import clia
from clia.api.derivation import all_verbs
from clia.mcp.calls import Caller, SpaceContext
from clia.mcp.server import TOOLS, server_of
from clia.users.service import User
from support.mcp_client import Driver, fails, talking
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

FLOW = """\
def main(input):
    answer = request('human', {'question': input})
    if answer == 'no':
        raise ValueError('refused by a person')
    return answer
"""
BETTER = FLOW.replace("raise ValueError('refused by a person')", "return 'left alone'")
PROMPT = "You are {{agent}}: {{title}}\n\n{{task}}\n\nLook at {{task}} twice."


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    """A flow that failed once and finished once, with a commit whose test failed; a prompt."""
    with clia.init(tmp_path.resolve() / "repo", settings=settings()) as made:
        made.spawn("scout", BRIEFING)
        made.add_behaviour("review", FLOW, "session-flow", why="ask first")
        made.add_behaviour("careful", PROMPT, "prompt", notes="For work on data.")
        for answer in ("yes", "no"):
            made.start("scout", "review", "Delete it?")
            made.trace("scout", "said", f"before {answer}")
            made.commit_with_trace("scout", "test", {"a": answer.encode()}, message="Test\n\nIt broke.", meta={"outcome": "failed"})
            made.decide("scout", answer)
        yield made


def drive(
    space: clia.Space,
    root: Path,
    work: Callable[[Driver], Awaitable[None]],
    agent: str | None = "scout",
    caller: Caller | None = None,
) -> None:
    server = server_of(
        SpaceContext(str(root), lambda: space, agent=agent), "1", lambda _: caller or Caller(), RequestStateSecurity.ephemeral()
    )

    async def main() -> None:
        async with talking(server) as driver:
            await work(driver)

    anyio.run(main)


async def read(driver: Driver, uri: str) -> dict[str, Any]:
    (found,) = (await driver.client.read_resource(uri)).contents
    made: dict[str, Any] = json.loads(getattr(found, "text", ""))
    return made


async def text_of(driver: Driver, name: str, **given: str) -> str:
    (message,) = (await driver.client.get_prompt(name, given)).messages
    return str(getattr(message.content, "text", ""))


def test_an_agent_reads_the_evidence_proposes_and_cannot_let_it_run(space: clia.Space, tmp_path: Path) -> None:
    before = space.behaviour("review")

    async def work(driver: Driver) -> None:
        shown = await driver.do("behaviour_show", behaviour="review")
        assert (shown["version"]["body"], shown["version"]["state"]) == (FLOW, "current")
        found = await read(driver, shown["evidence"])
        bad = {each["saw"]: each for each in reversed(found["went_badly"])}
        assert set(bad) == {"session/failed", "decision/rejected", "outcome/failed"}
        failed, rejected, broken = bad["session/failed"], bad["decision/rejected"], bad["outcome/failed"]
        assert (failed["agent"], failed["measure"], failed["session"]) == ("scout", "finished", "2")
        assert "refused by a person" in failed["why"]
        assert (rejected["outcome"], rejected["agent"]) == ('"no"', "scout")
        assert (broken["subject"], broken["why"], broken["outcome"]) == ("Test", "It broke.", "failed")
        assert "before no" in [each["text"] for each in (await read(driver, broken["trace"]))["entries"]]
        assert found["suggestion"]["action"] == "not-enough-data"
        (observed,) = [each["observed"] for each in found["versions"]]
        assert [(each["good"], each["n"]) for each in observed["rates"] if each["measure"] == "finished"] == [(1, 2)]

        commits = [failed["commit"], broken["commit"]]
        made = await driver.do("behaviour_propose", behaviour="review", body=BETTER, why="A no is an answer.", evidence=commits)
        version = made["version"]
        assert (version["state"], version["parent"], version["evidence"]) == ("proposed", before.current, commits)
        assert version["by"].startswith("scout <")
        assert f"clia behaviour adopt review {version['cid'][:12]}" in made["next"]
        assert (await read(driver, f"clia://behaviours/review/versions/{version['cid']}"))["body"] == BETTER
        assert (await driver.do("behaviour_propose", behaviour="review", body=BETTER, why="again"))["version"] == version
        (listed,) = (await driver.do("behaviours", kind="session-flow"))["behaviours"]
        assert (listed["cid"], listed["versions"], listed["proposed"]) == (before.current, 2, 1)
        assert (
            "+        return 'left alone'" in (await driver.do("behaviour_compare", before="review", after=version["cid"]))["diff"]
        )

        await driver.refused("not-adopted", "start", flow=version["cid"])
        stays = await driver.do("start", flow="review")
        assert stays["flow_cid"] == before.current

    drive(space, tmp_path, work)
    after = space.behaviour("review")
    assert (after.current, len(after.history)) == (before.current, len(before.history) + 1)


def test_no_tool_changes_what_runs_and_whoever_proposes_is_an_agent_with_the_right_to_write(
    space: clia.Space, tmp_path: Path
) -> None:
    changing = {verb.name for verb in all_verbs() if verb.route.tag == "behaviours" and verb.role == "admin"}
    about = {name for name in TOOLS if "behaviour" in name} | (changing & set(TOOLS))
    assert {name for name in about if TOOLS[name].role != "viewer"} == {"behaviour_propose"}
    before = space.behaviours()

    async def unnamed(driver: Driver) -> None:
        """Nobody passes for the person who runs the server."""
        refused = await driver.refused("missing-field", "behaviour_propose", behaviour="review", body=BETTER, why="x")
        assert refused["fields"]["field"] == "agent"

    async def viewer(driver: Driver) -> None:
        await driver.refused("role-too-low", "behaviour_propose", behaviour="review", body=BETTER, why="x", agent="scout")
        assert (await driver.do("behaviour_suggest", behaviour="review"))["action"] == "not-enough-data"

    async def wrong(driver: Driver) -> None:
        for code, given in (
            ("no-such-agent", {"agent": "nobody"}),
            ("invalid-flow", {"body": "def main(:"}),
            ("wrong-kind", {"kind": "prompt"}),
            ("kind-needed", {"behaviour": "fresh"}),
            ("no-such-object", {"evidence": ["0" * 40]}),
            ("no-such-version", {"parent": "0" * 40}),
            ("invalid-field", {"evidence": "HEAD"}),
        ):
            await driver.refused(code, "behaviour_propose", **{"behaviour": "review", "body": BETTER, "why": "x", **given})
        await driver.refused("missing-field", "behaviour_propose", behaviour="review", body=BETTER)
        await driver.refused("no-such-behaviour", "behaviour_suggest", behaviour="nothing")
        await driver.refused("no-such-measure", "behaviour_suggest", behaviour="review", measure="beauty")
        await driver.refused("no-such-version", "behaviour_show", behaviour="nothing")
        await driver.refused("same-version", "behaviour_compare", before="review", after="review")
        await driver.refused("no-such-span", "behaviour_stats", over="decade")
        other = space.behaviour("review").current
        for code, path in (
            ("no-such-behaviour", "nothing/evidence"),
            ("no-such-version", f"review/versions/{'0' * 40}"),
            ("no-such-version", f"careful/versions/{other}"),
            ("no-such-resource", "review"),
            ("no-such-resource", "review/evidence/more"),
            ("no-such-resource", "/evidence"),
        ):
            err = await fails(driver.client.read_resource(f"clia://behaviours/{path}"))
            assert (err.code, err.data["code"], err.data["uri"]) == (-32602, code, f"clia://behaviours/{path}")

    vera = Caller(User("vera", "viewer"), lambda _: User("vera", "viewer"))
    drive(space, tmp_path, unnamed, agent=None)
    drive(space, tmp_path, viewer, caller=vera)
    drive(space, tmp_path, wrong)
    assert space.behaviours() == before


def test_current_prompts_are_prompts_that_take_a_task_and_a_sub_agent_works_by_one(space: clia.Space, tmp_path: Path) -> None:
    proposed = space.propose_behaviour("waiting", "Nobody has adopted this.", "prompt")
    space.add_behaviour("plain", "Be brief.", "prompt", why="we talk too much")
    space.add_behaviour("gone", "Do not use this.", "prompt")
    space.retire_behaviour("gone")

    async def work(driver: Driver) -> None:
        listed = {each.name: each for each in (await driver.client.list_prompts()).prompts}
        assert list(listed) == ["clia", "careful", "plain"]
        taken = {name: [each.name for each in prompt.arguments or []] for name, prompt in listed.items()}
        assert taken == {"clia": [], "careful": ["task", "title", "agent"], "plain": ["task"]}
        assert (listed["careful"].description, listed["plain"].description) == ("For work on data.", "we talk too much")
        said = await text_of(driver, "careful", task="count {{title}}", title="Count")
        assert said == "You are scout: Count\n\ncount {{title}}\n\nLook at count {{title}} twice."
        unsaid = "The task is the one that you are given.\n\nLook at the task that you are given twice."
        assert await text_of(driver, "careful", agent="digger") == f"You are digger: the task at hand\n\n{unsaid}"
        assert await text_of(driver, "plain", task="Count the files.") == "Be brief.\n\nCount the files."
        assert await text_of(driver, "plain") == "Be brief."
        for name, given, code in (
            ("plain", {"title": "x"}, "unknown-field"),
            ("clia", {"task": "x"}, "unknown-field"),
            ("waiting", {}, "no-such-prompt"),
            ("gone", {}, "no-such-prompt"),
            ("review", {}, "no-such-prompt"),
        ):
            err = await fails(driver.client.get_prompt(name, given))
            assert (err.code, err.data["code"]) == (-32602, code)

        await driver.do("spawn", name="counter", title="Count", text="all files", behaviour="careful", meta={"a": 1})
        for code, behaviour in (("not-adopted", proposed.cid), ("not-a-prompt", "review"), ("no-such-version", "nothing")):
            await driver.refused(code, "spawn", name="other", title="Count", behaviour=behaviour)

    async def unnamed(driver: Driver) -> None:
        said = await text_of(driver, "careful", task="Count.", title="{{agent}}")
        assert said == "You are the agent that reads this: {{agent}}\n\nCount.\n\nLook at Count. twice."

    drive(space, tmp_path, work)
    drive(space, tmp_path, unnamed, agent=None)
    briefing = space.briefing_of("counter")
    assert (briefing.behaviour, briefing.meta) == (space.behaviour("careful").current, {"a": 1})
    assert briefing.text.startswith("You are counter: Count\n\nall files")
    assert space.agents() == ["counter", "scout"]


def test_evidence_is_told_where_nothing_is_adopted_and_of_merges_that_were_refused(space: clia.Space, tmp_path: Path) -> None:
    space.propose_behaviour("waiting", "Nobody has adopted this.", "prompt")
    space.spawn("digger", space.brief("careful", "Dig", "for it"))
    space.commit("digger", "finding", {"a": b"theirs"}, message="dug")
    assert isinstance(space.merge("scout", "digger"), clia.Conflicts)

    async def work(driver: Driver) -> None:
        waiting = await read(driver, "clia://behaviours/waiting/evidence")
        assert (waiting["current"], waiting["suggestion"], waiting["went_badly"]) == (None, None, [])
        shown = await driver.do("behaviour_show", behaviour="waiting")
        assert shown["version"]["state"] == "proposed"
        (refused,) = (await read(driver, "clia://behaviours/careful/evidence"))["went_badly"]
        assert (refused["saw"], refused["measure"], refused["agent"]) == ("merge/refused", "merged", "digger")
        assert refused["why"] == "conflicts in a"
        addresses = {each.uri for each in (await driver.client.list_resources()).resources}
        assert {f"clia://behaviours/{name}/evidence" for name in ("careful", "review", "waiting")} <= addresses
        template = ResourceTemplateReference(uri="clia://behaviours/{name}/evidence")
        assert (await driver.client.complete(template, {"name": "name", "value": "re"})).completion.values == ["review"]

    drive(space, tmp_path, work)
