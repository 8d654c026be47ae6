"""``clia run`` as installed, with real programs: its output, what it records, and what it does not change."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
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


class RunSpace:
    """A space in a repository with a commit, staged changes and unstaged changes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, agent: str, *arguments: str, code: int = 0, options: tuple[str, ...] = (), **more: Any) -> Ran:
        ran = clia("run", agent, *options, "--", *arguments, cwd=self.root, **more)
        assert ran.code == code, ran
        return ran

    def start(self, agent: str, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([program(), "run", agent, "--", *arguments], cwd=self.root, **more)

    def open(self) -> library.Space:
        return library.open(self.root)

    def worktree(self, agent: str = "scout") -> Path:
        with self.open() as space:
            return Path(space.local.run_directories.directory(agent))

    def own(self) -> tuple[str, str, list[str], bytes]:
        """What belongs to the user: the status, HEAD, the branches, and the bytes of the index."""
        refs = git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/stash", cwd=self.root)
        refs_of_people = [line for line in refs.splitlines() if "refs/heads/agents/" not in line]
        status = git("--no-optional-locks", "status", "--porcelain", cwd=self.root)
        return status, (self.root / ".git" / "HEAD").read_text(), refs_of_people, (self.root / ".git" / "index").read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> RunSpace:
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
    return RunSpace(root)


def entries(space: library.Space, commit: str) -> list[dict[str, Any]]:
    trace = space.traces.of(commit)
    return [dict(entry) for entry in trace.entries] if trace else []


def recorded_output(space: library.Space, commit: str, stream: str) -> str:
    return "".join(entry["text"] for entry in entries(space, commit) if (entry.get("data") or {}).get("stream") == stream)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for a condition outside of this process; if it is never met, the test hangs and fails."""
    never_set = threading.Event()
    while not condition():
        never_set.wait(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_run_spawns_the_agent_shows_everything_and_ends_in_one_commit_with_trace_and_exit_code(place: RunSpace) -> None:
    before = place.own()
    script = "echo seen; echo worse >&2; echo 5 >> stock.txt; echo new > new.txt; pwd; exit 3"
    report = place.root.parent / "report.json"
    ran = place.run("scout", "sh", "-c", script, code=3, options=("--kind", "test", "--report", str(report)))
    assert ran.out == f"seen\n{place.worktree()}\n"
    assert "worse\n" in ran.err
    assert f"clia: scout works in {place.worktree()}\n" in ran.err
    run_report = json.loads(report.read_text())
    with place.open() as space:
        commit = space.show("scout")
        assert (commit.kind, commit.meta) == ("test", {"program": "sh", "exit_code": 3})
        assert commit.subject == f"sh -c '{script}'"
        assert space.files("scout")["stock.txt"] == b"apples 3\n5\n"
        assert [entry["kind"] for entry in entries(space, commit.cid)][:: len(entries(space, commit.cid)) - 1] == ["run", "run"]
        assert recorded_output(space, commit.cid, "stdout") == ran.out
        assert recorded_output(space, commit.cid, "stderr") == "worse\n"
        assert space.show(f"{space.agents.genesis('scout')}").parents == (git("rev-parse", "HEAD", cwd=place.root).strip(),)
        assert space.verify().findings == ()
    traced = run_report.pop("traced")
    assert traced >= 4
    worktree = str(place.worktree())
    assert run_report.pop("commit") == commit.cid
    assert run_report == {
        "agent": "scout",
        "spawned": True,
        "directory": worktree,
        "program": "sh",
        "exit_code": 3,
        "files": 2,
        "adopted": 0,
        "kept": [],
        "left_out": [],
    } | dict.fromkeys(("left", "problem"))
    assert place.own() == before


def test_bytes_arguments_and_environment_pass_through_unchanged(place: RunSpace) -> None:
    """Every byte in both directions; arguments that look like options of clia; no variable that redirects git."""
    read = "sys.stdout.buffer.write(sys.stdin.buffer.read())"
    show = f"import os, sys; {read}; print([os.environ.get(name) for name in sys.argv[1:3]], sys.argv)"
    arguments = ["CLIA_AGENT", "GIT_DIR", "--title", "-x", "--json", "--", "--", "-h"]
    data = bytes(range(256)) * 300
    result = subprocess.run(
        [program(), "run", "scout", "-q", "--path", str(place.root), "--", sys.executable, "-c", show, *arguments],
        cwd=place.root,
        env={**os.environ, "GIT_DIR": "/elsewhere"},
        input=data,
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout == data + f"{['scout', None]} {['-c', *arguments]}\n".encode()
    ran = place.run("scout", "./tool.sh", "a  b", "--", "-m", "-x")
    assert (place.worktree() / "words.txt").read_text() == "a  b -- -m -x\n", ran


def test_a_program_that_cannot_be_run_changes_nothing_and_exits_as_in_a_shell(place: RunSpace) -> None:
    refs = git("for-each-ref", cwd=place.root)
    assert "program-not-found" in place.run("scout", "no-such-program", code=127).err
    assert "give the full path" in place.run("scout", "./staged.txt", code=127).err  # only the user has this file, not the agent
    assert "program-not-executable" in place.run("scout", "./stock.txt", code=126).err
    assert git("for-each-ref", cwd=place.root) == refs
    bare = place.root.parent / "bare"
    bare.mkdir()
    git("init", "--quiet", cwd=bare)
    ran = clia("run", "scout", "--", "true", cwd=bare)
    assert (ran.code, "clia init" in ran.err) == (2, True)


def test_signals_reach_the_program_and_the_run_commits_after_it_ends(place: RunSpace) -> None:
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
        assert recorded_output(space, space.head("scout"), "stdout") == "ready\ngot INT\ngot HUP\n"
    assert place.run("scout", "sh", "-c", "kill -9 $$", code=137).err.count("exit code 137") == 1


def test_a_closed_output_closes_the_pipe_of_the_program_too(place: RunSpace) -> None:
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


def test_at_a_terminal_the_program_has_a_terminal_with_its_size_keys_and_echo(place: RunSpace) -> None:
    with Terminal(place.root, "run", "scout", "--", sys.executable, "-c", TUI) as person:
        fcntl.ioctl(person.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        person.sees("[True, True, True] True True")
        person.sees("size ")
        fcntl.ioctl(person.master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        os.kill(person.process.pid, signal.SIGWINCH)
        person.sees("size 33 99")
        os.write(person.master, b"\x1a")  # Ctrl-Z: no shell could continue the program, so it is not stopped
        person.types("hello")
        person.sees("hello\r\n")
        person.sees("heard hello\r\n")
        os.write(person.master, b"\x03")
        person.sees("stopped")
        assert person.ends() == 5
        assert "ended with exit code 5" in person.plain
        assert termios.tcgetattr(person.master)[3] & termios.ICANON  # the user's terminal is restored
    with place.open() as space:
        output = recorded_output(space, space.head("scout"), "terminal")
    assert "heard hello\r\n" in output
    assert output.endswith("stopped\r\n")


def test_the_next_run_first_commits_the_work_and_trace_of_a_killed_run(place: RunSpace) -> None:
    pid = place.root.parent / "pid"
    script = f"echo half > half.txt; echo begun; echo $$ > {pid}; exec sleep 600"
    running = place.start("scout", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    with place.open() as space:
        wait_for(lambda: any(entry["text"] == "begun\n" for entry in space.traces.pending("scout")))
    assert "already-running" in place.run("scout", "true", code=1).err
    running.kill()
    running.communicate()
    wait_for(lambda: is_gone(int(pid.read_text())))
    ran = place.run("scout", "sh", "-c", "cat half.txt; echo whole > half.txt")
    assert ran.out == "half\n"
    with place.open() as space:
        completed, interrupted = space.history.own("scout")[:2]
        assert interrupted.subject.startswith("left by an interrupted run: sh -c 'echo half > half.txt; echo begun;")
        assert f"committed what was left in the worktree: {interrupted.cid[:10]}" in ran.err
        assert recorded_output(space, interrupted.cid, "stdout") == "begun\n"
        assert recorded_output(space, completed.cid, "stdout") == "half\n"
        assert [space.files(commit.cid)["half.txt"] for commit in (interrupted, completed)] == [b"half\n", b"whole\n"]
        assert space.verify().findings == ()


def test_a_run_that_cannot_be_recorded_has_its_own_exit_code_and_reports_the_programs(place: RunSpace) -> None:
    """The program moves the repository away."""
    git_dir, away = place.root / ".git", place.root / "away"
    ran = place.run("scout", "sh", "-c", f"mv {git_dir} {away}; exit 4", code=125)
    assert "error: " in ran.err
    assert ran.err.endswith("sh ended with exit code 4; the run was not recorded\n")
    shutil.rmtree(git_dir, ignore_errors=True)  # the locks that were created meanwhile
    away.rename(git_dir)
    with place.open() as space:
        assert space.show("scout").kind == "spawn"


def test_secrets_are_shown_and_never_recorded(place: RunSpace) -> None:
    """On the command line and in the output, even if lines of another stream are between two lines of a key."""
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
        recorded = json.dumps([entries(space, commit.cid), commit.message, space.agents.record("scout")], default=str)
    assert recorded.count("beside the key") == len(lines)
    assert [secret for secret in (SECRET, *key) if secret in recorded] == []


def test_the_directory_and_the_base_of_a_run_are_options(place: RunSpace) -> None:
    directory = place.root.parent / "here"
    options = ("--dir", str(directory), "--empty", "--title", "Start anew", "--briefing", "From nothing.", "-m", "Begun", "--json")
    ran = place.run("scout", "sh", "-c", "ls -A; echo a > a.txt", options=options)
    assert ran.out == ".git\n"
    report = json.loads(ran.err)
    assert (report["directory"], report["files"], report["exit_code"]) == (str(directory), 1, 0)
    (directory / "b.txt").write_text("by hand\n")
    place.run("scout", "true", options=options)
    place.run("helper", "test", "-f", "b.txt", options=("--parent", "scout", "-q"))
    with place.open() as space:
        assert [commit.subject for commit in space.history.own("scout")] == [
            "Begun",
            "left in the worktree before a run",
            "Begun",
            "spawn: Start anew",
        ]
        assert space.agents.briefing("scout").text == "From nothing."
        assert space.relations.sub_agents("scout") == ["helper"]


def test_a_setup_command_is_approved_with_an_option_or_at_a_terminal_and_never_by_an_agent(place: RunSpace) -> None:
    (place.root / ".git" / "clia" / "config.toml").write_text('[run]\nsetup = "echo prepared"\n')
    refused = place.run("scout", "true", code=1)
    assert "error: setup-not-approved: " in refused.err
    assert "--yes" in refused.err
    place.run("scout", "true", code=1, options=("--yes",), env={"CLIA_AGENT": "other"})
    for answer, code in (("n", 1), ("y", 0)):
        with Terminal(place.root, "run", "scout", "--", "true") as person:
            person.sees("run it? [y/N] ")
            person.types(answer)
            assert person.ends() == code
    assert "echo prepared" not in place.run("scout", "true").err, "it was run in this worktree"
    assert clia("checkout", "scout", "../mine", cwd=place.root).code == 0


def test_the_commits_of_a_run_are_signed_with_a_key_that_ends_with_it(place: RunSpace) -> None:
    path = Path(
        place.run("scout", "sh", "-c", 'echo 1 > work.txt; test -r "$CLIA_AGENT_KEY" && echo "$CLIA_AGENT_KEY"').out.split()[-1]
    )
    assert not path.exists()
    with place.open() as space:
        report = space.trust.verify()
        assert report.findings == ()
        assert [signer.commits for signer in report.signers if signer.owner == "scout"] == [1]
        assert "clia/signing/agents" in str(path)
