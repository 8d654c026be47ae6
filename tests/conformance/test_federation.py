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
        opened.peers.add("us", space.peers.key().text)
        opened.peers.share("us", agents=["*"])
        opened.peers.announce()
        yield opened


@pytest.fixture
def followed(space: clia.Space, peer_space: clia.Space, tmp_path: Path) -> clia.Space:
    """Our space, which follows the peer's agents as ``ann``."""
    space.peers.add("ann", peer_space.peers.key().text, str(tmp_path / "peer_space"))
    for type_, trigger in FOLLOWED:
        space.peers.grant("ann", type_, trigger)
    space.peers.sync("ann")
    return space


def test_grants_limit_what_is_accepted_from_a_peer(space: clia.Space, peer_space: clia.Space, tmp_path: Path) -> None:
    """Nothing without a grant, what is granted, and nothing after it is revoked; each step reports the reason."""
    pinned = space.peers.add("ann", peer_space.peers.key().text, str(tmp_path / "peer_space"))
    assert (pinned, [pinned]) == (space.peers.get("ann"), space.peers())
    assert (pinned.name, pinned.space, pinned.keys, pinned.trusted) == ("ann", peer_space.id, peer_space.peers.key().chain, True)
    denied = space.peers.sync("ann")[0]
    assert (denied.accepted, denied.moves, {refusal.code for refusal in denied.refused}) == (1, (), {"capability-denied"})
    assert set(space.peers.refusals("ann")) == set(denied.refused)
    assert {claim.place for claim in space.peers.waiting("ann")} == {"agents/scout", "records/scout"}
    assert [requirement.what for requirement in space.peers.explain("ann", "finding", "head-move").missing] == ["grant"]
    for type_, trigger in FOLLOWED:
        space.peers.grant("ann", type_, trigger)
    grants = space.peers.grants("ann")
    assert {(grant.type, grant.trigger) for grant in grants} == set(FOLLOWED)
    explanation = space.peers.explain("ann", "finding", "head-move")
    assert (explanation.allowed, explanation.path, explanation.missing) == (True, ("finding", "agent-commit"), ())
    assert set(explanation.grants) <= set(grants)
    healed = space.peers.sync()[0]
    assert {move.place for move in healed.moves} == {"agents/scout", "records/scout"}
    remote = space.peers.remotes()[0]
    assert (remote.peer, remote.agent, remote.head, remote.record) == ("ann", "scout", peer_space.head("scout"), True)
    assert space.peers.waiting("ann") == []
    revoked = space.peers.revoke("ann", "agent-commit", "head-move")
    assert [(grant.type, grant.trigger) for grant in revoked] == [("agent-commit", "head-move")]
    assert not space.peers.allowed("ann", "finding", "head-move")
    peer_space.commit("scout", "finding", changes={"a.txt": b"two\n"})
    peer_space.peers.announce()
    assert space.peers.sync("ann")[0].moves == ()
    assert space.peers.remotes("ann") == [remote]
    assert space.peers.change("ann", trusted=False).trusted is False
    space.peers.remove("ann")
    assert (space.peers(), space.peers.grants(), space.peers.remotes()) == ([], [], [])


def test_shared_agents_are_announced_with_a_new_key(space: clia.Space, peer_space: clia.Space, tmp_path: Path) -> None:
    space.spawn("writer", BRIEFING)
    space.commit("writer", "finding", {"w.txt": b"w\n"})
    space.peers.add("ann", peer_space.peers.key().text)
    refused("nothing-shared", lambda: space.peers.announce("ann"))
    assert space.peers.share("ann", agents=["writer"], traces=True).share == (("writer",), True, False, ())
    announcements = space.peers.announce("ann")
    assert [
        (announcement.peer, announcement.statements, announcement.snapshot, announcement.rung) for announcement in announcements
    ] == [("ann", 1, True, None)]
    assert {"ref": "refs/heads/agents/writer", "new": space.head("writer")}.items() <= dict(announcements[0].moves[-1]).items()
    peer_space.peers.change("us", url=str(tmp_path / "ours"))
    for type_, trigger in FOLLOWED:
        peer_space.peers.grant("us", type_, trigger)
    assert peer_space.peers.sync("us")[0].seq == announcements[0].seq
    before = space.peers.key()
    after = space.peers.rotate_key()
    assert (after.chain, after.mine, after.space) == ((*before.chain, after.key), True, space.id)
    space.commit("writer", "finding", changes={"w.txt": b"v\n"})
    space.peers.announce()
    sync = peer_space.peers.sync("us")[0]
    assert (sync.keys, sync.refused, peer_space.peers.remotes()[0].head) == (1, (), space.head("writer"))


def test_an_agent_of_a_peer_is_read_like_an_own_one(followed: clia.Space, peer_space: clia.Space) -> None:
    """A name with a slash works in every parameter."""
    space, head = followed, peer_space.head("scout")
    assert space.find("ann/scout") == head
    assert space.show("ann/scout") == peer_space.show("scout")
    assert space.log("ann/scout") == peer_space.log("scout")
    assert space.files("ann/scout") == peer_space.files("scout")
    assert space.diff("ann/scout") == peer_space.diff(head)
    assert space.history.changed(peer_space.agents.genesis("scout"), "ann/scout") == peer_space.changed(
        peer_space.genesis("scout"), head
    )
    assert space.fork_point("ann/scout", head) == head
    assert [line.commit for line in space.blame("ann/scout", "a.txt")] == [head]
    refused("no-such-object", lambda: space.show("ann/nobody"))


