"""Signatures that rules and the gate require: commits of enrolled keys, and decisions that a person proved."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.trust.ssh_signatures import CLIA, signer_of
from clia.trust.statements import StatementProof
from support import git
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = ".clia/agents/root/root.agent.triad.json"
RULE = {"on": ["land", "push"], "match": {"paths": "infra/**"}, "do": "require", "need": ["signature"]}
ADA = signer_of(b"\2" * 32)


def prove(statement: Any, keys: Any) -> list[StatementProof]:
    """Ada's key, if it is asked for."""
    own = [key for key in keys if key.fingerprint == ADA.public.fingerprint]
    return [StatementProof("ssh", key.fingerprint, {"signature": ADA.sign(statement.data(), CLIA)}) for key in own]


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings(prove=prove)) as opened:
        rules = {"text": "Infrastructure is signed.", "rules": [RULE]}
        (repo / ROOT).parent.mkdir(parents=True)
        commit_file(repo, ROOT, json.dumps({"slug": "root", "guardrails": [rules]}))
        opened.spawn_at("scout", BRIEFING, "main")
        yield opened


@pytest.fixture
def bare(repo: Path, space: clia.Space, tmp_path: Path) -> Path:
    """A server with the gate, and with the branch and the keys of the space."""
    where = tmp_path / "bare.git"
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", where], check=True)
    git("push", "--quiet", str(where), "main", "refs/clia/keys", "refs/heads/agents/scout", cwd=repo)
    hook = where / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\nexec {sys.executable} -P -m clia.gate.hook\n")
    hook.chmod(0o755)
    return where


def work(space: clia.Space, text: bytes = b"two\n") -> str:
    return space.commit("scout", "finding", changes={"infra/main.tf": text})


def unsigned_work(space: clia.Space, repo: Path, text: str = "three\n") -> str:
    """A commit of the agent's branch by plain git."""
    head = space.head("scout")
    git("checkout", "--quiet", "--detach", head, cwd=repo)
    (repo / "infra").mkdir(exist_ok=True)
    (repo / "infra/main.tf").write_text(text)
    git("add", "infra", cwd=repo)
    tree = git("write-tree", cwd=repo).strip()
    git("checkout", "--quiet", "--force", "main", cwd=repo)
    record = space.show(head)
    message = f"plain\n\nClia-Agent: scout\nClia-Type: finding\nClia-Briefing: {record.briefing}\n"
    commit = git("commit-tree", tree, "-p", head, "-m", message, cwd=repo).strip()
    git("update-ref", "refs/heads/agents/scout", commit, head, cwd=repo)
    return commit


def push(repo: Path, bare: Path) -> subprocess.CompletedProcess[str]:
    words = ["git", "push", str(bare), "main", "refs/clia/keys", "refs/heads/agents/scout"]
    return subprocess.run(words, cwd=repo, capture_output=True, text=True, check=False)


def test_signed_work_lands_and_passes_the_gate(space: clia.Space, repo: Path, bare: Path) -> None:
    work(space)
    assert isinstance(space.land("scout", "main"), clia.Landed)
    pushed = push(repo, bare)
    assert pushed.returncode == 0, pushed.stderr


def test_unsigned_work_does_not_land_and_names_the_commit(space: clia.Space, repo: Path) -> None:
    commit = unsigned_work(space, repo)
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any(f"infra/main.tf needs a signature; {commit[:12]} is not signed" in hint for hint in error.hints), error.hints
    assert any("clia key list" in hint for hint in error.hints)


def test_a_signed_commit_on_top_does_not_cover_unsigned_work(space: clia.Space, repo: Path) -> None:
    unsigned_work(space, repo)
    space.commit("scout", "finding", changes={"other.txt": b"1\n"})
    refused("required-by-rule", lambda: space.land("scout", "main"))


def test_the_gate_refuses_unsigned_work(space: clia.Space, repo: Path, bare: Path) -> None:
    commit = unsigned_work(space, repo)
    git("merge", "--quiet", "--ff-only", "agents/scout", cwd=repo)
    pushed = push(repo, bare)
    assert pushed.returncode != 0
    assert "no-signature: infra/main.tf needs a signature" in pushed.stderr, pushed.stderr
    assert f"{commit[:12]} is not signed" in pushed.stderr


def test_a_decision_that_a_person_proved_stands_for_the_signature(space: clia.Space, repo: Path, bare: Path) -> None:
    space.trust.enrol("Ada <ada@example.org>", ADA.public.text, roles=["owner"])
    unsigned_work(space, repo)
    space.ask("scout", {"question": "Is it fine?", "choices": ["approve", "reject"]})
    space.decide("scout", "approve", by="Ada <ada@example.org>")
    assert isinstance(space.land("scout", "main"), clia.Landed)
    pushed = push(repo, bare)
    assert pushed.returncode == 0, pushed.stderr


def test_a_decision_that_only_the_machine_vouches_for_does_not(space: clia.Space, repo: Path) -> None:
    unsigned_work(space, repo)
    space.ask("scout", {"question": "Is it fine?", "choices": ["approve", "reject"]})
    space.decide("scout", "approve", by="Ada <ada@example.org>")
    refused("required-by-rule", lambda: space.land("scout", "main"))


def test_an_edit_after_the_proved_decision_needs_another(space: clia.Space, repo: Path) -> None:
    space.trust.enrol("Ada <ada@example.org>", ADA.public.text, roles=["owner"])
    unsigned_work(space, repo)
    space.ask("scout", {"question": "Is it fine?", "choices": ["approve", "reject"]})
    space.decide("scout", "approve", by="Ada <ada@example.org>")
    unsigned_work(space, repo, "four\n")
    refused("required-by-rule", lambda: space.land("scout", "main"))


def test_a_key_that_is_not_enrolled_does_not_count(space: clia.Space, repo: Path) -> None:
    """The commits of a machine whose key was revoked."""
    commit = work(space)
    space.trust.enrol("Ada <ada@example.org>", ADA.public.text, roles=["owner"])
    key = next(key for key in space.trust.keys().keys if key.here)
    space.trust.revoke(key.fingerprint, "lost", by="Ada <ada@example.org>")
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    assert any(f"{commit[:12]} is signed with the key {key.fingerprint}, which is not enrolled" in hint for hint in error.hints)


def test_a_policy_may_require_signatures(tmp_path: Path) -> None:
    from clia.errors import InvalidDocument
    from clia.gate.policy import parse_policy

    (requirement,) = parse_policy(b'[[require]]\npaths = ["infra/**"]\nneed = ["signature"]\n').require
    assert requirement.need == ("signature",)
    with pytest.raises(InvalidDocument):
        parse_policy(b'[[require]]\nneed = ["ink"]\n')
