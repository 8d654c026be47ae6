"""``verify`` on peers, keys, capabilities and tracked refs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.store.interface import GateFacts, GrantFact
from clia.testing import components
from support import git
from support.federation import Pair, plumbed
from support.spaces import BRIEFING

if TYPE_CHECKING:
    import clia


SCOUT = "refs/clia/remotes/ay/agents/scout"
NOTES = "refs/clia/remotes/ay/notes/trace/scout"
CAPABILITIES = "refs/clia/capabilities"


@pytest.fixture
def pair(pair_with_trace: Pair) -> Pair:
    return pair_with_trace


def findings(space: clia.Space) -> set[tuple[str, str | None]]:
    return {(finding.code, finding.ref) for finding in space.verify().findings}


def test_verify_is_clean_and_changes_nothing(pair: Pair) -> None:
    before = pair.state()
    assert (findings(pair.owner), findings(pair.hearer)) == (set(), set())
    assert pair.state() == before


def test_verify_reports_tracked_refs_with_the_wrong_content(pair: Pair) -> None:
    own_commit = pair.hearer.spawn("mine", BRIEFING).genesis
    blob = "refs/clia/remotes/ay/records/scout"
    chain = git("rev-parse", "refs/clia/peers/ay", cwd=pair.place("hearer")).strip()
    unknown_place, removed_peer = "refs/clia/remotes/ay/odd", "refs/clia/remotes/gone/announce"
    for ref, target in (
        (SCOUT, own_commit),
        (blob, own_commit),
        (NOTES, chain),
        (unknown_place, own_commit),
        (removed_peer, own_commit),
    ):
        pair.update_ref("hearer", ref, target)
    assert findings(pair.hearer) == {
        ("wrong-agent", SCOUT),
        ("not-a-record", blob),
        ("not-notes", NOTES),
        ("unknown-place", unknown_place),
        ("unknown-peer", removed_peer),
    }
    pair.hearer.maintain()
    assert ("unknown-peer", removed_peer) not in findings(pair.hearer)


def test_verify_reports_unreadable_peers_keys_and_chains(pair: Pair) -> None:
    repo = pair.place("owner")
    head = pair.owner.head("scout")
    pair.append(pair.tokens()[0])  # a repeated statement does not continue the chain
    pair.update_ref("owner", "refs/clia/keys", head)
    pair.update_ref("owner", "refs/clia/peers-removed/x", head)
    os.chmod(next(Path(repo, ".git/clia/keys").iterdir()), 0o644)
    assert findings(pair.owner) == {
        ("chain-broken", pair.chain_ref),
        ("key-exposed", None),
        ("invalid-peer", "refs/clia/peers-removed/x"),
    }
    link = git("log", "-1", "--format=%B", "refs/clia/announce/" + pair.hearer.id, cwd=repo).replace("Announcement", "Key")
    forged = git("commit-tree", plumbed("mktree", cwd=repo), "-m", link, cwd=repo).strip()
    pair.update_ref("owner", "refs/clia/keys", forged)
    assert any(ref == "refs/clia/keys" for _, ref in findings(pair.owner))


def test_verify_reports_capabilities_that_differ_from_their_files_or_facts(pair: Pair) -> None:
    repo, hearer = pair.place("hearer"), pair.hearer
    tip = git("rev-parse", CAPABILITIES, cwd=repo).strip()
    empty = git("commit-tree", plumbed("mktree", cwd=repo), "-p", tip, "-m", "odd", cwd=repo).strip()
    pair.update_ref("hearer", CAPABILITIES, empty)
    assert findings(hearer) == {("not-a-capability", CAPABILITIES), ("capabilities-differ", CAPABILITIES)}
    pair.update_ref("hearer", CAPABILITIES, tip)
    assert hearer.peers.allowed("ay", "finding", "head-move")
    with hearer.local.store.writing() as transaction:
        facts = components(hearer).capabilities.facts()
        more = GrantFact("0" * 40, pair.owner.id, "decision", "merge")
        transaction.gate.load(GateFacts((*facts.grants, more), facts.trusted, facts.parents))
    assert findings(hearer) == {("gate-differs", CAPABILITIES)}
    hearer.rebuild()
    assert hearer.peers.allowed("ay", "finding", "head-move")
    assert findings(hearer) == set()


def test_an_unreadable_peer_can_be_removed_and_hides_no_other(pair: Pair) -> None:
    own = pair.hearer.spawn("mine", BRIEFING).genesis
    pair.update_ref("hearer", "refs/clia/peers/odd", own)
    assert [peer.name for peer in pair.hearer.peers()] == ["ay"]
    assert ("invalid-peer", "refs/clia/peers/odd") in findings(pair.hearer)
    pair.hearer.peers.remove("odd")
    assert findings(pair.hearer) == set()
