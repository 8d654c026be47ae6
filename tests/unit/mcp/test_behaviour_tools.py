"""Behaviours over MCP, with the official client: agents read the evidence and propose versions, people adopt them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from mcp_types import ResourceTemplateReference

import clia
from clia.api.derivation import all_verbs
from clia.mcp.calls import Caller
from clia.mcp.server import TOOLS
from clia.users.service import User
from support.mcp_client import Driver, fails
from support.mcp_server import drive, server_at

if TYPE_CHECKING:
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
def space(space: clia.Space) -> clia.Space:
    """A flow that failed once and finished once, a commit with a failed test, and a prompt."""
    space.behaviours.add("review", FLOW, "session-flow", why="ask first")
    space.behaviours.add("careful", PROMPT, "prompt", notes="For work on data.")
    for answer in ("yes", "no"):
        space.start("scout", "review", "Delete it?")
        space.trace("scout", "said", f"before {answer}")
        space.commit_with_trace("scout", "test", {"a": answer.encode()}, message="Test\n\nIt broke.", meta={"outcome": "failed"})
        space.decide("scout", answer)
    return space


async def read(driver: Driver, uri: str) -> dict[str, Any]:
    (content,) = (await driver.client.read_resource(uri)).contents
    document: dict[str, Any] = json.loads(getattr(content, "text", ""))
    return document


async def text_of(driver: Driver, name: str, **arguments: str) -> str:
    (message,) = (await driver.client.get_prompt(name, arguments)).messages
    return str(getattr(message.content, "text", ""))


def test_an_agent_reads_the_evidence_and_proposes_but_cannot_adopt(space: clia.Space, tmp_path: Path) -> None:
    before = space.behaviours.get("review")

    async def work(driver: Driver) -> None:
        behaviour = await driver.do("behaviour_show", behaviour="review")
        assert (behaviour["version"]["body"], behaviour["version"]["state"]) == (FLOW, "current")
        evidence = await read(driver, behaviour["evidence"])
        outcome_of = {outcome["saw"]: outcome for outcome in reversed(evidence["went_badly"])}
        assert set(outcome_of) == {"session/failed", "decision/rejected", "outcome/failed"}
        failed, rejected, broken = outcome_of["session/failed"], outcome_of["decision/rejected"], outcome_of["outcome/failed"]
        assert (failed["agent"], failed["measure"], failed["session"]) == ("scout", "finished", "2")
        assert "refused by a person" in failed["why"]
        assert (rejected["outcome"], rejected["agent"]) == ('"no"', "scout")
        assert (broken["subject"], broken["why"], broken["outcome"]) == ("Test", "It broke.", "failed")
        assert "before no" in [entry["text"] for entry in (await read(driver, broken["trace"]))["entries"]]
        assert evidence["suggestion"]["action"] == "not-enough-data"
        (observed,) = [version_evidence["observed"] for version_evidence in evidence["versions"]]
        assert [(rate["good"], rate["n"]) for rate in observed["rates"] if rate["measure"] == "finished"] == [(1, 2)]

        commits = [failed["commit"], broken["commit"]]
        proposal = await driver.do("behaviour_propose", behaviour="review", body=BETTER, why="A no is an answer.", evidence=commits)
        version = proposal["version"]
        assert (version["state"], version["parent"], version["evidence"]) == ("proposed", before.current, commits)
        assert version["by"].startswith("scout <")
        assert f"clia behaviour adopt review {version['cid'][:12]}" in proposal["next"]
        assert (await read(driver, f"clia://behaviours/review/versions/{version['cid']}"))["body"] == BETTER
        assert (await driver.do("behaviour_propose", behaviour="review", body=BETTER, why="again"))["version"] == version
        (summary,) = (await driver.do("behaviours", kind="session-flow"))["behaviours"]
        assert (summary["cid"], summary["versions"], summary["proposed"]) == (before.current, 2, 1)
        assert (
            "+        return 'left alone'" in (await driver.do("behaviour_compare", before="review", after=version["cid"]))["diff"]
        )

        await driver.refused("not-adopted", "start", flow=version["cid"])
        stays = await driver.do("start", flow="review")
        assert stays["flow_cid"] == before.current

    drive(server_at(space, tmp_path, agent="scout"), work)
    after = space.behaviours.get("review")
    assert (after.current, len(after.history)) == (before.current, len(before.history) + 1)


def test_no_tool_adopts_a_version_and_only_agents_with_write_access_propose(space: clia.Space, tmp_path: Path) -> None:
    changing = {verb.name for verb in all_verbs() if verb.route.tag == "behaviours" and verb.role == "admin"}
    about = {name for name in TOOLS if "behaviour" in name} | (changing & set(TOOLS))
    assert {name for name in about if TOOLS[name].role != "viewer"} == {"behaviour_propose"}
    before = space.behaviours()

    async def unnamed(driver: Driver) -> None:
        """The user who runs the server is not a default author."""
        refusal = await driver.refused("missing-field", "behaviour_propose", behaviour="review", body=BETTER, why="x")
        assert refusal["fields"]["field"] == "agent"

    async def viewer(driver: Driver) -> None:
        await driver.refused("role-too-low", "behaviour_propose", behaviour="review", body=BETTER, why="x", agent="scout")
        assert (await driver.do("behaviour_suggest", behaviour="review"))["action"] == "not-enough-data"

    async def wrong(driver: Driver) -> None:
        for code, arguments in (
            ("not-allowed", {"agent": "nobody"}),
            ("invalid-flow", {"body": "def main(:"}),
            ("wrong-kind", {"kind": "prompt"}),
            ("kind-needed", {"behaviour": "fresh"}),
            ("no-such-object", {"evidence": ["0" * 40]}),
            ("no-such-version", {"parent": "0" * 40}),
            ("invalid-field", {"evidence": "HEAD"}),
        ):
            await driver.refused(code, "behaviour_propose", **{"behaviour": "review", "body": BETTER, "why": "x", **arguments})
        await driver.refused("missing-field", "behaviour_propose", behaviour="review", body=BETTER)
        await driver.refused("no-such-behaviour", "behaviour_suggest", behaviour="nothing")
        await driver.refused("no-such-measure", "behaviour_suggest", behaviour="review", measure="beauty")
        await driver.refused("no-such-version", "behaviour_show", behaviour="nothing")
        await driver.refused("same-version", "behaviour_compare", before="review", after="review")
        await driver.refused("no-such-span", "behaviour_stats", over="decade")
        review_version = space.behaviours.get("review").current
        for code, path in (
            ("no-such-behaviour", "nothing/evidence"),
            ("no-such-version", f"review/versions/{'0' * 40}"),
            ("no-such-version", f"careful/versions/{review_version}"),
            ("no-such-resource", "review"),
            ("no-such-resource", "review/evidence/more"),
            ("no-such-resource", "/evidence"),
        ):
            err = await fails(driver.client.read_resource(f"clia://behaviours/{path}"))
            assert (err.code, err.data["code"], err.data["uri"]) == (-32602, code, f"clia://behaviours/{path}")

    vera = Caller(User("vera", "viewer"), lambda _: User("vera", "viewer"))
    drive(server_at(space, tmp_path), unnamed)
    drive(server_at(space, tmp_path, vera, agent="scout"), viewer)
    drive(server_at(space, tmp_path, agent="scout"), wrong)
    assert space.behaviours() == before


def test_current_prompts_take_a_task_and_can_instruct_a_sub_agent(space: clia.Space, tmp_path: Path) -> None:
    proposed = space.behaviours.propose("waiting", "Nobody has adopted this.", "prompt")
    space.behaviours.add("plain", "Be brief.", "prompt", why="we talk too much")
    space.behaviours.add("gone", "Do not use this.", "prompt")
    space.behaviours.retire("gone")

    async def work(driver: Driver) -> None:
        prompts = {prompt.name: prompt for prompt in (await driver.client.list_prompts()).prompts}
        assert list(prompts) == ["clia", "careful", "plain"]
        argument_names = {name: [argument.name for argument in prompt.arguments or []] for name, prompt in prompts.items()}
        assert argument_names == {"clia": [], "careful": ["task", "title", "agent"], "plain": ["task"]}
        assert (prompts["careful"].description, prompts["plain"].description) == ("For work on data.", "we talk too much")
        text = await text_of(driver, "careful", task="count {{title}}", title="Count")
        assert text == "You are scout: Count\n\ncount {{title}}\n\nLook at count {{title}} twice."
        default_task = "The task is the one that you are given.\n\nLook at the task that you are given twice."
        assert await text_of(driver, "careful", agent="digger") == f"You are digger: the task at hand\n\n{default_task}"
        assert await text_of(driver, "plain", task="Count the files.") == "Be brief.\n\nCount the files."
        assert await text_of(driver, "plain") == "Be brief."
        for name, arguments, code in (
            ("plain", {"title": "x"}, "unknown-field"),
            ("clia", {"task": "x"}, "unknown-field"),
            ("waiting", {}, "no-such-prompt"),
            ("gone", {}, "no-such-prompt"),
            ("review", {}, "no-such-prompt"),
        ):
            err = await fails(driver.client.get_prompt(name, arguments))
            assert (err.code, err.data["code"]) == (-32602, code)

        await driver.do("spawn", name="counter", title="Count", text="all files", behaviour="careful", meta={"a": 1})
        for code, behaviour in (("not-adopted", proposed.cid), ("not-a-prompt", "review"), ("no-such-version", "nothing")):
            await driver.refused(code, "spawn", name="other", title="Count", behaviour=behaviour)

    async def unnamed(driver: Driver) -> None:
        text = await text_of(driver, "careful", task="Count.", title="{{agent}}")
        assert text == "You are the agent that reads this: {{agent}}\n\nCount.\n\nLook at Count. twice."

    drive(server_at(space, tmp_path, agent="scout"), work)
    drive(server_at(space, tmp_path), unnamed)
    briefing = space.agents.briefing("counter")
    assert (briefing.behaviour, briefing.meta) == (space.behaviours.get("careful").current, {"a": 1})
    assert briefing.text.startswith("You are counter: Count\n\nall files")
    assert space.agents() == ["counter", "scout"]


def test_evidence_covers_proposed_versions_and_refused_merges(space: clia.Space, tmp_path: Path) -> None:
    space.behaviours.propose("waiting", "Nobody has adopted this.", "prompt")
    space.spawn("digger", space.behaviours.brief("careful", "Dig", "for it"))
    space.commit("digger", "finding", {"a": b"theirs"}, message="dug")
    assert isinstance(space.merge("scout", "digger"), clia.Conflicts)

    async def work(driver: Driver) -> None:
        waiting = await read(driver, "clia://behaviours/waiting/evidence")
        assert (waiting["current"], waiting["suggestion"], waiting["went_badly"]) == (None, None, [])
        behaviour = await driver.do("behaviour_show", behaviour="waiting")
        assert behaviour["version"]["state"] == "proposed"
        (outcome,) = (await read(driver, "clia://behaviours/careful/evidence"))["went_badly"]
        assert (outcome["saw"], outcome["measure"], outcome["agent"]) == ("merge/refused", "merged", "digger")
        assert outcome["why"] == "conflicts in a"
        addresses = {resource.uri for resource in (await driver.client.list_resources()).resources}
        assert {f"clia://behaviours/{name}/evidence" for name in ("careful", "review", "waiting")} <= addresses
        template = ResourceTemplateReference(uri="clia://behaviours/{name}/evidence")
        assert (await driver.client.complete(template, {"name": "name", "value": "re"})).completion.values == ["review"]

    drive(server_at(space, tmp_path, agent="scout"), work)
