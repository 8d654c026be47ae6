"""Syncing with a peer: chains, agents, types, and limits of what is stored."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from clia.federation.statements import RefClaim, define_cid
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.federation import HEADS, USUAL, Pair, Speaker, an_id, codes, plumbed
from support.spaces import BRIEFING

SCOUT = HEADS + "scout"


TRACKED_CHAIN = "refs/clia/remotes/ay/announce"


def hearer_has(pair: Pair, cid: str) -> bool:
    """Whether an object is in the hearer's repository."""
    return plumbed("cat-file", "--batch-check", cwd=pair.place("hearer"), stdin=cid).split()[1] != "missing"


def spawn_message(name: str) -> str:
    return f"spawn\n\nClia-Agent: {name}\nClia-Type: spawn\n"


@pytest.mark.parametrize(
    ("content", "position"),
    [
        ("no statement", "at the end"),
        ("a tree", "at the end"),
        ("two parents", "at the end"),
        ("heard, with a tree", "at the end"),
        ("a tree", "at the end, while something waits"),
        ("a tree", "below one that holds"),
        ("no statement", "below one that was heard"),
    ],
)
def test_other_content_in_a_chain_is_not_admitted(pair: Pair, content: str, position: str) -> None:
    """Otherwise a peer could fill our repository without any grant."""
    if position.endswith("something waits"):
        (grant,) = pair.hearer.peers.revoke("ay", "agent-commit", "head-move")
        pair.announce_commit()
        assert codes(pair.sync().refused) == ["capability-denied"]
        pair.hearer.peers.grant("ay", grant.type, grant.trigger)
    tip, tracked_before = pair.rev("owner", pair.chain_ref), pair.rev("hearer", TRACKED_CHAIN)
    filler = pair.blob("filler")
    files = {"load.bin": f"100644,blob,{filler}"}
    accepted_token = pair.tokens()[-1]
    token = accepted_token if content.startswith("heard") else pair.speaker().token(pair.statement("snapshot", []))
    message = f"x\n\nClia-Announcement: {token}"
    if content == "two parents":
        commit = pair.commit(message, {}, tip, pair.commit("load", files))
    else:
        commit = pair.commit("x" if content == "no statement" else message, files, tip)
    pair.update_ref("owner", pair.chain_ref, commit)
    if position == "below one that was heard":
        pair.append(accepted_token)
    if position.startswith("below"):
        pair.forge(*(RefClaim(HEADS + name, pair.owner.head("scout"), "finding", "head-move") for name in ("scout", "alias")))
    assert "malformed-chain" in codes(pair.sync().refused)
    pair.sync()  # not later either
    assert pair.rev("hearer", TRACKED_CHAIN) == tracked_before
    assert not hearer_has(pair, filler)
    assert not hearer_has(pair, commit)


def test_a_chain_is_tracked_only_if_it_was_accepted_to_its_end(pair: Pair, tmp_path: Path) -> None:
    """A stranger's statement on top of a valid one: the valid one is accepted, and the stranger's is not tracked."""
    new, tracked_before = pair.announce_commit(), pair.rev("hearer", TRACKED_CHAIN)
    forged_commit = pair.append(Speaker.new(tmp_path / "stranger", pair.owner.id).token(pair.statement("snapshot", [])))
    synced = pair.sync()
    assert (synced.accepted, codes(synced.refused), pair.tracked_heads()) == (1, ["unknown-key"], {"scout": new})
    assert pair.rev("hearer", TRACKED_CHAIN) == tracked_before
    pair.update_ref("owner", pair.chain_ref, f"{forged_commit}^")
    pair.sync()
    assert pair.rev("hearer", TRACKED_CHAIN) == pair.rev("owner", f"{forged_commit}^")


