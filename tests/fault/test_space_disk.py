"""A space whose disk is full, read-only or damaged: a clear error, no partial writes, and reading works."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.errors import CliaError, GitError, NoSuchAgent, NoSuchObject, StoreError, UnsupportedFormat
from clia.store import sqlite_store
from clia.testing import components
from support import git
from support.crashes import run_all
from support.disks import become_nobody, fill, no_file_beyond, read_only, small_disk
from support.space_driver import BRIEFING, Paper, Writer, check_nothing_lost, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Act = Callable[[clia.Space], object]

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
DISK = 2 << 20
TEXT = "x" * 6000  # incompressible, and fills more than a block together with the others
WRITES: dict[str, Act] = {
    "spawn": lambda s: s.spawn("fresh", BRIEFING),
    "commit": lambda s: s.commit("scout", "finding", changes={"new.txt": os.urandom(20_000)}),
    "commit with trace": lambda s: s.commit_with_trace("scout", "finding", changes={"new.txt": os.urandom(20_000)}),
    "merge": lambda s: s.merge("scout", "helper"),
    "relate": lambda s: s.reviews("scout", "helper"),
    "trace": lambda s: s.trace("scout", "console", TEXT),
    "archive": lambda s: s.archive("helper"),
    "land": lambda s: s.land("scout", "main", no_ff=True),
}


FINISHED_LATER = ("archive", "commit with trace", "land")
"""Verbs that can fail after their point of no return; the next process that opens the space finishes them."""
REFUSED_AGAIN = (NoSuchAgent,)
"""An archived agent cannot be archived again."""


class DiskSpace(NamedTuple):
    root: Path
    paper: Paper

    def open(self) -> clia.Space:
        return clia.open(self.root, settings=settings())

    @property
    def store(self) -> Path:
        return self.root / ".git/clia/space.db"

    def object(self, cid: str) -> Path:
        return self.root / ".git/objects" / cid[:2] / cid[2:]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents with a trace each, a relation, and a user's branch that is not checked out."""
    home = tmp_path_factory.mktemp("template")
    place = DiskSpace(home / "space", Paper(str(home / "paper")))
    place.root.mkdir()
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=place.root)
    git("commit", "--quiet", "--allow-empty", "--message=first", cwd=place.root)
    git("checkout", "--quiet", "--detach", cwd=place.root)
    with clia.init(place.root, settings=settings()) as space:
        writer = Writer(space, place.paper)
        for name in ("scout", "helper"):
            space.spawn_at(name, BRIEFING, "main")
            writer.trace(name, f"{name} bound")
            writer.commit(name, f"{name}.txt", name, with_trace=True)
            writer.trace(name, f"{name} pending")
        writer.relate("scout", "advises", "helper")
        space.relations()  # the index is complete
    return home


def copied(template: Path, to: Path) -> DiskSpace:
    shutil.copytree(template, to, dirs_exist_ok=True, symlinks=True)
    return DiskSpace(to / "space", Paper(str(to / "paper")))


@pytest.fixture
def place(template: Path, tmp_path: Path) -> DiskSpace:
    return copied(template, tmp_path / "here")


def refs(root: Path) -> str:
    return git("for-each-ref", cwd=root)


def still_reads(space: clia.Space) -> None:
    assert space.agents() == ["helper", "scout"]
    assert space.files("scout") == {"scout.txt": b"scout"}
    assert [commit.kind for commit in space.session_log("scout")] == ["finding", "spawn"]
    assert [trace.trace.entries[0]["text"] for trace in space.session_traces("scout")] == ["scout bound"]
    assert space.briefing_of("scout") == BRIEFING


def refusal(place: DiskSpace, name: str) -> CliaError | None:
    """The refusal of a verb; None if there was enough space."""
    try:
        with place.open() as space:
            WRITES[name](space)
    except CliaError as err:
        return err
    return None


def check_whole(place: DiskSpace, name: str, before: str, refused: CliaError | None) -> None:
    """With free space again, the state is that of before or after the verb, and the verb works."""
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
        if refused is not None:
            assert name in FINISHED_LATER or refs(place.root) == before
            with suppress(*REFUSED_AGAIN):
                WRITES[name](space)
            check_nothing_lost(place.root, place.paper, space)


