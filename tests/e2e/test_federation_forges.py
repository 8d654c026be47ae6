"""Two forges in two processes that follow each other over HTTP, and what a peer can and cannot get from one."""

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
from clia.forge.federation import KNOCK_MAX
from clia.forge.forge import forge_of
from clia.git.records import UploadCommand
from clia.testing import components
from clia.values import refs
from support import git
from support.forge_server import ForgeProcess, closing_connection, eventually, made_place
from support.remote import answer_of, running
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.http_client import HttpResponse

QUICK = clia.Settings(durable=False, person=("Tess", "tess@example.org"))
FOLLOW = (("agent-commit", "spawn"), ("agent-commit", "head-move"), ("agent-commit", "merge"), ("briefing", "spawn"))
ASKED = "application/x-git-upload-pack-request"


# Two forges


def test_two_forges_do_the_whole_story(tmp_path: Path) -> None:
    """Nobody asks the south to look: it tracks, catches up after it was killed, and follows a new key, because it is told."""
    north, south = (made_place(tmp_path.resolve() / name, agent) for name, agent in (("north", "scout"), ("south", "mine")))
    # The north is told when to speak, the south speaks by itself.
    for place, seconds in ((north, 86400), (south, 0.2)):
        (place.root / ".git/clia/config.toml").write_text(f"[federation]\nannounce_seconds = {seconds}\n")
    with ExitStack() as stack:
        owner = stack.enter_context(ForgeProcess(north.root))
        tracker = stack.enter_context(ForgeProcess(south.root))
        here = stack.enter_context(RemoteSpace(owner.address, north.token))
        there = stack.enter_context(RemoteSpace(tracker.address, south.token))

        def work(text: str) -> str:
            return here.commit("scout", "finding", {"a.txt": text.encode()}, message=text)

        def tracked() -> str | None:
            return next((each.head for each in there.remotes("north")), None)

        ours, theirs = here.key(), there.key()
        assert (ours.url, theirs.url) == (f"{owner.address}/federation/north", f"{tracker.address}/federation/south")
        here.add_peer("south", theirs.text, theirs.url)
        there.add_peer("north", ours.text, ours.url)
        here.share("south", agents=["scout"])
        for type_, trigger in FOLLOW:
            there.grant("north", type_, trigger)

        first = work("one")
        assert here.announce("south")[0].rung is True
        eventually(lambda: tracked() == first)
        assert isinstance(there.merge("mine", "north/scout"), clia.Merged)
        assert there.files("mine") == {"a.txt": b"one"}

        there.revoke("north", "agent-commit", "head-move")
        second = work("two")
        assert here.announce("south")[0].rung is True
        eventually(lambda: [each.new for each in there.waiting("north")] == [second])
        assert tracked() == first
        there.grant("north", "agent-commit", "head-move")

        here.rotate_key()  # its bell lets the south see the new key, and what was granted late
        eventually(lambda: tracked() == second and len(there.peer("north").keys) == 2)

        tracker.stop(signal.SIGKILL)
        third = work("three")
        assert here.announce("south")[0].rung is False
        stack.enter_context(ForgeProcess(south.root, "--port", tracker.port))
        eventually(lambda: tracked() == third)

        for type_, trigger in FOLLOW:
            here.grant("south", type_, trigger)
        there.share("north", agents=["*"])
        eventually(lambda: [each.head for each in here.remotes("south")] == [there.head("mine")])
        fourth = there.commit("mine", "test", {"b.txt": b"four"})
        eventually(lambda: here.remotes("south")[0].head == fourth)
        assert "Traceback" not in owner.log() + tracker.log()


# One forge, and who comes to it


