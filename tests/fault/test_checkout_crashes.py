from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.git.command import GitCommand
from clia.git.lock_files import HeldLock
from clia.git.porcelain import GitPorcelain
from clia.space.envelope import STEPS
from support import git
from support.crashes import assert_killed, kill_before, killed_at
from support.space_driver import settings
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path

    from clia.git.command import GitResult


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
        if "edit" in step_after:
            assert space.show(cid).parents == (head,)
        else:
            assert cid == head  # a repeated call
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
    assert [path.name for path in desk.iterdir()] == [".git"]
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
@pytest.mark.parametrize("continues", [False, True], ids=["stops", "continues"])
def test_each_commit_of_a_program_is_adopted_once_when_clia_is_killed(
    root: Path, tmp_path: Path, step: str, continues: bool
) -> None:
    desk = tmp_path / "desk"
    with clia.open(root, settings=settings()) as space:
        space.checkout("scout", desk)
        space.trace("scout", "console", "typed")
    start = git("rev-parse", "HEAD", cwd=desk).strip()
    git("checkout", "-q", "-b", "side", cwd=desk)
    own_commit(desk, "s")
    git("checkout", "-q", "--detach", start, cwd=desk)
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
        assert [space.show(cid).subject for commit in space.log("scout", own=True) for cid in commit.adopted] == ["add s"]
        adopted = [commit.own for commit in space.log("scout") if commit.own is not None]
        assert (len(adopted), len(set(adopted))) == (3 + continues, 3 + continues)
        assert [line.agent for line in space.blame("side", "s")] == ["scout"]
        assert sorted(space.files("scout")) == ["a", "b", "c", "d", *["e"] * continues]
        assert [entry["text"] for trace in space.traces.of_agent("scout") for entry in trace.trace.entries] == ["typed"]
        assert git("status", "--porcelain", cwd=desk) == ""
        assert space.verify().clean


def own_commit(desk: Path, name: str) -> None:
    (desk / name).write_text("1\n")
    git("add", name, cwd=desk)
    git("commit", "-qm", f"add {name}", cwd=desk)


# Kills inside of git

KILLING_GIT = """#!/bin/sh
case " $* " in
*" $VERB "*) strace -f -o /dev/null -e trace=$CALL -e inject=$CALL:signal=KILL:when=$NUMBER {git} "$@" ;;
*) {git} "$@" ;;
esac
code=$?
[ $code -ge 128 ] && touch "$KILLED" && kill -9 0
exit $code
"""
"""A git that is killed in the nth system call of a kind. Its caller dies with it."""
CHECKOUT = """
import sys, clia
from support.space_driver import settings
with clia.open(sys.argv[1], settings=settings()) as space:
    space.checkout("scout", sys.argv[2])
"""
OLD = {"a": b"1\n", "d/b": b"1\n", "same": b"1\n", "gone": b"1\n"}
NEW = {"a": b"2\n", "d/b": b"2\n", "same": b"1\n", "new/x": b"2\n", "z": b"2\n"}
CALLS = ("rename", "unlink", "mkdir", "write", "openat")
SHORT = {
    "worktree": {"mkdir": (1, 2), "write": (1,), "rename": (1,)},
    "checkout": {"rename": (1, 2), "unlink": (1, 3), "mkdir": (1,), "write": (1, 3), "openat": (60,)},
}


def set_files(root: Path, files: dict[str, bytes]) -> None:
    """Commit exactly these files for the agent."""
    with clia.open(root, settings=settings()) as space:
        before = space.files("scout")
        changes: dict[str, bytes | None] = {path: data for path, data in files.items() if before.get(path) != data}
        changes |= dict.fromkeys(before.keys() - files.keys())
        if changes:
            space.commit("scout", "finding", changes=changes)


