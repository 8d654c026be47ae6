from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.git.workbench import GitWorkbench
from clia.space.envelope import STEPS
from support import git
from support.crashes import assert_killed, kill_self, killed_at
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A space with a branch of people and one agent on it."""
    made = tmp_path / "space"
    with clia.init(made, settings=settings()) as space:
        (made / "a").write_text("1\n")
        git("add", "a", cwd=made)
        git("commit", "-qm", "start", cwd=made)
        space.spawn_at("scout", BRIEFING, "main")
    return made


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as opened:
        yield opened


def before(thing: object, name: str) -> None:
    """Let this process die before it calls a function."""
    setattr(thing, name, kill_self)


@pytest.mark.parametrize("step", ["committed", "finished"])
@pytest.mark.parametrize("then", ["checkout", "commit", "edit and checkout", "edit and commit"])
def test_a_checkout_whose_commit_was_killed_before_it_settled_goes_on(root: Path, tmp_path: Path, step: str, then: str) -> None:
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
        if "edit" in then:
            (desk / "b").write_text("2\n")
            (desk / "c").write_text("1\n")
        if "checkout" in then:
            assert space.checkout("scout", desk) == head
            assert git("rev-parse", "HEAD", cwd=desk).strip() == head
            assert git("status", "--porcelain", cwd=desk) == (" M b\n?? c\n" if "edit" in then else "")
        made = space.commit_dir("scout", "finding", desk)
        assert space.show(made).parents == (head,)
        assert space.files("scout") == {"a": b"1\n"} | ({"b": b"2\n", "c": b"1\n"} if "edit" in then else {"b": b"1\n"})
        assert git("status", "--porcelain", cwd=desk) == ""
        assert space.verify().clean


def test_a_checkout_that_was_killed_before_it_said_whose_it_is_is_claimed(root: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"

    def checkout() -> None:
        before(GitWorkbench, "record")
        with clia.open(root, settings=settings()) as space:
            space.checkout("scout", desk)

    assert_killed(checkout)
    assert (desk / "a").exists()
    with clia.open(root, settings=settings()) as space:
        assert space.checkout_at(desk) is None
        assert space.checkout("scout", desk) == space.head("scout")
        found = space.checkout_at(desk)
        assert found is not None
        assert found.agent == "scout"
        (desk / "b").write_text("1\n")
        space.commit_dir("scout", "finding", desk)
        assert sorted(space.files("scout")) == ["a", "b"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("goes_on", [False, True], ids=["stops", "goes on"])
def test_each_commit_of_a_program_is_adopted_once_when_clia_is_killed(root: Path, tmp_path: Path, step: str, goes_on: bool) -> None:
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
    if goes_on:
        own_commit(desk, "e")
    with clia.open(root, settings=settings()) as space:
        space.commit_dir("scout", "finding", desk, message="last", with_trace=True)
        subjects = [commit.subject for commit in reversed(space.log("scout", own=True))][1:]
        assert [subject for subject in subjects if subject not in ("rest", "last")] == ["add b", "add c", *["add e"] * goes_on]
        assert sorted(space.files("scout")) == ["a", "b", "c", "d", *["e"] * goes_on]
        assert [entry["text"] for trace in space.traces.of_agent("scout") for entry in trace.trace.entries] == ["typed"]
        assert git("status", "--porcelain", cwd=desk) == ""
        assert space.verify().clean


def own_commit(desk: Path, name: str) -> None:
    (desk / name).write_text("1\n")
    git("add", name, cwd=desk)
    git("commit", "-qm", f"add {name}", cwd=desk)
