"""What a space promises about other spaces, here and over HTTP.

``space`` is in this process or behind a forge; the space of the other team is always one of its own, reached by its folder.
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
from support.remote import Served, serving
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLLOWED = (("agent-commit", "spawn"), ("agent-commit", "head-move"), ("agent-commit", "merge"), ("briefing", "spawn"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A forge for all tests of this module."""
    with serving(tmp_path_factory.mktemp("forge") / "home") as made:
        yield made


@pytest.fixture(params=["local", "remote"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[clia.Space]:
    """A space in this process, and the same over HTTP."""
    remote = request.param == "remote"
    open_space = request.getfixturevalue("served").open if remote else lambda path: clia.init(path, settings=settings())
    with open_space(tmp_path / "ours") as made:
        yield made


@pytest.fixture
def theirs(tmp_path: Path, space: clia.Space) -> Iterator[clia.Space]:
    """The other team's space, whose agent ``scout`` is announced to ours."""
    with clia.init(tmp_path / "theirs", settings=settings()) as made:
        made.spawn("scout", BRIEFING)
        made.commit("scout", "finding", {"a.txt": b"one\n", "b.txt": b"theirs\n"}, message="Found it")
        made.add_peer("us", space.key().text)
        made.share("us", agents=["*"])
        made.announce()
        yield made


@pytest.fixture
def followed(space: clia.Space, theirs: clia.Space, tmp_path: Path) -> clia.Space:
    """Our space, which follows the other team's agents as those of ``ann``."""
    space.add_peer("ann", theirs.key().text, str(tmp_path / "theirs"))
    for type_, trigger in FOLLOWED:
        space.grant("ann", type_, trigger)
    space.sync("ann")
    return space


def test_a_peer_is_heard_as_far_as_grants_go(space: clia.Space, theirs: clia.Space, tmp_path: Path) -> None:
    """Nothing without a grant, everything that is granted, and nothing more once it is revoked; each step says why."""
    pinned = space.add_peer("ann", theirs.key().text, str(tmp_path / "theirs"))
    assert (pinned, [pinned]) == (space.peer("ann"), space.peers())
    assert (pinned.name, pinned.space, pinned.keys, pinned.trusted) == ("ann", theirs.id, theirs.key().chain, True)
    denied = space.sync("ann")[0]
    assert (denied.accepted, denied.moves, {each.code for each in denied.refused}) == (1, (), {"capability-denied"})
    assert set(space.refusals("ann")) == set(denied.refused)
    assert {each.place for each in space.waiting("ann")} == {"agents/scout", "records/scout"}
    assert [each.what for each in space.explain("ann", "finding", "head-move").missing] == ["grant"]
    for type_, trigger in FOLLOWED:
        space.grant("ann", type_, trigger)
    grants = space.grants("ann")
    assert {(each.type, each.trigger) for each in grants} == set(FOLLOWED)
    found = space.explain("ann", "finding", "head-move")
    assert (found.allowed, found.path, found.missing) == (True, ("finding", "agent-commit"), ())
    assert set(found.grants) <= set(grants)
    healed = space.sync()[0]
    assert {each.place for each in healed.moves} == {"agents/scout", "records/scout"}
    remote = space.remotes()[0]
    assert (remote.peer, remote.agent, remote.head, remote.record) == ("ann", "scout", theirs.head("scout"), True)
    assert space.waiting("ann") == []
    taken = space.revoke("ann", "agent-commit", "head-move")
    assert [(each.type, each.trigger) for each in taken] == [("agent-commit", "head-move")]
    assert not space.allowed("ann", "finding", "head-move")
    theirs.commit("scout", "finding", changes={"a.txt": b"two\n"})
    theirs.announce()
    assert space.sync("ann")[0].moves == ()
    assert space.remotes("ann") == [remote]
    assert space.change_peer("ann", trusted=False).trusted is False
    space.remove_peer("ann")
    assert (space.peers(), space.grants(), space.remotes()) == ([], [], [])


def test_what_is_shared_is_told_and_a_new_key_goes_with_it(space: clia.Space, theirs: clia.Space, tmp_path: Path) -> None:
    space.spawn("writer", BRIEFING)
    space.commit("writer", "finding", {"w.txt": b"w\n"})
    space.add_peer("ann", theirs.key().text)
    refused("nothing-shared", lambda: space.announce("ann"))
    assert space.share("ann", agents=["writer"], traces=True).share == (("writer",), True, False, ())
    told = space.announce("ann")
    assert [(each.peer, each.statements, each.snapshot, each.rung) for each in told] == [("ann", 1, True, None)]
    assert {"ref": "refs/heads/agents/writer", "new": space.head("writer")}.items() <= dict(told[0].moves[-1]).items()
    theirs.change_peer("us", url=str(tmp_path / "ours"))
    for type_, trigger in FOLLOWED:
        theirs.grant("us", type_, trigger)
    assert theirs.sync("us")[0].seq == told[0].seq
    before = space.key()
    after = space.rotate_key()
    assert (after.chain, after.mine, after.space) == ((*before.chain, after.key), True, space.id)
    space.commit("writer", "finding", changes={"w.txt": b"v\n"})
    space.announce()
    heard = theirs.sync("us")[0]
    assert (heard.keys, heard.refused, theirs.remotes()[0].head) == (1, (), space.head("writer"))


def test_a_peers_agent_is_read_as_ours_are(followed: clia.Space, theirs: clia.Space) -> None:
    """A name with a slash in it crosses in every place that takes one."""
    space, head = followed, theirs.head("scout")
    assert space.find("ann/scout") == head
    assert space.show("ann/scout") == theirs.show("scout")
    assert space.log("ann/scout") == theirs.log("scout")
    assert space.files("ann/scout") == theirs.files("scout")
    assert space.diff("ann/scout") == theirs.diff(head)
    assert space.changed(theirs.genesis("scout"), "ann/scout") == theirs.changed(theirs.genesis("scout"), head)
    assert space.fork_point("ann/scout", head) == head
    assert [each.commit for each in space.blame("ann/scout", "a.txt")] == [head]
    refused("no-such-object", lambda: space.show("ann/nobody"))


def test_a_peers_agent_is_merged_as_ours_are(followed: clia.Space, theirs: clia.Space) -> None:
    space = followed
    space.spawn("writer", BRIEFING)
    space.commit("writer", "finding", {"b.txt": b"ours\n"})
    ours, head = space.head("writer"), theirs.head("scout")
    assert space.last_refused("writer", "ann/scout") is None
    expected = space.conflicts("writer", "ann/scout")
    found = space.merge("writer", "ann/scout")
    assert isinstance(found, clia.Conflicts)
    assert found == expected
    assert (found.from_, found.ours, found.theirs, [each.path for each in found.paths]) == ("ann/scout", ours, head, ["b.txt"])
    assert space.last_refused("writer", "ann/scout") == (ours, head)
    refused("stale-ref", lambda: space.resolve("writer", "ann/scout", {"b.txt": b"both\n"}, ours=ours, theirs=ours))
    made = space.resolve("writer", "ann/scout", changes={"b.txt": b"both\n"}, ours=ours, theirs=head)
    commit = space.show(made.cid)
    assert (space.head("writer"), commit.parents, commit.merged) == (made.cid, (ours, head), "ann/scout")
    assert space.files("writer") == {"a.txt": b"one\n", "b.txt": b"both\n"}
    assert space.conflicts("writer", "ann/scout") is None
    assert space.merge("writer", "ann/scout") == clia.UpToDate(made.cid)
    refused("no-such-agent", lambda: space.merge("writer", "ann/nobody"))
    refused("invalid-name", lambda: space.merge("writer", "ann/scout/more"))


def test_of_several_peers_one_that_cannot_be_reached_says_so(followed: clia.Space, tmp_path: Path) -> None:
    with clia.init(tmp_path / "third", settings=settings()) as third:
        followed.add_peer("away", third.key().text, str(tmp_path / "nowhere"))
    found = {each.peer: each for each in followed.sync()}
    assert found["ann"].error is None
    assert found["away"].error is not None
    assert found["away"].error["code"] == "transport-error"
    refused("transport-error", lambda: followed.sync("away"))


def test_bad_input_is_refused_by_name_and_changes_nothing(followed: clia.Space, theirs: clia.Space, tmp_path: Path) -> None:
    space = followed
    before = (space.peers(), space.grants(), space.key(), space.remotes())
    other = clia.init(tmp_path / "third", settings=settings()).key().text
    for code, call in (
        ("invalid-name", lambda: space.add_peer("A/B", other)),
        ("invalid-key", lambda: space.add_peer("bob", "clia:x:y")),
        ("invalid-url", lambda: space.add_peer("bob", other, "ext::sh -c x")),
        ("already-exists", lambda: space.add_peer("bob", theirs.key().text)),
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
def test_who_only_looks_sees_whom_a_space_works_with_and_moves_nothing(followed: Any) -> None:
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
def test_a_forge_answers_others_while_it_listens_to_a_peer_that_is_silent(followed: clia.Space) -> None:
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            followed.change_peer("ann", url=f"http://127.0.0.1:{silent.getsockname()[1]}/repo")
            listening = pool.submit(followed.sync, "ann")
            asked, _ = silent.accept()
            with asked:
                assert followed.peer("ann").agents == 1
                assert not listening.done()
        refused("transport-error", listening.result)
    assert [each.agent for each in followed.remotes()] == ["scout"]
