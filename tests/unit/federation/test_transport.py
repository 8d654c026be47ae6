"""What a peer can do to us through git: nothing but send commits, within limits."""

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
from clia.errors import Denied, TransportError
from clia.federation.transport import GitTransport
from clia.git import command, quarantine
from clia.git import quarantine as inspection
from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.git.records import TransferLimits
from support import git_servers as servers
from support.forge_server import eventually
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDE = TransferLimits(64 * 1024 * 1024, 60.0)
NARROW = TransferLimits(256 * 1024, 60.0)
MAIN = "refs/heads/main"
WHO = "Mal <mal@example.org> 1 +0000"


class Peer(NamedTuple):
    """A repository that somebody else wrote: an id by what is wrong with it, and a chain of commits that are well."""

    path: Path
    ids: Mapping[str, str]
    good: Sequence[str]


class Ours:
    """A repository of ours and its transport."""

    def __init__(self, path: Path) -> None:
        pygit2.init_repository(str(path))
        self.path = path
        self.handle = GitHandle(str(path), durable=True)
        self.transport = GitTransport(self.handle, GitCommand(self.handle.git_dir, dict(os.environ)))
        self.quarantines = path / ".git" / "clia" / "quarantine"

    def has(self, cid: str) -> bool:
        return git(self.path, "cat-file", "-e", cid, check=False).returncode == 0

    def left(self) -> list[Path]:
        return [each for each in self.quarantines.iterdir() if each.is_dir()]

    def refusal(self, url: str, cid: str, limits: TransferLimits = WIDE) -> str:
        """The code for which one id is refused; nothing of it stays, and the repository is whole."""
        with self.transport.open(url) as quarantine:
            found = quarantine.fetch([cid], limits)
            quarantine.admit()
        assert not found.arrived
        assert not self.has(cid)
        assert not self.left()
        return found.refused[cid][0]


def git(path: Path, *words: str, data: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(path), *words], input=data, capture_output=True, check=check)


def commit_bytes(tree: str, message: str, parent: str | None = None) -> bytes:
    above = f"parent {parent}\n" if parent else ""
    return f"tree {tree}\n{above}author {WHO}\ncommitter {WHO}\n\n{message}\n".encode()


def tree_bytes(*entries: tuple[str, str, str]) -> bytes:
    return b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(cid) for mode, name, cid in entries)


class Pile:
    """Objects that somebody makes up, whatever git thinks of them."""

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
        """Makes a bare repository of them."""
        git(path.parent, "init", "-q", "--bare", str(path))
        git(path, "index-pack", "--stdin", data=self.pack())


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    path = tmp_path_factory.mktemp("peers") / "peer.git"
    pile = Pile()
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
    ids = {what: pile.commit(*each) for what, each in trees.items()}
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
    """What cannot be made smaller."""
    return random.Random(seed).randbytes(size)  # noqa: S311  # nothing depends on its being unknown


@pytest.fixture
def ours(tmp_path: Path) -> Ours:
    return Ours(tmp_path / "ours")


@contextmanager
def reached(peer: Peer, way: str) -> Iterator[str]:
    if way == "http":
        with servers.serving(servers.stock(peer.path.parent)) as address:
            yield f"{address}/{peer.path.name}"
    else:
        yield f"file://{peer.path}" if way == "file" else str(peer.path)


@pytest.mark.parametrize("way", ["folder", "file", "http"])
def test_what_is_well_arrives_and_what_is_too_large_does_not_however_a_stock_server_is_reached(
    peer: Peer, ours: Ours, way: str
) -> None:
    """The server is set up for nothing; what is asked for is no ref of it. Others see what was let in at once."""
    wanted, large = peer.good[50], peer.ids["large"]
    other = pygit2.Repository(str(ours.path))
    assert wanted not in other
    with reached(peer, way) as url, ours.transport.open(url) as quarantine:
        assert quarantine.tips([MAIN, "refs/heads/none"], NARROW) == {MAIN: peer.good[-1]}
        assert quarantine.objects.kind(peer.good[-1]) == "commit"
        found = quarantine.fetch([large, wanted], NARROW)
        assert found.arrived == (wanted,)
        assert {cid: code for cid, (code, _) in found.refused.items()} == {large: "too-large"}
        assert not ours.has(wanted)
        quarantine.admit()
    assert wanted in other
    assert not ours.has(large)
    assert not ours.left()
    assert {each.stat().st_mode & 0o777 for each in (ours.path / ".git/objects/pack").iterdir()} == {0o444}
    git(ours.path, "fsck", "--strict")


