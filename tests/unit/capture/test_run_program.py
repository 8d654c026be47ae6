"""``run_program``: what is refused before anything is made, and what goes wrong while the program runs."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture import run_program as run_module
from clia.capture.run_program import RunEnvironment, RunOptions, RunReport, SpawnOptions, run_program
from clia.errors import StoreError
from clia.programs import guard as program_guard
from clia.programs.runner import UserStreams
from clia.programs.terminal import ProgramChannels
from support import git, program
from support.effects import made_space
from support.fake_secrets import ALNUM
from support.spaces import refused, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import clia


@contextmanager
def deaf(listener: Callable[[int], None]) -> Iterator[None]:
    """Nobody sends signals to a test."""
    del listener
    yield


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with made_space(tmp_path / "shop", "parent") as made:
        yield made


def run(
    space: clia.Space, *words: str, agent: str = "scout", environment: dict[str, str] | None = None, **wishes: Any
) -> RunReport:
    """A run whose user neither types nor reads."""
    with open(os.devnull, "r+b", 0) as nothing:
        user = UserStreams(nothing.fileno(), nothing.fileno(), nothing.fileno(), False, deaf)
        world = RunEnvironment(user, environment or os.environ, lambda _: None)
        return run_program(space, RunOptions(agent, words, **wishes), world)


def test_bad_wishes_are_refused_before_anything_is_made(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine\n")
    refs = git("for-each-ref", cwd=root)
    refused("no-program", lambda: run(space))
    refused("invalid-name", lambda: run(space, "true", agent="No Name"))
    refused("unknown-kind", lambda: run(space, "true", kind="nonsense"))
    refused("invalid-text", lambda: run(space, "true", message="\udcff"))
    refused("directory-in-use", lambda: run(space, "true", directory=str(tmp_path / "full")))
    refused("invalid-option", lambda: run(space, "true", birth=SpawnOptions(parent="parent", empty=True)))
    refused("no-such-agent", lambda: run(space, "true", birth=SpawnOptions(parent="nobody")))
    refused("agent-not-found", lambda: run(space, "true", birth=SpawnOptions(slug="nobody")))
    refused("program-not-found", lambda: run(space, "./none"))
    refused("program-not-found", lambda: run(space, "../none"))
    assert git("for-each-ref", cwd=root) == refs
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_while_the_store_is_away_the_program_goes_on_and_nothing_that_it_printed_is_lost(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, away = space.trace, [StoreError("away")]

    def once_away(name: str, kind: str, text: str, **more: Any) -> int:
        if kind == "console" and away:
            raise away.pop()
        return trace(name, kind, text, **more)

    monkeypatch.setattr(space, "trace", once_away)
    report = run(space, "sh", "-c", "echo one; echo two; exit 3")
    assert away == []
    assert (report.exit_code, report.problem) == (3, None)
    bound = space.trace_for(report.commit or "")
    assert bound is not None
    assert "".join(texts(bound.entries)) == "$ sh -c 'echo one; echo two; exit 3'one\ntwo\nexit code 3"


def test_a_line_of_one_stream_in_the_middle_of_a_key_on_the_other_does_not_let_its_rest_through(space: clia.Space) -> None:
    """White-box: which of two streams is read first is otherwise a matter of luck."""
    console = run_module.ConsoleRecorder(space, "parent")
    key = [f"{ALNUM[:40]}{number:02}{ALNUM[:22]}" for number in range(4)]
    for line in ("-----BEGIN RSA PRIVATE KEY-----", *key, "-----END RSA PRIVATE KEY-----", "behind"):
        console.heard("stdout", f"{line}\n".encode())
        console.heard("stderr", b"these words are beside it\n")
    console.end(0)
    told = "".join(texts(space.trace_pending("parent")))
    assert told.count("these words are beside it\n") == 7
    assert "behind\n" in told
    assert [each for each in key if each in told] == []


def test_what_was_printed_first_stands_first_in_the_trace_whichever_stream_it_came_on(space: clia.Space) -> None:
    """White-box, as before. A line that has no end yet is in its place when it has one."""
    console = run_module.ConsoleRecorder(space, "parent")
    for stream, text in (("out", "1\n"), ("err", "2\n"), ("err", "3\nhalf "), ("out", "4\n"), ("err", "5\n"), ("out", "6\n")):
        console.heard(f"std{stream}", text.encode())
    console.end(0)
    assert "".join(texts(space.trace_pending("parent"))) == "1\n2\n3\n4\nhalf 5\n6\nexit code 0"


def test_a_reader_that_takes_nothing_now_is_waited_for_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal or a pipe that somebody made non-blocking, and that is full: here it is read only while we wait for it."""
    reader, full = os.pipe()
    os.set_blocking(full, False)
    before = 0
    with suppress(BlockingIOError):
        while True:
            before += os.write(full, bytes(4096))
    heard: list[tuple[str, bytes]] = []
    shown, waited = bytearray(), select.select

    def read_late(read: list[int], write: list[int], odd: list[int], *seconds: float) -> tuple[list[int], list[int], list[int]]:
        if full in write:
            shown.extend(os.read(reader, 4096))
        return waited(read, write, odd, *seconds)

    monkeypatch.setattr(select, "select", read_late)
    data = os.urandom(30_000)
    with ProgramChannels(UserStreams(0, full, full, False, deaf)) as channels:
        os.write(channels.far[1], data)
        assert channels.pass_on(60.0, lambda name, said: heard.append((name, said)))
        assert heard == [("stdout", data)]
        os.write(channels.far[1], b"more")
        channels.started()
        assert channels.pass_on(60.0, lambda name, said: heard.append((name, said))), "the program can still print"
    os.close(full)
    with open(reader, "rb", 0) as rest:
        shown.extend(rest.read())
    assert bytes(shown[before:]) == data + b"more"


