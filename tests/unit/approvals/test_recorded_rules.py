"""Rules on commits and landings hold: what they deny is refused, and what they need must be on the record."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.space.core import CommitText
from support import git
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOT = ".clia/agents/root/root.agent.triad.json"


@pytest.fixture
def opened(repo: Path, request: pytest.FixtureRequest) -> Callable[..., clia.Space]:
    """Open a space with the agent scout, whose root directives have rules."""

    def open_with(*rules: dict[str, Any], after: tuple[dict[str, Any], ...] = (), config: str = "") -> clia.Space:
        space = clia.init(repo, settings=settings())
        write(repo, rules)
        if config:
            space.close()
            (repo / ".git" / "clia" / "config.toml").write_text(config)
            space = clia.open(repo, settings=settings())
        request.addfinalizer(space.close)
        space.spawn_at("scout", BRIEFING, "main")
        if after:
            write(repo, after)
        return space

    return open_with


def write(repo: Path, rules: tuple[dict[str, Any], ...]) -> None:
    guardrail = {"text": "A person decides about the infrastructure.", "rules": list(rules)}
    (repo / ROOT).parent.mkdir(parents=True, exist_ok=True)
    commit_file(repo, ROOT, json.dumps({"slug": "root", "guardrails": [guardrail]}))


def rule(on: Any, do: str, *need: str, **match: Any) -> dict[str, Any]:
    return {"on": on, "do": do, **({"match": match} if match else {}), **({"need": list(need)} if need else {})}


def work(space: clia.Space, path: str = "infra/main.tf", text: bytes = b"two\n", kind: str = "finding") -> str:
    return space.commit("scout", kind, changes={path: text})


def tip(repo: Path) -> str:
    return git("rev-parse", "main", cwd=repo).strip()


INFRA = "infra/**"


@pytest.mark.parametrize("spelling", ["infra/main.tf", "Infra/main.tf", "infra/deep/er.tf"])
def test_a_denied_landing_is_refused_and_names_the_rule(opened: Any, repo: Path, spelling: str) -> None:
    space = opened(rule("land", "deny", paths=INFRA))
    work(space, spelling)
    before = tip(repo)
    error = refused("denied-by-rule", lambda: space.land("scout", "main"))
    assert "A person decides about the infrastructure. (rule " in error.message
    assert f"it is about {spelling}" in error.hints
    assert tip(repo) == before
    assert space.pending("scout") == []


def test_other_work_and_other_branches_land(opened: Any, repo: Path) -> None:
    space = opened(rule("land", "deny", paths=INFRA), rule("land", "deny", branch="release"))
    git("branch", "topic", "main", cwd=repo)
    git("branch", "release", "main", cwd=repo)
    work(space, "src/app.py")
    assert isinstance(space.land("scout", "main"), clia.Landed)
    refused("denied-by-rule", lambda: space.land("scout", "release"))
    assert isinstance(space.land("scout", "topic"), clia.Landed)


@pytest.mark.parametrize("do", [rule("land", "ask", paths=INFRA), rule("land", "require", "decision", paths="infra")])
def test_a_landing_that_needs_a_decision_asks_once_and_continues_when_it_is_approved(
    opened: Any, repo: Path, do: dict[str, Any]
) -> None:
    space = opened(do)
    work(space)
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    refused("required-by-rule", lambda: space.land("scout", "main"))
    (request,) = space.pending("scout")
    assert error.fields["request"] == request.id
    assert request.payload["question"] == "May the work of scout land on main? It changes infra/main.tf."
    assert request.payload["rules"][0]["file"] == ROOT
    space.decide("scout", "approve", by="Ada <ada@example.org>")
    assert isinstance(space.land("scout", "main"), clia.Landed)
    assert git("show", "main:infra/main.tf", cwd=repo) == "two\n"


def test_a_refused_landing_is_not_asked_again_and_an_edit_asks_about_the_new_content(opened: Any) -> None:
    space = opened(rule("land", "ask", paths=INFRA))
    work(space)
    refused("required-by-rule", lambda: space.land("scout", "main"))
    space.decide("scout", "reject", by="Ada")
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert "refused by Ada: change the files, then try again" in error.hints
    assert space.pending("scout") == []
    work(space, text=b"three\n")
    refused("required-by-rule", lambda: space.land("scout", "main"))
    space.decide("scout", "approve", by="Ada")
    work(space, text=b"four\n")  # after the approval
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any("was made before the last edit" in hint for hint in error.hints)


def test_a_question_about_older_work_is_withdrawn(opened: Any) -> None:
    space = opened(rule("land", "ask", paths=INFRA))
    work(space)
    refused("required-by-rule", lambda: space.land("scout", "main"))
    (older,) = space.pending("scout")
    work(space, text=b"three\n")
    refused("required-by-rule", lambda: space.land("scout", "main"))
    (newer,) = space.pending("scout")
    assert newer.id != older.id
    refused("stale-request", lambda: space.decide("scout", "approve", request_id=older.id))


def test_an_agent_cannot_approve_and_a_forged_decision_does_not_count(opened: Any) -> None:
    space = opened(rule("land", "ask", paths=INFRA))
    work(space)
    space.spawn("painter", BRIEFING)
    refused("required-by-rule", lambda: space.land("scout", "main"))
    space.decide("scout", "approve", by="painter")
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any("by painter, which is an agent" in hint for hint in error.hints)


def test_a_question_of_an_agent_in_the_same_form_is_refused_and_one_of_a_flow_does_not_count(opened: Any) -> None:
    space = opened(rule("land", "ask", paths=INFRA))
    work(space)
    forged = {"kind": "ruled-change", "question": "Tea?", "choices": ["approve"], "on": "land", "target": "main", "tree": "0" * 40}
    refused("reserved-question", lambda: space.ask("scout", forged))
    work(space, text=b"three\n")  # the flow is asked about the tree of a later commit
    tree = space.show(space.head("scout")).tree
    source = f"def main(input):\n    return request('human', {forged | {'tree': tree}!r})\n"
    space.define("tea", source)
    space.commit("scout", "refactor", changes={"infra/main.tf": b"four\n"})
    space.start("scout", "tea")
    (asked,) = space.pending("scout")
    space.decide("scout", "approve", request_id=asked.id)
    work(space, text=b"three\n")
    refused("required-by-rule", lambda: space.land("scout", "main"))


def test_a_decision_that_was_written_by_hand_does_not_count(opened: Any, repo: Path) -> None:
    space = opened(rule("land", "ask", paths=INFRA))
    head = work(space)
    trailers = ["Clia-Agent: scout", "Clia-Type: decision", "Clia-Request: ask-1.1", 'Clia-Value: "approve"', "Clia-By: Ada"]
    message = "\n".join(["yes", "", *trailers])
    forged = git("commit-tree", f"{head}^{{tree}}", "-p", head, "-m", message, cwd=repo).strip()
    git("update-ref", "refs/heads/agents/scout", forged, cwd=repo)
    assert space.show(forged).kind == "decision"
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any("was not made by a session" in hint for hint in error.hints), error.hints


def test_only_listed_people_may_approve(opened: Any) -> None:
    space = opened(rule("land", "ask", paths=INFRA), config='[approvals]\npeople = ["ada@example.org"]\n')
    work(space)
    refused("required-by-rule", lambda: space.land("scout", "main"))
    space.decide("scout", "approve", by="Bob <bob@example.org>")
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any("may not approve here" in hint for hint in error.hints)


def test_an_approval_lands_the_work_at_once_if_the_operator_wants_that(opened: Any, repo: Path) -> None:
    space = opened(rule("land", "ask", paths=INFRA), config='[approvals]\nland = "main"\n')
    work(space)
    refused("required-by-rule", lambda: space.land("scout", "main"))
    space.decide("scout", "approve", by="Ada")
    assert git("show", "main:infra/main.tf", cwd=repo) == "two\n"


def test_tests_and_traces_must_be_on_the_record(opened: Any) -> None:
    space = opened(rule("land", "require", "tests", "trace", paths=INFRA))
    work(space)
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any("needs recorded tests" in hint for hint in error.hints)
    assert any("the work of scout needs a trace" in hint for hint in error.hints)
    assert space.pending("scout") == []
    space.trace("scout", "note", "ran them")
    space.commit_with_trace("scout", "test", changes={"tests/log": b"ok\n"})
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_a_rule_on_commits_refuses_what_callers_commit(opened: Any) -> None:
    space = opened(rule("commit", "deny", paths=INFRA), rule("commit", "deny", kind="refactor"))
    head = space.head("scout")
    refused("denied-by-rule", lambda: work(space))
    refused("denied-by-rule", lambda: space.commit_with_trace("scout", "finding", changes={"infra/x": b""}))
    refused("denied-by-rule", lambda: work(space, "src/app.py", kind="refactor"))
    assert space.head("scout") == head
    work(space, "src/app.py")


def test_a_commit_that_needs_a_decision_is_accepted_after_it(opened: Any) -> None:
    space = opened(rule("commit", "ask", paths=INFRA))
    head = space.head("scout")
    error = refused("required-by-rule", lambda: work(space))
    assert space.head("scout") == head
    (request,) = space.pending("scout")
    assert error.fields["request"] == request.id
    assert request.payload["paths"] == ["infra/main.tf"]
    space.decide("scout", "approve", by="Ada")
    refused("required-by-rule", lambda: work(space, text=b"something else\n"))
    assert space.show(work(space)).kind == "finding"


def test_a_rule_on_commits_that_needs_a_trace_wants_entries(opened: Any) -> None:
    space = opened(rule("commit", "require", "trace", paths=INFRA))
    refused("required-by-rule", lambda: work(space))
    refused("required-by-rule", lambda: space.commit_with_trace("scout", "finding", changes={"infra/a": b""}))
    space.trace("scout", "note", "why")
    space.commit_with_trace("scout", "finding", changes={"infra/a": b""})


def test_the_commit_of_a_directory_is_checked_and_that_of_a_program_waits_at_the_landing(opened: Any, tmp_path: Path) -> None:
    space = opened(rule("commit", "deny", paths=INFRA))
    space.checkout("scout", tmp_path / "wt")
    (tmp_path / "wt" / "infra").mkdir()
    (tmp_path / "wt" / "infra" / "main.tf").write_text("two\n")
    refused("denied-by-rule", lambda: space.commit_dir("scout", "finding", tmp_path / "wt"))
    recorded = space.captures.commit_worktree("scout", "finding", str(tmp_path / "wt"), CommitText("a run", None), None)
    assert space.head("scout") == recorded
    refused("denied-by-rule", lambda: space.land("scout", "main"))


def test_a_rule_that_is_stated_later_holds_and_one_that_is_removed_still_holds(opened: Any) -> None:
    space = opened(rule("land", "deny", paths=INFRA), after=(rule("land", "deny", paths="src/**"),))
    work(space)
    refused("denied-by-rule", lambda: space.land("scout", "main"))
    work(space, "src/x")
    space.commit("scout", "refactor", changes={"infra/main.tf": None})
    refused("denied-by-rule", lambda: space.land("scout", "main"))


def test_a_rule_that_does_not_parse_needs_a_decision(opened: Any) -> None:
    space = opened(after=({"on": "land", "do": "forbid"},))
    work(space, "src/x")
    refused("required-by-rule", lambda: space.land("scout", "main"))
    space.decide("scout", "approve", by="Ada")
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_without_identities_no_rules_are_read(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clia.identities.service import IdentityService

    monkeypatch.setattr(IdentityService, "rules_in_force", lambda *_: pytest.fail("loaded"))
    with closing(clia.init(repo, settings=settings())) as space:
        commit_file(repo, "README", "x")
        space.spawn_at("scout", BRIEFING, "main")
        work(space)
        assert isinstance(space.land("scout", "main"), clia.Landed)
