"""The stored form of a machine's log: reading, comparing, appending, and what appends leave behind."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import GitError
from clia.facade.backends import connect
from clia.testing import Settings, components
from clia.trust import log_writer, superseded_logs
from clia.trust.machine_log import LogEnd, continues, is_prefix, log_end, read_machine_log
from clia.trust.verification import verify_trust
from support.machine_logs import LOGS, key_of, link_log, log_at, log_refs, plain_git, superseded_commits, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from clia.git.objects import GitObjects
    from clia.git.records import MoveObserver

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    with clia.init(place, settings=SETTINGS) as space:
        space.spawn("scout", clia.Briefing("look"))
    plain_git(place, "config", "clia.upkeep", "false")
    return place


def commit(root: Path, number: int, settings: Settings = SETTINGS) -> None:
    with clia.open(root, settings=settings) as space:
        for count in range(number):
            space.commit("scout", "finding", changes={"a.txt": b"%d\n" % count})


def objects(root: Path) -> GitObjects:
    return connect(str(root), SETTINGS).objects


def tip_of(root: Path) -> tuple[str, str]:
    (ref,) = log_refs(root)
    return ref.removeprefix(LOGS), plain_git(root, "rev-parse", ref)


def sizes(root: Path) -> list[int]:
    """The numbers of entries in the files of the log."""
    (ref,) = log_refs(root)
    blobs = [line.split()[2] for line in plain_git(root, "ls-tree", ref).splitlines()]
    return [plain_git(root, "cat-file", "blob", blob).count("\n") + 1 for blob in blobs]


def test_a_log_is_one_commit_whatever_it_has(root: Path) -> None:
    before = log_at(root)
    commit(root, 40)
    log, (ref,) = log_at(root), log_refs(root)
    assert plain_git(root, "rev-list", ref).splitlines() == [plain_git(root, "rev-parse", ref)]
    assert (len(log.entries), is_prefix(before.end, log)) == (len(before.entries) + 40, True)
    assert sizes(root) == [8] * 5
    assert log_end(objects(root), *tip_of(root)) == log.end
    assert plain_git(root, "log", "-1", "--format=%s", ref) == f"log of {log.machine}: {len(log.entries)} entries"
    assert "missing" not in plain_git(root, "fsck", "--strict")


def test_files_of_one_size_are_joined(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "TAIL_ENTRIES", 2)
    monkeypatch.setattr(log_writer, "FILE_SIZES", (32, 8, 2))
    monkeypatch.setattr(log_writer, "FILES_JOINED", 4)
    start = len(log_at(root).lines)
    commit(root, 70 - start)
    assert len(log_at(root).entries) == 70
    assert sizes(root) == [32, 32, 2, 2]
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()


def test_a_reader_compares_ends_across_appends_and_forms(root: Path) -> None:
    machine, first = tip_of(root)
    old = log_at(root)
    commit(root, 20)
    (ref,) = log_refs(root)
    now = log_at(root)
    linked = link_log(root, ref, now.entries, key_of(root))
    as_linked = log_at(root)
    assert [entry._replace(commit=None) for entry in as_linked.entries] == list(now.entries)
    commit(root, 1)
    converted, (_, tip) = log_at(root), tip_of(root)
    assert is_prefix(as_linked.end, converted)
    assert continues(objects(root), machine, tip, linked)
    assert not continues(objects(root), machine, linked, tip)
    assert not continues(objects(root), machine, tip, first), "the entries of an earlier version name their commits"
    assert not is_prefix(old.end._replace(machine="other"), now)
    assert not is_prefix(LogEnd(machine, old.end.length, "0" * 64), now)
    assert not is_prefix(now.end, old)


def test_a_log_of_an_earlier_version_is_continued_with_all_its_entries(root: Path) -> None:
    commit(root, 30)
    (ref,) = log_refs(root)
    entries = log_at(root).entries
    link_log(root, ref, entries, key_of(root))
    commits = plain_git(root, "rev-list", "--reverse", ref).split()
    assert len(commits) == len(entries)
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()
    with clia.open(root, settings=SETTINGS) as space:
        space.maintain()
    log = log_at(root)
    assert len(plain_git(root, "rev-list", ref).split()) == 1
    assert [entry.commit for entry in log.entries[: len(commits)]] == commits
    assert [entry.moves for entry in log.entries[: len(commits)]] == [entry.moves for entry in entries]
    commit(root, 1)
    report = verify_trust(connect(str(root), SETTINGS))
    assert (report.findings, report.unsigned) == ((), 0)


def test_a_linked_log_with_a_foreign_entry_is_not_converted(root: Path) -> None:
    """Otherwise the machine would sign what another program added."""
    (ref,) = log_refs(root)
    link_log(root, ref, log_at(root).entries, key_of(root))
    tip = plain_git(root, "rev-parse", ref)
    forged = plain_git(root, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", f"{tip}^{{tree}}", "-p", tip, "-m", "x")
    plain_git(root, "update-ref", ref, forged)
    for path in (root / ".git/clia/signing").glob("tips-*"):
        path.unlink()
    notices: list[str] = []
    commit(root, 1, SETTINGS._replace(notify=notices.append))
    assert plain_git(root, "rev-parse", ref) == forged
    assert "is not of the log of this machine: it is not signed" in notices[0]
    assert "forged-log" in {finding.code for finding in verify_trust(connect(str(root), SETTINGS)).findings}
    plain_git(root, "update-ref", ref, tip)
    commit(root, 1)
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()


@pytest.mark.parametrize("change", ["older", "foreign", "removed"])
def test_a_log_that_another_program_replaced_continues_as_ours(root: Path, change: str) -> None:
    commit(root, 3)
    (ref,), log = log_refs(root), log_at(root)
    if change == "older":
        plain_git(root, "update-ref", ref, superseded_commits(root)[-2])
    elif change == "foreign":
        plain_git(root, "update-ref", ref, write_log(root, log.machine, log.lines[:2], None))
    else:
        plain_git(root, "update-ref", "-d", ref)
    commit(root, 1)
    assert is_prefix(log.end, log_at(root))
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()


def test_a_log_that_was_replaced_by_another_one_of_the_machine_is_not_joined_silently(root: Path) -> None:
    """Two copies of a clone, both at work: each has entries that the other lacks."""
    other = root.parent / "copy"
    subprocess.run(["cp", "-a", str(root), str(other)], check=True)
    commit(root, 1)
    commit(other, 2)
    (ref,) = log_refs(root)
    plain_git(root, "fetch", "-q", str(other), f"+{ref}:{ref}")
    commit(root, 1)
    assert {finding.code for finding in verify_trust(connect(str(root), SETTINGS)).findings} == {"rewound-ref"}


def loose(root: Path) -> int:
    return int(plain_git(root, "count-objects").split()[0])


def test_former_commits_of_the_log_are_removed_after_a_while(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(root, 20)
    former = superseded_commits(root)
    assert len(former) >= 20
    with clia.open(root, settings=SETTINGS) as space:
        before = loose(root)
        moves = log_of(space)
        moves.tidy()
        assert loose(root) == before, "a reader may need them"
        monkeypatch.setattr(superseded_logs, "GRACE_SECONDS", -1)
        (root / ".git/gc.pid").touch()
        moves.tidy()
        assert loose(root) == before, "git is packing"
        (root / ".git/gc.pid").unlink()
        with superseded_logs.kept_objects(components(space).git):
            moves.tidy()
        assert loose(root) == before, "a backup reads them"
        assert list((root / ".git/clia/reading").iterdir()) == []
        plain_git(root, "update-ref", "refs/clia-tracking/hub/clia/log/x", former[3])
        moves.tidy()
    assert before - loose(root) >= len(former) - 1
    assert plain_git(root, "cat-file", "-t", former[3]) == "commit", "a ref points at it"
    assert superseded_commits(root) != former
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()
    assert "missing" not in plain_git(root, "fsck")
    commit(root, 1)
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()


def log_of(space: clia.Space) -> MoveObserver:
    log = components(space).git.refs.log
    assert log is not None
    return log


def test_a_long_list_of_former_commits_is_shortened_by_appends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superseded_logs, "LISTED_MAX", 4)
    monkeypatch.setattr(superseded_logs, "LISTED_BYTES", 1_000)
    (path,) = (root / ".git/clia/signing").glob("tips-*")
    commit(root, 40)
    assert os.path.getsize(path) <= 1_200
    dangling = [line for line in plain_git(root, "fsck", "--connectivity-only").splitlines() if "dangling commit" in line]
    assert len(dangling) <= 14
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()


@pytest.mark.parametrize("damage", ["", "no line\n1700000000 0123\n", "\x00\xff" * 20])
def test_a_damaged_list_of_former_commits_stops_nothing(root: Path, damage: str) -> None:
    (path,) = (root / ".git/clia/signing").glob("tips-*")
    path.write_text(damage)
    commit(root, 2)
    assert verify_trust(connect(str(root), SETTINGS)).findings == ()


def test_a_log_with_entries_that_do_not_fit_is_refused(root: Path) -> None:
    machine, _ = tip_of(root)
    lines = list(log_at(root).lines)
    git = objects(root)
    for wrong in (lines[1:], [*lines, lines[-1]], [lines[0], *lines[2:]], [*lines[:-1], lines[-1] + b" "]):
        with pytest.raises(GitError) as caught:
            assert read_machine_log(git, machine, write_log(root, machine, wrong, None)).entries
        assert caught.value.code == "malformed-log"
    with pytest.raises(GitError):
        read_machine_log(git, "machine-0123456789ab", tip_of(root)[1])
