"""The federation verbs of a space, locally and over HTTP.

``space`` is in this process or behind a forge; the peer's space is always a separate one, reached by its folder.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.api.derivation import all_verbs
from clia.client import RemoteSpace
from clia.verbs import VIEWER
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLLOWED = (("agent-commit", "spawn"), ("agent-commit", "head-move"), ("agent-commit", "merge"), ("briefing", "spawn"))


@pytest.fixture(params=["local", "remote"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[clia.Space]:
    """A space in this process, and one over HTTP."""
    remote = request.param == "remote"
    open_space = request.getfixturevalue("served").open if remote else lambda path: clia.init(path, settings=settings())
    with open_space(tmp_path / "ours") as opened:
        yield opened


@pytest.fixture
def peer_space(tmp_path: Path, space: clia.Space) -> Iterator[clia.Space]:
    """The peer's space, whose agent ``scout`` is announced to ours."""
    with clia.init(tmp_path / "peer_space", settings=settings()) as opened:
        opened.spawn("scout", BRIEFING)
        opened.commit("scout", "finding", {"a.txt": b"one\n", "b.txt": b"peer_space\n"}, message="Found it")
        opened.add_peer("us", space.key().text)
        opened.share("us", agents=["*"])
        opened.announce()
        yield opened


@pytest.fixture
def followed(space: clia.Space, peer_space: clia.Space, tmp_path: Path) -> clia.Space:
    """Our space, which follows the peer's agents as ``ann``."""
    space.add_peer("ann", peer_space.key().text, str(tmp_path / "peer_space"))
    for type_, trigger in FOLLOWED:
        space.grant("ann", type_, trigger)
    space.sync("ann")
    return space


def test_grants_limit_what_is_accepted_from_a_peer(space: clia.Space, peer_space: clia.Space, tmp_path: Path) -> None:
    """Nothing without a grant, what is granted, and nothing after it is revoked; each step reports the reason."""
    pinned = space.add_peer("ann", peer_space.key().text, str(tmp_path / "peer_space"))
    assert (pinned, [pinned]) == (space.peer("ann"), space.peers())
    assert (pinned.name, pinned.space, pinned.keys, pinned.trusted) == ("ann", peer_space.id, peer_space.key().chain, True)
    denied = space.sync("ann")[0]
    assert (denied.accepted, denied.moves, {refusal.code for refusal in denied.refused}) == (1, (), {"capability-denied"})
    assert set(space.refusals("ann")) == set(denied.refused)
    assert {claim.place for claim in space.waiting("ann")} == {"agents/scout", "records/scout"}
    assert [requirement.what for requirement in space.explain("ann", "finding", "head-move").missing] == ["grant"]
    for type_, trigger in FOLLOWED:
        space.grant("ann", type_, trigger)
    grants = space.grants("ann")
    assert {(grant.type, grant.trigger) for grant in grants} == set(FOLLOWED)
    explanation = space.explain("ann", "finding", "head-move")
    assert (explanation.allowed, explanation.path, explanation.missing) == (True, ("finding", "agent-commit"), ())
    assert set(explanation.grants) <= set(grants)
    healed = space.sync()[0]
    assert {move.place for move in healed.moves} == {"agents/scout", "records/scout"}
    remote = space.remotes()[0]
    assert (remote.peer, remote.agent, remote.head, remote.record) == ("ann", "scout", peer_space.head("scout"), True)
    assert space.waiting("ann") == []
    revoked = space.revoke("ann", "agent-commit", "head-move")
    assert [(grant.type, grant.trigger) for grant in revoked] == [("agent-commit", "head-move")]
    assert not space.allowed("ann", "finding", "head-move")
    peer_space.commit("scout", "finding", changes={"a.txt": b"two\n"})
    peer_space.announce()
    assert space.sync("ann")[0].moves == ()
    assert space.remotes("ann") == [remote]
    assert space.change_peer("ann", trusted=False).trusted is False
    space.remove_peer("ann")
    assert (space.peers(), space.grants(), space.remotes()) == ([], [], [])


