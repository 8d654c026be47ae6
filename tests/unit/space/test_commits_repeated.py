"""Repeated calls: after a lost answer, the same content on the same base is the commit that exists; past the commit, no error."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import FileError
from clia.git.notes import GitNotes
from clia.git.porcelain import GitPorcelain
from clia.testing import components
from support import git
from support.spaces import commit_with_trace, refused, settings, texts, trace_texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALL: dict[str, Any] = {"changes": {"b": b"1\n"}, "message": "Found\n---\nit", "meta": {"n": 1}}


def test_a_repeated_call_answers_with_the_commit_that_exists(space: clia.Space, people: Path) -> None:
    base = space.head("scout")
    commit = space.commit("scout", "finding", **CALL, base=base)
    assert space.commit("scout", "finding", **CALL, base=base) == commit
    assert space.commit("scout", "finding", {"a": b"1\n", "b": b"1\n"}, message=CALL["message"], meta={"n": 1}, base=base) == commit
    later = space.commit("scout", "finding", changes={"c": b"1\n"})
    assert space.commit("scout", "finding", **CALL, base=base) == commit
    assert space.head("scout") == later
    assert [entry.cid for entry in space.log("scout", own=True)] == [later, commit, base]


@pytest.mark.parametrize(
    "other",
    [{"kind": "test"}, {"changes": {"b": b"2\n"}}, {"changes": {}}, {"message": "Found"}, {"meta": {"n": 2}}, {"meta": None}],
    ids=str,
)
def test_another_content_on_the_same_base_is_stale(space: clia.Space, people: Path, other: dict[str, Any]) -> None:
    base = space.head("scout")
    commit = space.commit("scout", "finding", **CALL, base=base)
    refused("stale-ref", lambda: space.commit("scout", **{"kind": "finding", **CALL, **other}, base=base))
    assert space.head("scout") == commit


def test_another_person_or_a_foreign_base_makes_no_repeated_call(space: clia.Space, people: Path, repo: Path) -> None:
    base = space.head("scout")
    space.commit("scout", "finding", **CALL, base=base)
    with clia.open(repo, settings=settings()._replace(person=("Ann", "ann@example.org"))) as other:
        refused("stale-ref", lambda: other.commit("scout", "finding", **CALL, base=base))
    refused("stale-ref", lambda: space.commit("scout", "finding", **CALL, base=git("rev-parse", "main", cwd=repo).strip()))
    refused("stale-ref", lambda: space.commit("scout", "finding", **CALL, base="0" * 40))


def test_a_repeated_call_leaves_later_trace_entries_pending(space: clia.Space, people: Path) -> None:
    base = space.head("scout")
    space.trace("scout", "console", "first")
    commit = space.commit_with_trace("scout", "finding", **CALL, base=base)
    space.trace("scout", "console", "later")
    assert space.commit_with_trace("scout", "finding", **CALL, base=base) == commit
    assert (trace_texts(space, commit), texts(space.traces.pending("scout"))) == (["first"], ["later"])


def test_a_call_that_attaches_entries_does_not_repeat_one_that_did_not(space: clia.Space, people: Path) -> None:
    base = space.head("scout")
    space.trace("scout", "console", "first")
    space.commit("scout", "finding", **CALL, base=base)
    refused("stale-ref", lambda: space.commit_with_trace("scout", "finding", **CALL, base=base))


def test_a_repeated_resolution_answers_with_the_merge_that_exists(space: clia.Space, people: Path) -> None:
    space.spawn_from("lead", clia.Briefing(title="Lead"), "scout")
    heads = {name: space.commit(name, "finding", changes={"a": name.encode()}) for name in ("lead", "scout")}
    resolve = partial(space.resolve, "lead", "scout", ours=heads["lead"], theirs=heads["scout"], message="by hand")
    merge = resolve(changes={"a": b"both"})
    space.commit("scout", "finding", changes={"a": b"newer"})
    assert resolve(changes={"a": b"both"}) == merge == resolve({"a": b"both"})
    refused("stale-ref", lambda: resolve(changes={"a": b"other"}))
    refused("stale-ref", lambda: resolve({"a": b"both"}, meta={"n": 1}))
    assert space.head("lead") == merge.cid


# Checkouts


@pytest.fixture
def desk(space: clia.Space, people: Path, tmp_path: Path) -> Path:
    """A checkout of ``scout`` with a new file."""
    space.checkout("scout", tmp_path / "desk")
    (tmp_path / "desk/b").write_text("1\n")
    return tmp_path / "desk"


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock"])
@pytest.mark.parametrize("step_after", ["checkout", "commit"])
def test_a_checkout_that_cannot_be_updated_is_a_notice(
    repo: Path, space: clia.Space, desk: Path, lock: str, step_after: str
) -> None:
    notices: list[str] = []
    lock_file = repo / ".git/worktrees/desk" / lock
    lock_file.touch()
    with clia.open(repo, settings=settings(notify=notices.append)) as other:
        commit = other.commit_dir("scout", "finding", desk, message="b")
        assert other.head("scout") == commit
        assert notices[0].startswith("recorded, but the checkout could not be updated: ")
        assert lock in notices[0]
        assert other.commit_dir("scout", "finding", desk, message="b") == commit == other.head("scout")
        lock_file.unlink()
        if step_after == "checkout":
            other.checkout("scout", desk)
        else:
            (desk / "c").write_text("1\n")
            commit = other.commit_dir("scout", "finding", desk, message="c")
        assert git("rev-parse", "HEAD", cwd=desk).strip() == commit == other.head("scout")
        assert git("status", "--porcelain", cwd=desk) == ""
        assert [entry.subject for entry in other.log("scout", own=True)][-2:] == ["b", "spawn: Look around"]


def test_a_commit_whose_checkout_vanishes_is_recorded(
    space: clia.Space, repo: Path, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise FileError(f"{desk} is no longer a worktree")

    notices: list[str] = []
    with clia.open(repo, settings=settings(notify=notices.append)) as other:
        monkeypatch.setattr(GitPorcelain, "settle", gone)
        commit = other.commit_dir("scout", "finding", desk)
    assert (space.head("scout"), len(notices)) == (commit, 1)


def test_a_commit_without_changes_repeats_the_last_one_only_with_the_same_words(space: clia.Space, desk: Path) -> None:
    def words(**other: Any) -> str:
        return space.commit_dir("scout", **{"kind": "finding", "directory": desk, "message": "b", **other})

    commit = words()
    assert words() == commit == words(with_trace=True)
    commits = [commit, words(kind="test"), words(message="c"), words(message="c", meta={"n": 1})]
    space.trace("scout", "console", "more")
    commits.append(words(message="c", meta={"n": 1}, with_trace=True))
    (desk / "b").write_text("2\n")
    commits.append(words(message="c", meta={"n": 1}, with_trace=True))
    assert [entry.cid for entry in space.log("scout", own=True)][:-1] == commits[::-1]


def test_a_checkout_whose_commit_others_continued_knows_its_repeated_call(space: clia.Space, desk: Path) -> None:
    commit = space.commit_dir("scout", "finding", desk, message="b")
    later = space.commit("scout", "finding", changes={"c": b"1\n"})
    assert space.commit_dir("scout", "finding", desk, message="b") == commit
    (desk / "b").write_text("2\n")
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", desk, message="b"))
    assert space.head("scout") == later


def test_commits_of_a_program_make_no_repeated_call(space: clia.Space, desk: Path) -> None:
    commit = space.commit_dir("scout", "finding", desk, message="b")
    git("commit", "-q", "--allow-empty", "-m", "own", cwd=desk)
    again = space.commit_dir("scout", "finding", desk, message="b")
    assert [entry.subject for entry in space.log("scout", own=True)][:3] == ["b", "own", "b"]
    assert again != commit


# The envelope


@pytest.mark.parametrize("error", [FileError("cannot be read"), clia.errors.Conflict("busy")], ids=lambda error: error.code)
def test_a_failure_after_the_commit_is_a_notice(
    space: clia.Space, repo: Path, people: Path, monkeypatch: pytest.MonkeyPatch, error: clia.errors.CliaError
) -> None:
    notices: list[str] = []

    def fails(*_: object) -> Callable[[], None]:
        raise error

    with clia.open(repo, settings=settings(notify=notices.append)) as other:
        with monkeypatch.context() as patch:
            patch.setattr(GitNotes, "bind", fails)
            commit = commit_with_trace(other, "typed", b=b"1\n")
        assert other.head("scout") == commit
        assert notices == [f"recorded, but not complete yet ({error.message}); the next command on 'scout' completes it"]
        other.commit("scout", "finding", changes={"c": b"1\n"})
        assert trace_texts(other, commit) == ["typed"]
        assert components(other).envelope.unfinished() == []
