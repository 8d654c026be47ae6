"""Identity, guardrails, approval and journals work together: each way in which they once did not."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.identities.journal import Note
from clia.identities.writing import WriteLocation, journal
from support import clia as command
from support import git
from support.captured import agent_of, event, put, run_ingest
from support.mcp_server import drive, server_at
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support import Tree
    from support.mcp_client import Driver

USER = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always")
A, B, C, D = "Never commit secrets.", "Read before writing.", "Four eyes on payments.", "Ledgers balance."
PAYMENTS = "acme/services/payments"


def commit_all(path: Path) -> None:
    git("add", "--all", cwd=path)
    git(*USER, "commit", "--quiet", "--message", "files", cwd=path)


def scripted(directory: Path, *words: str, env: dict[str, str] | None = None) -> Any:
    ran = command(*words, "--json", cwd=directory, env=env)
    assert ran.code == 0, ran.err
    return ran.json()


def call(space: clia.Space, where: Path, tool: str, **arguments: Any) -> Any:
    """The result of a tool of an MCP server in a directory."""
    results: list[Any] = []

    async def work(driver: Driver) -> None:
        results.append((await driver.client.call_tool(tool, arguments)).structured_content)

    drive(server_at(space, where), work)
    return results[0]


@pytest.fixture
def payments(tree: Tree) -> Iterator[clia.Space]:
    """The space of the submodule services/payments in acme, with the agent ``scout``; two of its four guardrails are acme's."""
    source, acme = tree.directory("source"), tree.directory("acme")
    git("init", "--quiet", "--initial-branch=main", cwd=source)
    tree.agent("source", "root", guardrails=[C])
    tree.agent("source", "scout", title="Scout", guardrails=[D])
    tree.agenda("source", "scout", backlog=["Draw the map", "Read the ledger"])
    commit_all(source)
    git("init", "--quiet", cwd=acme)
    tree.agent("acme", "root", guardrails=[A])
    tree.agent("acme", "scout", guardrails=[B])
    git(*USER, "submodule", "--quiet", "add", str(source), "services/payments", cwd=acme)
    commit_all(acme)
    clia.init(tree.path(PAYMENTS), settings=settings()).close()
    with clia.open(tree.path(PAYMENTS), settings=settings()) as space:
        space.spawn_at("scout", BRIEFING, "HEAD")
        yield space


def root_of(tree: Tree) -> Path:
    return next((tree.root / PAYMENTS / ".clia/agents/root").iterdir())


def bound(space: clia.Space, agent: str) -> tuple[str | None, list[str]]:
    """The identity and the guardrails in an agent's record."""
    profile = space.record_of(agent).get("profile.json")
    return (None, []) if profile is None else (profile["slug"], profile["document"].get("guardrails", []))


ALL = [A, B, C, D]


# Identity travels


def test_1_a_checkout_elsewhere_and_a_run_in_a_submodule_have_all_guardrails(payments: clia.Space, tree: Tree) -> None:
    where = tree.root / "wt"
    payments.checkout("scout", where)
    assert scripted(where, "agents", "profile", "--slug", "scout")["guardrails"] == ALL
    with clia.open(where, settings=settings()) as space:
        who = call(space, where, "whoami")
    assert (who["guardrails"], who["diagnostics"]) == (ALL, [])
    ran = command("run", "scout", "--", "sh", "-c", 'cat "$CLIA_INSTRUCTIONS"', cwd=tree.path(PAYMENTS))
    assert [line[2:] for line in ran.out.splitlines() if line.startswith("- ")] == ALL


def test_4_root_directives_that_cannot_be_read_stop_spawn_and_run(payments: clia.Space, tree: Tree) -> None:
    document = root_of(tree)
    text = document.read_text()
    document.write_text("{")
    place = tree.path(PAYMENTS)
    for words in (("spawn", "two", "--title", "x"), ("run", "scout", "--", "true")):
        ran = command(*words, cwd=place)
        assert (ran.code, "incomplete-profile" in ran.err) == (1, True)
    assert command("agents", "profile", "--slug", "scout", cwd=place).code == 2
    assert command("spawn", "three", "--title", "x", "--accept-incomplete", "known", cwd=place).code == 0
    document.write_text(text)
    assert "three: 1 guardrail not recorded" in " ".join(command("doctor", cwd=place).out.split())


