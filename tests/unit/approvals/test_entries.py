"""Agency entries that approvals leave, and waivers that count by them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.values.canonical import digest, text_digest
from support import git
from support.memory_trees import document
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULE, ROOT_RULE = "Never deploy without approval.", "Never read secrets."
ROOT, SCOUT = ".clia/agents/root/root.agent.triad.json", ".clia/agents/scout/scout.agent.triad.json"
INNER = "services/.clia/agents/scout/scout.agent.triad.json"
WAIVER = {"guardrail": text_digest(ROOT_RULE)}
NOTIFIED: list[str] = []


def encoded(documents: dict[str, Any]) -> dict[str, bytes]:
    return {path: json.dumps(body).encode() for path, body in documents.items()}


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    NOTIFIED.clear()
    with clia.init(repo, settings=settings(notify=NOTIFIED.append)) as opened:
        for path, data in encoded({**document("root", ROOT_RULE), **document("scout", RULE)}).items():
            (repo / path).parent.mkdir(parents=True, exist_ok=True)
            commit_file(repo, path, data.decode())
        opened.spawn_at("worker", BRIEFING, "main", slug="scout")
        yield opened


def waive(space: clia.Space, waiver: dict[str, str] = WAIVER) -> None:
    space.commit("worker", "refactor", changes=encoded({INNER: {"slug": "scout", "waivers": [waiver]}}))


def entries(space: clia.Space, slug: str, revision: str = "agents/worker", directory: str = "") -> list[dict[str, Any]]:
    home = f"{directory}.clia/agents/{slug}/"
    files: dict[str, Any] = {path: data for path, data in space.files(revision).items() if path.startswith(home)}
    return [entry for path, data in files.items() if "agency" in path for entry in json.loads(data)["entries"]]


def marks(repo: Path, directory: str = "services", slug: str = "scout") -> Any:
    return clia.lineage(str(repo / directory), slug).profile().get("waivedGuardrails")


def codes(repo: Path, directory: str = "services", slug: str = "scout") -> list[str]:
    from clia.identities.guardrails.waivers import check_waivers

    lineage = clia.lineage(str(repo / directory), slug)
    return [item.code for item in check_waivers(lineage.profile(), lineage.approvals())[1]]


def test_an_approved_waiver_is_recorded_by_its_owner_and_counts_where_it_lands(space: clia.Space, repo: Path) -> None:
    waive(space)
    refused("guardrail-change", lambda: space.land("worker", "main"))
    decision = space.decide("worker", "approve", "staging only", by="Ada <ada@example.org>")
    (entry,) = entries(space, "root")
    assert entry["extensions"]["x-decision"] == decision.cid
    assert entry["extensions"]["x-waives"] == [{"guardrail": WAIVER["guardrail"], "in": "services/.clia/agents/scout"}]
    assert entry["contributions"][0]["by"] == "Ada <ada@example.org>"
    assert entries(space, "scout") == []
    space.land("worker", "main")
    git("checkout", "--quiet", "main", cwd=repo)
    (mark,) = marks(repo)
    assert (mark["text"], mark["decisions"], mark["approvals"]) == (ROOT_RULE, [decision.cid], [])
    assert codes(repo) == []
    assert marks(repo, "") is None
    assert ROOT_RULE in clia.lineage(str(repo / "services"), "scout").profile()["guardrails"]


def test_a_waiver_may_name_its_decision_and_no_other_decision_counts(space: clia.Space, repo: Path) -> None:
    waive(space)
    decision = space.decide("worker", "approve", by="Ada")
    space.land("worker", "main")
    git("checkout", "--quiet", "main", cwd=repo)
    for name, expected in ((decision.cid, []), ("0" * 40, ["waiver-unapproved"])):
        (repo / INNER).write_text(json.dumps({"slug": "scout", "waivers": [{**WAIVER, "decision": name}]}))
        assert codes(repo) == expected


def test_an_approval_covers_no_other_waiver(space: clia.Space, repo: Path) -> None:
    waive(space)
    space.decide("worker", "approve", by="Ada")
    space.land("worker", "main")
    git("checkout", "--quiet", "main", cwd=repo)
    for directory, slug, rule in (("tools", "scout", ROOT_RULE), ("services", "other", ROOT_RULE), ("services", "scout", RULE)):
        home = repo / directory / ".clia/agents" / slug
        home.mkdir(parents=True, exist_ok=True)
        path = home / f"{slug}.agent.triad.json"
        path.write_text(json.dumps({"slug": slug, "waivers": [{"guardrail": text_digest(rule)}]}))
        assert "waiver-unapproved" in codes(repo, directory, slug)
        path.unlink()


def test_an_unapproved_or_rejected_waiver_has_no_effect(space: clia.Space) -> None:
    waive(space)
    space.decide("worker", "reject", by="Ada")
    assert entries(space, "root") == entries(space, "scout") == []


def test_an_approved_loss_is_recorded_once_in_the_journal_of_the_agents_identity(space: clia.Space, repo: Path) -> None:
    space.commit("worker", "refactor", changes=encoded(document("scout")))
    decision = space.decide("worker", "approve", by="Ada")
    (entry,) = entries(space, "scout")
    assert entry["extensions"]["x-decision"] == decision.cid
    assert RULE in entry["summary"]
    head = space.head("worker")
    space.land("worker", "main")
    assert space.head("worker") == head
    assert entries(space, "scout", "main") == [entry]


def test_entries_that_a_crash_left_out_are_written_by_the_landing(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    waive(space)
    with monkeypatch.context() as patch:
        patch.setattr("clia.approvals.guardrails.GuardrailApprovals.record", lambda *_: None)
        decision = space.decide("worker", "approve", by="Ada")
    assert entries(space, "root") == []
    space.land("worker", "main")
    assert [entry["extensions"]["x-decision"] for entry in entries(space, "root", "main")] == [decision.cid]


def test_a_change_after_a_landing_is_asked_about_once(space: clia.Space) -> None:
    space.commit("worker", "refactor", changes=encoded(document("scout")))
    space.decide("worker", "approve", by="Ada")
    space.land("worker", "main")
    space.commit("worker", "refactor", changes=encoded(document("root")))
    (request,) = space.pending("worker")
    assert [loss["guardrail"] for loss in request.payload["losses"]] == [ROOT_RULE]
    space.decide("worker", "approve", by="Ada")
    assert isinstance(space.land("worker", "main"), clia.Landed)


def test_journals_after_an_approval_leave_it_valid(repo: Path, tmp_path: Path, space: clia.Space) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[journal]\nwrite = ["decisions", "landings", "sessions"]\n')
    with closing(clia.open(repo, settings=settings(config=str(config)))) as logging:
        logging.commit("worker", "refactor", changes=encoded(document("scout")))
        refused("guardrail-change", lambda: logging.land("worker", "main"))
        logging.decide("worker", "approve", by="Ada")
        logging.agents.journal("worker", "It was approved.")
        assert logging.pending("worker") == []
        assert isinstance(logging.land("worker", "main"), clia.Landed)
        written = [entry["kind"] for entry in entries(logging, "scout", "main")]
        assert sorted(written) == ["decision", "log", "log"]


@pytest.mark.parametrize(
    "changes",
    [
        {"x/.clia/agents/scout/scout.agency.triad.json.txt": b"{}"},
        {".clia/agents/scout/scout.agency.triad.json": clia.Link("../root/root.agent.triad.json")},
        {".clia/agents/scout.agency.triad.json": b"{}"},
    ],
)
def test_an_edit_that_only_looks_like_a_journal_needs_another_approval(space: clia.Space, changes: Any) -> None:
    space.commit("worker", "refactor", changes=encoded(document("scout")))
    space.decide("worker", "approve", by="Ada")
    space.commit("worker", "journal-entry", changes=changes)
    refused("guardrail-change", lambda: space.land("worker", "main"))


def test_a_waiver_of_a_rule_around_the_repository_is_left_to_a_person(space: clia.Space, repo: Path) -> None:
    outer = repo.parent / ".clia/agents/root"
    outer.mkdir(parents=True)
    (outer / "root.agent.triad.json").write_text(json.dumps({"slug": "root", "guardrails": ["Outer rule."]}))
    waive(space, {"guardrail": text_digest("Outer rule.")})
    (request,) = space.pending("worker")
    assert "enclosing repository" in request.payload["losses"][0]["guardrail"]
    space.decide("worker", "approve", by="Ada")
    assert entries(space, "root") == []
    space.land("worker", "main")
    git("checkout", "--quiet", "main", cwd=repo)
    assert marks(repo) is None


def test_a_new_identity_that_an_agent_frees_of_a_root_rule_needs_approval(space: clia.Space) -> None:
    """The agent also writes the operator and the approval that the waiver names."""
    approval = {"timestamp": "2026-01-01T00:00:00Z", "kind": "decision", "summary": "Fine."}
    free = {"slug": "free", "waivers": [{**WAIVER, "approval": digest(approval)}]}
    boss = {"slug": "boss", "profileType": "operator", "title": "Boss"}
    changes = {
        ".clia/agents/free/free.agent.triad.json": free,
        ".clia/agents/boss/boss.agent.triad.json": boss,
        ".clia/agents/boss/boss.agency.triad.json": {"slug": "boss", "entries": [approval]},
    }
    space.commit("worker", "refactor", changes=encoded(changes))
    error = refused("guardrail-change", lambda: space.land("worker", "main"))
    assert any(ROOT_RULE in loss and loss.startswith("waived") for loss in error.fields["losses"])


# Questions in the words of an agent


FORGED = {"question": "Lunch at noon?", "choices": ["approve", "reject"], "kind": "guardrail-change"}


def forged(space: clia.Space) -> dict[str, Any]:
    """A question that has the ids of a real change, but asks something else."""
    space.commit("worker", "refactor", changes=encoded(document("scout")))
    error = refused("guardrail-change", lambda: space.land("worker", "main"))
    space.cancel("worker", session_id="ask-1")
    return {**FORGED, "change": error.fields["change"], "tree": space.show("worker").tree}


def test_an_agent_cannot_ask_for_an_approval_in_its_own_words(space: clia.Space) -> None:
    payload = forged(space)
    refused("reserved-question", lambda: space.ask("worker", payload))
    refused("reserved-question", lambda: space.start("worker", "ask", payload))
    refused("reserved-question", lambda: space.start("worker", space.sessions.flow("ask").cid, payload))
    refused("reserved-question", lambda: space.ask("worker", {"question": "Lunch?", "choices": ["always"], "clia": {"scope": "x"}}))
    assert space.pending("worker") == []


def test_a_question_of_a_flow_approves_nothing(space: clia.Space) -> None:
    payload = forged(space)
    space.define("lunch", 'def main(input):\n    return request("human", input)\n')
    space.start("worker", "lunch", payload)
    space.decide("worker", "approve", by="Ada")
    refused("guardrail-change", lambda: space.land("worker", "main"))
    assert space.history.landings("worker") == []