@pytest.mark.parametrize("name", WRITES)
def test_on_a_full_disk_a_verb_is_refused_and_leaves_nothing_incomplete(
    template: Path, tmp_path: Path, name: str, soak: bool
) -> None:
    refusals = []
    for leave in range(40) if soak else (0, 1, 3, 6, 10):
        with small_disk(tmp_path / str(leave), DISK) as disk:
            place = copied(template, disk)
            before = refs(place.root)
            filler = fill(disk, leave)
            refused = refusal(place, name)
            filler.unlink()
            refusals.append(refused)
            check_whole(place, name, before, refused)
    assert refusals[0] is not None
    for error in filter(None, refusals):
        assert "full" in error.message or "No space left" in error.message, error.to_json()


def test_white_box_a_commit_that_was_not_written_is_not_acknowledged(template: Path, tmp_path: Path) -> None:
    """White box: libgit2 reports no error, and verbs usually fail earlier or later in another way."""
    with small_disk(tmp_path / "disk", DISK) as disk:
        place = copied(template, disk)
        with place.open() as space:
            head = space.show("scout")
            fill(disk, 0)
            with pytest.raises(GitError, match=r"full|No space left"):
                components(space).core.objects.write_commit(head.tree, [head.cid], head.author, head.committer, "another\n")


@pytest.mark.parametrize("name", WRITES)
def test_under_a_file_size_limit_a_verb_is_refused_and_leaves_nothing_incomplete(place: DiskSpace, name: str) -> None:
    before = refs(place.root)

    def attempt() -> None:
        with place.open() as space:
            space.trace_pending("scout")  # the store is open
            with no_file_beyond(0):
                with pytest.raises((GitError, StoreError)):
                    WRITES[name](space)
                still_reads(space)

    run_all([attempt])
    check_whole(place, name, before, None)
    assert refs(place.root) == before


# A read-only repository


def as_nobody(act: Callable[[], None]) -> None:
    """Run in a process without root's rights, because file permissions do not apply to root."""

    def run() -> None:
        become_nobody()
        act()

    run_all([run])


