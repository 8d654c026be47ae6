"""``clia.programs.runner`` with real processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import FileError
from clia.programs.runner import CANCELLED, EXITED, TIMED_OUT, ProgramCommand, ProgramExit, ProgramRunner

if TYPE_CHECKING:
    from collections.abc import Callable

FORK = multiprocessing.get_context("fork")
PATH = {"PATH": os.environ["PATH"]}
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def never() -> bool:
    return False


@pytest.fixture
def programs() -> ProgramRunner:
    return ProgramRunner(grace=0.3)


def shell(text: str, directory: Path, **more: Any) -> ProgramCommand:
    return ProgramCommand(("sh", "-c", text), str(directory), PATH, **more)


def run(programs: ProgramRunner, order: ProgramCommand, cancelled: Callable[[], bool] = never) -> tuple[ProgramExit, bytes]:
    output = bytearray()
    place = str(Path(order.directory, "place.lock"))
    with programs.alone(place, never) as acquired:
        assert acquired
        ended = programs.run(order, place, output.extend, cancelled)
    return ended, bytes(output)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for a condition outside of this process; if it is never met, the test hangs and fails."""
    never_set = threading.Event()
    while not condition():
        never_set.wait(0.01)


def pid_in(file: Path) -> int:
    wait_for(lambda: file.exists() and file.read_text().strip() != "")
    return int(file.read_text())


def test_a_program_runs_in_its_directory_and_both_streams_are_read(programs: ProgramRunner, tmp_path: Path) -> None:
    ended, output = run(programs, shell("pwd; cat; echo worse >&2; exit 3", tmp_path, stdin=b"given\n"))
    assert ended == ProgramExit(EXITED, 3)
    assert output == f"{tmp_path}\ngiven\nworse\n".encode()


def test_the_environment_has_only_the_listed_variables(programs: ProgramRunner, tmp_path: Path) -> None:
    order = ProgramCommand(("env",), str(tmp_path), {**PATH, "SEEN": "yes"})
    names = {line.split("=")[0] for line in run(programs, order)[1].decode().splitlines()}
    assert "SEEN" in names
    assert names <= {"PATH", "SEEN", "PWD", "LC_CTYPE"}


def test_a_program_inherits_no_open_files(programs: ProgramRunner, tmp_path: Path) -> None:
    _, output = run(programs, shell("ls /proc/self/fd", tmp_path))
    assert set(output.split()) <= {b"0", b"1", b"2", b"3"}  # the last is the directory that ls reads


def test_large_input_and_output_do_not_block_each_other(programs: ProgramRunner, tmp_path: Path) -> None:
    data = b"x" * 3_000_000
    ended, output = run(programs, ProgramCommand(("cat",), str(tmp_path), PATH, data))
    assert (ended.code, output == data) == (0, True)


def test_a_program_ended_by_a_signal_has_the_exit_code_of_a_shell(programs: ProgramRunner, tmp_path: Path) -> None:
    assert run(programs, shell("kill -9 $$", tmp_path))[0] == ProgramExit(EXITED, 137)