def test_6_sub_agents_work_under_their_parents_identity(payments: clia.Space, tree: Tree) -> None:
    place = tree.root / PAYMENTS
    assert command("spawn", "one", "--title", "x", "--from", "scout", cwd=place).code == 0
    call(payments, place, "spawn", name="two", title="x", parent="scout")
    payments.define("lead", 'def main(input):\n    return request("spawn", input)\n')
    for name, files in (("three", True), ("four", False)):
        payments.start("scout", "lead", {"name": name, "briefing": {"title": "x"}, "from": files})
        assert command("worker", "--until-idle", cwd=place).code == 0
    env = {"CLIA_AGENT": "scout"}
    assert command("spawn", "five", "--title", "x", cwd=place, env=env).code == 0
    payments.spawn_from("six", BRIEFING, "three")
    for name in ("one", "two", "three", "four", "five", "six"):
        assert bound(payments, name) == ("scout", ALL), name


def test_7_captured_agents_have_an_identity(payments: clia.Space, tree: Tree) -> None:
    place = tree.root / PAYMENTS
    tree.agent(PAYMENTS, "code-reviewer", guardrails=["Name the line."])
    session = "One"
    put(place, event("UserPromptSubmit", session, prompt="Look."), agent="scout")
    put(place, event("SubagentStart", session, agent_id="s1", agent_type="code-reviewer"), agent="scout")
    put(place, event("SubagentStart", session, agent_id="s2", agent_type="Explore"), agent="scout")
    assert not run_ingest(place).trouble
    names = [agent_of(payments, "claude-code", session, sub) for sub in ("s1", "s2")]
    assert [bound(payments, name)[0] for name in names] == ["code-reviewer", "scout"]
    assert bound(payments, names[1])[1] == ALL
    assert {A, C, "Name the line."} == set(bound(payments, names[0])[1])


def test_8_a_guardrail_that_is_added_later_is_shown_and_recorded(payments: clia.Space, tree: Tree) -> None:
    place = tree.root / PAYMENTS
    document = next((place / ".clia/agents/scout").glob("*.agent.triad.json"))
    document.write_text(json.dumps({"slug": "scout", "guardrails": [D, "New."]}))
    assert "New.  not recorded yet" in command("show", "scout", cwd=place).out
    assert "scout: 1 guardrail not recorded" in " ".join(command("doctor", cwd=place).out.split())
    assert scripted(place, "reprofile", "scout")["added"] == ["New."]
    assert bound(payments, "scout")[1] == [*ALL, "New."]


# One approval


def test_5_an_agent_that_empties_guardrails_in_its_checkout_asks_and_does_not_land(payments: clia.Space, tree: Tree) -> None:
    place, where = tree.root / PAYMENTS, tree.root / "wt"
    payments.checkout("scout", where)
    for slug in ("root", "scout"):
        document = next((where / f".clia/agents/{slug}").glob("*.agent.triad.json"))
        document.write_text(json.dumps({"slug": slug, "guardrails": []}))
    ran = command("commit", "scout", "refactor", "--dir", ".", cwd=where)
    assert (ran.code, "loses 2 guardrails" in ran.err) == (0, True)
    assert command("land", "scout", "--onto", "main", cwd=place).code == 1
    assert scripted(where, "agents", "profile", "--slug", "scout")["guardrails"] == ALL
    lint = command("agents", "lint", "--format", "json", cwd=where).json()["findings"]
    assert {item["severity"] for item in lint if item["code"] == "guardrail-removed"} == {"error"}
    decision = payments.decide("scout", "approve", "agreed", by="Ada <ada@example.org>")
    assert command("land", "scout", "--onto", "main", cwd=place).code == 0
    assert payments.history.landings("scout")[0]["approved"] == decision.cid


def test_a_program_of_a_run_decides_nothing_even_without_the_variable(payments: clia.Space, tree: Tree) -> None:
    payments.ask("scout", {"question": "May I deploy?", "choices": ["yes", "no"]})
    script = f"unset CLIA_AGENT; {sys.executable} -m clia decide scout yes --path {tree.path(PAYMENTS)}"
    ran = command("run", "scout", "--", "sh", "-c", f"{script} 2>&1; true", cwd=tree.path(PAYMENTS))
    assert "person-needed" in ran.out
    assert len(payments.pending("scout")) == 1


def test_a_form_of_an_mcp_client_cannot_stand_for_the_question_about_guardrails(payments: clia.Space, tree: Tree) -> None:
    path = next(path for path in payments.files("scout") if path.endswith("scout@source.agent.triad.json"))
    payments.commit("scout", "refactor", changes={path: json.dumps({"slug": "scout"}).encode()})
    (request,) = payments.pending("scout")
    payload = dict(request.payload)
    question, choices = payload.pop("question"), payload.pop("choices")
    answer = call(
        payments, tree.root / PAYMENTS, "request_decision", question=question, choices=choices, context=payload, agent="scout"
    )
    assert answer["code"] == "reserved-question"
    assert payments.pending("scout") == [request]


