"""A guardrail is lost on a branch of people only with a person's approval of exactly this change on this tree."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.git.records import SUBMODULE
from clia.space.model import Link, Submodule
from support import git
from support.memory_trees import document
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULE, ROOT_RULE = "Never deploy without approval.", "Never read secrets."
SCOUT = ".clia/agents/scout/scout.agent.triad.json"
ROOT = ".clia/agents/root/root.agent.triad.json"
NOTIFIED: list[str] = []


def contents(*documents: dict[str, Any]) -> dict[str, bytes]:
    return {path: json.dumps(body).encode() for each in documents for path, body in each.items()}


DOCUMENTS = contents(document("root", ROOT_RULE), document("scout", RULE, inherits=[ROOT]))
WITHOUT_RULE = contents(document("scout", inherits=[ROOT]))


def commit_in(repo: Path, path: str, text: str) -> None:
    (repo / path).parent.mkdir(parents=True, exist_ok=True)
    commit_file(repo, path, text)


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    NOTIFIED.clear()
    with clia.init(repo, settings=settings(notify=NOTIFIED.append)) as opened:
        for path, data in DOCUMENTS.items():
            commit_in(repo, path, data.decode())
        opened.spawn_at("scout", BRIEFING, "main")
        yield opened


def edit(space: clia.Space, changes: dict[str, Any], agent: str = "scout") -> str:
    return space.commit(agent, "refactor", changes=changes)


def question(space: clia.Space) -> clia.Request:
    (request,) = [request for request in space.pending("scout") if request.payload.get("kind") == "guardrail-change"]
    return request


def tip(repo: Path) -> str:
    return git("rev-parse", "main", cwd=repo).strip()


def test_a_commit_that_loses_a_guardrail_is_recorded_and_asks(space: clia.Space) -> None:
    cid = edit(space, WITHOUT_RULE)
    assert space.head("scout") == cid
    request = question(space)
    assert request.kind == "human"
    assert request.payload["choices"] == ["approve", "reject"]
    (loss,) = request.payload["losses"]
    assert (loss["kind"], loss["guardrail"], loss["places"]) == ("removed", RULE, ["scout in ."])
    assert request.payload["tree"] == space.show(cid).tree
    assert request.id in NOTIFIED[-1]


def test_a_landing_without_approval_is_refused_and_names_the_question(space: clia.Space, repo: Path) -> None:
    edit(space, WITHOUT_RULE)
    before = tip(repo)
    error = refused("guardrail-change", lambda: space.land("scout", "main"))
    assert tip(repo) == before
    assert error.fields["request"] == question(space).id
    assert any(RULE in hint for hint in error.hints)
    assert any(f"clia decide scout approve --request {question(space).id}" in hint for hint in error.hints)


@pytest.mark.parametrize("how", [{}, {"squash": True}, {"no_ff": True}])
def test_the_landing_continues_when_a_person_has_approved(space: clia.Space, repo: Path, how: Any) -> None:
    edit(space, WITHOUT_RULE)
    refused("guardrail-change", lambda: space.land("scout", "main", **how))
    decision = space.decide("scout", "approve", "agreed in review", by="Ada <ada@example.org>")
    landed = space.land("scout", "main", **how)
    assert isinstance(landed, clia.Landed)
    assert space.history.landings("scout")[0]["approved"] == decision.cid
    assert RULE not in git("show", f"main:{SCOUT}", cwd=repo)
    assert space.pending("scout") == []


def test_a_rejected_change_does_not_land_and_is_not_asked_again(space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    space.decide("scout", "reject", "keep it", by="Ada")
    error = refused("guardrail-change", lambda: space.land("scout", "main"))
    assert any("rejected by Ada" in hint for hint in error.hints)
    assert space.pending("scout") == []


def test_an_edit_after_the_approval_needs_another(space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    space.decide("scout", "approve")
    edit(space, {"code.py": b"print()\n"})
    refused("guardrail-change", lambda: space.land("scout", "main"))
    space.decide("scout", "approve")
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_an_approval_holds_for_its_change_only(space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    space.decide("scout", "approve")
    edit(space, contents(document("root")))
    error = refused("guardrail-change", lambda: space.land("scout", "main"))
    assert len(error.fields["losses"]) == 2


def test_a_question_about_an_older_state_is_withdrawn(space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    first = question(space).id
    edit(space, contents(document("root")))
    second = question(space).id
    assert second != first
    assert space.session("scout", first.rpartition(".")[0]).status == "cancelled"


def test_restored_guardrails_withdraw_the_question_and_land(space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    edit(space, {SCOUT: DOCUMENTS[SCOUT], "code.py": b""})
    assert space.pending("scout") == []
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_asking_twice_leaves_one_question(space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    first = question(space).id
    refused("guardrail-change", lambda: space.land("scout", "main"))
    refused("guardrail-change", lambda: space.land("scout", "main"))
    assert question(space).id == first


def test_the_branch_may_move_between_approval_and_landing(space: clia.Space, repo: Path) -> None:
    edit(space, WITHOUT_RULE)
    space.decide("scout", "approve")
    commit_in(repo, "other.txt", "x")
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_a_guardrail_that_came_later_is_not_covered(space: clia.Space, repo: Path) -> None:
    edit(space, WITHOUT_RULE)
    space.decide("scout", "approve")
    (body,) = document("scout", RULE, "Be careful.", inherits=[ROOT]).values()
    commit_in(repo, SCOUT, json.dumps(body))
    landed = space.land("scout", "main")  # git sees a conflict: nothing is lost in silence
    assert isinstance(landed, clia.Conflicts)


@pytest.mark.parametrize("by", ["scout", "Scout", "Scout <x@example.org>", "Ada <scout@agents.clia.invalid>"])
def test_an_agent_cannot_approve_its_own_change(space: clia.Space, by: str) -> None:
    edit(space, WITHOUT_RULE)
    refused("not-a-person", lambda: space.decide("scout", "approve", by=by))
    refused("guardrail-change", lambda: space.land("scout", "main"))


def test_a_decision_commit_by_plain_git_is_no_approval(space: clia.Space, repo: Path) -> None:
    edit(space, WITHOUT_RULE)
    refused("guardrail-change", lambda: space.land("scout", "main"))
    request = question(space)
    head = space.show(space.head("scout"))
    asked = json.dumps({"asked": request.payload}, separators=(",", ":"))
    trailers = [f"Clia-Agent: scout\nClia-Type: decision\nClia-Briefing: {head.briefing}\nClia-Request: {request.id}"]
    trailers += [f'Clia-Value: "approve"\nClia-By: Ada\nClia-Meta: {asked}']
    message = "yes\n\n" + "\n".join(trailers) + "\n"
    forged = git("commit-tree", head.tree, "-p", head.cid, "-m", message, cwd=repo).strip()
    git("update-ref", "refs/heads/agents/scout", forged, head.cid, cwd=repo)
    assert space.show("scout").kind == "decision"
    refused("guardrail-change", lambda: space.land("scout", "main"))


def test_only_the_people_of_the_configuration_approve(repo: Path, tmp_path: Path, space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    config = tmp_path / "config.toml"
    config.write_text('[approvals]\npeople = ["ada@example.org"]\n')
    with closing(clia.open(repo, settings=settings(config=str(config)))) as strict:
        strict.decide("scout", "approve", by="Bob <bob@example.org>")
        refused("guardrail-change", lambda: strict.land("scout", "main"))
        strict.decide("scout", "approve", by="Ada <Ada@example.org>")
        assert isinstance(strict.land("scout", "main"), clia.Landed)


def test_an_approval_lands_the_work_if_configured(repo: Path, tmp_path: Path, space: clia.Space) -> None:
    edit(space, WITHOUT_RULE)
    config = tmp_path / "config.toml"
    config.write_text('[approvals]\nland = "main"\n')
    with closing(clia.open(repo, settings=settings(config=str(config)))) as strict:
        strict.decide("scout", "reject")
        assert tip(repo) != strict.head("scout")
        edit(strict, {"code.py": b""})
        refused("guardrail-change", lambda: strict.land("scout", "main"))
        strict.decide("scout", "approve")
        assert git("rev-parse", "main^{tree}", cwd=repo) == git("rev-parse", "agents/scout^{tree}", cwd=repo)


HOSTILE: dict[str, dict[str, Any]] = {
    "deleted": {SCOUT: None},
    "renamed": {SCOUT: None, ".clia/agents/scout2/scout2.agent.triad.json": DOCUMENTS[SCOUT]},
    "capitals": {SCOUT: None, ".clia/agents/Scout/scout.agent.triad.json": DOCUMENTS[SCOUT]},
    "a link": {SCOUT: Link("../root/root.agent.triad.json")},
    "a link outside": {SCOUT: Link("/etc/passwd")},
    "not JSON": {SCOUT: b"{"},
    "look-alike": {SCOUT: DOCUMENTS[SCOUT].replace(b"Never", "N\u0435ver".encode())},
    "root behind a link": {
        ROOT: None,
        ".clia/agents/copy/root.agent.triad.json": DOCUMENTS[ROOT],
        ".clia/agents/root": Link("copy"),
    },
    "root renamed": {ROOT: None, ".clia/agents/root2/root2.agent.triad.json": DOCUMENTS[ROOT]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_guardrail_does_not_land_away(space: clia.Space, case: str) -> None:
    edit(space, HOSTILE[case])
    refused("guardrail-change", lambda: space.land("scout", "main"))


def test_a_merge_of_another_agents_work_is_compared_too(space: clia.Space) -> None:
    space.spawn_at("helper", BRIEFING, "main")
    edit(space, WITHOUT_RULE, "helper")
    merged = space.merge("scout", "helper")
    assert isinstance(merged, clia.Merged)
    assert question(space).payload["losses"]
    refused("guardrail-change", lambda: space.land("scout", "main"))


def test_a_resolution_is_compared_too(space: clia.Space) -> None:
    space.spawn_at("helper", BRIEFING, "main")
    edit(space, {"a": b"1"})
    edit(space, {"a": b"2", **WITHOUT_RULE}, "helper")
    conflicts = space.merge("scout", "helper")
    assert isinstance(conflicts, clia.Conflicts)
    space.resolve("scout", "helper", ours=conflicts.ours, theirs=conflicts.theirs, changes={"a": b"3"})
    assert question(space).payload["losses"]


def test_a_revert_of_the_commit_that_added_a_guardrail(space: clia.Space, repo: Path) -> None:
    edit(space, contents(document("scout", RULE, "Be careful.", inherits=[ROOT])))
    space.land("scout", "main")
    edit(space, {SCOUT: DOCUMENTS[SCOUT]})
    error = refused("guardrail-change", lambda: space.land("scout", "main"))
    assert "Be careful." in error.fields["losses"][0]


def test_commits_of_programs_in_a_checkout_are_compared(space: clia.Space, repo: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    space.checkout("scout", work)
    (work / SCOUT).unlink()
    git("commit", "--quiet", "--all", "--message", "tidy up", cwd=work)
    space.commit_dir("scout", "refactor", work)
    assert question(space).payload["losses"]


def submodule_repository(tmp_path: Path) -> tuple[Path, str, str]:
    """A repository to use as a submodule, with a commit that has a guardrail and one that has not."""
    inner = tmp_path / "inner"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", inner], check=True)
    commits = []
    for guardrails in (("Keep it small.",), ()):
        for path, data in contents(document("scout", *guardrails)).items():
            commit_in(inner, path, data.decode())
        commits.append(git("rev-parse", "HEAD", cwd=inner).strip())
    return inner, commits[0], commits[1]


@pytest.mark.parametrize("readable", [True, False])
def test_a_submodule_bump_is_compared(space: clia.Space, repo: Path, tmp_path: Path, readable: bool) -> None:
    inner, old, new = submodule_repository(tmp_path)
    git("update-index", "--add", "--cacheinfo", f"{SUBMODULE:o},{old},lib", cwd=repo)
    git("commit", "--quiet", "--message", "submodule", cwd=repo)
    if readable:
        subprocess.run(["git", "clone", "--quiet", "--bare", inner, repo / ".git/modules/lib"], check=True)
    space.spawn_at("bumper", BRIEFING, "main")
    edit(space, {"lib": Submodule(new)}, "bumper")
    error = refused("guardrail-change", lambda: space.land("bumper", "main"))
    assert ("Keep it small." if readable else "submodule lib") in error.fields["losses"][0]
    space.decide("bumper", "approve")
    assert isinstance(space.land("bumper", "main"), clia.Landed)


def test_work_on_other_files_asks_nothing(space: clia.Space) -> None:
    edit(space, {"code.py": b"print()\n"})
    assert space.pending() == []
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_a_commit_is_recorded_even_if_nobody_can_be_asked(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise clia.errors.StoreError("the store is away")

    monkeypatch.setattr("clia.sessions.lifecycle.Lifecycle.start", broken)
    cid = edit(space, WITHOUT_RULE)
    assert space.head("scout") == cid
    assert "the store is away" in NOTIFIED[-1]
    error = refused("guardrail-change", lambda: space.land("scout", "main"))
    assert any("the store is away" in hint for hint in error.hints)


def test_a_question_with_many_losses_keeps_the_ids_of_its_decision(space: clia.Space, repo: Path) -> None:
    rules = [f"Never do the thing number {number}, for it is forbidden by the rules of the house." for number in range(200)]
    (body,) = document("scout", *rules, inherits=[ROOT]).values()
    commit_in(repo, SCOUT, json.dumps(body))
    space.spawn_at("many", BRIEFING, "main")
    edit(space, WITHOUT_RULE, "many")
    refused("guardrail-change", lambda: space.land("many", "main"))
    space.decide("many", "approve")
    assert isinstance(space.land("many", "main"), clia.Landed)
