"""Two spaces, one of them hostile: statements that are not believed are refused by their code and move nothing."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import clia
from clia.federation.keys import sign_link
from clia.federation.statements import RefClaim
from clia.testing import components, replace_parts
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.federation import HEADS, HEARER, OTHER, Late, Pair, Speaker, an_id, codes, decoded, encoded, plumbed
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable


FLOW = "def main(input):\n    return request('human', input)\n"


# Statements that are not believed


def assert_refused(pair: Pair, code: str) -> None:
    before = pair.state()
    synced = pair.sync()
    assert codes(synced.refused) == [code]
    assert (synced.accepted, synced.moves) == (0, ())
    assert pair.state() == before


def rewind_chain(pair: Pair, count: int) -> None:
    git("update-ref", pair.chain_ref, f"{pair.chain_ref}~{count}", cwd=pair.place("owner"))


@pytest.mark.parametrize("store_lost", [False, True], ids=["", "after the store was lost"])
def test_a_replay_is_refused(pair: Pair, store_lost: bool) -> None:
    """Accepted statements are recorded in git. The old statement comes alone, and on top of the newest."""
    pair.announce_commit("two")
    pair.announce_commit("three")
    old_token = pair.tokens()[1]
    assert pair.sync().accepted == 2
    if store_lost:
        pair.hearer.close()
        for file in Path(pair.place("hearer"), ".git", "clia").glob("space.db*"):
            file.unlink()
        pair.hearer = clia.open(pair.place("hearer"), settings=pair.settings())
        pair.hearer.doctor(repair=True)
    rewind_chain(pair, 1)
    assert_refused(pair, "replayed")
    pair.append(old_token)
    assert_refused(pair, "replayed")


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("wrong-audience", {"aud": OTHER}),
        ("wrong-space", {"space": HEARER}),
        ("expired", {"at": 1, "exp": 2}),
        ("from-the-future", {"at": 4_000_000_000, "exp": 4_000_000_060}),
        ("lives-too-long", {"exp": 4_000_000_000}),
        ("unsupported-format", {"format": 2}),
        ("format-downgrade", {"format": 0}),
    ],
)
def test_a_snapshot_for_another_audience_or_time_is_refused(pair: Pair, code: str, change: dict[str, Any]) -> None:
    pair.forge(**change)
    assert_refused(pair, code)


def test_a_gap_is_refused_until_a_snapshot(pair: Pair) -> None:
    """After a missing number, statements are refused until the next snapshot."""
    moved = pair.statement("head-move", [RefClaim(HEADS + "scout", an_id(1), "finding", "head-move")])
    pair.append(pair.speaker().token(moved._replace(seq=moved.seq + 1)))
    assert_refused(pair, "gap")
    pair.owner.announce("bee", snapshot=True)
    synced = pair.sync()
    assert (synced.accepted, codes(synced.refused)) == (1, [])  # the misplaced statement no longer matters
    assert pair.hearer.remotes("ay")[0].head == pair.rev("owner", HEADS + "scout")


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda token: token[:-1] + ("A" if token[-1] != "A" else "Q"), "bad-signature"),
        (
            lambda token: ".".join(
                [token.split(".")[0], encoded(decoded(token.split(".")[1]).replace(b"finding", b"refactor")), "AAAA"]
            ),
            "bad-signature",
        ),
        (lambda token: encoded(b'{"alg":"none"}') + "." + token.split(".")[1] + ".", "wrong-algorithm"),
        (lambda token: "x", "malformed-token"),
    ],
    ids=["signature", "body", "algorithm", "not a token"],
)
def test_a_damaged_token_in_the_chain_is_refused(pair: Pair, damage: Callable[[str], str], code: str) -> None:
    token = pair.speaker().token(pair.statement("snapshot", []))
    pair.append(damage(token))
    assert_refused(pair, code)


def test_a_stranger_who_can_push_is_not_believed(pair: Pair, tmp_path: Path) -> None:
    """Write access to the owner's repository without its key moves nothing, nor does a chain of other keys."""
    stranger = Speaker.new(tmp_path / "keys", pair.owner.key().space)
    pair.append(stranger.token(pair.statement("snapshot", [])))
    assert_refused(pair, "unknown-key")
    repo = pair.place("owner")
    link = sign_link(stranger.ring, stranger.space, 1, stranger.key, stranger.key)
    tree = plumbed("mktree", cwd=repo)
    key_commit = git("commit-tree", tree, "-m", f"first key\n\nClia-Key: {link}", cwd=repo).strip()
    original = git("rev-parse", "refs/clia/keys", cwd=repo).strip()
    git("update-ref", "refs/clia/keys", key_commit, cwd=repo)
    before = pair.state()
    assert codes(pair.sync().refused) == ["key-not-continued", "unknown-key"]
    assert pair.state() == before
    assert len(pair.hearer.peer("ay").keys) == 1
    git("update-ref", "refs/clia/keys", original, cwd=repo)
    rewind_chain(pair, 1)
    pair.announce_commit()
    assert codes(pair.sync().refused) == []


