"""Transfers from a peer through git: only commits arrive, within limits."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pygit2
import pytest

import clia
from clia.errors import Denied, FileError, TransportError
from clia.federation.transport import GitTransport
from clia.git import command
from clia.git import quarantine as quarantine_module
from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.git.records import TransferLimits
from support import git_servers as servers
from support.disks import no_file_beyond
from support.forge_server import eventually
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDE = TransferLimits(64 * 1024 * 1024, 60.0)
NARROW = TransferLimits(256 * 1024, 60.0)
MAIN = "refs/heads/main"
WHO = "Mal <mal@example.org> 1 +0000"


class Peer(NamedTuple):
    """A repository of a peer: ids of invalid objects by their fault, and a chain of valid commits."""

    path: Path
    ids: Mapping[str, str]
    good: Sequence[str]


class OurRepository:
    """Our repository and its transport."""

    def __init__(self, path: Path) -> None:
        pygit2.init_repository(str(path))
        self.path = path
        self.handle = GitHandle(str(path), durable=True)
        self.transport = GitTransport(self.handle, GitCommand(self.handle.git_dir, dict(os.environ)))
        self.quarantines = path / ".git" / "clia" / "quarantine"

    def has(self, cid: str) -> bool:
        return git(self.path, "cat-file", "-e", cid, check=False).returncode == 0

    def leftovers(self) -> list[Path]:
        return [folder for folder in self.quarantines.iterdir() if folder.is_dir()]

    def refusal(self, url: str, cid: str, limits: TransferLimits = WIDE) -> str:
        """The code with which an id is refused; none of its objects stay."""
        with self.transport.open(url) as quarantine:
            result = quarantine.fetch([cid], limits)
            quarantine.admit()
        assert not result.arrived
        assert not self.has(cid)
        assert not self.leftovers()
        return result.refused[cid][0]


def git(path: Path, *words: str, data: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(path), *words], input=data, capture_output=True, check=check)


def commit_bytes(tree: str, message: str, parent: str | None = None) -> bytes:
    parent_line = f"parent {parent}\n" if parent else ""
    return f"tree {tree}\n{parent_line}author {WHO}\ncommitter {WHO}\n\n{message}\n".encode()


def tree_bytes(*entries: tuple[str, str, str]) -> bytes:
    return b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(cid) for mode, name, cid in entries)


class ObjectPile:
    """Arbitrary objects, valid for git or not."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[str, bytes]] = {}

    def add(self, kind: str, data: bytes) -> str:
        cid = servers.id_of(kind, data).hex()
        self._objects[cid] = (kind, data)
        return cid

    def commit(self, *entries: tuple[str, str, str], parent: str | None = None, message: str = "x") -> str:
        return self.add("commit", commit_bytes(self.add("tree", tree_bytes(*entries)), message, parent))

    def pack(self) -> bytes:
        return servers.packed(self._objects.values())

    def store(self, path: Path) -> None:
        """Write the objects into a new bare repository."""
        git(path.parent, "init", "-q", "--bare", str(path))
        git(path, "index-pack", "--stdin", data=self.pack())


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    path = tmp_path_factory.mktemp("peers") / "peer.git"
    pile = ObjectPile()
    blob = pile.add("blob", b"text\n")
    modules = pile.add("blob", b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch\n')
    plain = ("100644", "a.txt", blob)
    tree = pile.add("tree", tree_bytes(plain))
    trees = {
        "a .git": [("100644", ".git", blob)],
        "a disguised .git": [("100644", "GIT~1", blob)],
        "a way up": [("40000", "..", tree)],
        "one name twice": [plain, plain],
        "an odd mode": [("100777", "a.txt", blob)],
        "hostile modules": [("100644", ".gitmodules", modules)],
    }
    ids = {fault: pile.commit(*entries) for fault, entries in trees.items()}
    good: list[str] = []
    for number in range(100):
        good.append(pile.commit(plain, parent=good[-1] if good else None, message=f"{number}"))
    ids |= {"a blob": blob, "a tree": tree, "nothing": "1" * 40}
    ids["a tag"] = pile.add("tag", f"object {good[0]}\ntype commit\ntag x\ntagger {WHO}\n\nx\n".encode())
    ids["large"] = pile.commit(("100644", "n", pile.add("blob", noise(NARROW.bytes + 4096))))
    pile.store(path)
    git(path, "update-ref", MAIN, good[-1])
    return Peer(path, ids, good)


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that cannot be compressed."""
    return random.Random(seed).randbytes(size)  # noqa: S311  # not a secret


@pytest.fixture
def ours(tmp_path: Path) -> OurRepository:
    return OurRepository(tmp_path / "ours")


@contextmanager
def reached(peer: Peer, protocol: str) -> Iterator[str]:
    if protocol == "http":
        with servers.serving(servers.stock(peer.path.parent)) as address:
            yield f"{address}/{peer.path.name}"
    else:
        yield f"file://{peer.path}" if protocol == "file" else str(peer.path)


@pytest.mark.parametrize("protocol", ["folder", "file", "http"])
def test_valid_commits_arrive_and_too_large_ones_do_not_however_a_server_is_reached(
    peer: Peer, ours: OurRepository, protocol: str
) -> None:
    """The server has no special configuration, and the ids are not its refs. Other processes see admitted objects at once."""
    commit, large = peer.good[50], peer.ids["large"]
    other = pygit2.Repository(str(ours.path))
    assert commit not in other
    with reached(peer, protocol) as url, ours.transport.open(url) as quarantine:
        assert quarantine.tips([MAIN, "refs/heads/none"], NARROW) == {MAIN: peer.good[-1]}
        assert quarantine.objects.kind(peer.good[-1]) == "commit"
        result = quarantine.fetch([large, commit], NARROW)
        assert result.arrived == (commit,)
        assert {cid: code for cid, (code, _) in result.refused.items()} == {large: "too-large"}
        assert not ours.has(commit)
        quarantine.admit()
    assert commit in other
    assert not ours.has(large)
    assert not ours.leftovers()
    assert {file.stat().st_mode & 0o777 for file in (ours.path / ".git/objects/pack").iterdir()} == {0o444}
    git(ours.path, "fsck", "--strict")


def test_only_invalid_ids_are_refused_and_none_of_their_objects_stay(peer: Peer, ours: OurRepository) -> None:
    bad = [cid for fault, cid in peer.ids.items() if fault != "large"]
    with ours.transport.open(str(peer.path)) as quarantine:
        result = quarantine.fetch([*peer.good, *bad], WIDE)
        quarantine.admit()
    assert set(result.arrived) == set(peer.good)
    codes = {fault: result.refused[cid][0] for fault, cid in peer.ids.items() if fault != "large"}
    expected = {"nothing": "missing-object", **dict.fromkeys(("a blob", "a tree", "a tag"), "not-a-commit")}
    assert codes == {fault: expected.get(fault, "bad-objects") for fault in codes}
    assert not [fault for fault, cid in peer.ids.items() if codes.get(fault) == "bad-objects" and ours.has(cid)]
    git(ours.path, "fsck", "--strict")


def test_a_thousand_ids_are_fetched_with_one_git_command(
    ours: OurRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pile = ObjectPile()
    commits = [pile.commit(message=f"head {number}") for number in range(1000)]
    pile.store(tmp_path / "many.git")
    runs: list[bool] = []

    def run_and_count(words: Sequence[str], *more: Any) -> command.GitResult:
        runs.append("fetch" in words)
        return command.run_limited(words, *more)

    monkeypatch.setattr(quarantine_module, "run_limited", run_and_count)
    with ours.transport.open(str(tmp_path / "many.git")) as quarantine:
        assert len(quarantine.fetch(commits, WIDE).arrived) == 1000
        assert runs == [True]
        assert len(quarantine.fetch(commits, WIDE).arrived) == 1000
        assert runs == [True, False]  # they are present, so nothing is fetched


def bombs() -> Iterator[tuple[str, str, bytes]]:
    """A description, the id of a commit, and a small pack with large content."""
    pile = ObjectPile()
    yield "one file", pile.commit(("100644", "zeros", pile.add("blob", bytes(4 * NARROW.bytes)))), pile.pack()
    pile = ObjectPile()
    some = [pile.add("blob", bytes([number]) * NARROW.bytes) for number in range(quarantine_module.SUM + 1)]
    entries = [("100644", f"{number:03}", blob) for number, blob in enumerate(some)]
    yield "the sum", pile.commit(*entries[1:], parent=pile.commit(entries[0])), pile.pack()
    pile = ObjectPile()
    inner = pile.add("tree", b"")
    for _ in range(8):
        inner = pile.add("tree", tree_bytes(*(("40000", f"{number}", inner) for number in range(10))))
    yield "the paths", pile.commit(("40000", "x", inner)), pile.pack()
    pile = ObjectPile()
    inner = pile.add("tree", b"")
    for _ in range(quarantine_module.DEPTH_MAX):
        inner = pile.add("tree", tree_bytes(("40000", "x", inner)))
    yield "the depth", pile.commit(("40000", "x", inner)), pile.pack()
    pile = ObjectPile()
    half = pile.add("blob", bytes(NARROW.bytes // 2))
    yield (
        "written out",
        pile.commit(*(("100644", f"{number:03}", half) for number in range(3 * quarantine_module.SUM))),
        pile.pack(),
    )


def test_a_small_pack_with_large_content_is_refused(ours: OurRepository) -> None:
    for description, cid, pack in bombs():
        assert len(pack) < NARROW.bytes, description
        with servers.serving(servers.sending(lambda pack=pack: [pack])) as url:  # type: ignore[misc]  # bound now
            assert (description, ours.refusal(url, cid, NARROW)) == (description, "too-large")


def test_a_delta_that_expands_to_gigabytes_is_refused_before_it_is_expanded(ours: OurRepository) -> None:
    """Its result is a thousand times its base of 16 MB; git gets no memory for that."""
    base, once, times = bytes(1 << 24), 0xFF0000, 1000
    copied = b"\xf0" + once.to_bytes(3, "little")  # a copy of that many bytes from the start of the base
    delta = _varint(len(base)) + _varint(once * times) + copied * times
    pack = servers.packed([("blob", base), (servers.id_of("blob", base), delta)])
    with servers.serving(servers.sending(lambda: [pack])) as url, ours.transport.open(url) as quarantine:
        code, reason = quarantine.fetch(["2" * 40], WIDE).refused["2" * 40]
    assert (code, reason) == ("too-large", f"larger than {WIDE.bytes} bytes")  # git's limit, not that of our inspection


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def test_an_endless_pack_is_cut_off_at_the_limit(ours: OurRepository, soak: bool) -> None:
    """Ten gigabytes, with a small limit normally and the default limit in a soak."""
    limits = TransferLimits() if soak else TransferLimits(4 * 1024 * 1024, 60.0)
    part = noise(1 << 20)
    sent, largest = 0, 0

    def pack() -> Iterator[bytes]:
        nonlocal sent, largest
        size = 10 << 30
        yield b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + servers.heading(3, size)
        stored = zlib.compressobj(0)
        while sent < size:
            sent += len(part)
            yield stored.compress(part)
            largest = max(largest, sum(file.stat().st_size for file in ours.quarantines.rglob("*pack*/*") if file.exists()))

    with servers.serving(servers.sending(pack)) as url:
        assert ours.refusal(url, "3" * 40, limits) == "too-large"
    assert largest <= limits.bytes  # it was checked while it arrived
    assert sent < limits.bytes + (64 << 20)  # data in transit


def test_an_incomplete_history_is_never_admitted(peer: Peer, ours: OurRepository, tmp_path: Path) -> None:
    """From a shallow repository, from one with a missing object, and from a server that omits one."""
    shallow, damaged = tmp_path / "shallow.git", tmp_path / "torn.git"
    git(tmp_path, "clone", "-q", "--bare", "--branch", "main", "--depth", "3", f"file://{peer.path}", str(shallow))
    for url in (str(shallow), f"file://{shallow}"):
        assert ours.refusal(url, peer.good[-1]) == "missing-object"
    pile = ObjectPile()
    incomplete = pile.commit(("100644", "a", "4" * 40))
    pile.store(damaged)
    assert ours.refusal(str(damaged), incomplete) == "missing-object"
    with servers.serving(servers.sending(lambda: [pile.pack()])) as url:
        assert ours.refusal(url, incomplete) == "bad-objects"
    git(ours.path, "fsck", "--strict")


def test_a_server_without_the_smart_protocol_is_refused(peer: Peer, ours: OurRepository) -> None:
    """Git does not check objects that it gets that way."""
    git(peer.path, "update-server-info")
    with servers.serving(servers.files(peer.path)) as url, ours.transport.open(url) as quarantine:
        refused("transport-error", lambda: quarantine.fetch([peer.ids["a .git"]], WIDE))
        quarantine.admit()
    assert not ours.has(peer.ids["a .git"])


def test_protocol_v0_is_limited_to_what_its_server_allows(peer: Peer, ours: OurRepository, tmp_path: Path) -> None:
    copy = tmp_path / "copy.git"
    git(tmp_path, "clone", "-q", "--bare", str(peer.path), str(copy))
    with servers.serving(servers.stock(tmp_path, newest=False)) as address:
        assert ours.refusal(f"{address}/copy.git", peer.good[5]) == "missing-object"
        git(copy, "config", "uploadpack.allowReachableSHA1InWant", "true")
        with ours.transport.open(f"{address}/copy.git") as quarantine:
            assert quarantine.fetch([peer.good[5]], WIDE).arrived == (peer.good[5],)


def test_connection_errors_do_not_reveal_secrets(peer: Peer, ours: OurRepository, tmp_path: Path) -> None:
    """No program is run and no redirect is followed to reach a peer."""
    (tmp_path / "folder").mkdir()
    secret, marker = "hunter2", tmp_path / "ran"
    with (
        servers.serving(servers.stock(peer.path.parent)) as stock,
        servers.serving(servers.saying(302, Location=f"{stock}/{peer.path.name}/info/refs?service=git-upload-pack")) as elsewhere,
        servers.serving(
            servers.saying(200, b"\0\xffhello\n" * 99, Content_Type="application/x-git-upload-pack-advertisement")
        ) as garbage,
    ):
        with_secret = garbage.replace("://", f"://tess:{secret}@")
        helper = f"ext::sh -c touch% {marker}"
        for url in (
            elsewhere,
            with_secret,
            f"http://tess:{secret}@127.0.0.1:1/x",
            str(tmp_path / "folder"),
            helper,
            f"--upload-pack=touch {marker}",
        ):
            with ours.transport.open(url) as quarantine:
                for call in (lambda: quarantine.tips([MAIN], WIDE), lambda: quarantine.fetch([peer.good[0]], WIDE)):
                    error = refused("transport-not-allowed" if url == helper else "transport-error", call)
                    assert isinstance(error, TransportError)
                    assert secret not in f"{error} {error.to_json()}"
    assert not marker.exists()


def test_a_slow_peer_is_abandoned_and_no_process_stays(peer: Peer, ours: OurRepository) -> None:
    release, connected = threading.Event(), threading.Event()
    with servers.serving(servers.waiting(release, connected)) as url, ours.transport.open(url) as quarantine:
        result = quarantine.fetch(peer.good[:8], TransferLimits(seconds=0.3))
        assert {code for code, _ in result.refused.values()} == {"too-slow"}
        assert len(result.refused) == 8
        assert connected.is_set()
        eventually(lambda: not _running(url))
        refused("transport-error", lambda: quarantine.tips([MAIN], TransferLimits(seconds=0.1)))
        release.set()


def _running(marker: str) -> list[int]:
    """The ids of processes with this text in their command lines."""
    pids = []
    for process in Path("/proc").iterdir():
        try:
            if (
                process.name.isdigit()
                and int(process.name) != os.getpid()
                and marker.encode() in (process / "cmdline").read_bytes()
            ):
                pids.append(int(process.name))
        except OSError:
            continue
    return pids


_WAITER = """
import os, sys
from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.federation.transport import GitTransport
from clia.git.records import TransferLimits
handle = GitHandle(sys.argv[1])
with GitTransport(handle, GitCommand(handle.git_dir, dict(os.environ))).open(sys.argv[2]) as quarantine:
    quarantine.fetch(["6" * 40], TransferLimits())
"""


def test_leftovers_of_a_killed_process_are_removed_and_its_git_ends(peer: Peer, ours: OurRepository) -> None:
    release, connected = threading.Event(), threading.Event()
    with servers.serving(servers.waiting(release, connected)) as url, ours.transport.open(str(peer.path)) as live:
        with subprocess.Popen([sys.executable, "-c", _WAITER, str(ours.path), url]) as process:
            assert connected.wait(30)
            assert len(ours.leftovers()) == 2
            process.send_signal(signal.SIGKILL)
        deadline = threading.Event()
        for _ in range(3000):
            if not _running(url):
                break
            deadline.wait(0.02)
        assert not _running(url)
        release.set()
        with ours.transport.open(str(peer.path)):
            assert len(ours.leftovers()) == 2
        assert len(ours.leftovers()) == 1
        assert live.fetch([peer.good[0]], WIDE).arrived
    assert not ours.leftovers()


def test_without_space_for_files_a_fetch_and_a_view_are_refused_and_leave_nothing(peer: Peer, ours: OurRepository) -> None:
    with ours.transport.open(str(peer.path)):
        pass
    with no_file_beyond(0), pytest.raises(FileError) as caught, ours.transport.open(str(peer.path)):
        pass
    assert caught.value.fields["path"] == str(ours.quarantines)
    assert not ours.leftovers()
    with no_file_beyond(0), pytest.raises(FileError):
        ours.transport.show("other", {})
    assert list(Path(ours.transport.view("other")).parent.iterdir()) == []
    ours.transport.show("other", {})


def test_a_quarantine_is_removed_when_its_block_fails(peer: Peer, ours: OurRepository) -> None:
    def fails() -> None:
        with ours.transport.open(str(peer.path)) as quarantine:
            quarantine.fetch([peer.good[0]], WIDE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert not ours.leftovers()
    assert not ours.has(peer.good[0])


def test_an_interrupted_admission_breaks_nothing_and_can_be_repeated(
    peer: Peer, ours: OurRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that already exists is not replaced."""
    real = os.rename

    def interrupt_rename(source: str, target: str) -> None:
        if target.endswith(".idx"):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched, ours.transport.open(str(peer.path)) as quarantine:
        quarantine.fetch([peer.good[9]], WIDE)
        patched.setattr(os, "rename", interrupt_rename)
        with pytest.raises(KeyboardInterrupt):
            quarantine.admit()
    git(ours.path, "fsck", "--strict")
    assert not ours.has(peer.good[9])
    packs = ours.path / ".git/objects/pack"
    partial = {file.name: file.stat().st_ino for file in packs.iterdir()}
    assert {Path(name).suffix for name in partial} - {".rev"} == {".pack"}  # the index, which activates the pack, comes last
    for _ in range(2):
        with ours.transport.open(str(peer.path)) as quarantine:
            assert quarantine.fetch([peer.good[9]], WIDE).arrived
            quarantine.admit()
    assert ours.has(peer.good[9])
    assert all((packs / name).stat().st_ino == inode for name, inode in partial.items())
    git(ours.path, "fsck", "--strict")


def test_the_size_limit_is_shared_and_a_commit_beyond_it_may_be_fetched_later(ours: OurRepository, tmp_path: Path) -> None:
    path, pile = tmp_path / "two.git", ObjectPile()
    commits = [pile.commit(("100644", "n", pile.add("blob", noise(NARROW.bytes * 2 // 3, seed)))) for seed in (3, 4)]
    pile.store(path)
    with ours.transport.open(str(path)) as quarantine:
        result = quarantine.fetch(commits, NARROW)
    assert result.arrived == (commits[0],)
    assert result.refused[commits[1]][0] == "too-much"


def test_refused_tips_have_a_reason(peer: Peer, ours: OurRepository, tmp_path: Path) -> None:
    copy = tmp_path / "copy.git"
    git(tmp_path, "clone", "-q", "--bare", str(peer.path), str(copy))
    git(copy, "fetch", "-q", str(peer.path), f"{peer.ids['a .git']}:{MAIN}", "--force")
    with ours.transport.open(str(copy)) as quarantine:
        error = refused("bad-objects", lambda: quarantine.tips([MAIN], WIDE))
    assert isinstance(error, Denied)


def test_a_view_is_consistent_while_several_processes_write_it(peer: Peer, ours: OurRepository) -> None:
    """Each reader sees one complete state, and never a ref to a missing object."""
    with ours.transport.open(str(peer.path)) as quarantine:
        quarantine.fetch(peer.good[:2], WIDE)
        quarantine.admit()
    states = [{f"refs/x/{number}": cid for number in range(200)} | {"refs/x/gone": "7" * 40} for cid in peer.good[:2]]

    def write(state: dict[str, str]) -> None:
        for _ in range(20):
            ours.transport.show("aud", state)

    writers = [threading.Thread(target=write, args=(state,)) for state in states]
    for thread in writers:
        thread.start()
    observations = set()
    view = Path(ours.transport.view("aud"))
    while any(thread.is_alive() for thread in writers):
        if (view / "packed-refs").exists():
            lines = [line for line in (view / "packed-refs").read_text().splitlines() if not line.startswith("#")]
            observations.add((len(lines), len({line.split()[0] for line in lines})))
    assert observations <= {(200, 1)}
    ids = git(view, "for-each-ref", "--format=%(objectname)").stdout.decode().split()
    assert len(ids) == 200
    assert set(ids) <= set(peer.good[:2])
    assert sorted(entry.name for entry in view.parent.iterdir()) == ["aud.git"]
    assert sorted(entry.name for entry in view.iterdir()) == ["HEAD", "config", "objects", "packed-refs", "refs"]


@pytest.mark.parametrize("protocol", ["folder", "http"])
def test_two_spaces_exchange_announcements_through_a_plain_git_server(tmp_path: Path, protocol: str) -> None:
    """Agents that are no longer shared are removed from the server, too."""
    hub = tmp_path / "hub.git"
    git(tmp_path, "init", "-q", "--bare", str(hub))
    git(hub, "config", "http.receivepack", "true")
    one, two = (clia.init(tmp_path / name, settings=settings()) for name in ("one", "two"))
    with servers.serving(servers.stock(tmp_path)) as address:
        url = f"{address}/hub.git" if protocol == "http" else "../hub.git"
        git(tmp_path / "one", "remote", "add", "hub", url)
        one.spawn("scout", BRIEFING)
        one.spawn("diver", BRIEFING)
        one.peers.add("two", two.peers.key().text)
        one.peers.share("two", agents=["*"])
        two.peers.add("one", one.peers.key().text, url)
        two.peers.grant("one", "agent-commit", "spawn")
        two.peers.grant("one", "agent-commit", "head-move")
        one.peers.announce("two", push="hub")
        two.peers.sync("one")
        assert [remote.agent for remote in two.peers.remotes("one")] == ["diver", "scout"]
        head = one.commit("scout", "finding", {"a.txt": b"1"})
        one.peers.share("two", agents=["scout"])
        one.peers.announce("two", push="hub")
        two.peers.sync("one")
        assert [(remote.agent, remote.head) for remote in two.peers.remotes("one")] == [("scout", str(head))]
        refused("no-such-remote", lambda: one.peers.announce("two", push="hob"))
    refs = git(hub, "for-each-ref", "--format=%(refname)", "refs/clia/announced").stdout.decode()
    assert "agents/scout" in refs
    assert "diver" not in refs
    for space in (one, two):
        space.close()


def test_a_fetch_reveals_only_the_refs_that_were_announced(peer: Peer, ours: OurRepository) -> None:
    """By default, git would also reveal the heads of private branches."""
    with ours.transport.open(str(peer.path)) as quarantine:
        quarantine.fetch([peer.good[3]], WIDE)
        quarantine.admit()
    tree = git(ours.path, "write-tree").stdout.decode().strip()
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    private = git(ours.path, *identity, "commit-tree", tree, "-m", "private").stdout.decode().strip()
    git(ours.path, "update-ref", "refs/heads/private", private)
    git(ours.path, "update-ref", "refs/clia/remotes/ay/agents/scout", peer.good[3])
    for announced, mentioned in (("refs/clia/remotes/ay/", True), (None, False)):
        requests: list[bytes] = []
        with servers.serving(servers.stock(peer.path.parent, requests=requests)) as url, ExitStack() as stack:
            quarantine = stack.enter_context(ours.transport.open(f"{url}/{peer.path.name}", announced=announced))
            assert quarantine.fetch([peer.good[-1]], WIDE).arrived
        sent = b"".join(requests)
        assert (peer.good[3].encode() in sent, private.encode() in sent) == (mentioned, False)