def test_an_agent_of_a_peer_is_merged_like_an_own_one(followed: clia.Space, peer_space: clia.Space) -> None:
    space = followed
    space.spawn("writer", BRIEFING)
    space.commit("writer", "finding", {"b.txt": b"ours\n"})
    own_head, head = space.head("writer"), peer_space.head("scout")
    assert space.history.last_refused("writer", "ann/scout") is None
    expected = space.history.conflicts("writer", "ann/scout")
    conflicts = space.merge("writer", "ann/scout")
    assert isinstance(conflicts, clia.Conflicts)
    assert conflicts == expected
    assert (conflicts.from_, conflicts.ours, conflicts.theirs, [path.path for path in conflicts.paths]) == (
        "ann/scout",
        own_head,
        head,
        ["b.txt"],
    )
    assert space.history.last_refused("writer", "ann/scout") == (own_head, head)
    refused("stale-ref", lambda: space.resolve("writer", "ann/scout", {"b.txt": b"both\n"}, ours=own_head, theirs=own_head))
    merge = space.resolve("writer", "ann/scout", changes={"b.txt": b"both\n"}, ours=own_head, theirs=head)
    commit = space.show(merge.cid)
    assert (space.head("writer"), commit.parents, commit.merged) == (merge.cid, (own_head, head), "ann/scout")
    assert space.files("writer") == {"a.txt": b"one\n", "b.txt": b"both\n"}
    assert space.history.conflicts("writer", "ann/scout") is None
    assert space.merge("writer", "ann/scout") == clia.UpToDate(merge.cid)
    refused("no-such-agent", lambda: space.merge("writer", "ann/nobody"))
    refused("invalid-name", lambda: space.merge("writer", "ann/scout/more"))


def test_an_unreachable_peer_is_reported_and_the_others_are_synced(followed: clia.Space, tmp_path: Path) -> None:
    with clia.init(tmp_path / "third", settings=settings()) as third:
        followed.peers.add("away", third.peers.key().text, str(tmp_path / "nowhere"))
    syncs = {sync.peer: sync for sync in followed.peers.sync()}
    assert syncs["ann"].error is None
    assert syncs["away"].error is not None
    assert syncs["away"].error["code"] == "transport-error"
    refused("transport-error", lambda: followed.peers.sync("away"))


def test_bad_input_is_refused_by_name_and_changes_nothing(followed: clia.Space, peer_space: clia.Space, tmp_path: Path) -> None:
    space = followed
    before = (space.peers(), space.peers.grants(), space.peers.key(), space.peers.remotes())
    third_key = clia.init(tmp_path / "third", settings=settings()).peers.key().text
    for code, call in (
        ("invalid-name", lambda: space.peers.add("A/B", third_key)),
        ("invalid-key", lambda: space.peers.add("bob", "clia:x:y")),
        ("invalid-url", lambda: space.peers.add("bob", third_key, "ext::sh -c x")),
        ("already-exists", lambda: space.peers.add("bob", peer_space.peers.key().text)),
        ("same-space", lambda: space.peers.add("bob", space.peers.key().text)),
        ("no-such-peer", lambda: space.peers.get("bob")),
        ("invalid-name", lambda: space.peers.get("ann/remove")),
        ("invalid-url", lambda: space.peers.change("ann", url="--upload-pack=x")),
        ("invalid-name", lambda: space.peers.share("ann", agents=["../x"])),
        ("no-such-peer", lambda: space.peers.remove("bob")),
        ("no-such-type", lambda: space.peers.grant("ann", "nothing", "note")),
        ("invalid-trigger", lambda: space.peers.grant("ann", "finding", "snapshot")),
        ("invalid-expiry", lambda: space.peers.grant("ann", "finding", "note", expires=5)),
        ("no-such-grant", lambda: space.peers.revoke("ann", "briefing", "note")),
        ("invalid-trigger", lambda: space.peers.explain("ann", "finding", "x")),
        ("no-such-peer", lambda: space.peers.announce("bob")),
        ("no-such-peer", lambda: space.peers.sync("bob")),
        ("no-such-peer", lambda: space.peers.remotes("bob")),
        ("key-not-lost", lambda: space.peers.rotate_key(lost=True)),
    ):
        refused(code, call)
    assert (space.peers(), space.peers.grants(), space.peers.key(), space.peers.remotes()) == before


@pytest.mark.parametrize("space", ["remote"], indirect=True)
def test_a_viewer_can_read_peers_and_not_change_them(followed: Any) -> None:
    reading = {verb.name for verb in all_verbs() if verb.route.tag == "federation" and verb.role == VIEWER}
    assert reading == {"peers", "peer", "refusals", "waiting", "grants", "explain", "allowed", "remotes", "remote_behaviours"}
    with RemoteSpace(followed.served.address, followed.served.token("Vi", VIEWER), space=followed.name) as viewer:
        assert (viewer.peers(), viewer.peers.grants("ann"), viewer.peers.remotes()) == (
            followed.peers(),
            followed.grants(),
            followed.remotes(),
        )
        for call in (
            viewer.peers.key,
            viewer.peers.rotate_key,
            viewer.peers.announce,
            viewer.peers.sync,
            lambda: viewer.peers.grant("ann", "finding", "note"),
            lambda: viewer.peers.remove("ann"),
        ):
            refused("role-too-low", call)
    assert (len(followed.peers()), len(followed.grants())) == (1, len(FOLLOWED))


@pytest.mark.parametrize("space", ["remote"], indirect=True)
def test_a_forge_answers_requests_while_it_waits_for_a_silent_peer(followed: clia.Space) -> None:
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            followed.peers.change("ann", url=f"http://127.0.0.1:{silent.getsockname()[1]}/repo")
            listening = pool.submit(followed.peers.sync, "ann")
            connection, _ = silent.accept()
            with connection:
                assert followed.peers.get("ann").agents == 1
                assert not listening.done()
        refused("transport-error", listening.result)
    assert [remote.agent for remote in followed.peers.remotes()] == ["scout"]