def test_shared_agents_are_announced_with_a_new_key(space: clia.Space, peer_space: clia.Space, tmp_path: Path) -> None:
    space.spawn("writer", BRIEFING)
    space.commit("writer", "finding", {"w.txt": b"w\n"})
    space.add_peer("ann", peer_space.key().text)
    refused("nothing-shared", lambda: space.announce("ann"))
    assert space.share("ann", agents=["writer"], traces=True).share == (("writer",), True, False, ())
    announcements = space.announce("ann")
    assert [
        (announcement.peer, announcement.statements, announcement.snapshot, announcement.rung) for announcement in announcements
    ] == [("ann", 1, True, None)]
    assert {"ref": "refs/heads/agents/writer", "new": space.head("writer")}.items() <= dict(announcements[0].moves[-1]).items()
    peer_space.change_peer("us", url=str(tmp_path / "ours"))
    for type_, trigger in FOLLOWED:
        peer_space.grant("us", type_, trigger)
    assert peer_space.sync("us")[0].seq == announcements[0].seq
    before = space.key()
    after = space.rotate_key()
    assert (after.chain, after.mine, after.space) == ((*before.chain, after.key), True, space.id)
    space.commit("writer", "finding", changes={"w.txt": b"v\n"})
    space.announce()
    sync = peer_space.sync("us")[0]
    assert (sync.keys, sync.refused, peer_space.remotes()[0].head) == (1, (), space.head("writer"))


def test_an_agent_of_a_peer_is_read_like_an_own_one(followed: clia.Space, peer_space: clia.Space) -> None:
    """A name with a slash works in every parameter."""
    space, head = followed, peer_space.head("scout")
    assert space.find("ann/scout") == head
    assert space.show("ann/scout") == peer_space.show("scout")
    assert space.log("ann/scout") == peer_space.log("scout")
    assert space.files("ann/scout") == peer_space.files("scout")
    assert space.diff("ann/scout") == peer_space.diff(head)
    assert space.changed(peer_space.genesis("scout"), "ann/scout") == peer_space.changed(peer_space.genesis("scout"), head)
    assert space.fork_point("ann/scout", head) == head
    assert [line.commit for line in space.blame("ann/scout", "a.txt")] == [head]
    refused("no-such-object", lambda: space.show("ann/nobody"))


def test_an_agent_of_a_peer_is_merged_like_an_own_one(followed: clia.Space, peer_space: clia.Space) -> None:
    space = followed
    space.spawn("writer", BRIEFING)
    space.commit("writer", "finding", {"b.txt": b"ours\n"})
    own_head, head = space.head("writer"), peer_space.head("scout")
    assert space.last_refused("writer", "ann/scout") is None
    expected = space.conflicts("writer", "ann/scout")
    conflicts = space.merge("writer", "ann/scout")
    assert isinstance(conflicts, clia.Conflicts)
    assert conflicts == expected
    assert (conflicts.from_, conflicts.ours, conflicts.theirs, [path.path for path in conflicts.paths]) == (
        "ann/scout",
        own_head,
        head,
        ["b.txt"],
    )
    assert space.last_refused("writer", "ann/scout") == (own_head, head)
    refused("stale-ref", lambda: space.resolve("writer", "ann/scout", {"b.txt": b"both\n"}, ours=own_head, theirs=own_head))
    merge = space.resolve("writer", "ann/scout", changes={"b.txt": b"both\n"}, ours=own_head, theirs=head)
    commit = space.show(merge.cid)
    assert (space.head("writer"), commit.parents, commit.merged) == (merge.cid, (own_head, head), "ann/scout")
    assert space.files("writer") == {"a.txt": b"one\n", "b.txt": b"both\n"}
    assert space.conflicts("writer", "ann/scout") is None
    assert space.merge("writer", "ann/scout") == clia.UpToDate(merge.cid)
    refused("no-such-agent", lambda: space.merge("writer", "ann/nobody"))
    refused("invalid-name", lambda: space.merge("writer", "ann/scout/more"))