def kill_git_in_checkout(root: Path, desk: Path, verb: str, call: str, number: int) -> bool:
    """Run a checkout in which git is killed; return whether it came that far."""
    tools = root.parent / "tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "git").write_text(KILLING_GIT.replace("{git}", shutil.which("git") or ""))
        (tools / "git").chmod(0o755)
    killed = root.parent / "killed"
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}
    environment |= {"VERB": verb, "CALL": call, "NUMBER": str(number), "KILLED": str(killed), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", CHECKOUT, str(root), str(desk)]
    subprocess.run(words, env=environment, capture_output=True, check=False, start_new_session=True)
    if killed.exists():
        killed.unlink()
        return True
    return False


def check_run_again(root: Path, desk: Path, files: dict[str, bytes]) -> None:
    with clia.open(root, settings=settings()) as space:
        assert space.checkout("scout", desk) == space.head("scout")
    paths = [path for path in desk.rglob("*") if path.is_file() and path.name != ".git"]
    assert {str(path.relative_to(desk)): path.read_bytes() for path in paths} == files
    assert git("status", "--porcelain", cwd=desk) == ""
    assert not list((root / ".git/worktrees").rglob("*.lock"))


@pytest.mark.parametrize(("verb", "files"), [("worktree", OLD), ("checkout", OLD), ("checkout", NEW)], ids=["add", "fill", "move"])
def test_a_checkout_whose_git_was_killed_in_any_system_call_can_be_run_again(
    root: Path, tmp_path: Path, verb: str, files: dict[str, bytes], soak: bool
) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    deaths = 0
    for call in CALLS:
        for number in range(1, 400) if soak else SHORT[verb].get(call, ()):
            desk = tmp_path / f"{call}-{number}"
            set_files(root, OLD)
            if files == NEW:
                with clia.open(root, settings=settings()) as space:
                    space.checkout("scout", desk)
            set_files(root, files)
            if not kill_git_in_checkout(root, desk, verb, call, number):
                break
            deaths += 1
            check_run_again(root, desk, files)
    if not deaths:
        pytest.skip("strace may not kill here")
    assert deaths >= 4


def test_a_commit_completes_the_files_of_a_checkout_that_was_killed(root: Path, tmp_path: Path) -> None:
    """Otherwise it would remove those that are missing."""
    desk = tmp_path / "desk"
    set_files(root, OLD)
    with clia.open(root, settings=settings()) as space:
        space.checkout("scout", desk)
    set_files(root, NEW)
    before = GitCommand.attempt

    def killed(command: GitCommand, *words: str, **more: Any) -> GitResult:
        if "checkout" not in words:
            return before(command, *words, **more)
        (desk / "gone").unlink()
        (desk / "z").write_bytes(b"")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def checkout() -> None:
        GitCommand.attempt = killed  # type: ignore[method-assign, assignment]
        with clia.open(root, settings=settings()) as space:
            space.checkout("scout", desk)

    assert_killed(checkout)
    (desk / "mine").write_bytes(b"1\n")
    with clia.open(root, settings=settings()) as space:
        commit = space.commit_dir("scout", "finding", desk)
        assert space.files(commit) == NEW | {"mine": b"1\n"}


def test_work_of_a_person_in_a_checkout_that_was_killed_is_kept(root: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    set_files(root, OLD)
    with clia.open(root, settings=settings()) as space:
        space.checkout("scout", desk)
    set_files(root, NEW)
    assert kill_git_in_checkout(root, desk, "checkout", "mkdir", 1) or not shutil.which("strace")
    (desk / "a").write_bytes(b"mine\n")
    (desk / "z").write_bytes(b"mine\n")
    with clia.open(root, settings=settings()) as space, pytest.raises(clia.errors.Conflict) as caught:
        space.checkout("scout", desk)
    assert caught.value.code == "uncommitted-work"
    assert [(desk / name).read_bytes() for name in ("a", "z")] == [b"mine\n"] * 2
    for name in ("a", "z"):
        (desk / name).unlink()
    check_run_again(root, desk, NEW)


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock"])
def test_a_full_disk_during_a_checkout_is_a_clean_error_and_it_can_be_run_again(
    root: Path, space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    desk, notices = tmp_path / "desk", list[str]()
    with monkeypatch.context() as patched:
        fill_for(patched, name)
        error = refused("git-error", lambda: space.checkout("scout", desk))
        assert "No space left" in error.message
    head = space.checkout("scout", desk)
    assert git("status", "--porcelain", cwd=desk) == ""
    (desk / "b").write_text("1\n")
    with clia.open(root, settings=settings()._replace(notify=notices.append)) as notified, monkeypatch.context() as patched:
        fill_for(patched, name)
        cid = notified.commit_dir("scout", "finding", desk)
    assert space.show(cid).parents == (head,)
    assert [notice for notice in notices if notice.startswith("recorded, but the checkout could not be updated: ")]
    assert space.checkout("scout", desk) == cid
    assert git("status", "--porcelain", cwd=desk) == ""
    assert git("rev-parse", "HEAD", cwd=desk).strip() == cid


def fill_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the disk be full when a lock file of git gets its content."""
    write = HeldLock.write

    def refuse(lock: HeldLock, data: bytes, *, durable: bool) -> None:
        if data and os.path.basename(lock.path) == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(lock, data, durable=durable)

    monkeypatch.setattr(HeldLock, "write", refuse)
