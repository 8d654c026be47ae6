"""A landing and the gate decide alike about lost guardrails, whatever happened after the approval."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import CliaError
from clia.gate.checks import PushChecks, RefUpdate
from clia.gate.repository import GateRepository
from support import git
from support.memory_trees import document
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCOUT = ".clia/agents/scout/scout.agent.triad.json"
JOURNAL = ".clia/agents/scout/scout.agency.triad.json"
WITHOUT = {SCOUT: json.dumps({"slug": "scout"}).encode()}


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as opened:
        (body,) = document("scout", "Never deploy without approval.").values()
        (repo / SCOUT).parent.mkdir(parents=True)
        commit_file(repo, SCOUT, json.dumps(body))
        opened.spawn_at("scout", BRIEFING, "main", slug="scout")
        yield opened


def lose(space: clia.Space) -> None:
    space.commit("scout", "refactor", changes=WITHOUT)


def answer(value: str, by: str = "Ada <ada@example.org>") -> Callable[[clia.Space], None]:
    def decide(space: clia.Space) -> None:
        with pytest.raises(CliaError):  # asks about the present state
            space.land("scout", "main")
        (request,) = space.pending("scout")
        space.decide("scout", value, by=by, request_id=request.id)

    return decide


def edit(space: clia.Space) -> None:
    space.commit("scout", "finding", changes={"code.py": b"print()\n"})


def edit_back(space: clia.Space) -> None:
    space.commit("scout", "finding", changes={"code.py": None})


def note(space: clia.Space) -> None:
    space.commit("scout", "finding", changes={JOURNAL: json.dumps({"slug": "scout", "entries": []}).encode()})


def restore(space: clia.Space) -> None:
    (body,) = document("scout", "Never deploy without approval.").values()
    space.commit("scout", "refactor", changes={SCOUT: json.dumps(body).encode()})


APPROVE, REJECT = answer("approve"), answer("reject")
CASES: dict[str, tuple[list[Callable[[clia.Space], None]], bool]] = {
    "nothing lost": ([edit], True),
    "not asked": ([lose], False),
    "approved": ([lose, APPROVE], True),
    "rejected": ([lose, REJECT], False),
    "approved, then a journal": ([lose, APPROVE, note], True),
    "approved, then an edit": ([lose, APPROVE, edit], False),
    "approved, then an edit that is taken back": ([lose, APPROVE, edit, edit_back], True),
    "approved, edited and approved again": ([lose, APPROVE, edit, APPROVE], True),
    "an edit before the approval": ([lose, edit, APPROVE], True),
    "approved, then restored": ([lose, APPROVE, restore], True),
    "approved, restored and lost again": ([lose, APPROVE, restore, lose, edit], False),
}


@pytest.mark.parametrize("form", ["squash", "merge", "fast-forward"])
@pytest.mark.parametrize("case", CASES)
def test_landing_and_gate_agree(space: clia.Space, repo: Path, case: str, form: str) -> None:
    steps, accepted = CASES[case]
    for step in steps:
        step(space)
    before = git("rev-parse", "main", cwd=repo).strip()
    assert is_accepted(repo, before, by_hand(repo, form)) == accepted, "the gate, on what plain git makes of it"
    if not accepted:
        refused("guardrail-change", lambda: space.land("scout", "main", how=form))
        return
    landed = space.land("scout", "main", how=form)
    assert isinstance(landed, clia.Landed)
    assert is_accepted(repo, before, landed.cid), "the gate, on what clia landed"


def by_hand(repo: Path, form: str) -> str:
    """The agent's work on top of the branch, as plain git would bring it there; no ref moves."""
    head = git("rev-parse", "agents/scout", cwd=repo).strip()
    if form == "fast-forward":
        return head
    base = git("rev-parse", "main", cwd=repo).strip()
    tree = git("rev-parse", f"{head}^{{tree}}", cwd=repo).strip()
    if form == "merge":
        return git("commit-tree", tree, "-p", base, "-p", head, "-m", "Merge scout", cwd=repo).strip()
    trailers = f"Clia-Agent: scout\nClia-Landed: scout\nClia-Range: {base}..{head}\n"
    return git("commit-tree", tree, "-p", base, "-m", f"Land scout\n\n{trailers}", cwd=repo).strip()


def is_accepted(repo: Path, before: str, after: str) -> bool:
    repository = GateRepository(str(repo), os.environ)
    try:
        refusals = PushChecks(repository, [RefUpdate(before, after, "refs/heads/main")], head_branch="refs/heads/main").refusals()
    finally:
        repository.close()
    assert {refusal.rule for refusal in refusals} <= {"guardrail-loss"}, refusals
    return not refusals
