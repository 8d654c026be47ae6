"""Commits of peers that agents build on: they are counted, not found, and only behind commits that this space signed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import git
from support.federation import Pair
from support.spaces import BRIEFING

if TYPE_CHECKING:
    import clia
    from clia.trust.verification import TrustReport


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path)
    pair.grant()
    pair.agent(pair.owner, "scout", "one", "two")
    pair.owner.peers.announce()
    pair.hearer.peers.sync("ay")
    return pair


def verified(space: clia.Space) -> TrustReport:
    return space.trust.verify()


def test_the_commits_of_a_merged_agent_of_a_peer_are_counted(pair: Pair) -> None:
    pair.hearer.spawn("mine", BRIEFING)
    pair.hearer.merge("mine", "ay/scout")
    report = verified(pair.hearer)
    assert (report.findings, report.of_peers) == ((), 3)


def test_so_are_those_that_an_agent_starts_at(pair: Pair) -> None:
    pair.hearer.spawn_at("mine", BRIEFING, "ay/scout")
    report = verified(pair.hearer)
    assert (report.findings, report.of_peers) == ((), 3)


def test_without_tracking_refs_only_a_merge_names_the_peer(pair: Pair) -> None:
    """In a clone of what is published the merge still counts; an agent that starts at unknown commits has findings."""
    place = Path(pair.place("hearer"))
    pair.hearer.spawn("merged", BRIEFING)
    pair.hearer.merge("merged", "ay/scout")
    git("update-ref", "-d", "refs/clia/remotes/ay/agents/scout", cwd=place)
    report = verified(pair.hearer)
    assert (report.findings, report.of_peers) == ((), 3)


def test_an_agent_that_starts_at_a_commit_of_an_unknown_machine_is_found(pair: Pair) -> None:
    pair.hearer.spawn_at("mine", BRIEFING, "ay/scout")
    git("update-ref", "-d", "refs/clia/remotes/ay/agents/scout", cwd=pair.place("hearer"))
    report = verified(pair.hearer)
    assert {finding.code for finding in report.findings} == {"unknown-key"}
    assert report.of_peers == 0


def test_a_forged_head_is_found_although_it_is_tracked_for_a_peer(pair: Pair) -> None:
    """Nothing that this space signed builds on the forged commit."""
    space, place = pair.hearer, pair.place("hearer")
    space.spawn("mine", BRIEFING)
    text = "approved\n\nClia-Agent: mine\nClia-Type: decision"
    forged = git("commit-tree", "-p", space.head("mine"), "-m", text, "agents/mine^{tree}", cwd=place).strip()
    for ref in ("refs/heads/agents/mine", "refs/clia/remotes/ay/agents/scout"):
        git("update-ref", ref, forged, cwd=place)
    report = verified(space)
    assert {"unsigned-commit", "unlogged-move"} <= {finding.code for finding in report.findings}
    assert report.of_peers == 0
