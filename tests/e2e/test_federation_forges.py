"""Two forge processes that follow each other over HTTP, and what a peer can and cannot fetch from one."""

from __future__ import annotations

import gzip
import signal
import subprocess
from contextlib import ExitStack
from http.client import IncompleteRead
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.client import RemoteSpace
from clia.facade.config import ForgeOptions
from clia.federation.announcing import FETCH_TOKEN, NOTIFY_TOKEN, PeerTokens
from clia.forge import federation as fetching
from clia.forge.federation import NOTIFICATION_MAX
from clia.forge.forge import forge_of
from clia.git.records import UploadCommand
from clia.testing import components
from clia.values import refs
from support import git
from support.forge_server import ForgeProcess, closing_connection, eventually, new_forge_space
from support.remote import answer_of, running
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.http_client import HttpResponse

QUICK = clia.Settings(durable=False, person=("Tess", "tess@example.org"))
FOLLOW = (("agent-commit", "spawn"), ("agent-commit", "head-move"), ("agent-commit", "merge"), ("briefing", "spawn"))
ASKED = "application/x-git-upload-pack-request"


# Two forges


def test_two_forges_follow_each_other_through_a_restart_and_a_new_key(tmp_path: Path) -> None:
    """Notifications alone make the south track the north, catch up after it was killed, and follow a new key."""
    north, south = (new_forge_space(tmp_path.resolve() / name, agent) for name, agent in (("north", "scout"), ("south", "mine")))
    # The north announces on request, the south by itself.
    for place, seconds in ((north, 86400), (south, 0.2)):
        (place.root / ".git/clia/config.toml").write_text(f"[federation]\nannounce_seconds = {seconds}\n")
    with ExitStack() as stack:
        owner = stack.enter_context(ForgeProcess(north.root))
        tracker = stack.enter_context(ForgeProcess(south.root))
        owner_space = stack.enter_context(RemoteSpace(owner.address, north.token))
        tracker_space = stack.enter_context(RemoteSpace(tracker.address, south.token))

        def work(text: str) -> str:
            return owner_space.commit("scout", "finding", {"a.txt": text.encode()}, message=text)

        def tracked() -> str | None:
            return next((remote.head for remote in tracker_space.peers.remotes("north")), None)

        owner_key, tracker_key = owner_space.peers.key(), tracker_space.key()
        assert (owner_key.url, tracker_key.url) == (f"{owner.address}/federation/north", f"{tracker.address}/federation/south")
        owner_space.peers.add("south", tracker_key.text, tracker_key.url)
        tracker_space.peers.add("north", owner_key.text, owner_key.url)
        owner_space.peers.share("south", agents=["scout"])
        for type_, trigger in FOLLOW:
            tracker_space.peers.grant("north", type_, trigger)

        first = work("one")
        assert owner_space.peers.announce("south")[0].rung is True
        eventually(lambda: tracked() == first)
        assert isinstance(tracker_space.merge("mine", "north/scout"), clia.Merged)
        assert tracker_space.files("mine") == {"a.txt": b"one"}

        tracker_space.peers.revoke("north", "agent-commit", "head-move")
        second = work("two")
        assert owner_space.peers.announce("south")[0].rung is True
        eventually(lambda: [claim.new for claim in tracker_space.peers.waiting("north")] == [second])
        assert tracked() == first
        tracker_space.peers.grant("north", "agent-commit", "head-move")

        owner_space.peers.rotate_key()  # its notification shows the south the new key and the late grant
        eventually(lambda: tracked() == second and len(tracker_space.peers.get("north").keys) == 2)

        tracker.stop(signal.SIGKILL)
        third = work("three")
        assert owner_space.peers.announce("south")[0].rung is False
        stack.enter_context(ForgeProcess(south.root, "--port", tracker.port))
        eventually(lambda: tracked() == third)

        for type_, trigger in FOLLOW:
            owner_space.peers.grant("south", type_, trigger)
        tracker_space.peers.share("north", agents=["*"])
        eventually(lambda: [remote.head for remote in owner_space.peers.remotes("south")] == [tracker_space.head("mine")])
        fourth = tracker_space.commit("mine", "test", {"b.txt": b"four"})
        eventually(lambda: owner_space.peers.remotes("south")[0].head == fourth)
        assert "Traceback" not in owner.log() + tracker.log()


# One forge and its clients