@pytest.fixture
def open_place(template: Path) -> Iterator[DiskSpace]:
    """Like ``place``, in a directory that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o711)  # noqa: S103  # so that the user "nobody" can enter it
        yield copied(template, Path(home) / "here")


def test_a_read_only_repository_can_be_read(open_place: DiskSpace) -> None:
    def read() -> None:
        with open_place.open() as space:
            still_reads(space)
            assert space.trace_pending("scout")[0]["text"] == "scout pending"
            assert [edge[:3] for edge in space.relations()] == [("scout", "advises", "helper")]
            assert space.verify().clean

    with read_only(open_place.root.parent):
        as_nobody(read)


@pytest.mark.parametrize("name", WRITES)
def test_a_read_only_repository_refuses_changes(open_place: DiskSpace, name: str) -> None:
    before = refs(open_place.root)

    def attempt() -> None:
        refused = refusal(open_place, name)
        assert refused is not None
        assert refused.code in ("file-error", "git-error", "store-read-only"), refused.to_json()
        assert "Permission denied" in refused.message or "read" in refused.message, refused.to_json()

    with read_only(open_place.root.parent):
        as_nobody(attempt)
    check_whole(open_place, name, before, None)
    assert refs(open_place.root) == before


@pytest.mark.parametrize("folder", ["objects", "refs/heads/agents", "refs/notes/clia/trace", "clia"])
def test_a_read_only_folder_is_named_at_once(open_place: DiskSpace, folder: str) -> None:
    def attempt() -> None:
        refused = refusal(open_place, "commit with trace")
        if folder == "refs/notes/clia/trace":  # the commit is recorded, and the next one must complete it first
            assert refused is None
            refused = refusal(open_place, "commit with trace")
        assert refused is not None
        assert refused.code in ("file-error", "git-error", "store-read-only"), refused.to_json()
        assert "ermission" in refused.message or "read" in refused.message, refused.to_json()

    directory = open_place.root / ".git" / folder
    with read_only(open_place.root.parent):
        for path in (open_place.root.parent, *open_place.root.parent.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        for path in (directory, *directory.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        as_nobody(attempt)
    check_whole(open_place, "commit with trace", "", None)


# Damaged objects


def blob_of(place: DiskSpace, name: str) -> str:
    return git("rev-parse", f"agents/{name}:{name}.txt", cwd=place.root).strip()


def test_a_damaged_object_is_named_and_the_rest_can_be_read(place: DiskSpace) -> None:
    cid = blob_of(place, "helper")
    file = place.object(cid)
    file.chmod(0o644)
    file.write_bytes(b"x" * file.stat().st_size)
    with place.open() as space:
        still_reads(space)
        with pytest.raises(GitError) as caught:
            space.files("helper")
        assert caught.value.code == "corrupt-object"
        assert caught.value.fields["cid"] == cid
        report = space.verify()
        assert not report.clean
        assert any(cid in finding.message for finding in report.findings)
        space.commit("scout", "finding", changes={"on.txt": b"it continues"})


def test_a_missing_object_is_named_and_the_rest_can_be_read(place: DiskSpace) -> None:
    cid = blob_of(place, "helper")
    place.object(cid).unlink()
    with place.open() as space:
        still_reads(space)
        with pytest.raises(NoSuchObject) as caught:
            space.files("helper")
        assert caught.value.fields["cid"] == cid
        assert any(cid in finding.message for finding in space.verify().findings)
        space.commit("scout", "finding", changes={"on.txt": b"it continues"})


@pytest.mark.parametrize("damage", ["missing", "corrupt", "empty"])
def test_a_damaged_head_refuses_commits_and_changes_nothing(place: DiskSpace, damage: str) -> None:
    cid = git("rev-parse", "agents/helper", cwd=place.root).strip()
    file = place.object(cid)
    file.chmod(0o644)
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"x" * 100 if damage == "corrupt" else b"")
    before = (place.root / ".git/refs/heads/agents/helper").read_text()
    with place.open() as space:
        for act in (
            lambda: space.commit("helper", "finding", changes={"x": b"x"}),
            lambda: space.commit_with_trace("helper", "finding", changes={"x": b"x"}),
            lambda: space.merge("scout", "helper"),
            lambda: space.session_log("helper"),
        ):
            with pytest.raises((GitError, NoSuchObject)) as caught:
                act()
            assert caught.value.code in ("corrupt-object", "no-such-object"), caught.value.to_json()
        still_reads(space)
        assert [entry["text"] for entry in space.trace_pending("helper")] == ["helper pending"]
        assert not space.verify().clean
    assert (place.root / ".git/refs/heads/agents/helper").read_text() == before


# A store that is missing, damaged, locked or newer


def test_without_its_store_a_space_has_everything_that_is_in_git(place: DiskSpace) -> None:
    for file in place.store.parent.glob("space.db*"):
        file.unlink()
    with place.open() as space:
        still_reads(space)
        assert space.trace_pending("scout") == []  # pending entries were only in the store
        assert [edge[:3] for edge in space.relations()] == [("scout", "advises", "helper")]
        assert space.verify().clean
        assert getattr(refusal(place, "trace"), "code", None) == "store-lost"
        assert [(ailment.code, ailment.repaired) for ailment in space.doctor(repair=True)] == [("store-lost", True)]
        space.trace("scout", "console", "again")
        space.commit_with_trace("scout", "finding", changes={"on.txt": b"it continues"})
        assert space.verify().clean


def damaged(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 1000)


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [damaged, torn])
def test_a_damaged_store_is_reported_and_git_keeps_everything(place: DiskSpace, damage: Callable[[Path], None]) -> None:
    with closing(sqlite3.connect(place.store)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = refs(place.root)
    damage(place.store)
    refused = refusal(place, "commit with trace")
    assert isinstance(refused, StoreError)
    assert refused.code == "store-corrupt"
    assert refused.hints
    assert refs(place.root) == before
    for file in place.store.parent.glob("space.db*"):
        file.rename(f"{file}.damaged")
    with place.open() as space:
        still_reads(space)
        assert space.verify().clean


def test_a_store_of_a_newer_clia_is_not_changed(place: DiskSpace) -> None:
    with closing(sqlite3.connect(place.store)) as database:
        database.execute("PRAGMA user_version = 99")
    before = refs(place.root)
    refused = refusal(place, "commit")
    assert isinstance(refused, UnsupportedFormat)
    assert refused.fields["version"] == 99
    assert refs(place.root) == before


def test_a_locked_store_is_an_error_after_the_timeout(place: DiskSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "TIMEOUT", 0.05)  # instead of the usual half minute
    with place.open() as space, closing(sqlite3.connect(place.store, isolation_level=None)) as writer:
        before = refs(place.root)
        writer.execute("BEGIN IMMEDIATE")
        for name in ("spawn", "commit with trace", "trace"):
            with pytest.raises(StoreError) as caught:
                WRITES[name](space)
            assert caught.value.code == "store-locked"
            assert caught.value.retryable
            assert refs(place.root) == before
        still_reads(space)
        space.commit("scout", "finding", changes={"on.txt": b"needs no store"})
        writer.execute("ROLLBACK")
        WRITES["spawn"](space)
        WRITES["commit with trace"](space)
        check_nothing_lost(place.root, place.paper, space)