def test_a_missing_program_is_a_clear_error(programs: ProgramRunner, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        run(programs, ProgramCommand(("no-such-program",), str(tmp_path), PATH))
    assert caught.value.code == "program-not-run"
    with pytest.raises(FileError):
        run(programs, ProgramCommand(("./none",), str(tmp_path), PATH))
    missing = ProgramCommand(("sh", "-c", ":"), str(tmp_path / "none"), PATH)
    with pytest.raises(FileError), programs.alone(str(tmp_path / "p"), never):
        programs.run(missing, str(tmp_path / "p"), lambda _: None, never)


def test_the_time_limit_ends_the_program_and_its_children(programs: ProgramRunner, tmp_path: Path) -> None:
    text = f"sleep 600 & echo $! > {tmp_path}/child; echo ready; wait"
    ended, output = run(programs, shell(text, tmp_path, seconds=4.0))
    assert ended.how == TIMED_OUT
    assert output == b"ready\n"
    wait_for(lambda: not is_alive(pid_in(tmp_path / "child")))


def test_cancelling_ends_a_program_that_ignores_signals(programs: ProgramRunner, tmp_path: Path) -> None:
    output = bytearray()
    stubborn = "trap '' TERM; echo ready; while :; do sleep 600; done"
    place = str(tmp_path / "place.lock")
    with programs.alone(place, never):
        ended = programs.run(shell(stubborn, tmp_path), place, output.extend, lambda: b"ready" in output)
    assert ended == ProgramExit(CANCELLED, 137)


def test_a_program_can_write_after_the_signal_to_end(programs: ProgramRunner, tmp_path: Path) -> None:
    output = bytearray()
    polite = "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.01; done"
    place = str(tmp_path / "place.lock")
    with programs.alone(place, never):
        ended = programs.run(shell(polite, tmp_path), place, output.extend, lambda: b"ready" in output)
    assert ended == ProgramExit(CANCELLED, 4)
    assert output.startswith(b"ready\n")
    assert output.endswith(b"bye\n")


def test_remaining_processes_of_the_group_end_with_the_program(programs: ProgramRunner, tmp_path: Path) -> None:
    ended, _ = run(programs, shell(f"sleep 600 & echo $! > {tmp_path}/child; exit 0", tmp_path))
    assert ended == ProgramExit(EXITED, 0)
    child = pid_in(tmp_path / "child")
    wait_for(lambda: not is_alive(child))  # it was killed; the system reports when it has ended


def test_a_daemon_with_the_output_open_blocks_neither_the_call_nor_the_lock(programs: ProgramRunner, tmp_path: Path) -> None:
    text = f"setsid sh -c 'echo $$ > {tmp_path}/daemon; exec sleep 600' & while [ ! -s {tmp_path}/daemon ]; do sleep 0.01; done"
    try:
        assert run(programs, shell(text, tmp_path))[0] == ProgramExit(EXITED, 0)
        assert run(programs, shell("echo again", tmp_path))[1] == b"again\n"
    finally:
        os.kill(pid_in(tmp_path / "daemon"), signal.SIGKILL)


def test_an_error_of_the_listener_ends_the_program(programs: ProgramRunner, tmp_path: Path) -> None:
    place, child = str(tmp_path / "place.lock"), tmp_path / "child"

    def refuse(data: bytes) -> None:
        if data:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"), programs.alone(place, never):
        programs.run(shell(f"echo $$ > {child}; echo ready; exec sleep 600", tmp_path), place, refuse, never)
    assert not is_alive(pid_in(child))


def _run_and_die(tmp_path: str) -> None:
    place = f"{tmp_path}/place.lock"
    programs = ProgramRunner(grace=0.3)
    with programs.alone(place, never):
        text = f"trap '' TERM; echo $$ > {tmp_path}/child; while :; do sleep 600; done"
        programs.run(shell(text, Path(tmp_path)), place, lambda _: None, never)


def test_a_program_ends_when_its_runner_is_killed(programs: ProgramRunner, tmp_path: Path) -> None:
    """And its lock is free only after its end."""
    owner = FORK.Process(target=_run_and_die, args=(str(tmp_path),))
    owner.start()
    child = pid_in(tmp_path / "child")
    os.kill(owner.pid or 0, signal.SIGKILL)
    owner.join()
    with programs.alone(str(tmp_path / "place.lock"), never) as acquired:
        assert acquired
        assert not is_alive(child)


def test_a_lock_has_one_holder_and_waiting_can_be_cancelled(programs: ProgramRunner, tmp_path: Path) -> None:
    place = str(tmp_path / "deep" / "place.lock")
    with programs.alone(place, never) as acquired:
        assert acquired
        with ProgramRunner().alone(place, lambda: True) as second:
            assert not second
    with ProgramRunner().alone(place, lambda: True) as free:
        assert free


def test_clearing_removes_a_directory_or_does_nothing(programs: ProgramRunner, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    inside = tmp_path / "inside" / "deep"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    programs.clear(str(tmp_path / "inside"))
    programs.clear(str(tmp_path / "inside"))
    assert not (tmp_path / "inside").exists()
    assert (outside / "kept").exists()


def test_arguments_and_input_of_any_bytes_arrive_unchanged(programs: ProgramRunner, tmp_path: Path) -> None:
    script = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]))"
    order = ProgramCommand((sys.executable, "-c", script, "é \udcff $HOME"), str(tmp_path), PATH)
    assert run(programs, order)[1] == "é ".encode() + b"\xff $HOME"
