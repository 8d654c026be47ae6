from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import GitError
from clia.git import refs as git_refs
from clia.store.private_files import FileLocks
from clia.testing import components
from support import git
from support.crashes import FORK, result_of, started
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_a_lock_is_free_although_a_forked_child_is_alive(tmp_path: Path) -> None:
    locks = FileLocks(str(tmp_path / "locks"))
    parent_end, child_end = FORK.Pipe()
    child = FORK.Process(target=child_end.recv)
    with locks.hold("scout"):
        child.start()
    try:
        with locks.attempt("scout") as free:
            assert free
            assert child.is_alive()
        with locks.attempt("scout") as free:
            assert free, "an attempted lock is released too"
    finally:
        parent_end.send("go")
        child.join()


def stopping() -> Callable[[str], None]:
    """Stop the process inside of its first lock of a ref."""
    stops: list[str] = []

    def reached(step: str) -> None:
        if step == "ref-locked" and not stops:
            stops.append(step)
            os.kill(os.getpid(), signal.SIGSTOP)

    return reached


def land(root: Path, name: str, more: clia.Settings) -> None:
    with clia.open(root, settings=more) as space:
        assert isinstance(space.land(name, "main"), clia.Landed)


@contextmanager
def locked_by_git(root: Path, ref: str) -> Iterator[None]:
    """Stock git, running, inside of the lock of a ref that it is about to move."""
    words = ["git", "update-ref", "--stdin"]
    with subprocess.Popen(words, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(f"start\nupdate {ref} {ref} {ref}\nprepare\n")
        holder.stdin.flush()
        assert [holder.stdout.readline(), holder.stdout.readline()] == ["start: ok\n", "prepare: ok\n"]
        try:
            yield
        finally:
            holder.stdin.write("abort\n")
            holder.stdin.close()


def test_the_lock_of_a_running_git_on_a_users_branch_is_never_broken(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip, lock = space.find("main"), root / ".git/refs/heads/main.lock"
    space.commit("scout", "finding", changes={"b": b"1"})
    monkeypatch.setattr(git_refs, "PATIENCE", git_refs.STALE_AFTER + 0.5)
    with locked_by_git(root, "refs/heads/main"):
        with pytest.raises(GitError) as caught:
            space.land("scout", "main")
        assert (caught.value.code, caught.value.retryable) == ("ref-locked", True)
        assert lock.exists()
    assert space.find("main") == tip
    assert space.landings("scout") == []
    assert components(space).envelope.unfinished() == []
    land(root, "scout", settings())


def test_two_landings_on_one_branch_both_succeed_although_one_is_stopped_in_between(root: Path, space: clia.Space) -> None:
    space.spawn_at("rival", BRIEFING, "main")
    for name in ("scout", "rival"):
        space.commit(name, "finding", changes={name: name.encode()})
    tip = space.find("main")
    first, first_pipe = started(lambda: land(root, "scout", settings(reached=stopping())))
    assert first.pid is not None
    try:
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        second, second_pipe = started(lambda: land(root, "rival", settings()))
        assert not second_pipe.poll(git_refs.STALE_AFTER + 0.5), "the second must wait while the first one is alive"
        assert space.find("main") in (tip, space.head("scout"))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    result_of(first, first_pipe)
    result_of(second, second_pipe)
    assert sorted(space.files("main")) == ["a", "rival", "scout"]
    assert {state.agent: state.landed for state in space.states()} == {"scout": "main", "rival": "main"}
    assert git("status", "--porcelain", cwd=root) == ""
    assert space.verify().clean
