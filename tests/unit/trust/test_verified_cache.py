"""What was verified before: it is used for the same state only, and nobody else can supply it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.backends import connect
from clia.testing import Settings
from clia.trust import ssh_signatures, verification
from clia.trust.signature_workers import verified_commits, verified_in_parallel
from clia.trust.verification import verify_trust
from clia.trust.verified_cache import REPORTS, VerifiedCache, cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clia.trust.verification import TrustReport

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


def git(directory: Path, *words: str, data: str | None = None) -> str:
    done = subprocess.run(["git", *words], cwd=directory, input=data, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "project", settings=SETTINGS) as opened:
        opened.spawn("scout", clia.Briefing("look"))
        opened.commit("scout", "finding", {"a": b"1"})
        yield opened


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts the signatures of commits that are verified."""
    counted: list[str] = []
    actual = ssh_signatures.verify_signature

    def counting(text: str, data: bytes, namespace: str) -> ssh_signatures.SshSignature:
        counted.append(text)
        return actual(text, data, namespace)

    monkeypatch.setattr(verification, "verify_signature", counting)
    return counted


def checked(tmp_path: Path, **options: object) -> TrustReport:
    cache = str(tmp_path / "cache")
    return verify_trust(connect(str(tmp_path / "project"), SETTINGS), **{"cache": cache, "now": 5, **options})  # type: ignore[arg-type]


@pytest.mark.usefixtures("space")
def test_an_unchanged_record_is_not_verified_again(tmp_path: Path, verifications: list[str]) -> None:
    first = checked(tmp_path)
    assert first.findings == ()
    assert verifications
    verifications.clear()
    assert checked(tmp_path) == first
    assert checked(tmp_path, strict=True).findings != ()
    assert verifications == [], "valid signatures stay valid under other options"
    assert checked(tmp_path, cache=None) == first
    assert verifications


def test_only_new_commits_are_verified(space: clia.Space, tmp_path: Path, verifications: list[str]) -> None:
    checked(tmp_path)
    everything = len(verifications)
    verifications.clear()
    space.commit("scout", "finding", {"a": b"2"})
    assert checked(tmp_path).findings == ()
    assert 0 < len(verifications) < everything


def test_a_forgery_after_a_clean_report_is_found(space: clia.Space, tmp_path: Path) -> None:
    assert checked(tmp_path).clean
    head = space.head("scout")
    git(tmp_path / "project", "update-ref", "refs/heads/agents/scout", f"{head}~1")
    assert "rewound-ref" in {finding.code for finding in checked(tmp_path).findings}
    git(tmp_path / "project", "update-ref", "refs/heads/agents/scout", head)
    assert checked(tmp_path).clean


def test_a_commit_that_vanished_is_found(space: clia.Space, tmp_path: Path) -> None:
    assert checked(tmp_path).clean
    head = space.head("scout")
    (tmp_path / "project/.git/objects" / head[:2] / head[2:]).unlink()
    assert "missing-commit" in {finding.code for finding in checked(tmp_path).findings}


@pytest.mark.usefixtures("space")
def test_a_cache_that_others_can_write_or_that_is_damaged_is_ignored(tmp_path: Path, verifications: list[str]) -> None:
    checked(tmp_path)
    files = sorted((tmp_path / "cache").iterdir())
    assert [path.suffix for path in files] == [".commits", ".reports"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    changes: list[Callable[[Path], object]] = [lambda path: path.chmod(0o666), lambda path: path.write_bytes(b"x" * 30)]
    for change in changes:
        for path in (tmp_path / "cache").iterdir():
            change(path)
        verifications.clear()
        assert checked(tmp_path).clean
        assert verifications


def test_the_cache_is_in_the_account_and_not_in_the_repository() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == "/c/clia/verified"
    assert cache_directory({"HOME": "/home/ada"}) == "/home/ada/.cache/clia/verified"


def test_few_reports_are_kept(tmp_path: Path) -> None:
    cache = VerifiedCache(str(tmp_path), "space")
    for number in range(REPORTS + 3):
        cache.keep_report(str(number), [number])
    assert [cache.report(str(number)) for number in (0, 2, 3, REPORTS + 2)] == [None, None, [3], [REPORTS + 2]]
    (tmp_path / "file").write_text("")
    VerifiedCache(str(tmp_path / "file"), "space").keep_commits({"0" * 40})  # it cannot be written, which is not an error


def test_workers_report_the_valid_signatures_only(space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "project"
    valid, head = str(space.head("scout")), git(place, "cat-file", "commit", "agents/scout")
    changed = git(place, "hash-object", "-t", "commit", "-w", "--stdin", data=head.replace("committer ", "committer x", 1) + "\n")
    path = str(place / ".git")
    cids = [valid, changed, "0" * 40, git(place, "rev-parse", "agents/scout^{tree}")]
    assert list(verified_commits(path, cids)) == [valid]
    assert verified_in_parallel(path, cids) == set(), "few are verified by the process itself"
    monkeypatch.setattr("clia.trust.signature_workers.MANY", 2)
    monkeypatch.setattr("clia.trust.signature_workers.WORKERS_MAX", 2)
    if len(os.sched_getaffinity(0)) > 1:
        assert verified_in_parallel(path, cids) == {valid}
        report = verify_trust(connect(str(place), SETTINGS))
        assert report.findings == ()


def test_a_checkpoint_leaves_out_what_came_before(space: clia.Space, tmp_path: Path) -> None:
    checkpoint = space.witnesses.checkpoint().checkpoint
    space.commit("scout", "finding", {"a": b"2"})
    everything, later = checked(tmp_path, cache=None), checked(tmp_path, cache=None, since=checkpoint)
    assert later.findings == ()
    assert later.commits < everything.commits
    text = git(tmp_path / "project", "log", "-1", "--format=%B", "agents/scout")
    tree = git(tmp_path / "project", "rev-parse", "agents/scout^{tree}")
    words = ("-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-p", "agents/scout", tree)
    forged = git(tmp_path / "project", *words, data=text)
    git(tmp_path / "project", "update-ref", "refs/heads/agents/scout", forged)
    assert "unsigned-commit" in {finding.code for finding in checked(tmp_path, cache=None, since=checkpoint).findings}