def test_a_program_that_does_not_read_what_is_typed_is_heard_all_the_same() -> None:
    """More is typed than its terminal holds. A write that waits for it would wait for ever."""
    hand, desk = pty.openpty()
    tty.setraw(desk)
    heard: list[bytes] = []
    with ProgramChannels(UserStreams(desk, desk, desk, True, deaf)) as channels:
        assert channels.master is not None
        assert not os.get_blocking(channels.master)
        for _ in range(60):
            os.write(hand, b"x" * 1000)
            channels.pass_on(0.0, lambda *_: None)
        os.write(channels.far[1], b"busy")
        while not heard:
            channels.pass_on(60.0, lambda _, said: heard.append(said) if said else None)
        assert os.read(hand, 100) == b"busy"
        typed = b""
        while len(typed) < 60_000:  # it begins to read, and nothing of it is lost
            channels.pass_on(0.0, lambda *_: None)
            typed += os.read(channels.far[0], 4096) if select.select([channels.far[0]], [], [], 0.0)[0] else b""
        assert typed == b"x" * 60_000
    os.close(hand)
    os.close(desk)
    assert heard == [b"busy"]


STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(("script", "ended"), [(STUBBORN, 137), (f"({STUBBORN}) & read ready; exit 3", 3)])
def test_whoever_does_not_listen_is_killed_in_the_end(script: str, ended: int) -> None:
    """The program itself, after its grace; what it leaves behind, when it has ended. The channel closes with the last of them."""
    lock, (control, ours) = os.open(os.devnull, os.O_RDONLY), os.pipe()
    words = [sys.executable, "-I", "-S", program_guard.__file__, str(control), str(lock), "0.05", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(control, lock)) as guard:
        assert guard.stdout is not None
        assert guard.stdout.readline() == b"ready\n"
        os.close(control)
        os.close(lock)
        if ended == 137:
            os.close(ours)
        try:
            assert guard.communicate(b"\n", timeout=60)[0] == b""
        finally:
            guard.kill()  # where it does not end by itself
    assert guard.returncode == ended
    if ended != 137:
        os.close(ours)


def test_a_run_that_cannot_be_recorded_says_so_and_the_next_one_records_it(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = space.trace

    def full(name: str, kind: str, text: str, **more: Any) -> int:
        if text.startswith("exit code"):
            raise StoreError("full")
        return trace(name, kind, text, **more)

    with monkeypatch.context() as patched:
        patched.setattr(space, "trace", full)
        report = run(space, "sh", "-c", "echo said; echo made > made.txt")
    assert (report.exit_code, report.commit) == (0, None)
    assert report.problem is not None
    assert report.problem.message == "full"
    again = run(space, "true")
    assert again.left is not None
    assert space.files(again.left)["made.txt"] == b"made\n"
    bound = space.trace_for(again.left)
    assert bound is not None
    assert texts(bound.entries)[1:] == ["said\n"]


def test_commits_made_meanwhile_are_kept_and_work_that_cannot_go_on_top_is_said_to_be_where_it_is(
    space: clia.Space, tmp_path: Path
) -> None:
    """A commit from inside the worktree is no obstacle, nor is any where no file was changed; a file of another is."""
    outside = f"{program()} commit scout finding --path {tmp_path / 'shop'} --message"
    inside = f"{program()} commit scout finding --trace --message inside"
    assert run(space, "sh", "-c", f"echo 1 > one; echo early; {inside}; echo 2 > two").problem is None
    assert run(space, "sh", "-c", f"{outside} other --set three=two; echo only said").problem is None
    report = run(space, "sh", "-c", f"echo 4 > four; {outside} again --set three=one")
    assert report.problem is not None
    assert report.problem.code == "stale-ref"
    refused("stale-ref", lambda: run(space, "true"))  # nothing is run on top of it
    git("config", "user.name", "Tess", cwd=tmp_path / "shop")
    git("config", "user.email", "tess@example.org", cwd=tmp_path / "shop")
    how = "\n".join(hint.partition(": ")[2] for hint in report.problem.hints).replace("clia commit", f"{program()} commit")
    subprocess.run(["sh", "-ec", how], cwd=tmp_path, check=True, capture_output=True)
    assert run(space, "true").left is None
    assert space.files("scout") == {"one": b"1\n", "two": b"2\n", "three": b"1\n", "four": b"4\n"}
    assert {"inside", "other", "again"} < {each.subject for each in space.session_log("scout")}
    assert space.verify().findings == ()