def test_a_replaced_key_is_refused_from_then_on(pair: Pair) -> None:
    """The old key was stolen and its owner rotated it; only statements by the new key count."""
    shutil.copytree(Path(pair.place("owner"), ".git/clia/keys"), pair.root / "stolen")
    thief = Speaker(str(pair.root / "stolen"), pair.owner.key().key, pair.owner.key().space)
    pair.owner.rotate_key()
    synced = pair.sync()
    assert (synced.keys, synced.accepted, codes(synced.refused)) == (1, 1, [])
    pair.append(thief.token(pair.statement("snapshot", [])))
    assert_refused(pair, "revoked-key")
    rewind_chain(pair, 1)
    pair.announce_commit()
    synced = pair.sync()
    assert (synced.accepted, len(synced.moves)) == (1, 1)


def test_a_lost_key_requires_pinning_the_new_identity(pair: Pair) -> None:
    shutil.rmtree(Path(pair.place("owner"), ".git/clia/keys"))
    pair.owner.rotate_key(lost=True)
    before = pair.state()
    assert "key-not-continued" in codes(pair.sync().refused)
    assert pair.state() == before
    pair.hearer.remove_peer("ay")
    pair.hearer.add_peer("ay", pair.owner.key().text, pair.place("owner"))
    pair.grant()
    assert codes(pair.sync().refused) == ["unknown-key"]  # statements of the old key are still in the chain
    assert [remote.agent for remote in pair.hearer.remotes("ay")] == ["scout"]


def test_two_clones_with_one_key_are_refused_until_a_snapshot(pair: Pair) -> None:
    """The second clone's statement has a number that was already accepted. The fork is recorded and reported."""
    shutil.copytree(pair.place("owner"), pair.place("twin"))
    twin = clia.open(pair.place("twin"), settings=pair.settings())
    pair.announce_commit("of the first")
    assert pair.sync().accepted == 1
    before, (seq, _) = pair.state()
    twin.commit("scout", "finding", {"a.txt": b"of the second"})
    twin.announce("bee")
    pair.hearer.change_peer("ay", url=pair.place("twin"))
    assert codes(pair.sync().refused) == ["chain-forked"]
    assert pair.state() == (before, (seq, True))
    pair.hearer.change_peer("ay", url=pair.place("owner"))
    pair.announce_commit("more of the first")
    assert codes(pair.sync().refused) == ["chain-forked"]
    assert pair.state() == (before, (seq, True))
    pair.owner.announce("bee", snapshot=True)
    assert len(pair.sync().moves) == 1
    assert not pair.hearer.peer("ay").forked


# Revocation


