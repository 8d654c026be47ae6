"""``clia run`` as installed, with real programs: what a person sees, what is recorded, and what is left alone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia as library
from support import Ran, clia, git, program
from support.fake_secrets import ALNUM
from support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = f"ghp_{ALNUM[:36]}"


class Place:
    """A repository with a commit, something staged and something not, and a space."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, agent: str, *words: str, code: int = 0, options: tuple[str, ...] = (), **more: Any) -> Ran:
        ran = clia("run", agent, *options, "--", *words, cwd=self.root, **more)
        assert ran.code == code, ran
        return ran

    def start(self, agent: str, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([program(), "run", agent, "--", *words], cwd=self.root, **more)

    def open(self) -> library.Space:
        return library.open(self.root)

    def worktree(self, agent: str = "scout") -> Path:
        return self.root / ".git" / "clia" / "run" / agent

    def own(self) -> tuple[str, str, list[str], bytes]:
        """What is the user's own: what is staged and changed, where HEAD and the branches are, the index byte for byte."""
        refs = git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/stash", cwd=self.root)
        theirs = [line for line in refs.splitlines() if "refs/heads/agents/" not in line]
        status = git("--no-optional-locks", "status", "--porcelain", cwd=self.root)
        return status, (self.root / ".git" / "HEAD").read_text(), theirs, (self.root / ".git" / "index").read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = tmp_path.resolve() / "shop"
    with library.init(root, settings=library.Settings(durable=False, person=("Tess", "tess@example.org"))):
        git("config", "clia.durable", "false", cwd=root)
        git("config", "user.name", "Tess", cwd=root)
        git("config", "user.email", "tess@example.org", cwd=root)
        (root / "stock.txt").write_text("apples 3\n")
        (root / "tool.sh").write_text('#!/bin/sh\necho "$@" > words.txt\n')
        (root / "tool.sh").chmod(0o755)
        git("add", ".", cwd=root)
        git("commit", "--quiet", "--message", "Stock", cwd=root)
        (root / "staged.txt").write_text("staged\n")
        git("add", "staged.txt", cwd=root)
        (root / "stock.txt").write_text("apples 4\n")
    return Place(root)


def entries(space: library.Space, commit: str) -> list[dict[str, Any]]:
    trace = space.trace_for(commit)
    return [dict(each) for each in trace.entries] if trace else []


def said(space: library.Space, commit: str, stream: str) -> str:
    return "".join(each["text"] for each in entries(space, commit) if (each.get("data") or {}).get("stream") == stream)


def wait_for(condition: Callable[[], bool]) -> None:
    """Until something outside of this process has happened; a run that hangs here has failed."""
    done = threading.Event()
    while not condition():
        done.wait(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_run_spawns_the_agent_shows_everything_and_ends_in_one_commit_with_trace_and_exit_code(place: Place) -> None:
    before = place.own()
    script = "echo seen; echo worse >&2; echo 5 >> stock.txt; echo new > new.txt; pwd; exit 3"
    report = place.root.parent / "report.json"
    ran = place.run("scout", "sh", "-c", script, code=3, options=("--kind", "test", "--report", str(report)))
    assert ran.out == f"seen\n{place.worktree()}\n"
    assert "worse\n" in ran.err
    assert f"clia: scout works in {place.worktree()}\n" in ran.err
    told = json.loads(report.read_text())
    with place.open() as space:
        commit = space.show("scout")
        assert (commit.kind, commit.meta) == ("test", {"program": "sh", "exit_code": 3})
        assert commit.subject == f"sh -c '{script}'"
        assert space.files("scout")["stock.txt"] == b"apples 3\n5\n"
        assert [each["kind"] for each in entries(space, commit.cid)][:: len(entries(space, commit.cid)) - 1] == ["run", "run"]
        assert said(space, commit.cid, "stdout") == ran.out
        assert said(space, commit.cid, "stderr") == "worse\n"
        assert space.show(f"{space.genesis('scout')}").parents == (git("rev-parse", "HEAD", cwd=place.root).strip(),)
        assert space.verify().findings == ()
    traced = told.pop("traced")
    assert traced >= 4
    where = str(place.worktree())
    assert told.pop("commit") == commit.cid
    assert told == {
        "agent": "scout",
        "spawned": True,
        "directory": where,
        "program": "sh",
        "exit_code": 3,
        "files": 2,
        "adopted": 0,
        "kept": [],
    } | dict.fromkeys(("left", "problem"))
    assert place.own() == before


def test_bytes_and_words_and_the_environment_reach_whom_they_are_for_unchanged(place: Place) -> None:
    """Every byte in both directions; words that look like options of clia; no variable that points git elsewhere."""
    read = "sys.stdout.buffer.write(sys.stdin.buffer.read())"
    show = f"import os, sys; {read}; print([os.environ.get(name) for name in sys.argv[1:3]], sys.argv)"
    words = ["CLIA_AGENT", "GIT_DIR", "--title", "-x", "--json", "--", "--", "-h"]
    data = bytes(range(256)) * 300
    done = subprocess.run(
        [program(), "run", "scout", "-q", "--path", str(place.root), "--", sys.executable, "-c", show, *words],
        cwd=place.root,
        env={**os.environ, "GIT_DIR": "/elsewhere"},
        input=data,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == data + f"{['scout', None]} {['-c', *words]}\n".encode()
    ran = place.run("scout", "./tool.sh", "a  b", "--", "-m", "-x")
    assert (place.worktree() / "words.txt").read_text() == "a  b -- -m -x\n", ran


def test_a_program_that_cannot_be_run_changes_nothing_and_has_the_code_that_a_shell_gives(place: Place) -> None:
    refs = git("for-each-ref", cwd=place.root)
    assert "program-not-found" in place.run("scout", "no-such-program", code=127).err
    assert "give the full path" in place.run("scout", "./staged.txt", code=127).err  # the user has it, the agent not
    assert "program-not-executable" in place.run("scout", "./stock.txt", code=126).err
    assert git("for-each-ref", cwd=place.root) == refs
    bare = place.root.parent / "bare"
    bare.mkdir()
    git("init", "--quiet", cwd=bare)
    ran = clia("run", "scout", "--", "true", cwd=bare)
    assert (ran.code, "clia init" in ran.err) == (2, True)


def test_signals_reach_the_program_and_the_run_ends_behind_it_with_a_commit(place: Place) -> None:
    traps = "trap 'echo got INT' INT; trap 'echo got HUP' HUP; trap 'echo late > late.txt; exit 7' TERM"
    script = f"{traps}; echo ready; while :; do sleep 0.01; done"
    running = place.start("scout", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    for number in (signal.SIGINT, signal.SIGHUP):
        running.send_signal(number)
        assert running.stdout.readline() == f"got {number.name.removeprefix('SIG')}\n".encode()
    running.send_signal(signal.SIGTERM)
    assert running.communicate()[0] == b""
    assert running.returncode == 7
    with place.open() as space:
        assert space.files("scout")["late.txt"] == b"late\n"
        assert said(space, space.head("scout"), "stdout") == "ready\ngot INT\ngot HUP\n"
    assert place.run("scout", "sh", "-c", "kill -9 $$", code=137).err.count("exit code 137") == 1


def test_a_reader_that_goes_away_closes_the_pipe_of_the_program_too(place: Place) -> None:
    running = place.start("scout", "yes", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert running.stdout is not None
    running.stdout.read(100)
    running.stdout.close()
    assert running.wait(60) == 128 + signal.SIGPIPE


TUI = """
import os, signal, sys, termios
def size(*_): print("size", *os.get_terminal_size(0)[::-1], flush=True)
def stop(*_): print("stopped", flush=True); sys.exit(5)
signal.signal(signal.SIGWINCH, size)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTSTP, signal.SIG_DFL)
print([os.isatty(n) for n in range(3)], os.ttyname(0) == os.ttyname(1), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
size()
for line in sys.stdin: print("heard", line.strip(), flush=True)
"""


def test_at_a_terminal_the_program_has_one_too_with_its_size_its_keys_and_its_echo(place: Place) -> None:
    with Terminal(place.root, "run", "scout", "--", sys.executable, "-c", TUI) as person:
        fcntl.ioctl(person.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        person.sees("[True, True, True] True True")
        person.sees("size ")
        fcntl.ioctl(person.master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        os.kill(person.running.pid, signal.SIGWINCH)
        person.sees("size 33 99")
        os.write(person.master, b"\x1a")  # Ctrl-Z: nobody could go on behind it, so nothing stops
        person.types("hello")
        person.sees("hello\r\n")
        person.sees("heard hello\r\n")
        os.write(person.master, b"\x03")
        person.sees("stopped")
        assert person.ends() == 5
        assert "ended with exit code 5" in person.plain
        assert termios.tcgetattr(person.master)[3] & termios.ICANON  # the person's terminal is as it was
    with place.open() as space:
        shown = said(space, space.head("scout"), "terminal")
    assert "heard hello\r\n" in shown
    assert shown.endswith("stopped\r\n")


def test_what_a_killed_run_left_is_committed_with_its_trace_before_the_next_one(place: Place) -> None:
    pid = place.root.parent / "pid"
    script = f"echo half > half.txt; echo begun; echo $$ > {pid}; exec sleep 600"
    running = place.start("scout", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    with place.open() as space:
        wait_for(lambda: any(each["text"] == "begun\n" for each in space.trace_pending("scout")))
    assert "already-running" in place.run("scout", "true", code=1).err
    running.kill()
    running.communicate()
    wait_for(lambda: is_gone(int(pid.read_text())))
    ran = place.run("scout", "sh", "-c", "cat half.txt; echo whole > half.txt")
    assert ran.out == "half\n"
    with place.open() as space:
        done, left = space.session_log("scout")[:2]
        assert left.subject.startswith("left by an interrupted run: sh -c 'echo half > half.txt; echo begun;")
        assert f"committed what was left in the worktree: {left.cid[:10]}" in ran.err
        assert said(space, left.cid, "stdout") == "begun\n"
        assert said(space, done.cid, "stdout") == "half\n"
        assert [space.files(each.cid)["half.txt"] for each in (left, done)] == [b"half\n", b"whole\n"]
        assert space.verify().findings == ()


def test_a_run_that_cannot_be_recorded_has_a_code_of_its_own_and_still_tells_the_program_s(place: Place) -> None:
    """A worktree that the program destroyed is no commit of deletions."""
    ran = place.run("scout", "sh", "-c", "rm .git; exit 4", code=125)
    assert "error: not-a-checkout: " in ran.err
    assert ran.err.endswith("sh ended with exit code 4; the run was not recorded\n")
    with place.open() as space:
        assert space.show("scout").kind == "spawn"


def test_secrets_are_shown_and_never_recorded(place: Place) -> None:
    """Neither those of the command line, nor those printed; lines of another stream between two of a key do not help."""
    key = [f"{ALNUM[:40]}{number:02}{ALNUM[:22]}" for number in range(8)]
    lines = ["-----BEGIN RSA PRIVATE KEY-----", *key, "-----END RSA PRIVATE KEY-----"]
    script = place.root.parent / "leak.sh"
    script.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'; echo beside the key >&2\n" for line in lines) + 'echo "$1" >&2\n')
    script.chmod(0o755)
    ran = place.run("scout", str(script), SECRET)
    assert ran.out.splitlines() == lines
    assert SECRET in ran.err
    with place.open() as space:
        commit = space.show("scout")
        recorded = json.dumps([entries(space, commit.cid), commit.message, space.record_of("scout")], default=str)
    assert recorded.count("beside the key") == len(lines)
    assert [each for each in (SECRET, *key) if each in recorded] == []


def test_where_and_from_where_an_agent_works_can_be_said(place: Place) -> None:
    directory = place.root.parent / "here"
    options = ("--dir", str(directory), "--empty", "--title", "Start anew", "--briefing", "From nothing.", "-m", "Begun", "--json")
    ran = place.run("scout", "sh", "-c", "ls -A; echo a > a.txt", options=options)
    assert ran.out == ".git\n"
    told = json.loads(ran.err)
    assert (told["directory"], told["files"], told["exit_code"]) == (str(directory), 1, 0)
    (directory / "b.txt").write_text("by hand\n")
    place.run("scout", "true", options=options)
    place.run("helper", "test", "-f", "b.txt", options=("--parent", "scout", "-q"))
    with place.open() as space:
        assert [each.subject for each in space.session_log("scout")] == [
            "Begun",
            "left in the worktree before a run",
            "Begun",
            "spawn: Start anew",
        ]
        assert space.briefing_of("scout").text == "From nothing."
        assert space.sub_agents("scout") == ["helper"]