def test_operator_commands_are_refused_to_agents(payments: clia.Space, tree: Tree) -> None:
    """Also those that are no verbs of a space."""
    payments.spawn("other", BRIEFING)
    refused_commands: tuple[tuple[str, ...], ...] = (
        ("agents", "init", "ada", "--operator"),
        ("user", "add", "eve", "--role", "admin"),
        ("key", "rotate"),
        ("gate", "install", "."),
        ("serve", "--port", "0"),
        ("hook", "uninstall"),
        ("archive", "other"),
        ("land", "other", "--onto", "main"),
        ("maintain", "--archive-idle", "0"),
        ("reprofile", "scout"),
        ("spawn", "kid", "--title", "x", "--accept-incomplete", "x"),
        ("run", "scout", "--accept-incomplete", "x", "--", "true"),
    )
    for words in refused_commands:
        ran = command(*words, cwd=tree.path(PAYMENTS), env={"CLIA_AGENT": "scout"})
        assert (ran.code, "person-needed" in ran.err) == (1, True), (words, ran.err)


def test_an_agent_writes_no_journal_of_a_person(payments: clia.Space, tree: Tree) -> None:
    """An entry there can approve a waiver."""
    place = tree.path(PAYMENTS)
    assert command("agents", "init", "ada", "--operator", cwd=place).code == 0
    words = ("agents", "journal", "--slug", "ada", "--note", "ok")
    ran = command(*words, cwd=place, env={"CLIA_AGENT": "scout"})
    assert (ran.code, "person-needed" in ran.err) == (1, True), ran.err
    assert command(*words, cwd=place).code == 0


# Journal and agenda live in the space


def test_2_3_10_journals_of_two_checkouts_have_one_name_and_land_without_a_conflict(payments: clia.Space, tree: Tree) -> None:
    payments.spawn_at("helper", BRIEFING, "HEAD", slug="scout")
    for round_ in range(2):
        for name in ("scout", "helper"):
            where = tree.root / f"wt-{name}"
            payments.checkout(name, where)
            written, _ = journal("scout", Note(f"{round_} {name}"), WriteLocation(str(where)))
            assert written.entry["source"] == "payments"
            assert written.path.endswith("scout@payments.agency.triad.json")
            payments.commit_dir(name, "finding", where)
        for name in ("scout", "helper"):
            assert isinstance(payments.land(name, "main"), clia.Landed)
    files: dict[str, Any] = payments.files("main")
    (path,) = (path for path in files if path.endswith("agency.triad.json"))
    summaries = [entry["summary"] for entry in json.loads(files[path])["entries"]]
    assert sorted(summaries) == ["0 helper", "0 scout", "1 helper", "1 scout"]


def test_9_a_journal_over_mcp_goes_into_the_agents_branch(payments: clia.Space, tree: Tree) -> None:
    place = tree.root / PAYMENTS
    before = git("status", "--porcelain", cwd=place)
    written = call(payments, place, "journal", note="Refunds are tried three times.", agent="scout")
    assert written["appended"]
    assert payments.show("scout").kind == "journal-entry"
    assert git("status", "--porcelain", cwd=place) == before


def test_an_agenda_knows_its_agents_and_is_ticked_by_a_landing(payments: clia.Space, tree: Tree) -> None:
    place = tree.root / PAYMENTS
    item = payments.identities.agenda("scout")[0].item
    assert command("spawn", "mapper", "--as", "scout", "--agenda", item.id, cwd=place).code == 0
    assert payments.briefing_of("mapper").title == "Draw the map"
    assert command("land", "mapper", "--onto", "main", "--done", cwd=place).code == 0
    shown = command("agents", "work", "--slug", "scout", cwd=place).out
    assert "mapper" in shown
    files: dict[str, Any] = payments.files("main")
    (agenda,) = (json.loads(data) for path, data in files.items() if path.endswith("scout@source.agenda.triad.json"))
    assert agenda["backlog"][0]["status"] == "done"


# The small ones


def test_11_a_generic_commit(payments: clia.Space, tree: Tree) -> None:
    (tree.root / "a.txt").write_text("1")
    words = ("--set", f"a.txt={tree.path('a.txt')}", "-m", "x")
    assert command("commit", "scout", "agent-commit", *words, cwd=tree.path(PAYMENTS)).code == 0
    assert payments.show("scout").kind == "agent-commit"