class Visited(NamedTuple):
    """A forge with private data, and a peer to which one agent was announced."""

    address: str
    owner: clia.Space
    peer: clia.Space
    root: Path
    at: Path  # an empty repository to fetch into

    @property
    def url(self) -> str:
        return f"{self.address}/federation/owner"

    def token(self, typ: str = FETCH_TOKEN) -> str:
        """A token of the peer."""
        token = self.peer.peers.tokens.token(components(self.peer).peers.get("owner"), typ)
        assert token is not None
        return token

    def get(
        self, path: str, token: str | None = None, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> HttpResponse:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        named |= {} if token is None else {"authorization": f"Bearer {token}"}
        return answer_of(self.address, f"/federation/{path}", method, named, body)

    def fetch(self, wanted_ref: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Fetch with stock git and its newest protocol."""
        header = f"http.extraHeader=Authorization: Bearer {self.token()}"
        command = ["git", "-c", header, "-c", "protocol.version=2", *words, "fetch", "--no-tags", self.url, wanted_ref]
        return subprocess.run(command, cwd=self.at, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visited]:
    top = tmp_path_factory.mktemp("visited").resolve()
    with clia.init(top / "peer", settings=QUICK) as peer:
        owner = clia.init(top / "owner", settings=QUICK)
        for name in ("scout", "hidden"):
            owner.spawn(name, BRIEFING)
            owner.trace(name, "stdout", f"seen by {name}")
            owner.commit_with_trace(name, "finding", {f"{name}.txt": name.encode()})
        forge = forge_of([(str(top / "owner"), owner)], ForgeOptions())
        git("init", "-q", "--bare", str(top / "empty"), cwd=top)
        try:
            with running(forge) as address:
                owner.peers.add("peer", peer.peers.key().text)
                peer.peers.add("owner", owner.peers.key().text, f"{address}/federation/owner")
                owner.peers.share("peer", agents=["scout"])
                owner.peers.announce("peer")
                yield Visited(address, owner, peer, top / "owner", top / "empty")
        finally:
            forge.close()


def test_a_peer_fetches_announced_refs(visited: Visited) -> None:
    """By the names in its view and by id, also an older commit; a lost view is rebuilt."""
    head = visited.owner.head("scout")
    view = visited.root / ".git/clia/shared" / f"{visited.peer.id}.git"
    (view / "packed-refs").unlink()
    for wanted_ref in (refs.announce(visited.peer.id), head, visited.owner.agents.genesis("scout")):
        result = visited.fetch(wanted_ref)
        assert result.returncode == 0, result.stderr
    assert git("cat-file", "-p", f"{head}:scout.txt", cwd=visited.at) == "scout"
    fetched_refs = git("for-each-ref", "--format=%(refname)", cwd=view).split()
    assert sorted(ref.rpartition(visited.peer.id)[2] for ref in fetched_refs) == ["", "/agents/scout", "/records/scout", refs.KEYS]


def test_a_peer_cannot_fetch_anything_else_by_id(visited: Visited) -> None:
    """Not another agent, a trace that is not shared, or a user's branch; as a commit, a tree or a file."""
    owner = visited.owner
    note = git("rev-parse", refs.traces("scout"), cwd=visited.root).strip()
    private = git("commit-tree", "-m", "private", f"{owner.head('hidden')}^{{tree}}", cwd=visited.root).strip()
    git("branch", "private", private, cwd=visited.root)
    hidden = owner.head("hidden")
    trees = [git("rev-parse", f"{revision}^{{tree}}", cwd=visited.root).strip() for revision in (hidden, note)]
    file = git("rev-parse", f"{hidden}:hidden.txt", cwd=visited.root).strip()
    trace = owner.traces.id_of(owner.head("scout"))
    assert trace is not None
    for cid in (hidden, note, private, *trees, file, trace):
        result = visited.fetch(cid)
        assert result.returncode != 0, cid
        assert f"not our ref {cid}" in result.stderr
        assert subprocess.run(["git", "cat-file", "-e", cid], cwd=visited.at, capture_output=True, check=False).returncode != 0
    for name in (refs.head("hidden"), refs.traces("scout"), "refs/heads/private", refs.CAPABILITIES):
        assert visited.fetch(name).returncode != 0


def test_a_peer_does_not_learn_which_objects_exist(visited: Visited) -> None:
    """Only announced commits are acknowledged as common."""
    owner, published = visited.owner, visited.owner.head("scout")
    hidden = owner.head("hidden")
    inside = [git("rev-parse", f"{hidden}{path}", cwd=visited.root).strip() for path in ("^{tree}", ":hidden.txt")]

    def acknowledged(cid: str) -> bool:
        lines = (f"want {published} multi_ack_detailed\n", "", f"have {cid}\n", "done\n")
        body = "".join(f"{len(line) + 4:04x}{line}" if line else "0000" for line in lines).encode()
        answer = visited.get("owner/git-upload-pack", visited.token(), "POST", body, content_type=ASKED)
        assert (answer.status, b"PACK" in answer.body) == (200, True)
        return b"ACK " in answer.body

    assert acknowledged(published)
    for cid in (hidden, owner.agents.genesis("hidden"), *inside):
        assert not acknowledged(cid), cid


def test_requests_without_a_valid_token_and_pushes_are_refused(visited: Visited) -> None:
    """Every invalid token has the same answer; a login or token of the forge's users is not accepted."""
    refs_of = "owner/info/refs?service=git-upload-pack"
    with clia.init(visited.root.parent / "stranger", settings=QUICK) as stranger:
        stranger.peers.add("owner", visited.owner.peers.key().text)
        foreign = stranger.peers.tokens.token(components(stranger).peers.get("owner"), FETCH_TOKEN)
    answers = [visited.get(refs_of, token) for token in (None, "x", foreign, visited.token(NOTIFY_TOKEN))]
    answers.append(visited.get("nowhere/info/refs?service=git-upload-pack", visited.token()))
    assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
    assert b"bad-fetch-token" in answers[0].body
    good = visited.token()
    assert visited.get(refs_of, good).status == 200
    assert [
        visited.get(path, good, method).status
        for path, method in (
            ("owner/info/refs?service=git-receive-pack", "GET"),
            ("owner/info/refs", "GET"),
            ("owner/HEAD", "GET"),
            ("owner/objects/info/packs", "GET"),
            ("owner/git-receive-pack", "POST"),
        )
    ] == [403, 403, 404, 404, 404]
    visited.owner.peers.change("peer", trusted=False)
    try:
        assert visited.get(refs_of, good).status == 401
    finally:
        visited.owner.peers.change("peer", trusted=True)


def test_invalid_git_requests_are_refused(visited: Visited) -> None:
    """Before git runs: other media types, broken packets, and bodies that are too large after decompression."""

    def post(body: bytes, kind: str = ASKED, **more: str) -> int:
        return visited.get("owner/git-upload-pack", visited.token(), "POST", body, content_type=kind, **more).status

    assert post(b"0000", "text/plain") == 415
    assert [post(body) for body in (b"zzzz", b"0003", b"00ffwant", b"00")] == [422] * 4
    assert post(b"0000", content_encoding="br") == 415
    assert post(b"no gzip", content_encoding="gzip") == 422
    assert post(gzip.compress(b"0000" * 3_000_000), content_encoding="gzip") == 413
    assert post(gzip.compress(b"0000"), content_encoding="gzip") == 200


def test_concurrent_requests_of_a_peer_are_limited(visited: Visited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "AT_ONCE", 0)
    answer = visited.get("owner/info/refs?service=git-upload-pack", visited.token())
    assert (answer.status, b"too-many-requests" in answer.body) == (429, True)


def test_an_answer_that_is_not_read_or_takes_too_long_ends_with_its_processes(
    visited: Visited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes end, and the peer can send requests again."""
    pid_file, transport = tmp_path / "pids", components(visited.peer).resources.transport
    environment = transport.upload("x", advertise=True).environment
    program = UploadCommand(("sh", "-c", f"sleep 1000 & echo $$ $! >> {pid_file}; echo hello; wait"), environment)
    monkeypatch.setattr(PeerTokens, "advertise", lambda *_: program)
    monkeypatch.setattr(fetching, "AT_ONCE", 1)
    host, path = visited.address.removeprefix("http://"), "/federation/owner/info/refs?service=git-upload-pack"
    with closing_connection(host) as connection:
        connection.request("GET", path, headers={"authorization": f"Bearer {visited.token()}"})
        assert b"hello" in connection.getresponse().read(40)
    eventually(lambda: not any(map(_clear_outage, pid_file.read_text().split())))
    monkeypatch.setattr(fetching.GitProcess, "seconds", property(lambda _: 0.5, lambda *_: None), raising=False)

    def is_cut() -> bool:
        with closing_connection(host) as connection:
            connection.request("GET", path, headers={"authorization": f"Bearer {visited.token()}"})
            answer = connection.getresponse()
            if answer.status == 429:  # the slot of the previous request is about to be released
                return False
            with pytest.raises(IncompleteRead):
                answer.read()
            return True

    eventually(is_cut)
    eventually(lambda: not any(map(_clear_outage, pid_file.read_text().split())))
    assert len(pid_file.read_text().split()) == 4


def _clear_outage(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_only_known_peers_can_notify(visited: Visited) -> None:
    """A notification makes the forge sync with the peer's pinned address; several count as one; invalid ones are refused."""
    inbox, owner_space = "inbox", visited.owner
    visited.peer.spawn("walker", BRIEFING)
    visited.peer.peers.share("owner", agents=["*"])
    visited.peer.peers.announce("owner")
    owner_space.peers.change("peer", url=str(visited.root.parent / "peer"))
    for type_, trigger in FOLLOW:
        owner_space.peers.grant("peer", type_, trigger)
    assert owner_space.peers.remotes("peer") == []
    statuses = [visited.get(inbox, None, "POST", token.encode()).status for token in ("", "x", visited.token(FETCH_TOKEN))]
    assert [*statuses, visited.get(inbox, None, "POST", b"x" * (NOTIFICATION_MAX + 1)).status] == [401, 401, 401, 413]
    notification = visited.token(NOTIFY_TOKEN).encode()
    assert {visited.get(inbox, None, "POST", notification).status for _ in range(5)} == {202}
    eventually(lambda: [remote.agent for remote in owner_space.peers.remotes("peer")] == ["walker"])