def test_of_many_ids_only_those_that_are_not_well_are_refused_and_nothing_of_them_stays(peer: Peer, ours: Ours) -> None:
    bad = [cid for what, cid in peer.ids.items() if what != "large"]
    with ours.transport.open(str(peer.path)) as quarantine:
        found = quarantine.fetch([*peer.good, *bad], WIDE)
        quarantine.admit()
    assert set(found.arrived) == set(peer.good)
    codes = {what: found.refused[cid][0] for what, cid in peer.ids.items() if what != "large"}
    expected = {"nothing": "missing-object", **dict.fromkeys(("a blob", "a tree", "a tag"), "not-a-commit")}
    assert codes == {what: expected.get(what, "bad-objects") for what in codes}
    assert not [what for what, cid in peer.ids.items() if codes.get(what) == "bad-objects" and ours.has(cid)]
    git(ours.path, "fsck", "--strict")


def test_a_thousand_ids_are_one_run_of_git(ours: Ours, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pile = Pile()
    made = [pile.commit(message=f"head {number}") for number in range(1000)]
    pile.store(tmp_path / "many.git")
    runs: list[bool] = []

    def counted(words: Sequence[str], *more: Any) -> command.GitResult:
        runs.append("fetch" in words)
        return command.run_limited(words, *more)

    monkeypatch.setattr(quarantine, "run_limited", counted)
    with ours.transport.open(str(tmp_path / "many.git")) as apart:
        assert len(apart.fetch(made, WIDE).arrived) == 1000
        assert runs == [True]
        assert len(apart.fetch(made, WIDE).arrived) == 1000
        assert runs == [True, False]  # they are there: it looks, and asks nobody


def bombs() -> Iterator[tuple[str, str, bytes]]:
    """What is wrong, the id of a commit, and a small pack that becomes large."""
    pile = Pile()
    yield "one file", pile.commit(("100644", "zeros", pile.add("blob", bytes(4 * NARROW.bytes)))), pile.pack()
    pile = Pile()
    some = [pile.add("blob", bytes([number]) * NARROW.bytes) for number in range(inspection.SUM + 1)]
    entries = [("100644", f"{number:03}", each) for number, each in enumerate(some)]
    yield "the sum", pile.commit(*entries[1:], parent=pile.commit(entries[0])), pile.pack()
    pile = Pile()
    inner = pile.add("tree", b"")
    for _ in range(8):
        inner = pile.add("tree", tree_bytes(*(("40000", f"{number}", inner) for number in range(10))))
    yield "the paths", pile.commit(("40000", "x", inner)), pile.pack()
    pile = Pile()
    inner = pile.add("tree", b"")
    for _ in range(inspection.DEPTH_MAX):
        inner = pile.add("tree", tree_bytes(("40000", "x", inner)))
    yield "the depth", pile.commit(("40000", "x", inner)), pile.pack()
    pile = Pile()
    half = pile.add("blob", bytes(NARROW.bytes // 2))
    yield "written out", pile.commit(*(("100644", f"{number:03}", half) for number in range(3 * inspection.SUM))), pile.pack()


def test_a_small_pack_that_becomes_large_is_refused(ours: Ours) -> None:
    for what, cid, pack in bombs():
        assert len(pack) < NARROW.bytes, what
        with servers.serving(servers.sending(lambda pack=pack: [pack])) as url:  # type: ignore[misc]  # bound now
            assert (what, ours.refusal(url, cid, NARROW)) == (what, "too-large")


def test_a_difference_that_makes_gigabytes_is_refused_before_they_are_held(ours: Ours) -> None:
    """Its result is a thousand times the 16 MB of its base: git is not given the memory."""
    base, once, times = bytes(1 << 24), 0xFF0000, 1000
    copied = b"\xf0" + once.to_bytes(3, "little")  # so many bytes from the start of the base
    delta = _varint(len(base)) + _varint(once * times) + copied * times
    pack = servers.packed([("blob", base), (servers.id_of("blob", base), delta)])
    with servers.serving(servers.sending(lambda: [pack])) as url, ours.transport.open(url) as apart:
        code, reason = apart.fetch(["2" * 40], WIDE).refused["2" * 40]
    assert (code, reason) == ("too-large", f"larger than {WIDE.bytes} bytes")  # git's word, not that of our look at it


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def test_a_pack_without_end_is_cut_off_at_the_limit(ours: Ours, soak: bool) -> None:
    """A push of ten gigabytes: with a small limit as a rule, with the usual one in a soak."""
    limits = TransferLimits() if soak else TransferLimits(4 * 1024 * 1024, 60.0)
    part = noise(1 << 20)
    sent, most = 0, 0

    def pack() -> Iterator[bytes]:
        nonlocal sent, most
        size = 10 << 30
        yield b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + servers.heading(3, size)
        stored = zlib.compressobj(0)
        while sent < size:
            sent += len(part)
            yield stored.compress(part)
            most = max(most, sum(each.stat().st_size for each in ours.quarantines.rglob("*pack*/*") if each.exists()))

    with servers.serving(servers.sending(pack)) as url:
        assert ours.refusal(url, "3" * 40, limits) == "too-large"
    assert most <= limits.bytes  # it was looked at while it came
    assert sent < limits.bytes + (64 << 20)  # what was on the way


def test_a_history_with_holes_never_comes_in(peer: Peer, ours: Ours, tmp_path: Path) -> None:
    """From a shallow repository, from one that lacks an object, and from a server that leaves one out."""
    shallow, torn = tmp_path / "shallow.git", tmp_path / "torn.git"
    git(tmp_path, "clone", "-q", "--bare", "--branch", "main", "--depth", "3", f"file://{peer.path}", str(shallow))
    for url in (str(shallow), f"file://{shallow}"):
        assert ours.refusal(url, peer.good[-1]) == "missing-object"
    pile = Pile()
    lacking = pile.commit(("100644", "a", "4" * 40))
    pile.store(torn)
    assert ours.refusal(str(torn), lacking) == "missing-object"
    with servers.serving(servers.sending(lambda: [pile.pack()])) as url:
        assert ours.refusal(url, lacking) == "bad-objects"
    git(ours.path, "fsck", "--strict")


def test_a_server_that_only_hands_out_files_gets_nothing_past_the_check(peer: Peer, ours: Ours) -> None:
    """Git does not check what comes that way."""
    git(peer.path, "update-server-info")
    with servers.serving(servers.files(peer.path)) as url, ours.transport.open(url) as apart:
        refused("transport-error", lambda: apart.fetch([peer.ids["a .git"]], WIDE))
        apart.admit()
    assert not ours.has(peer.ids["a .git"])


def test_the_first_protocol_gives_what_its_server_is_set_up_to_give(peer: Peer, ours: Ours, tmp_path: Path) -> None:
    copy = tmp_path / "copy.git"
    git(tmp_path, "clone", "-q", "--bare", str(peer.path), str(copy))
    with servers.serving(servers.stock(tmp_path, newest=False)) as address:
        assert ours.refusal(f"{address}/copy.git", peer.good[5]) == "missing-object"
        git(copy, "config", "uploadpack.allowReachableSHA1InWant", "true")
        with ours.transport.open(f"{address}/copy.git") as apart:
            assert apart.fetch([peer.good[5]], WIDE).arrived == (peer.good[5],)


def test_who_cannot_be_reached_is_said_without_what_is_secret(peer: Peer, ours: Ours, tmp_path: Path) -> None:
    """Nothing is run, and nobody is followed, to get at a peer."""
    (tmp_path / "folder").mkdir()
    secret, ran = "hunter2", tmp_path / "ran"
    with (
        servers.serving(servers.stock(peer.path.parent)) as stock,
        servers.serving(servers.saying(302, Location=f"{stock}/{peer.path.name}/info/refs?service=git-upload-pack")) as elsewhere,
        servers.serving(
            servers.saying(200, b"\0\xffhello\n" * 99, Content_Type="application/x-git-upload-pack-advertisement")
        ) as odd,
    ):
        near = odd.replace("://", f"://tess:{secret}@")
        helper = f"ext::sh -c touch% {ran}"
        for url in (
            elsewhere,
            near,
            f"http://tess:{secret}@127.0.0.1:1/x",
            str(tmp_path / "folder"),
            helper,
            f"--upload-pack=touch {ran}",
        ):
            with ours.transport.open(url) as apart:
                for call in (lambda: apart.tips([MAIN], WIDE), lambda: apart.fetch([peer.good[0]], WIDE)):
                    error = refused("transport-error", call)
                    assert isinstance(error, TransportError)
                    assert secret not in f"{error} {error.to_json()}"
    assert not ran.exists()


def test_a_peer_that_keeps_us_waiting_is_left_and_nothing_goes_on_running(peer: Peer, ours: Ours) -> None:
    until, heard = threading.Event(), threading.Event()
    with servers.serving(servers.waiting(until, heard)) as url, ours.transport.open(url) as apart:
        found = apart.fetch(peer.good[:8], TransferLimits(seconds=0.3))
        assert {code for code, _ in found.refused.values()} == {"too-slow"}
        assert len(found.refused) == 8
        assert heard.is_set()
        eventually(lambda: not _running(url))
        refused("transport-error", lambda: apart.tips([MAIN], TransferLimits(seconds=0.1)))
        until.set()


def _running(marker: str) -> list[int]:
    """Programs with something in their command lines."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and int(each.name) != os.getpid() and marker.encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue
    return found


_WAITER = """
import os, sys
from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.federation.transport import GitTransport
from clia.git.records import TransferLimits
handle = GitHandle(sys.argv[1])
with GitTransport(handle, GitCommand(handle.git_dir, dict(os.environ))).open(sys.argv[2]) as apart:
    apart.fetch(["6" * 40], TransferLimits())
"""


def test_what_a_killed_process_left_is_swept_and_its_git_is_gone(peer: Peer, ours: Ours) -> None:
    until, heard = threading.Event(), threading.Event()
    with servers.serving(servers.waiting(until, heard)) as url, ours.transport.open(str(peer.path)) as live:
        with subprocess.Popen([sys.executable, "-c", _WAITER, str(ours.path), url]) as process:
            assert heard.wait(30)
            assert len(ours.left()) == 2
            process.send_signal(signal.SIGKILL)
        deadline = threading.Event()
        for _ in range(500):
            if not _running(url):
                break
            deadline.wait(0.02)
        assert not _running(url)
        until.set()
        with ours.transport.open(str(peer.path)):
            assert len(ours.left()) == 2
        assert len(ours.left()) == 1
        assert live.fetch([peer.good[0]], WIDE).arrived
    assert not ours.left()


def test_a_quarantine_is_gone_also_when_its_block_fails(peer: Peer, ours: Ours) -> None:
    def fails() -> None:
        with ours.transport.open(str(peer.path)) as apart:
            apart.fetch([peer.good[0]], WIDE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert not ours.left()
    assert not ours.has(peer.good[0])


def test_letting_in_that_dies_half_way_breaks_nothing_and_is_done_again(
    peer: Peer, ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that is there already is left as it is."""
    real = os.rename

    def dies(source: str, target: str) -> None:
        if target.endswith(".idx"):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched, ours.transport.open(str(peer.path)) as apart:
        apart.fetch([peer.good[9]], WIDE)
        patched.setattr(os, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            apart.admit()
    git(ours.path, "fsck", "--strict")
    assert not ours.has(peer.good[9])
    packs = ours.path / ".git/objects/pack"
    half = {each.name: each.stat().st_ino for each in packs.iterdir()}
    assert {Path(each).suffix for each in half} - {".rev"} == {".pack"}  # the index, which makes it count, is the last
    for _ in range(2):
        with ours.transport.open(str(peer.path)) as apart:
            assert apart.fetch([peer.good[9]], WIDE).arrived
            apart.admit()
    assert ours.has(peer.good[9])
    assert all((packs / name).stat().st_ino == inode for name, inode in half.items())
    git(ours.path, "fsck", "--strict")


def test_there_is_one_room_for_all_and_what_finds_none_may_come_later(ours: Ours, tmp_path: Path) -> None:
    path, pile = tmp_path / "two.git", Pile()
    both = [pile.commit(("100644", "n", pile.add("blob", noise(NARROW.bytes * 2 // 3, seed)))) for seed in (3, 4)]
    pile.store(path)
    with ours.transport.open(str(path)) as apart:
        found = apart.fetch(both, NARROW)
    assert found.arrived == (both[0],)
    assert found.refused[both[1]][0] == "too-much"


def test_tips_that_are_refused_say_why(peer: Peer, ours: Ours, tmp_path: Path) -> None:
    copy = tmp_path / "copy.git"
    git(tmp_path, "clone", "-q", "--bare", str(peer.path), str(copy))
    git(copy, "fetch", "-q", str(peer.path), f"{peer.ids['a .git']}:{MAIN}", "--force")
    with ours.transport.open(str(copy)) as apart:
        error = refused("bad-objects", lambda: apart.tips([MAIN], WIDE))
    assert isinstance(error, Denied)


def test_what_is_shown_is_what_is_there_whoever_writes_it_at_once(peer: Peer, ours: Ours) -> None:
    """Each reader sees one state or another, and never a ref to nothing."""
    with ours.transport.open(str(peer.path)) as apart:
        apart.fetch(peer.good[:2], WIDE)
        apart.admit()
    states = [{f"refs/x/{number}": cid for number in range(200)} | {"refs/x/gone": "7" * 40} for cid in peer.good[:2]]

    def write(state: dict[str, str]) -> None:
        for _ in range(20):
            ours.transport.show("aud", state)

    writers = [threading.Thread(target=write, args=(state,)) for state in states]
    for each in writers:
        each.start()
    seen = set()
    view = Path(ours.transport.view("aud"))
    while any(each.is_alive() for each in writers):
        if (view / "packed-refs").exists():
            lines = [line for line in (view / "packed-refs").read_text().splitlines() if not line.startswith("#")]
            seen.add((len(lines), len({line.split()[0] for line in lines})))
    assert seen <= {(200, 1)}
    listed = git(view, "for-each-ref", "--format=%(objectname)").stdout.decode().split()
    assert len(listed) == 200
    assert set(listed) <= set(peer.good[:2])
    assert sorted(each.name for each in view.parent.iterdir()) == ["aud.git"]
    assert sorted(each.name for each in view.iterdir()) == ["HEAD", "config", "objects", "packed-refs", "refs"]


@pytest.mark.parametrize("way", ["folder", "http"])
def test_two_spaces_meet_at_a_server_that_knows_neither(tmp_path: Path, way: str) -> None:
    """What is no longer shared is taken away from there, too."""
    hub = tmp_path / "hub.git"
    git(tmp_path, "init", "-q", "--bare", str(hub))
    git(hub, "config", "http.receivepack", "true")
    one, two = (clia.init(tmp_path / name, settings=settings()) for name in ("one", "two"))
    with servers.serving(servers.stock(tmp_path)) as address:
        url = f"{address}/hub.git" if way == "http" else "../hub.git"
        git(tmp_path / "one", "remote", "add", "hub", url)
        one.spawn("scout", BRIEFING)
        one.spawn("diver", BRIEFING)
        one.add_peer("two", two.key().text)
        one.share("two", agents=["*"])
        two.add_peer("one", one.key().text, url)
        two.grant("one", "agent-commit", "spawn")
        two.grant("one", "agent-commit", "head-move")
        one.announce("two", push="hub")
        two.sync("one")
        assert [each.agent for each in two.remotes("one")] == ["diver", "scout"]
        head = one.commit("scout", "finding", {"a.txt": b"1"})
        one.share("two", agents=["scout"])
        one.announce("two", push="hub")
        two.sync("one")
        assert [(each.agent, each.head) for each in two.remotes("one")] == [("scout", str(head))]
        refused("no-such-remote", lambda: one.announce("two", push="hob"))
    told = git(hub, "for-each-ref", "--format=%(refname)", "refs/clia/announced").stdout.decode()
    assert "agents/scout" in told
    assert "diver" not in told
    for each in (one, two):
        each.close()


def test_the_other_side_learns_of_no_ref_of_ours_but_those_it_may_know(peer: Peer, ours: Ours) -> None:
    """Git would say what it has: the heads of private branches, too."""
    with ours.transport.open(str(peer.path)) as apart:
        apart.fetch([peer.good[3]], WIDE)
        apart.admit()
    tree = git(ours.path, "write-tree").stdout.decode().strip()
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    private = git(ours.path, *who, "commit-tree", tree, "-m", "private").stdout.decode().strip()
    git(ours.path, "update-ref", "refs/heads/private", private)
    git(ours.path, "update-ref", "refs/clia/remotes/ay/agents/scout", peer.good[3])
    for told, mentioned in (("refs/clia/remotes/ay/", True), (None, False)):
        heard: list[bytes] = []
        with servers.serving(servers.stock(peer.path.parent, told=heard)) as url, ExitStack() as stack:
            apart = stack.enter_context(ours.transport.open(f"{url}/{peer.path.name}", announced=told))
            assert apart.fetch([peer.good[-1]], WIDE).arrived
        said = b"".join(heard)
        assert (peer.good[3].encode() in said, private.encode() in said) == (mentioned, False)