def test_a_revocation_stops_announced_changes_that_were_not_synced_yet(pair: Pair) -> None:
    """The position advances; the claim waits and is applied when it is granted again."""
    pair.announce_commit()
    pair.hearer.revoke("ay", "agent-commit", "head-move")
    before, (seq, _) = pair.state()
    synced = pair.sync()
    assert (synced.accepted, synced.moves, codes(synced.refused)) == (1, (), ["capability-denied"])
    after, (later, _) = pair.state()
    assert (after, later) == (before, seq + 1)
    pair.hearer.grant("ay", "agent-commit", "head-move")
    assert len(pair.sync().moves) == 1


@pytest.mark.parametrize("instant", ["accepted", "transferred"])
@pytest.mark.parametrize("change", ["revoked", "not trusted"])
def test_a_revocation_during_a_sync_takes_effect(pair: Pair, instant: str, change: str) -> None:
    """By another process, when the statement is accepted, and when its objects have been transferred."""
    pair.announce_commit()
    other = clia.open(pair.place("hearer"), settings=pair.settings())

    def revoke_at(step: str) -> None:
        if step == instant and change == "revoked":
            other.revoke("ay", "agent-commit", "head-move")
        elif step == instant:
            other.change_peer("ay", trusted=False)

    pair.hearer.close()
    pair.hearer = clia.open(pair.place("hearer"), settings=pair.settings(reached=revoke_at))
    remotes = pair.hearer.remotes("ay")
    synced = pair.sync()
    assert (synced.accepted, synced.moves) == (1, ())
    assert pair.hearer.remotes("ay") == remotes
    assert [claim.place for claim in pair.hearer.waiting("ay")] == ["agents/scout"]


def test_a_revocation_during_a_transfer_takes_effect(pair: Pair) -> None:
    pair.announce_commit()
    remotes = pair.hearer.remotes("ay")
    syncing = components(pair.hearer).syncing  # the part of a space that has a transport
    late = cast("Any", Late(syncing.resources.transport, lambda: pair.hearer.revoke("ay")))
    replace_parts(pair.hearer, syncing=syncing._replace(resources=syncing.resources._replace(transport=late)))
    assert pair.sync().moves == ()
    assert pair.hearer.remotes("ay") == remotes


# Running behaviours of peers


def test_a_behaviour_of_a_peer_needs_a_grant_to_run(pair: Pair) -> None:
    """By its name, by the id of its version, and by that of a merged file of the peer; no session starts."""
    flow = pair.owner.define("hello", FLOW).cid
    body = as_bytes(Behaviour("sly", SESSION_FLOW, FLOW).to_object())
    pair.owner.commit("scout", "finding", {"sly.json": body})
    pair.owner.announce("bee")
    pair.agent(pair.hearer, "mine")
    assert codes(pair.sync().refused) == []
    pair.hearer.merge("mine", "ay/scout")
    sly = pair.rev("hearer", "refs/heads/agents/mine:sly.json")
    before = pair.state()
    for text in ("ay/hello", flow, sly):
        refused("execute-denied", partial(pair.hearer.start, "mine", text, {"question": "?"}))
    refused("no-such-flow", lambda: pair.hearer.start("mine", "ay/sly", {"question": "?"}))
    refused("no-such-flow", lambda: pair.hearer.start("mine", "hello", {"question": "?"}))
    assert pair.state() == before
    assert pair.hearer.sessions("mine") == []
    pair.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    refused("execute-denied", lambda: pair.hearer.start("mine", sly, {"question": "?"}))
    assert pair.hearer.start("mine", flow, {"question": "?"}).status == "suspended"


# The repository


def test_the_repository_is_sound_after_refused_claims(pair: Pair) -> None:
    """After true and false claims, git and the space find no damage."""
    pair.forge(RefClaim(HEADS + "ghost", an_id(7), "finding", "head-move"))
    assert codes(pair.sync().refused) == ["missing-object"]
    fsck = subprocess.run(["git", "fsck", "--strict"], cwd=pair.place("hearer"), capture_output=True, text=True, check=True)
    assert "missing" not in fsck.stdout + fsck.stderr
    assert pair.hearer.verify().clean
