"""``verify`` on commits that other programs wrote: each problem is a finding, and the report is complete."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAILERS = "Clia-Agent: scout\nClia-Type: {}\nClia-Request: 1.1\nClia-Value: 1\nClia-By: Ann"
AUTHOR, COMMITTER = "author A <a@b.example> 1 +0000\n", "committer A <a@b.example> 1 +0000\n"


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "repo", settings=settings()) as opened:
        opened.spawn("scout", BRIEFING)
        yield opened


def branch(repo: Path, head: str, text: str) -> str:
    """Point the agent's branch at a hand-made commit object with this header and message."""
    write = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    tree = git("rev-parse", f"{head}^{{tree}}", cwd=repo).strip()
    cid = subprocess.run(write, input=f"tree {tree}\n{text}".encode(), cwd=repo, check=True, capture_output=True).stdout.decode()
    (repo / ".git/refs/heads/agents/scout").write_text(cid)  # git update-ref refuses a damaged commit
    return cid.strip()


def findings(space: clia.Space) -> set[tuple[str, str | None]]:
    return {(finding.code, finding.cid) for finding in space.verify().findings}


def test_a_decision_without_a_parent_is_a_finding(space: clia.Space, tmp_path: Path) -> None:
    text = f"{AUTHOR}{COMMITTER}\nx\n\n{TRAILERS.format('decision')}\n"
    cid = branch(tmp_path / "repo", str(space.head("scout")), text)
    assert ("not-a-decision", cid) in findings(space)


@pytest.mark.parametrize("stamps", ["", AUTHOR, COMMITTER, "author\n" + COMMITTER, AUTHOR + "committer \n"], ids=repr)
@pytest.mark.parametrize("kind", ["decision", "finding"])
def test_a_commit_without_an_author_or_committer_is_a_finding(space: clia.Space, tmp_path: Path, stamps: str, kind: str) -> None:
    repo, head = tmp_path / "repo", str(space.head("scout"))
    cid = branch(repo, head, f"parent {head}\n{stamps}\nx\n\n{TRAILERS.format(kind)}\n")
    assert cid in {cid for _, cid in findings(space)}
    assert space.verify().agents == 1
