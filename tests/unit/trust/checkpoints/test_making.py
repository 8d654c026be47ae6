"""Checkpoints of a space: what they cover, when they are made, and what verify finds about them."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.backends import connect
from clia.git.records import Stamp
from clia.testing import Crash, Settings, components, crash_at
from clia.trust.checkpoints.making import STEPS
from clia.trust.checkpoints.merkle import inclusion_proof, is_included, leaf_hash
from clia.trust.checkpoints.records import CHUNK, read_checkpoint_log, read_covered_refs
from clia.trust.checkpoints.snapshots import ref_line
from clia.trust.machine_log import log_end
from clia.trust.verification import verify_trust

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.trust.checkpoints.records import CheckpointLog
    from clia.trust.verification import TrustReport

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "project", settings=SETTINGS) as opened:
        opened.spawn("scout", clia.Briefing("look"))
        yield opened


def checked(place: Path, since: str | None = None) -> TrustReport:
    return verify_trust(connect(str(place), SETTINGS), since=since)


def log_of(place: Path) -> CheckpointLog:
    ref = git(place, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/")
    return read_checkpoint_log(connect(str(place), SETTINGS).objects, git(place, "rev-parse", ref))


def test_a_checkpoint_covers_the_logs_and_every_shared_ref(space: clia.Space, tmp_path: Path) -> None:
    made = space.witnesses.checkpoint()
    place = tmp_path / "project"
    log = log_of(place)
    assert made.new
    assert (made.checkpoint, made.note) == (log.head.name, str(log.note))
    refs = read_covered_refs(connect(str(place), SETTINGS).objects, log)
    assert refs["refs/heads/agents/scout"] == space.head("scout")
    assert {"refs/clia/space", "refs/clia/keys", "refs/clia/agents/scout"} <= refs.keys()
    machine = next(iter(log.newest.logs))
    objects = connect(str(place), SETTINGS).objects
    assert log.newest.logs[machine] == log_end(objects, machine, git(place, "rev-parse", f"refs/clia/log/{machine}"))
    leaves = [leaf_hash(ref_line(ref, refs[ref])) for ref in sorted(refs)]
    index = sorted(refs).index("refs/heads/agents/scout")
    assert is_included(leaves[index], index, len(leaves), inclusion_proof(leaves, index), bytes.fromhex(log.newest.refs))
    assert checked(place).findings == ()


def test_nothing_new_makes_no_new_checkpoint(space: clia.Space) -> None:
    first, second = space.witnesses.checkpoint(), space.witnesses.checkpoint()
    assert (second.new, second.checkpoint) == (False, first.checkpoint)
    space.commit("scout", "finding", {"a": b"1"})
    assert space.witnesses.checkpoint().new


def test_each_checkpoint_extends_the_one_before_in_one_commit_without_parents(space: clia.Space, tmp_path: Path) -> None:
    heads = []
    for number in range(3):
        space.commit("scout", "finding", {"a": bytes([number])})
        space.witnesses.checkpoint()
        heads.append(log_of(tmp_path / "project").head)
    log = log_of(tmp_path / "project")
    assert [head.size for head in heads] == [1, 2, 3]
    assert all(log.has(head) for head in heads)
    assert not log.has(heads[0]._replace(root=heads[1].root))
    assert git(tmp_path / "project", "log", "--format=%P", log.cid) == ""
    assert checked(tmp_path / "project").findings == ()


def test_many_snapshots_are_kept_in_several_files(space: clia.Space, tmp_path: Path) -> None:
    from clia.trust.checkpoints.merkle import root_hash
    from clia.trust.checkpoints.records import write_checkpoint_log
    from clia.trust.checkpoints.signed_notes import CheckpointHead, SignedNote

    space.witnesses.checkpoint()
    first, parts = log_of(tmp_path / "project"), components(space)
    snapshots = [first.newest._replace(at=first.newest.at + number) for number in range(2 * CHUNK + 3)]
    before = None
    for size in (CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3):
        head = CheckpointHead(first.head.origin, size, root_hash(item.leaf for item in snapshots[:size]))
        note = SignedNote(head.text, first.note.signatures)
        by = Stamp("Ada", "ada@example.org", 0)
        cid = write_checkpoint_log(parts.git.objects, before, snapshots[:size], note, {} if before is None else None, by)
        before = read_checkpoint_log(parts.git.objects, cid)
        assert list(before.snapshots) == snapshots[:size]


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_leaves_one_checkpoint_log(tmp_path: Path, step: str) -> None:
    place = tmp_path / "project"
    with clia.init(place, settings=SETTINGS) as space:
        space.spawn("scout", clia.Briefing("look"))
        space.witnesses.checkpoint()
        space.commit("scout", "finding", {"a": b"1"})
    before = log_of(place).head
    with pytest.raises(Crash), clia.open(place, settings=SETTINGS._replace(reached=crash_at(step))) as space:
        space.witnesses.checkpoint()
    with clia.open(place, settings=SETTINGS) as space:
        space.witnesses.checkpoint()
    log = log_of(place)
    assert log.head.size == 2
    assert log.has(before)
    assert checked(place).findings == ()


def test_the_record_after_a_checkpoint_is_verified_against_it(space: clia.Space, tmp_path: Path) -> None:
    place, old = tmp_path / "project", tmp_path / "old"
    shutil.copytree(place, old, symlinks=True)
    space.commit("scout", "finding", {"a": b"1"})
    made = space.witnesses.checkpoint()
    space.commit("scout", "finding", {"a": b"2"})
    assert checked(place, made.checkpoint).findings == ()
    assert checked(place, made.note).findings == ()
    assert [finding.code for finding in checked(old, made.checkpoint).findings] == ["rolled-back"]


def test_another_history_with_the_same_size_is_a_finding(space: clia.Space, tmp_path: Path) -> None:
    place, other = tmp_path / "project", tmp_path / "other"
    shutil.copytree(place, other, symlinks=True)
    made = space.witnesses.checkpoint()
    with clia.open(other, settings=SETTINGS) as copy:
        copy.commit("scout", "finding", {"b": b"1"})
        copy.witnesses.checkpoint()
    assert [finding.code for finding in checked(other, made.checkpoint).findings] == ["forked-checkpoint"]


def test_a_checkpoint_of_another_space_is_a_finding(space: clia.Space, tmp_path: Path) -> None:
    space.witnesses.checkpoint()
    place, other = tmp_path / "project", tmp_path / "other"
    with clia.init(other, settings=SETTINGS) as second:
        second.spawn("scout", clia.Briefing("look"))
        made = second.witnesses.checkpoint()
    assert [finding.code for finding in checked(place, made.checkpoint).findings] == ["foreign-checkpoint"]
    git(place, "fetch", "-q", str(other), "+refs/clia/checkpoints/*:refs/fetched/*")
    ref = git(place, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/")
    git(place, "update-ref", ref, git(place, "for-each-ref", "--format=%(objectname)", "refs/fetched/"))
    assert "foreign-checkpoint" in {finding.code for finding in checked(place).findings}


def log_ref(place: Path) -> str:
    return git(place, "for-each-ref", "--format=%(refname)", "refs/clia/log/")


def test_a_log_that_ends_before_a_checkpoint_is_truncated(space: clia.Space, tmp_path: Path) -> None:
    place = tmp_path / "project"
    before = git(place, "rev-parse", log_ref(place))
    space.commit("scout", "finding", {"a": b"1"})
    space.witnesses.checkpoint()
    git(place, "update-ref", log_ref(place), before)
    assert "truncated-log" in {finding.code for finding in checked(place).findings}


def test_a_log_with_other_entries_than_a_checkpoint_names_is_spliced(space: clia.Space, tmp_path: Path) -> None:
    place, other = tmp_path / "project", tmp_path / "other"
    shutil.copytree(place, other, symlinks=True)
    space.commit("scout", "finding", {"a": b"1"})
    space.witnesses.checkpoint()
    with clia.open(other, settings=SETTINGS) as copy:
        for number in range(3):
            copy.commit("scout", "finding", {"b": bytes([number])})
    git(place, "fetch", "-q", str(other), "+refs/clia/log/*:refs/fetched/*")
    git(place, "update-ref", log_ref(place), git(place, "for-each-ref", "--format=%(objectname)", "refs/fetched/"))
    assert "spliced-log" in {finding.code for finding in checked(place).findings}


def test_the_log_of_another_machine_in_place_of_a_log_is_found(space: clia.Space, tmp_path: Path) -> None:
    place, other = tmp_path / "project", tmp_path / "other"
    space.witnesses.checkpoint()
    with clia.init(other, settings=SETTINGS) as second:
        for number in range(6):
            second.spawn(f"scout-{number}", clia.Briefing("look"))
    git(place, "fetch", "-q", str(other), "+refs/clia/log/*:refs/fetched/*")
    git(place, "update-ref", log_ref(place), git(place, "for-each-ref", "--format=%(objectname)", "refs/fetched/"))
    assert {"forged-log", "truncated-log"} <= {finding.code for finding in checked(place).findings}


def change(place: Path, path: str, text: str) -> None:
    """Replace a file of the checkpoint's tree by plain git."""
    ref = git(place, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/")
    environment = {**os.environ, "GIT_INDEX_FILE": str(place / "index.tmp")}

    def run(*words: str, data: str = "") -> str:
        done = subprocess.run(["git", *words], cwd=place, env=environment, input=data, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("read-tree", ref)
    blob = run("hash-object", "-w", "--stdin", data=text)
    run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    run("update-ref", ref, run("commit-tree", run("write-tree"), data=run("log", "-1", "--format=%B", ref)))


@pytest.mark.parametrize(
    ("path", "replace", "code"),
    [
        ("checkpoint", ("— ", "—"), "malformed-checkpoint"),
        ("checkpoint", ("\n1\n", "\n2\n"), "malformed-checkpoint"),
        ("snapshots/000000", ('"ref_count":', '"ref_count":1'), "malformed-checkpoint"),
        ("snapshots/000000", ("{", "["), "malformed-checkpoint"),
        ("refs/zz", ("", "x"), "malformed-checkpoint"),
    ],
)
def test_a_changed_checkpoint_is_a_finding(
    space: clia.Space, tmp_path: Path, path: str, replace: tuple[str, str], code: str
) -> None:
    place = tmp_path / "project"
    space.witnesses.checkpoint()
    ref = git(place, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/")
    text = "" if path == "refs/zz" else git(place, "show", f"{ref}:{path}") + "\n"
    change(place, path, text.replace(*replace, 1) if text else "0" * 40 + " refs/heads/agents/ghost\n")
    assert code in {finding.code for finding in checked(place).findings}


def test_a_checkpoint_that_another_key_signed_is_forged(space: clia.Space, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from clia.trust.checkpoints.signed_notes import SignedNote, sign_note

    place = tmp_path / "project"
    space.witnesses.checkpoint()
    head = log_of(place).head
    other = sign_note(head.text, Ed25519PrivateKey.generate(), head.origin)
    change(place, "checkpoint", str(SignedNote(head.text, (other,))))
    assert "forged-checkpoint" in {finding.code for finding in checked(place).findings}
    own = log_of(place).note.signatures[0]
    change(place, "checkpoint", str(SignedNote(head.text, (own._replace(data=bytes(64)),))))
    assert "forged-checkpoint" in {finding.code for finding in checked(place).findings}


def test_upkeep_makes_a_checkpoint_after_many_entries_or_some_time(tmp_path: Path) -> None:
    place, now = tmp_path / "project", [1_800_000_000]
    from datetime import UTC, datetime

    settings = SETTINGS._replace(clock=lambda: datetime.fromtimestamp(now[0], UTC))
    with clia.init(place, settings=settings) as space:
        space.spawn("scout", clia.Briefing("look"))
        git(place, "config", "clia.checkpointEntries", "3")
        space.local.upkeep()
        assert log_of(place).head.size == 1
        space.commit("scout", "finding", {"a": b"1"})
        space.local.upkeep()
        assert log_of(place).head.size == 1
        now[0] += 3600
        space.local.upkeep()
        assert log_of(place).head.size == 2
        for number in range(3):
            space.commit("scout", "finding", {"b": bytes([number])})
        space.local.upkeep()
        assert log_of(place).head.size == 3
        now[0] += 7200
        space.local.upkeep()
        assert log_of(place).head.size == 3, "nothing moved"