class Visited(NamedTuple):
    """A forge with secrets, and a peer of it that was told of one agent."""

    address: str
    owner: clia.Space
    peer: clia.Space
    root: Path
    at: Path  # an empty repository to fetch into

    @property
    def url(self) -> str:
        return f"{self.address}/federation/owner"

    def token(self, typ: str = FETCH_TOKEN) -> str:
        """What the peer shows."""
        found = self.peer.peer_tokens.token(components(self.peer).peers.get("owner"), typ)
        assert found is not None
        return found

    def get(
        self, path: str, token: str | None = None, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> HttpResponse:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        named |= {} if token is None else {"authorization": f"Bearer {token}"}
        return answer_of(self.address, f"/federation/{path}", method, named, body)

    def fetch(self, what: str, *words: str) -> subprocess.CompletedProcess[str]:
        """As stock git fetches, with the newest protocol that it speaks."""
        header = f"http.extraHeader=Authorization: Bearer {self.token()}"
        command = ["git", "-c", header, "-c", "protocol.version=2", *words, "fetch", "--no-tags", self.url, what]
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
                owner.add_peer("peer", peer.key().text)
                peer.add_peer("owner", owner.key().text, f"{address}/federation/owner")
                owner.share("peer", agents=["scout"])
                owner.announce("peer")
                yield Visited(address, owner, peer, top / "owner", top / "empty")
        finally:
            forge.close()


def test_a_peer_fetches_what_it_was_told_about(visited: Visited) -> None:
    """By the names in its view and by id, also an older commit; the view is made anew where it was lost."""
    head = visited.owner.head("scout")
    view = visited.root / ".git/clia/shared" / f"{visited.peer.id}.git"
    (view / "packed-refs").unlink()
    for what in (refs.announce(visited.peer.id), head, visited.owner.genesis("scout")):
        done = visited.fetch(what)
        assert done.returncode == 0, done.stderr
    assert git("cat-file", "-p", f"{head}:scout.txt", cwd=visited.at) == "scout"
    shown = git("for-each-ref", "--format=%(refname)", cwd=view).split()
    assert sorted(each.rpartition(visited.peer.id)[2] for each in shown) == ["", "/agents/scout", "/records/scout", refs.KEYS]


def test_a_peer_gets_nothing_else_not_even_by_id(visited: Visited) -> None:
    """Neither another agent, nor a trace that is not shared, nor a branch of people, as a commit, a tree or a file."""
    owner = visited.owner
    note = git("rev-parse", refs.traces("scout"), cwd=visited.root).strip()
    private = git("commit-tree", "-m", "private", f"{owner.head('hidden')}^{{tree}}", cwd=visited.root).strip()
    git("branch", "private", private, cwd=visited.root)
    hidden = owner.head("hidden")
    trees = [git("rev-parse", f"{each}^{{tree}}", cwd=visited.root).strip() for each in (hidden, note)]
    file = git("rev-parse", f"{hidden}:hidden.txt", cwd=visited.root).strip()
    trace = owner.trace_cid_for(owner.head("scout"))
    assert trace is not None
    for cid in (hidden, note, private, *trees, file, trace):
        done = visited.fetch(cid)
        assert done.returncode != 0, cid
        assert f"not our ref {cid}" in done.stderr
        assert subprocess.run(["git", "cat-file", "-e", cid], cwd=visited.at, capture_output=True, check=False).returncode != 0
    for name in (refs.head("hidden"), refs.traces("scout"), "refs/heads/private", refs.CAPABILITIES):
        assert visited.fetch(name).returncode != 0


def test_a_peer_does_not_learn_whether_something_is_here(visited: Visited) -> None:
    """Of what it says it has, only what it was told is acknowledged; of the rest not even that it is there."""
    owner, told = visited.owner, visited.owner.head("scout")
    hidden = owner.head("hidden")
    inside = [git("rev-parse", f"{hidden}{path}", cwd=visited.root).strip() for path in ("^{tree}", ":hidden.txt")]

    def acknowledged(cid: str) -> bool:
        lines = (f"want {told} multi_ack_detailed\n", "", f"have {cid}\n", "done\n")
        body = "".join(f"{len(each) + 4:04x}{each}" if each else "0000" for each in lines).encode()
        answer = visited.get("owner/git-upload-pack", visited.token(), "POST", body, content_type=ASKED)
        assert (answer.status, b"PACK" in answer.body) == (200, True)
        return b"ACK " in answer.body

    assert acknowledged(told)
    for cid in (hidden, owner.genesis("hidden"), *inside):
        assert not acknowledged(cid), cid


def test_there_is_no_way_in_without_a_pass_and_no_way_to_write(visited: Visited) -> None:
    """A stranger hears the same whatever is wrong; a login or a token of the forge's users counts for nothing here."""
    refs_of = "owner/info/refs?service=git-upload-pack"
    with clia.init(visited.root.parent / "stranger", settings=QUICK) as stranger:
        stranger.add_peer("owner", visited.owner.key().text)
        foreign = stranger.peer_tokens.token(components(stranger).peers.get("owner"), FETCH_TOKEN)
    told = [visited.get(refs_of, token) for token in (None, "x", foreign, visited.token(NOTIFY_TOKEN))]
    told.append(visited.get("nowhere/info/refs?service=git-upload-pack", visited.token()))
    assert {(each.status, each.body) for each in told} == {(401, told[0].body)}
    assert b"bad-pass" in told[0].body
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
    visited.owner.change_peer("peer", trusted=False)
    try:
        assert visited.get(refs_of, good).status == 401
    finally:
        visited.owner.change_peer("peer", trusted=True)


def test_what_is_no_request_of_gits_is_refused(visited: Visited) -> None:
    """Before any program runs: other media, broken packets, what becomes too large when it is unpacked."""

    def post(body: bytes, kind: str = ASKED, **more: str) -> int:
        return visited.get("owner/git-upload-pack", visited.token(), "POST", body, content_type=kind, **more).status

    assert post(b"0000", "text/plain") == 415
    assert [post(body) for body in (b"zzzz", b"0003", b"00ffwant", b"00")] == [422] * 4
    assert post(b"0000", content_encoding="br") == 415
    assert post(b"no gzip", content_encoding="gzip") == 422
    assert post(gzip.compress(b"0000" * 3_000_000), content_encoding="gzip") == 413
    assert post(gzip.compress(b"0000"), content_encoding="gzip") == 200


def test_a_peer_has_a_few_answers_at_a_time(visited: Visited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "AT_ONCE", 0)
    answer = visited.get("owner/info/refs?service=git-upload-pack", visited.token())
    assert (answer.status, b"too-many-requests" in answer.body) == (429, True)


def test_an_answer_that_nobody_reads_or_that_takes_too_long_ends_with_all_it_started(
    visited: Visited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs are gone, and the peer has its places again."""
    said, transport = tmp_path / "pids", components(visited.peer).resources.transport
    environment = transport.upload("x", advertise=True).environment
    program = UploadCommand(("sh", "-c", f"sleep 1000 & echo $$ $! >> {said}; echo hello; wait"), environment)
    monkeypatch.setattr(PeerTokens, "advertise", lambda *_: program)
    monkeypatch.setattr(fetching, "AT_ONCE", 1)
    host, path = visited.address.removeprefix("http://"), "/federation/owner/info/refs?service=git-upload-pack"
    with closing_connection(host) as connection:
        connection.request("GET", path, headers={"authorization": f"Bearer {visited.token()}"})
        assert b"hello" in connection.getresponse().read(40)
    eventually(lambda: not any(map(_clear_outage, said.read_text().split())))
    monkeypatch.setattr(fetching.GitProcess, "seconds", property(lambda _: 0.5, lambda *_: None), raising=False)

    def is_cut() -> bool:
        with closing_connection(host) as connection:
            connection.request("GET", path, headers={"authorization": f"Bearer {visited.token()}"})
            answer = connection.getresponse()
            if answer.status == 429:  # the place of the one before is just being given back
                return False
            with pytest.raises(IncompleteRead):
                answer.read()
            return True

    eventually(is_cut)
    eventually(lambda: not any(map(_clear_outage, said.read_text().split())))
    assert len(said.read_text().split()) == 4


def _clear_outage(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_bell_is_for_those_who_are_known(visited: Visited) -> None:
    """A knock makes the forge look where the peer was pinned; many are as one; what is none is refused without a reason."""
    inbox, seen = "inbox", visited.owner
    visited.peer.spawn("walker", BRIEFING)
    visited.peer.share("owner", agents=["*"])
    visited.peer.announce("owner")
    seen.change_peer("peer", url=str(visited.root.parent / "peer"))
    for type_, trigger in FOLLOW:
        seen.grant("peer", type_, trigger)
    assert seen.remotes("peer") == []
    statuses = [visited.get(inbox, None, "POST", token.encode()).status for token in ("", "x", visited.token(FETCH_TOKEN))]
    assert [*statuses, visited.get(inbox, None, "POST", b"x" * (KNOCK_MAX + 1)).status] == [401, 401, 401, 413]
    knock = visited.token(NOTIFY_TOKEN).encode()
    assert {visited.get(inbox, None, "POST", knock).status for _ in range(5)} == {202}
    eventually(lambda: [each.agent for each in seen.remotes("peer")] == ["walker"])
