from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import Conflict, GitError
from clia.git import refs as git_refs
from clia.store import private_files
from clia.store.private_files import FileLocks
from clia.testing import components
from clia.trust import move_log
from support import git
from support.crashes import FORK, result_of, started
from support.machine_logs import logged_ids
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
    monkeypatch.setattr(git_refs, "PATIENCE", 1.5)
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
        assert not second_pipe.poll(1.5), "the second must wait while the first one is alive"
        assert space.find("main") == tip or space.show("main").landed == "scout"
    finally:
        os.kill(first.pid, signal.SIGCONT)
    result_of(first, first_pipe)
    result_of(second, second_pipe)
    assert sorted(space.files("main")) == ["a", "rival", "scout"]
    assert {state.agent: state.landed for state in space.states()} == {"scout": "main", "rival": "main"}
    assert git("status", "--porcelain", cwd=root) == ""
    assert space.verify().clean


HEAD = "refs/heads/agents/scout"
_STOPPING_HOOK = """#!/bin/sh
case "$1" in prepared) while read -r old new ref; do
  case "$ref $new" in "{ref} {new}") if [ ! -e {stopped} ]; then : >{stopped}; kill -STOP $PPID; fi;; esac
done;; esac
"""


@contextmanager
def stopped_git(root: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Stock git, stopped by a hook when it holds the lock of the agent's branch; it continues when the block ends.

    ``pack-refs`` is about to remove the loose ref, which it has packed.
    """
    hook, stopped = root / ".git/hooks/reference-transaction", root / ".git/stopped"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_STOPPING_HOOK.format(ref=HEAD, new="0" * 40 if words[0] == "pack-refs" else words[-1], stopped=stopped))
    hook.chmod(0o755)
    with subprocess.Popen(["git", *words], cwd=root) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        hook.unlink()
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("verb", ["pack-refs", "update-ref"])
def test_a_commit_is_not_lost_to_git_that_was_stopped_inside_of_the_lock(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(git_refs, "PATIENCE", 1.5)
    head = space.commit("scout", "finding", changes={"b": b"1"})
    words = ("--all", "--prune") if verb == "pack-refs" else (HEAD, head, head)
    with stopped_git(root, verb, *words):
        lock = root / f".git/{HEAD}.lock"
        assert lock.exists()
        with pytest.raises(GitError) as caught:
            space.commit("scout", "finding", changes={"b": b"2"})
        assert (caught.value.code, caught.value.fields["lock"]) == ("ref-locked", str(lock))
        assert "s old" in caught.value.message
        assert lock.exists(), "its owner is alive"
    assert space.head("scout") == head
    new = space.commit("scout", "finding", changes={"b": b"2"})
    assert git("rev-parse", HEAD, cwd=root).strip() == new
    assert space.verify().clean


def test_a_ref_that_git_is_packing_is_not_removed(root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """``git pack-refs`` would write the value that it has read to the packed refs, and bring the ref back."""
    monkeypatch.setattr(git_refs, "PATIENCE", 0.5)
    head, packed = space.head("scout"), root / ".git/packed-refs"
    lock = root / ".git/packed-refs.lock"
    lock.write_text(f"# pack-refs with: peeled fully-peeled sorted \n{head} {HEAD}\n")  # as git before the rename
    with pytest.raises(GitError) as caught:
        space.archive("scout")
    assert (caught.value.code, caught.value.fields["lock"]) == ("ref-locked", str(lock))
    lock.rename(packed)
    assert space.head("scout") == head
    space.archive("scout")
    assert git("for-each-ref", HEAD, cwd=root) == ""
    assert (space.agents(), space.agents(archived=True)) == ([], ["scout"])
    assert not lock.exists()


def killed_with_lock(root: Path, more: clia.Settings) -> None:
    with clia.open(root, settings=more) as space:
        space.commit("scout", "finding", changes={"b": b"killed"})


def dying(step: str) -> None:
    if step == "ref-locked":
        os.kill(os.getpid(), signal.SIGKILL)


def left_lock(root: Path) -> Path:
    """The lock of a process that was killed in it."""
    process, _ = started(lambda: killed_with_lock(root, settings(reached=dying)))
    process.join()
    lock = root / f".git/{HEAD}.lock"
    assert lock.exists()
    return lock


def test_the_lock_of_a_dead_process_of_clia_is_broken_at_once(root: Path, space: clia.Space) -> None:
    lock = left_lock(root)
    cid = space.commit("scout", "finding", changes={"b": b"2"})
    assert git("rev-parse", HEAD, cwd=root).strip() == cid
    assert not lock.exists()
    assert list((root / ".git/clia/ref-locks").iterdir()) == []


@pytest.mark.parametrize("field", ["host", "foreign"])
def test_a_lock_of_another_machine_or_program_is_not_broken(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr(git_refs, "PATIENCE", 0.5)
    lock = left_lock(root)
    (file,) = (root / ".git/clia/ref-locks").iterdir()
    pid, _, host, rest = file.name.split("@")
    if field == "host":
        file.rename(file.with_name(f"{pid}@another-boot@another-{host}@{rest}"))
    else:  # the same name, but not the file that clia made
        lock.unlink()
        lock.touch()
    with pytest.raises(GitError) as caught:
        space.commit("scout", "finding", changes={"b": b"2"})
    assert caught.value.code == "ref-locked"
    assert (f"of clia process {pid} on another-{host}" in caught.value.message) == (field == "host")
    assert lock.exists()
    if field == "host":  # a restart of this machine: its disk is local, so nobody else can use it
        (file,) = (root / ".git/clia/ref-locks").iterdir()
        file.rename(file.with_name(f"{pid}@another-boot@{host}@{rest}"))
        space.commit("scout", "finding", changes={"b": b"2"})
        assert not lock.exists()


def test_the_lock_of_a_stopped_process_of_clia_is_not_broken(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_refs, "PATIENCE", 1.5)
    refs = components(space).core.refs
    before = space.head("scout")
    first, pipe = started(lambda: killed_with_lock(root, settings(reached=stopping())))
    assert first.pid is not None
    try:
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with pytest.raises(GitError) as caught:
            refs.move(HEAD, before, None, "test")
        assert f"of clia process {first.pid}" in caught.value.message
    finally:
        os.kill(first.pid, signal.SIGCONT)
    result_of(first, pipe)
    assert space.files("scout")["b"] == b"killed"


def test_a_waiting_verb_says_who_holds_the_agent_and_gives_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (private_files.NOTICE_SECONDS, private_files.LOCK_SECONDS) == (5, 300)  # as documented
    git("config", "clia.lockSeconds", "1", cwd=root)
    monkeypatch.setattr(private_files, "NOTICE_SECONDS", 0.1)
    notices: list[str] = []
    holder, pipe = started(lambda: killed_with_lock(root, settings(reached=stopping())))
    assert holder.pid is not None
    try:
        _, status = os.waitpid(holder.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with clia.open(root, settings=settings()._replace(notify=notices.append)) as space:
            with pytest.raises(Conflict) as caught:
                space.commit("scout", "finding", changes={"b": b"2"})
            space.spawn_at("other", BRIEFING, "main")  # the others are not concerned
        assert (caught.value.code, caught.value.fields["pid"]) == ("agent-held", holder.pid)
        (notice,) = notices
        assert notice.startswith(f"waiting for the agent 'scout', held by process {holder.pid} (stopped) since ")
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    result_of(holder, pipe)
    with clia.open(root, settings=settings()) as space:
        space.commit("scout", "finding", changes={"b": b"2"})
        assert [commit.kind for commit in space.log("scout", own=True)].count("finding") == 2


def test_a_stopped_process_that_holds_the_log_of_moves_stops_nobody(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_log, "LOCK_SECONDS", 0.2)
    notices, cid = list[str](), ""
    with FileLocks(str(root / ".git/clia/signing")).hold("@log"):
        for number in range(2):  # the second finds the note of the first when it opens the space
            with clia.open(root, settings=settings(notify=notices.append)) as space:
                cid = space.commit("scout", "finding", changes={"b": b"%d" % number})
    said = "recorded, but not in the log yet (the lock '@log' is busy, held by "
    assert [notice[: len(said)] for notice in notices] == [said, said]
    assert cid
    assert cid not in logged_ids(root)
    with clia.open(root, settings=settings(notify=notices.append)) as space:
        assert cid in logged_ids(root)
        assert space.verify().clean
    assert len(notices) == 2