def test_12_a_fork_into_an_agent_that_was_spawned_for_it_and_with_a_briefing(payments: clia.Space) -> None:
    payments.define("ask-people", 'def main(input):\n    return request("human", {"question": "Go?"})\n')
    payments.start("scout", "ask-people")
    payments.spawn_from("own", BRIEFING, "scout")
    assert payments.fork("scout", "own").status == "suspended"
    payments.fork("scout", "other", briefing=clia.Briefing("Its own"))
    assert payments.briefing_of("other").title == "Its own"


def test_13_14_types(payments: clia.Space, tree: Tree) -> None:
    payments.register_type("security-review", "finding")
    payments.register_type("report", None)
    shown = scripted(tree.root / PAYMENTS, "types")
    assert (shown["report"], shown["security-review"]) == (None, "finding")
    ids = scripted(tree.root / PAYMENTS, "types", "--ids")
    assert f'"cid":"{ids["security-review"]}"' in git("log", "--format=%B", "refs/clia/types", cwd=tree.root / PAYMENTS)


def test_15_16_reads_outside_of_a_repository_and_search(tree: Tree) -> None:
    plain = tree.directory("plain")
    words = ("--agents-dir", "notes/.clia/agents")
    assert command("agents", "journal", "--slug", "scout", "--note", "On a plain disk.", *words, cwd=plain).code == 0
    read = command("agents", "agency", "--slug", "scout", *words, "--json", cwd=plain)
    assert [entry["summary"] for entry in read.json()["entries"]] == ["On a plain disk."]
    for name in ("list", "search"):
        text = ("plain disk",) if name == "search" else ()
        assert "scout" in command("agents", name, *text, *words, cwd=plain).out


def test_17_an_archived_identity_warns_and_an_uncontained_root_is_named_once(payments: clia.Space, tree: Tree) -> None:
    tree.agent(PAYMENTS, "old", status="archived")
    ran = command("spawn", "worker", "--as", "old", "--title", "x", cwd=tree.path(PAYMENTS))
    assert (ran.code, "the identity old is not active" in ran.out + ran.err) == (0, True)
    tree.agent("aside", "scout", title="Aside")
    chain = {"mode": "hybrid", "roots": [{"path": "../aside"}], "policy": {"enforceContainment": False}}
    tree.repository("w")
    tree.agent("w", "scout", rootChain=chain)
    shown = command("agents", "context", "--slug", "scout", "--allow-uncontained", "--explain", cwd=tree.path("w")).out
    assert "root-chain, root-chain" not in shown


# Across both halves


def test_root_rules_hold_for_a_document_without_inherits(payments: clia.Space, tree: Tree) -> None:
    tree.agent(PAYMENTS, "lone", guardrails=["Mine."])
    assert scripted(tree.root / PAYMENTS, "agents", "profile", "--slug", "lone")["guardrails"] == [A, C, "Mine."]


def test_flows_read_profile_and_plan_and_write_the_journal(payments: clia.Space, tree: Tree) -> None:
    flow = 'def main(input):\n    return [request("profile"), request("plan"), request("journal", {"note": "Read."})]\n'
    payments.define("know", flow)
    payments.start("scout", "know")
    for _ in range(3):
        assert command("worker", "--until-idle", cwd=tree.path(PAYMENTS)).code == 0
    profile, plan, _ = payments.session("scout").result
    assert profile["guardrails"] == ALL
    assert plan["agenda"]["backlog"][0] == "Draw the map"
    assert any(commit.kind == "journal-entry" for commit in payments.log("scout", own=True))


def test_a_decision_approves_a_waiver_and_leaves_an_entry(payments: clia.Space, tree: Tree) -> None:
    from clia.values.canonical import text_digest

    path = next(path for path in payments.files("scout") if path.endswith("scout@source.agent.triad.json"))
    body = {"slug": "scout", "guardrails": [D], "waivers": [{"guardrail": text_digest(C)}]}
    payments.commit("scout", "refactor", changes={path: json.dumps(body).encode()})
    refused("guardrail-change", lambda: payments.land("scout", "main"))
    decision = payments.decide("scout", "approve", by="Ada")
    payments.land("scout", "main")
    place = tree.root / PAYMENTS
    git("checkout", "--quiet", "-B", "main", "main", cwd=place)
    (mark,) = clia.lineage(str(place), "scout").profile()["waivedGuardrails"]
    assert mark["decisions"] == [decision.cid]


def test_statistics_by_identity(payments: clia.Space) -> None:
    (stats,) = payments.behaviours.of_identities("scout")
    assert stats.name == "scout"
