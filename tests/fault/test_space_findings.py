"""What reviews of the space have found about processes that die, stop or fork, each once: it must not come back."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import GitError
from clia.git import refs as git_refs
from clia.git.workbench import GitWorkbench
from clia.space import purging
from clia.store.file_locks import FileLocks
from clia.testing import components
from support import git
from support.crashes import FORK, exit_code_of, kill_self, started
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
NOTES = "refs/notes/clia/trace/scout"
TRACKED = "refs/clia-tracking/hub/notes/trace/scout"
LEAK = b"swordfish"


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


def die(*_: object, **__: object) -> Any:
    kill_self()


def dying_at(step: str) -> clia.Settings:
    return settings(reached=lambda reached: die() if reached == step else None)


def killed(job: Callable[[], object]) -> bool:
    return exit_code_of(lambda: (job(), None)[1]) == -signal.SIGKILL


# Purging


def before(thing: object, name: str) -> None:
    """In a process that is to die: it does so before it calls this."""
    setattr(thing, name, die)


def after(thing: object, name: str, only: Callable[..., bool] = lambda *_: True) -> None:
    """In a process that is to die: it does so behind this call."""
    call = getattr(thing, name)

    def last(*words: Any, **more: Any) -> Any:
        result = call(*words, **more)
        return die() if only(*words) else result

    setattr(thing, name, last)


DEATHS: dict[str, Callable[[], None]] = {
    "before the event": lambda: before(purging, "append_event"),
    "after the event": lambda: after(purging, "append_event"),
    "after the ref has moved": lambda: after(git_refs.GitRefs, "move", lambda _, ref, *more: ref == NOTES),
    "before the sweep": lambda: before(GitWorkbench, "drop_objects"),
    "after the sweep": lambda: after(GitWorkbench, "drop_objects"),
}


@pytest.mark.parametrize("at", DEATHS)
def test_a_purge_that_was_killed_is_finished_by_the_next(root: Path, at: str) -> None:
    with clia.open(root, settings=settings()) as space:
        space.trace("scout", "console", "fine")
        space.commit_with_trace("scout", "finding", changes={"b": b"0"})
        space.trace("scout", "console", f"it is {LEAK.decode()}")
        made = space.commit_with_trace("scout", "finding", changes={"b": b"1"})
    git("update-ref", "--create-reflog", TRACKED, NOTES, cwd=root)

    def purge() -> None:
        DEATHS[at]()
        with clia.open(root, settings=settings()) as space:
            space.trace_purge("scout", LEAK.decode())

    assert killed(purge)
    with clia.open(root, settings=settings()) as space:
        space.trace_purge("scout", LEAK.decode())
        trace = space.trace_for(made)
        assert trace is not None
        assert [each["text"] for each in trace.entries] == ["it is [purged]"]
        assert len(space.session_traces("scout")) == 2
        assert space.verify().clean
    assert LEAK not in every_byte(root)
    assert git("for-each-ref", TRACKED, cwd=root) == ""
    assert not (root / ".git/logs" / NOTES).exists()
    assert not (root / ".git/logs" / TRACKED).exists()


def every_byte(root: Path) -> bytes:
    """All objects, unpacked, and the store's files."""
    command = ["git", "cat-file", "--batch-all-objects", "--batch"]
    objects = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    return objects + b"".join(file.read_bytes() for file in (root / ".git/clia").glob("space.db*"))


# Directories


@pytest.mark.parametrize("step", ["committed", "finished"])
@pytest.mark.parametrize("then", ["checkout", "commit", "edit and checkout", "edit and commit"])
def test_a_checkout_whose_commit_was_killed_before_it_settled_goes_on(root: Path, tmp_path: Path, step: str, then: str) -> None:
    desk = tmp_path / "desk"
    with clia.open(root, settings=settings()) as space:
        space.trace("scout", "console", "typed")
        space.checkout("scout", desk)
    (desk / "b").write_text("1\n")

    def commit() -> None:
        with clia.open(root, settings=dying_at(step)) as space:
            space.commit_dir("scout", "finding", desk, with_trace=True)

    assert killed(commit)
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
        before(GitWorkbench, "_record")
        with clia.open(root, settings=settings()) as space:
            space.checkout("scout", desk)

    assert killed(checkout)
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


# Locks


def test_a_lock_is_free_although_a_child_of_a_fork_still_lives(tmp_path: Path) -> None:
    locks = FileLocks(str(tmp_path / "locks"))
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=theirs.recv)
    with locks.hold("scout"):
        child.start()
    try:
        with locks.attempt("scout") as free:
            assert free
            assert child.is_alive()
        with locks.attempt("scout") as free:
            assert free, "what was attempted is let go of too"
    finally:
        ours.send("go")
        child.join()


def stopping() -> Callable[[str], None]:
    """Stops the process inside the first lock of a ref that it takes."""
    seen: list[str] = []

    def reached(step: str) -> None:
        if step == "ref-locked" and not seen:
            seen.append(step)
            os.kill(os.getpid(), signal.SIGSTOP)

    return reached


def land(root: Path, name: str, more: clia.Settings) -> None:
    with clia.open(root, settings=more) as space:
        assert isinstance(space.land(name, "main"), clia.Landed)


@contextmanager
def locked_by_git(root: Path, ref: str) -> Iterator[None]:
    """Stock git, alive, inside the lock of a ref that it is about to move."""
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


def test_the_lock_that_git_holds_on_a_branch_of_people_is_never_broken(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip, lock = space.find("main"), root / ".git/refs/heads/main.lock"
    space.commit("scout", "finding", changes={"b": b"1"})
    monkeypatch.setattr(git_refs, "_PATIENCE", git_refs._STALE_AFTER + 0.5)
    with locked_by_git(root, "refs/heads/main"):
        with pytest.raises(GitError) as caught:
            space.land("scout", "main")
        assert (caught.value.code, caught.value.retryable) == ("ref-locked", True)
        assert lock.exists()
    assert space.find("main") == tip
    assert space.landings("scout") == []
    assert components(space).envelope.unfinished() == []
    land(root, "scout", settings())


def test_two_landings_on_one_branch_are_both_true_although_one_is_stopped_in_between(root: Path, space: clia.Space) -> None:
    space.spawn_at("rival", BRIEFING, "main")
    for name in ("scout", "rival"):
        space.commit(name, "finding", changes={name: name.encode()})
    tip = space.find("main")
    first, first_said = started(lambda: land(root, "scout", settings(reached=stopping())))
    assert first.pid is not None
    try:
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        second, second_said = started(lambda: land(root, "rival", settings()))
        assert not second_said.poll(git_refs._STALE_AFTER + 0.5), "it waits for as long as the first one lives"
        assert space.find("main") in (tip, space.head("scout"))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert first_said.recv() == ""
    assert second_said.recv() == ""
    first.join()
    second.join()
    assert sorted(space.files("main")) == ["a", "rival", "scout"]
    assert {each.agent: each.landed for each in space.states()} == {"scout": "main", "rival": "main"}
    assert git("status", "--porcelain", cwd=root) == ""
    assert space.verify().clean
