"""Refs that went back or vanished: ``verify`` and ``doctor`` name what they lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.space.lost_moves import MISSING, REWOUND
from clia.testing import Crash, components, crash_at
from support import git
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.space.verification import Finding

HEAD, EVENTS = "refs/heads/agents/scout", "refs/clia/events/scout"
TRACES = "refs/notes/clia/trace/scout"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "space"
    with clia.init(path, settings=settings()) as space:
        space.spawn("scout", BRIEFING)
    return path


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as opened:
        yield opened


def commit(space: clia.Space, text: str) -> str:
    return space.commit("scout", "finding", changes={text: text.encode()}, message=text)


def overwrite(root: Path, ref: str, cid: str) -> None:
    """Give a ref a value without its lock and its log, as a program does that removes a newer loose ref."""
    (root / ".git" / ref).write_text(f"{cid}\n")


def lost(space: clia.Space) -> list[Finding]:
    return [finding for finding in space.verify().findings if finding.code in (REWOUND, MISSING, "no-branch")]


def test_a_ref_that_went_back_silently_is_found_and_restored(space: clia.Space, root: Path) -> None:
    first = commit(space, "first")
    second = commit(space, "second")
    assert space.verify().clean
    overwrite(root, HEAD, first)
    (finding,) = lost(space)
    assert (finding.code, finding.ref, finding.cid) == (REWOUND, HEAD, second)
    assert f"git update-ref {HEAD} {second}" in finding.message
    (ailment,) = space.doctor()
    assert (ailment.code, ailment.agent, ailment.repaired) == (REWOUND, "scout", False)
    assert [ailment.repaired for ailment in space.doctor(repair=True)] == [True]
    assert space.head("scout") == second
    assert space.verify().clean
    assert space.doctor() == []


def test_commits_after_a_silent_loss_do_not_hide_it(space: clia.Space, root: Path) -> None:
    first = commit(space, "first")
    second = commit(space, "second")
    overwrite(root, HEAD, first)
    third = space.commit("scout", "finding", changes={"third": b"3"}, message="second")  # even with the same text
    (finding,) = lost(space)
    assert (finding.code, finding.cid) == (REWOUND, second)
    assert [ailment.repaired for ailment in space.doctor(repair=True)] == [False], "it would drop the third one"
    assert space.head("scout") == third


def test_a_branch_that_vanished_is_found_and_restored(space: clia.Space, root: Path) -> None:
    first = commit(space, "first")
    (root / ".git" / HEAD).unlink()
    (finding,) = lost(space)
    assert (finding.code, finding.cid) == ("no-branch", first)
    assert f"git branch agents/scout {first}" in finding.message
    assert {ailment.repaired for ailment in space.doctor(repair=True) if ailment.code == MISSING} == {True}
    assert space.head("scout") == first
    assert space.verify().clean


def test_commits_that_a_person_resets_are_named_until_the_person_accepts_it(space: clia.Space, root: Path) -> None:
    first = commit(space, "first")
    commit(space, "second")
    third = commit(space, "third")
    git("branch", "--force", "agents/scout", first, cwd=root)
    (finding,) = lost(space)
    assert (finding.code, finding.cid) == (REWOUND, third)
    assert "2 commits" in finding.message
    assert "branch: Reset to" in finding.message
    assert [ailment.repaired for ailment in space.doctor(repair=True)] == [False], "the person may have intended it"
    assert space.head("scout") == first
    git("reflog", "expire", "--expire-unreachable=now", HEAD, cwd=root)
    space.rebuild()
    assert space.verify().clean


def test_a_commit_that_a_person_amends_or_rebases_is_not_lost(space: clia.Space, root: Path) -> None:
    commit(space, "first")
    commit(space, "second")
    git("switch", "--quiet", "agents/scout", cwd=root)
    (root / "more").write_text("more\n")
    git("add", "more", cwd=root)
    git("commit", "--quiet", "--amend", "--no-edit", cwd=root)
    assert lost(space) == []
    git("rebase", "--quiet", "--force-rebase", "HEAD~2", cwd=root)
    assert lost(space) == []
    git("commit", "--quiet", "--amend", "--message", "all mine", cwd=root)
    assert [finding.code for finding in lost(space)] == [REWOUND]


def test_a_deleted_branch_is_named_by_what_the_index_has_read(space: clia.Space, root: Path) -> None:
    first = commit(space, "first")
    assert space.relations() == []  # the index reads the refs
    git("branch", "--quiet", "-D", "agents/scout", cwd=root)
    assert {(finding.code, finding.cid) for finding in lost(space)} == {("no-branch", first)}
    space.doctor(repair=True)
    assert space.agents() == [], "the person deleted it"
    git("branch", "agents/scout", first, cwd=root)
    assert space.verify().clean


def test_a_deleted_branch_is_named_by_its_newest_commit(space: clia.Space, root: Path) -> None:
    commit(space, "first")
    assert space.relations() == []
    second = commit(space, "second")  # nothing has read it
    git("branch", "--quiet", "-D", "agents/scout", cwd=root)
    (finding,) = lost(space)
    assert (finding.code, finding.cid) == ("no-branch", second)


def test_refs_without_a_reflog_are_compared_with_what_the_index_has_read(space: clia.Space, root: Path) -> None:
    space.spawn("rival", BRIEFING)
    space.relate("scout", "reviews", "rival")
    before = git("rev-parse", EVENTS, cwd=root).strip()
    space.relate("scout", "advises", "rival")
    after = git("rev-parse", EVENTS, cwd=root).strip()
    space.relations()
    overwrite(root, EVENTS, before)
    space.relations()  # which follows git
    (finding,) = lost(space)
    assert (finding.ref, finding.cid) == (EVENTS, after)


def test_a_bare_repository_has_no_reflogs_but_an_index(tmp_path: Path) -> None:
    git("init", "--quiet", "--bare", "bare.git", cwd=tmp_path)
    with clia.init(tmp_path / "bare.git", settings=settings()) as space:
        space.spawn("scout", BRIEFING)
        first, second = commit(space, "first"), commit(space, "second")
        space.relations()
        git("update-ref", HEAD, first, cwd=tmp_path / "bare.git")
        (finding,) = lost(space)
        assert (finding.ref, finding.cid) == (HEAD, second)


def test_traces_that_went_back_are_found(space: clia.Space, root: Path) -> None:
    for text in ("one", "two"):
        space.trace("scout", "console", text)
        space.commit_with_trace("scout", "finding", changes={text: b"1"})
    tip = git("rev-parse", TRACES, cwd=root).strip()
    overwrite(root, TRACES, git("rev-parse", f"{TRACES}~1", cwd=root).strip())
    (finding,) = lost(space)
    assert (finding.ref, finding.cid) == (TRACES, tip)
    space.doctor(repair=True)
    assert space.verify().clean


def test_archiving_restoring_and_purging_lose_nothing(space: clia.Space) -> None:
    commit(space, "first")
    space.trace("scout", "console", "a leaked word")
    space.commit_with_trace("scout", "finding", changes={"2": b"2"})
    space.relations()
    space.trace_purge("scout", "leaked")
    space.archive("scout")
    space.relations()
    assert space.verify().clean
    space.restore("scout")
    commit(space, "third")
    assert space.verify().clean


def test_a_purge_that_was_killed_before_it_removed_the_log_loses_nothing(space: clia.Space, root: Path) -> None:
    space.trace("scout", "console", "a leaked word")
    space.commit_with_trace("scout", "finding", changes={"2": b"2"})
    log = root / ".git/logs" / TRACES
    lines = log.read_text()
    space.trace_purge("scout", "leaked")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(lines)
    assert lost(space) == []


def test_an_undone_operation_loses_nothing(root: Path) -> None:
    git("config", "core.logAllRefUpdates", "always", cwd=root)
    with pytest.raises(Crash), clia.open(root, settings=settings(reached=crash_at("secondary-refs"))) as space:
        space.spawn("helper", BRIEFING)
    with clia.open(root, settings=settings()) as space:
        assert components(space).envelope.unfinished() == []
        assert space.verify().clean