def test_an_unreachable_peer_is_reported_and_the_others_are_synced(followed: clia.Space, tmp_path: Path) -> None:
    with clia.init(tmp_path / "third", settings=settings()) as third:
        followed.add_peer("away", third.key().text, str(tmp_path / "nowhere"))
    syncs = {sync.peer: sync for sync in followed.sync()}
    assert syncs["ann"].error is None
    assert syncs["away"].error is not None
    assert syncs["away"].error["code"] == "transport-error"
    refused("transport-error", lambda: followed.sync("away"))


def test_bad_input_is_refused_by_name_and_changes_nothing(followed: clia.Space, peer_space: clia.Space, tmp_path: Path) -> None:
    space = followed
    before = (space.peers(), space.grants(), space.key(), space.remotes())
    third_key = clia.init(tmp_path / "third", settings=settings()).key().text
    for code, call in (
        ("invalid-name", lambda: space.add_peer("A/B", third_key)),
        ("invalid-key", lambda: space.add_peer("bob", "clia:x:y")),
        ("invalid-url", lambda: space.add_peer("bob", third_key, "ext::sh -c x")),
        ("already-exists", lambda: space.add_peer("bob", peer_space.key().text)),
        ("same-space", lambda: space.add_peer("bob", space.key().text)),
        ("no-such-peer", lambda: space.peer("bob")),
        ("invalid-name", lambda: space.peer("ann/remove")),
        ("invalid-url", lambda: space.change_peer("ann", url="--upload-pack=x")),
        ("invalid-name", lambda: space.share("ann", agents=["../x"])),
        ("no-such-peer", lambda: space.remove_peer("bob")),
        ("no-such-type", lambda: space.grant("ann", "nothing", "note")),
        ("invalid-trigger", lambda: space.grant("ann", "finding", "snapshot")),
        ("invalid-expiry", lambda: space.grant("ann", "finding", "note", expires=5)),
        ("no-such-grant", lambda: space.revoke("ann", "briefing", "note")),
        ("invalid-trigger", lambda: space.explain("ann", "finding", "x")),
        ("no-such-peer", lambda: space.announce("bob")),
        ("no-such-peer", lambda: space.sync("bob")),
        ("no-such-peer", lambda: space.remotes("bob")),
        ("key-not-lost", lambda: space.rotate_key(lost=True)),
    ):
        refused(code, call)
    assert (space.peers(), space.grants(), space.key(), space.remotes()) == before


@pytest.mark.parametrize("space", ["remote"], indirect=True)
def test_a_viewer_can_read_peers_and_not_change_them(followed: Any) -> None:
    reading = {verb.name for verb in all_verbs() if verb.route.tag == "federation" and verb.role == VIEWER}
    assert reading == {"peers", "peer", "refusals", "waiting", "grants", "explain", "allowed", "remotes", "remote_behaviours"}
    with RemoteSpace(followed.served.address, followed.served.token("Vi", VIEWER), space=followed.name) as viewer:
        assert (viewer.peers(), viewer.grants("ann"), viewer.remotes()) == (followed.peers(), followed.grants(), followed.remotes())
        for call in (
            viewer.key,
            viewer.rotate_key,
            viewer.announce,
            viewer.sync,
            lambda: viewer.grant("ann", "finding", "note"),
            lambda: viewer.remove_peer("ann"),
        ):
            refused("role-too-low", call)
    assert (len(followed.peers()), len(followed.grants())) == (1, len(FOLLOWED))


@pytest.mark.parametrize("space", ["remote"], indirect=True)
def test_a_forge_answers_requests_while_it_waits_for_a_silent_peer(followed: clia.Space) -> None:
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            followed.change_peer("ann", url=f"http://127.0.0.1:{silent.getsockname()[1]}/repo")
            listening = pool.submit(followed.sync, "ann")
            connection, _ = silent.accept()
            with connection:
                assert followed.peer("ann").agents == 1
                assert not listening.done()
        refused("transport-error", listening.result)
    assert [remote.agent for remote in followed.remotes()] == ["scout"]
