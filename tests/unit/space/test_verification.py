"""``verify`` on commits that other programs wrote: each problem is a finding, and the report is complete."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from support import git

if TYPE_CHECKING:
    from pathlib import Path

    import clia

TRAILERS = "Clia-Agent: scout\nClia-Type: {}\nClia-Request: 1.1\nClia-Value: 1\nClia-By: Ann"
AUTHOR, COMMITTER = "author A <a@b.example> 1 +0000\n", "committer A <a@b.example> 1 +0000\n"


def point_branch_at(repo: Path, head: str, text: str) -> str:
    """Point the agent's branch at a hand-made commit object with this header and message."""
    write = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    tree = git("rev-parse", f"{head}^{{tree}}", cwd=repo).strip()
    object_id = subprocess.run(
        write, input=f"tree {tree}\n{text}".encode(), cwd=repo, check=True, capture_output=True
    ).stdout.decode()
    (repo / ".git/refs/heads/agents/scout").write_text(object_id)  # git update-ref refuses a damaged commit
    return object_id.strip()


def findings_of(space: clia.Space) -> set[tuple[str, str | None]]:
    return {(finding.code, finding.cid) for finding in space.verify().findings}


def test_a_decision_without_a_parent_is_a_finding(scout: clia.Space, repo: Path) -> None:
    text = f"{AUTHOR}{COMMITTER}\nx\n\n{TRAILERS.format('decision')}\n"
    cid = point_branch_at(repo, str(scout.head("scout")), text)
    assert ("not-a-decision", cid) in findings_of(scout)


@pytest.mark.parametrize("stamps", ["", AUTHOR, COMMITTER, "author\n" + COMMITTER, AUTHOR + "committer \n"], ids=repr)
@pytest.mark.parametrize("kind", ["decision", "finding"])
def test_a_commit_without_an_author_or_committer_is_a_finding(scout: clia.Space, repo: Path, stamps: str, kind: str) -> None:
    head = str(scout.head("scout"))
    cid = point_branch_at(repo, head, f"parent {head}\n{stamps}\nx\n\n{TRAILERS.format(kind)}\n")
    assert cid in {cid for _, cid in findings_of(scout)}
    assert scout.verify().agents == 1