def test_an_agent_that_another_peer_claimed_is_accepted_from_its_owner_once_that_peer_is_removed(pair: Pair) -> None:
    """The refusal is reported once, not at each sync, and is not permanent."""
    hearer, third = pair.hearer, pair.new_space("third")
    pair.agent(third, "owl", "one")
    git("fetch", "-q", pair.place("third"), f"{HEADS}owl:{HEADS}owl", cwd=pair.place("owner"))
    pair.owner.peers.announce("bee")
    assert [move.place for move in pair.sync().moves] == ["agents/owl"]
    third.peers.add("bee", hearer.peers.key().text)
    third.peers.share("bee", agents=["*"])
    third.peers.announce("bee")
    hearer.peers.add("cee", third.peers.key().text, pair.place("third"))
    for grant in USUAL:
        hearer.peers.grant("cee", *grant)
    (first,), (second,) = hearer.peers.sync("cee"), hearer.sync("cee")
    assert (codes(first.refused), codes(second.refused)) == (["claims-anothers-agent"], [])
    assert hearer.peers.remotes("cee") == []
    hearer.peers.remove("ay")
    (third_sync,) = hearer.peers.sync("cee")
    assert ([move.place for move in third_sync.moves], codes(third_sync.refused)) == (["agents/owl"], [])
    third.close()


@pytest.mark.parametrize("other", ["older", "of another beginning"])
def test_a_withdrawn_agent_returns_only_at_its_head_or_a_descendant(pair: Pair, other: str) -> None:
    """Otherwise a peer could replace an agent's history by another one."""
    head = pair.owner.head("scout")
    pair.owner.peers.share("bee", agents=[])
    pair.owner.peers.announce("bee")
    pair.sync()
    assert pair.tracked_heads() == {}
    pair.owner.peers.share("bee", agents=["*"])
    new = pair.rev("owner", f"{head}^") if other == "older" else pair.commit(spawn_message("scout"), {"b.txt": "x"})
    pair.update_ref("owner", SCOUT, new)
    pair.owner.peers.announce("bee")
    assert codes(pair.sync().refused) == ["not-descending"]
    assert pair.tracked_heads() == {}
    pair.update_ref("owner", SCOUT, head)
    if other == "older":
        head = pair.announce_commit()
    pair.owner.peers.announce("bee")
    assert codes(pair.sync().refused) == []
    assert pair.tracked_heads() == {"scout": head}


def type_claim(name: str, parent: str) -> RefClaim:
    return RefClaim(f"types/{name}", define_cid(name, parent), name, "type", parent)


def test_no_type_is_learned_below_a_reserved_kind(pair: Pair) -> None:
    """Otherwise a grant for findings would allow decisions."""
    pair.hearer.peers.grant("ay", "agent-commit", "type")
    reserved = ("spawn", "session-merge", "decision")
    pair.forge(*(type_claim(f"my-{parent}", parent) for parent in reserved), type_claim("my-finding", "finding"))
    synced = pair.sync()
    assert {refusal.ref: refusal.code for refusal in synced.refused} == {
        f"types/my-{parent}": "reserved-kind" for parent in reserved
    }
    assert "types/my-finding" in [move.place for move in synced.moves]
    assert not {f"my-{parent}" for parent in reserved} & pair.hearer.types().keys()


def test_types_that_depend_on_each_other_are_learned_in_one_sync(pair: Pair) -> None:
    """Their names are sorted in reverse order of their dependencies."""
    pair.hearer.peers.grant("ay", "agent-commit", "type")
    chain = ("finding", "dd", "cc", "bb", "aa")
    for parent, name in pairwise(chain):
        pair.owner.types.register(name, parent)
    pair.owner.peers.announce("bee")
    assert pair.learned_types() == ["dd", "cc", "bb", "aa"]


