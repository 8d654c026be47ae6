from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.git.porcelain import GitPorcelain
from clia.space.envelope import STEPS
from support import git
from support.crashes import assert_killed, kill_before, killed_at
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("step", ["committed", "finished"])
@pytest.mark.parametrize("step_after", ["checkout", "commit", "edit and checkout", "edit and commit"])
def test_a_checkout_continues_after_its_commit_was_killed_before_it_settled(
    root: Path, tmp_path: Path, step: str, step_after: str
) -> None:
    desk = tmp_path / "desk"
    with clia.open(root, settings=settings()) as space:
        space.trace("scout", "console", "typed")
        space.checkout("scout", desk)
    (desk / "b").write_text("1\n")

    def commit() -> None:
        with clia.open(root, settings=settings(reached=killed_at(step))) as space:
            space.commit_dir("scout", "finding", desk, with_trace=True)

    assert_killed(commit)
    with clia.open(root, settings=settings()) as space:
        head = space.head("scout")
        assert sorted(space.files("scout")) == ["a", "b"]
        if "edit" in step_after:
            (desk / "b").write_text("2\n")
            (desk / "c").write_text("1\n")
        if "checkout" in step_after:
            assert space.checkout("scout", desk) == head
            assert git("rev-parse", "HEAD", cwd=desk).strip() == head
            assert git("status", "--porcelain", cwd=desk) == (" M b\n?? c\n" if "edit" in step_after else "")
        cid = space.commit_dir("scout", "finding", desk)
        assert space.show(cid).parents == (head,)
        assert space.files("scout") == {"a": b"1\n"} | ({"b": b"2\n", "c": b"1\n"} if "edit" in step_after else {"b": b"1\n"})
        assert git("status", "--porcelain", cwd=desk) == ""
        assert space.verify().clean


def test_a_checkout_that_was_killed_before_it_was_registered_is_claimed(root: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"

    def checkout() -> None:
        kill_before(GitPorcelain, "record")
        with clia.open(root, settings=settings()) as space:
            space.checkout("scout", desk)

    assert_killed(checkout)
    assert (desk / "a").exists()
    with clia.open(root, settings=settings()) as space:
        assert space.checkout_at(desk) is None
        assert space.checkout("scout", desk) == space.head("scout")
        registered = space.checkout_at(desk)
        assert registered is not None
        assert registered.agent == "scout"
        (desk / "b").write_text("1\n")
        space.commit_dir("scout", "finding", desk)
        assert sorted(space.files("scout")) == ["a", "b"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("continues", [False, True], ids=["stops", "goes on"])
def test_each_commit_of_a_program_is_adopted_once_when_clia_is_killed(
    root: Path, tmp_path: Path, step: str, continues: bool
) -> None:
    desk = tmp_path / "desk"
    with clia.open(root, settings=settings()) as space:
        space.checkout("scout", desk)
        space.trace("scout", "console", "typed")
    for name in ("b", "c"):
        own_commit(desk, name)
    (desk / "d").write_text("rest\n")

    def commit() -> None:
        with clia.open(root, settings=settings(reached=killed_at(step))) as space:
            space.commit_dir("scout", "finding", desk, message="rest", with_trace=True)

    assert_killed(commit)
    if continues:
        own_commit(desk, "e")
    with clia.open(root, settings=settings()) as space:
        space.commit_dir("scout", "finding", desk, message="last", with_trace=True)
        subjects = [commit.subject for commit in reversed(space.log("scout", own=True))][1:]
        assert [subject for subject in subjects if subject not in ("rest", "last")] == ["add b", "add c", *["add e"] * continues]
        assert sorted(space.files("scout")) == ["a", "b", "c", "d", *["e"] * continues]
        assert [entry["text"] for trace in space.traces.of_agent("scout") for entry in trace.trace.entries] == ["typed"]
        assert git("status", "--porcelain", cwd=desk) == ""
        assert space.verify().clean


def own_commit(desk: Path, name: str) -> None:
    (desk / name).write_text("1\n")
    git("add", name, cwd=desk)
    git("commit", "-qm", f"add {name}", cwd=desk)