def test_the_number_of_types_learned_per_sync_is_limited(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.hearer.peers.grant("ay", "agent-commit", "type")
    monkeypatch.setattr("clia.federation.syncing.LEARNED_MAX", 2)
    for name in ("va", "vb", "vc", "vd", "ve"):
        pair.owner.types.register(name, "finding")
    pair.owner.peers.announce("bee")
    assert [pair.learned_types() for _ in range(4)] == [["va", "vb"], ["vc", "vd"], ["ve"], []]


def test_invalid_files_are_refused_and_do_not_block_others(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """``current`` must be a short file, a version must be named by its id, and a record has a maximum size."""

    def behaviour_claim(name: str, current: str, path: str = "ID.json") -> RefClaim:
        cid = pair.blob(as_bytes(Behaviour(name, SESSION_FLOW, "def main(input):\n    return 1\n").to_object()).decode())
        folder = plumbed("mktree", cwd=pair.place("owner"), stdin=f"100644 blob {cid}\t{path.replace('ID', cid)}\n")
        commit = pair.commit("x", {"current": current.replace("ID", cid), "versions": f"040000,tree,{folder}"})
        return RefClaim(f"refs/clia/behaviours/{name}", commit, "behaviour", "behaviour")

    monkeypatch.setattr("clia.federation.claim_checks.OBJECT_MAX", 1000)
    pair.owner.spawn("big", BRIEFING._replace(text="x" * 1000))
    head, next_head = pair.owner.head("big"), pair.owner.commit("scout", "finding", {"a.txt": b"two"})
    pair.forge(
        behaviour_claim("linked", f"160000,commit,{head}"),
        behaviour_claim("long", "ID" + "\n" * 100),
        behaviour_claim("misnamed", an_id(5), f"{an_id(5)}.json"),
        behaviour_claim("good", "ID\n"),
        RefClaim("refs/clia/agents/big", pair.rev("owner", "refs/clia/agents/big"), "briefing", "spawn"),
        RefClaim(SCOUT, next_head, "finding", "head-move"),
    )
    synced = pair.sync()
    invalid = {f"refs/clia/behaviours/{name}": "not-a-behaviour" for name in ("linked", "long", "misnamed")}
    assert {refusal.ref: refusal.code for refusal in synced.refused} == invalid | {"refs/clia/agents/big": "not-a-record"}
    assert {move.place for move in synced.moves if move.new} == {"agents/scout", "behaviours/good"}


@pytest.mark.parametrize("ref", ["keys", "chain"])
def test_a_federation_ref_that_is_not_a_commit_is_refused(pair: Pair, ref: str) -> None:
    pair.announce_commit()
    pair.update_ref("owner", "refs/clia/keys" if ref == "keys" else pair.chain_ref, pair.blob("x"))
    synced = pair.sync()
    assert (codes(synced.refused), synced.accepted) == (["not-a-commit"], 1 if ref == "keys" else 0)


def test_the_stored_message_of_a_refusal_is_limited(pair: Pair) -> None:
    """Otherwise a peer could fill the store."""
    speaker = pair.speaker()
    pair.append(speaker.signed(b"{}", speaker.header(alg="x" * 60_000)))
    assert codes(pair.sync().refused) == ["wrong-algorithm"]
    assert len(pair.hearer.peers.refusals("ay")[0].message) <= 500


def test_temporary_refusals_are_retried_and_permanent_ones_are_not(pair: Pair) -> None:
    """A missing object is a temporary refusal; a wrong one is permanent until the peer's claim changes."""
    other = pair.commit(spawn_message("scout"), {"b.txt": "x"})
    pair.owner.spawn("late", BRIEFING)
    cid = pair.owner.commit("late", "finding", {"a.txt": b"late"})
    hidden, object_file = pair.root / "away", Path(pair.place("owner"), ".git/objects", cid[:2], cid[2:])
    os.rename(object_file, hidden)
    scout, late = RefClaim(SCOUT, other, "spawn", "spawn"), RefClaim(HEADS + "late", cid, "finding", "head-move")
    pair.forge(scout, late)
    assert sorted(codes(pair.sync().refused)) == ["missing-object", "not-descending"]
    os.rename(hidden, object_file)
    synced = pair.sync()
    assert ([move.place for move in synced.moves], codes(synced.refused)) == (["agents/late"], [])
    valid = RefClaim(SCOUT, pair.owner.head("scout"), "finding", "head-move")
    for claim, expected_codes in ((valid, []), (scout, ["not-descending"]), (late, [])):
        pair.forge(claim, late if claim != late else scout)
        assert codes(pair.sync().refused) == expected_codes
