"""``clia hook TOOL`` as a tool runs it: the event is put into the right spool, and the tool is never disturbed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture.hook import tool_process
from support import Tree, git, program
from support import installed as clia
from support.hook_spools import EVENT, QUIET, Fired, environment, events, fire, new_space, spool_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


LARGE = 'head -c 3000000 /dev/zero | "$0"'


@pytest.fixture
def space(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "space")


def in_shell(script: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL) -> Fired:
    arguments = ["bash", "-c", script, program()]
    result = subprocess.run(arguments, cwd=cwd, env=env or environment(None), stdin=stdin, capture_output=True, check=False)
    return Fired(result.returncode, result.stdout, result.stderr)


# Where an event goes


@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini"])
def test_an_event_is_stored_unchanged(space: Path, tool: str) -> None:
    """Also truncated JSON and bytes that are not text: ingest validates events, the hook does not."""
    broken = b'{"hook_event_name": "PreToolUse", "tool_input": {"command": "\xff\0\n\n'
    assert fire(space, broken, tool) == QUIET
    (event,) = events(spool_of(space))
    assert event.payload == broken
    assert event.head == {"tool": tool.encode(), "cwd": os.fsencode(space), **state_of(space)}


def head_of(space: Path) -> bytes:
    return git("rev-parse", "HEAD", cwd=space).strip().encode()


def state_of(space: Path) -> dict[str, bytes]:
    size = (space / ".git" / "logs" / "HEAD").stat().st_size
    return {"commit": head_of(space), "logs": b"logs/HEAD:%d" % size, "process": tool_process(os.getpid())}


def test_the_head_names_the_agent_and_any_directory(space: Path) -> None:
    inner = os.fsencode(space) + b"/a\n%0A\xff b"
    os.mkdir(inner)
    assert fire(inner, env=environment(None, CLIA_AGENT="scout", GIT_DIR="/elsewhere", GIT_WORK_TREE="/elsewhere")) == QUIET
    (event,) = events(spool_of(space))
    assert event.head == {"tool": b"claude-code", "cwd": inner, "agent": b"scout", **state_of(space)}


def test_a_hook_recognizes_a_space_of_clia_init(tmp_path: Path) -> None:
    assert clia("init", "made", cwd=tmp_path).code == 0
    assert fire(tmp_path / "made") == QUIET
    assert len(events(spool_of(tmp_path / "made"))) == 1


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with linked worktrees, and a submodule that also has one; both are spaces."""
    root = tmp_path_factory.mktemp("family").resolve()
    new_space(root / "part")
    outer = new_space(root / "outer")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../part", "part", cwd=outer)
    (outer / ".git/modules/part/clia").mkdir()
    git("worktree", "add", "--quiet", "--detach", "../linked", cwd=outer)
    git("worktree", "add", "--quiet", "--detach", "../moved", cwd=outer)
    (root / "moved/.git").write_text("gitdir: ../outer/.git/worktrees/moved\n")
    git("worktree", "add", "--quiet", "--detach", "../../part-linked", cwd=outer / "part")
    (root / "linked/deep/down").mkdir(parents=True)
    return root


@pytest.mark.parametrize("name", ["outer", "linked/deep/down", "moved", "outer/part", "part-linked"])
def test_an_event_goes_to_the_git_directory_that_git_reports(family: Path, name: str) -> None:
    common = git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=family / name).strip()
    spool = type(family)(common) / "clia/spool"
    payload = json.dumps(name).encode()
    assert fire(family / name, payload) == QUIET
    assert [event.head["cwd"] for event in events(spool) if event.payload == payload] == [os.fsencode(family / name)]


def test_nothing_is_written_outside_of_a_space(tree: Tree) -> None:
    """A plug-in can be installed for every repository. A large event is still read, so the tool's pipe does not break."""
    home = tree.directory("home")
    plain = tree.directory("plain")
    git("init", "--quiet", cwd=plain)
    tree.write("broken/.git", "nonsense\n")
    tree.write("dangling/.git", "gitdir: ../nowhere\n")
    before = tree.snapshot()
    for name in ("plain", "broken", "dangling", "home"):
        assert in_shell(f"{LARGE} hook codex; exit ${{PIPESTATUS[0]}}", tree.root / name, environment(home)) == QUIET
    assert tree.snapshot() == before


def test_a_pipe_in_place_of_a_file_is_ignored_without_waiting(space: Path, spy: SpawnSpy) -> None:
    """As ``.git``, as ``commondir`` and as the lock of ingest."""
    for name in ("outside/.git", "space/.git/commondir"):
        path = space.parent / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    assert fire(space.parent / "outside") == QUIET
    assert fire(space) == QUIET
    os.mkfifo(spool_of(space) / "ingest.lock")
    assert spy.fire(space, "Stop")
    assert len(events(spool_of(space))) == 2


def test_a_git_file_that_points_into_a_foreign_repository_records_nothing(family: Path) -> None:
    """The repository must list the worktree: its ``gitdir`` file has to point back to this file."""
    outer = family / "outer/.git"
    known_worktree, copied = outer / "worktrees/linked", family / "foreign/copied"
    copied.mkdir(parents=True)
    (copied / "commondir").write_text(f"{outer}\n")
    (copied / "gitdir").write_text(f"{family}/foreign/.git\n")
    (outer / "worktrees/lost").mkdir()
    (outer / "worktrees/lost/commondir").write_text("../..\n")
    for target in (known_worktree, outer / "worktrees/lost", copied, outer):
        (family / "foreign/.git").write_text(f"gitdir: {target}\n")
        assert fire(family / "foreign", b"foreign") == QUIET
    (family / "foreign/.git").unlink()
    (family / "foreign/.git").mkdir()
    (family / "foreign/.git/commondir").write_text(f"{outer}\n")
    assert fire(family / "foreign", b"foreign") == QUIET
    assert b"foreign" not in [event.payload for event in events(outer / "clia/spool")]
    (family / "foreign/.git/commondir").unlink()
    (family / "foreign/.git").rmdir()
    (family / "foreign/.git").write_text(f"gitdir: {outer}/worktrees/lost\n")
    (outer / "worktrees/lost/gitdir").write_text("../../../../foreign/.git\n")
    assert fire(family / "foreign", b"by a relative way back") == QUIET
    assert b"by a relative way back" in [event.payload for event in events(outer / "clia/spool")]


def test_a_separate_git_directory_belongs_to_its_worktree(tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    git("init", "--quiet", "--separate-git-dir=../kept.git", cwd=tmp_path / "apart")
    (tmp_path / "kept.git/clia").mkdir()
    assert fire(tmp_path / "apart") == QUIET
    assert len(events(tmp_path / "kept.git/clia/spool")) == 1


@pytest.mark.parametrize(
    ("tool", "variable"), [("claude-code", "CLAUDE_PROJECT_DIR"), ("gemini", "GEMINI_PROJECT_DIR"), ("codex", "CODEX_HOME")]
)
def test_a_session_that_left_its_project_is_still_recorded_there(space: Path, tool: str, variable: str) -> None:
    """In a removed directory, and in one without a space. Codex does not name the project, so its event is dropped."""
    script = f'cd "$(mktemp -d)" && rmdir "$PWD" && echo gone | "$0" hook {tool}; cd / && echo aside | "$0" hook {tool}'
    assert in_shell(script, space, environment(None, **{variable: str(space)})) == QUIET
    assert [event.payload for event in events(spool_of(space))] == ([] if tool == "codex" else [b"gone\n", b"aside\n"])
    assert all(event.head["cwd"] == os.fsencode(space) for event in events(spool_of(space)))


def test_a_spool_in_the_home_directory_replaces_one_that_cannot_be_written(space: Path, tmp_path: Path) -> None:
    spool_of(space).write_text("no directory")
    home = tmp_path / "home"
    assert fire(space, env=environment(home)) == QUIET
    name = hashlib.sha256(os.fsencode(space / ".git")).hexdigest()[:16]
    (event,) = events(home / ".local/state/clia/spool" / name)
    assert event.payload == EVENT


# Failures that must not disturb the tool


@pytest.mark.parametrize("home", [None, "", "relative", os.devnull])
def test_an_event_that_cannot_be_stored_is_reported_in_one_line_without_a_failure(space: Path, home: str | None) -> None:
    spool_of(space).write_text("no directory")
    fired = fire(space, env=environment(None) | ({} if home is None else {"HOME": home}))
    assert (fired.code, fired.out) == (0, b"")
    assert fired.err.startswith(b"clia hook: the event was not stored: ")
    assert fired.err.count(b"\n") == 1
    script = '"$0" hook codex 2>&- <<< "{}"; "$0" hook codex 2>/dev/full <<< "{}"'
    assert in_shell(script, space, environment(None)) == QUIET


@pytest.mark.parametrize("closed", ["<&-", "</dev/null", "0>/dev/null", "<&- >&-", "<&- >&- 2>&-", ">&-", ">/dev/full"])
def test_a_hook_succeeds_with_closed_streams(space: Path, closed: str) -> None:
    assert in_shell(f'"$0" hook claude-code {closed}', space) == QUIET
    assert events(spool_of(space)) == []


def test_a_hook_at_a_terminal_does_not_wait_for_input(space: Path) -> None:
    controller, terminal = os.openpty()
    fired = in_shell('"$0" hook codex', space, stdin=terminal)
    os.close(controller)
    os.close(terminal)
    assert (fired.code, fired.out, fired.err.count(b"\n")) == (0, b"", 1)
    assert b"terminal" in fired.err


def test_an_unknown_tool_is_reported_without_a_failure(space: Path) -> None:
    """A newer version may have written the settings. A large event is read, so that the tool's pipe does not break."""
    fired = fire(space, b"x" * 3_000_000, "no\nsuch")
    assert (fired.code, fired.out) == (0, b"")
    assert fired.err.startswith(b"clia hook: the event was not stored: unknown tool 'no\\nsuch'; known tools: claude-code, codex, ")
    assert events(spool_of(space)) == []


def test_arguments_that_do_not_name_a_tool_run_the_other_commands(space: Path) -> None:
    assert fire(space, arguments=["--from-a-newer-version"]) == QUIET
    fire(space, arguments=["--help"])
    link = space / "cadence-agent-cli"
    link.symlink_to(program())
    assert clia("hook", "codex", cwd=space, executable=str(link)).code == 2, "an agent's program does not have this command"
    for arguments in (["hook"], ["hook", "--frobnicate"]):
        ran = clia(*arguments, cwd=space)
        assert ran.code == 2
        assert clia("-m", "clia", *arguments, cwd=space, executable=sys.executable) == ran
    assert len(events(spool_of(space))) == 1


def test_the_module_and_the_second_program_name_run_the_same_hook(space: Path) -> None:
    script = f'echo 1 | {sys.executable} -m clia hook codex; echo 2 | "$0-agent-cli" hook codex'
    assert in_shell(script, space) == QUIET
    assert [event.payload for event in events(spool_of(space))] == [b"1\n", b"2\n"]


def test_an_interrupted_hook_succeeds_and_leaves_nothing(space: Path) -> None:
    with subprocess.Popen(
        [program(), "hook", "codex"], cwd=space, env=environment(None), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as hook:
        assert hook.stdin is not None
        hook.stdin.write(b"x" * 3_000_000)  # more than a pipe and the hook's buffer hold: reading has begun
        hook.send_signal(signal.SIGINT)
        _, stderr = hook.communicate()
    assert (hook.returncode, stderr) == (0, b"clia hook: the event was not stored: KeyboardInterrupt: \n")
    assert events(spool_of(space)) == []


# Starting ingest

SPY = """
import json, os, sys
def tell(event, args):
    if event == "os.posix_spawn":
        words = [os.fsdecode(argument) for argument in args[1]]
        passed = {os.fsdecode(key): os.fsdecode(value) for key, value in args[2].items()}
        with open(os.environ["SPY"], "w") as file:
            json.dump({"words": words, "environment": passed}, file)
if "ingest" in sys.orig_argv:
    facts = {"leader": os.getsid(0) == os.getpid(), "path": sys.path[0], "files": {}}
    for name in os.listdir("/proc/self/fd"):
        try:
            facts["files"][name] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass
    with open(os.environ["SPY_CHILD"], "w") as file:
        json.dump(facts, file)
    os._exit(0)
sys.addaudithook(tell)
"""


class SpawnSpy:
    """Records the process that a hook starts, from inside the hook and from inside the process."""

    def __init__(self, directory: Path) -> None:
        (directory / "spy").mkdir()
        (directory / "spy/sitecustomize.py").write_text(SPY)
        self.spawn_file, self.child = directory / "spawn.json", directory / "child"
        os.mkfifo(self.child)
        # Open in both directions, before it is written to: neither side waits for the other.
        self.pipe = os.open(self.child, os.O_RDWR | os.O_NONBLOCK)
        path = os.pathsep.join([str(directory / "spy"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = environment(
            None, PYTHONPATH=path, SPY=str(self.spawn_file), SPY_CHILD=str(self.child), CLIA_HOOK_INGEST=""
        )

    def fire(self, cwd: Path, event: str, tool: str = "claude-code", **more: str) -> dict[str, Any] | None:
        """Fire an event; return the command that the hook started, if any."""
        assert fire(cwd, b'{"hook_event_name": "%s"}' % event.encode(), tool, env=self.environment | more) == QUIET
        started: dict[str, Any] | None = json.loads(self.spawn_file.read_text()) if self.spawn_file.exists() else None
        self.spawn_file.unlink(missing_ok=True)
        return started

    def child_facts(self) -> Any:
        assert select.select([self.pipe], [], [], 60)[0], "ingest was not started"
        return json.loads(os.read(self.pipe, 1 << 16))


@pytest.fixture
def spy(tmp_path: Path) -> SpawnSpy:
    return SpawnSpy(tmp_path)


def test_the_end_of_a_turn_starts_ingest_detached_from_the_tool(space: Path, spy: SpawnSpy) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    git_variables = {"GIT_DIR": "/x", "GIT_INDEX_FILE": "/y", "GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "t@example.org"}
    script = f'echo \'{{"hook_event_name":"Stop"}}\' | "$0" hook codex {writer}>&{writer}'
    result = subprocess.run(
        ["bash", "-c", script, program()],
        cwd=space,
        env=spy.environment | git_variables | {"CLIA_AGENT": "scout", "CODEX_HOME": "/codex", "CLIA_HOOK_INGEST": "0"},
        pass_fds=[writer],
        capture_output=True,
        check=True,
    )
    started, child = json.loads(spy.spawn_file.read_text()), spy.child_facts()
    os.close(writer)
    assert os.read(reader, 1) == b"", "a process still holds the tool's pipe"
    os.close(reader)
    assert (result.stdout, result.stderr) == (b"", b"")
    assert started["words"] == [sys.executable, "-P", "-m", "clia", "ingest", "--quiet", "--path", str(space)]
    assert {key for key in started["environment"] if key.startswith("GIT_")} == {"GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"}
    assert started["environment"]["CODEX_HOME"] == "/codex"
    assert "CLIA_AGENT" not in started["environment"]
    assert child["leader"]
    assert child["path"] != str(space)
    assert {child["files"][number] for number in ("0", "1", "2")} == {os.devnull}
    assert not [target for target in child["files"].values() if target.startswith("pipe:")]


def test_only_events_that_begin_or_end_something_start_ingest(space: Path, spy: SpawnSpy) -> None:
    turns = ["SessionStart", "StopFailure", "SubagentStart", "SubagentStop", "SessionEnd", "AfterAgent", "BeforeAgent"]
    started = [name for name in [*turns, "PreToolUse", "BeforeTool", "Stopped"] if spy.fire(space, name, "gemini")]
    assert started == turns
    assert len(events(spool_of(space))) == 10


def test_a_prompt_starts_ingest_except_in_a_run(space: Path, spy: SpawnSpy) -> None:
    """In a run, the hook would wait for it."""
    assert spy.fire(space, "UserPromptSubmit")
    assert not spy.fire(space, "UserPromptSubmit", CLIA_RUN=str((space / ".git").resolve()))


@pytest.mark.parametrize("place", ["", "worktree"])
def test_the_end_of_a_call_starts_ingest_if_head_moved_since_the_last_one(space: Path, spy: SpawnSpy, place: str) -> None:
    git("worktree", "add", "--quiet", "--detach", "worktree", cwd=space)
    assert not spy.fire(space, "PostToolUse"), "no ingest has run here"
    begun = spool_of(space) / "ingest-begun"
    begun.touch()
    later = begun.stat().st_mtime_ns
    assert not spy.fire(space, "PostToolUse")
    git("commit", "--quiet", "--allow-empty", "--message=second", cwd=space / place)
    admin = git("rev-parse", "--absolute-git-dir", cwd=space / place).strip()
    os.utime(f"{admin}/logs/HEAD", ns=(later + 1, later + 1))
    assert spy.fire(space, "PostToolUse")
    assert spy.fire(space, "AfterTool", "gemini")
    assert not spy.fire(space, "PreToolUse")
    assert not spy.fire(space, "PostToolUse", CLIA_RUN=str((space / ".git").resolve()))
    os.utime(begun, ns=(later + 1, later + 1))
    assert not spy.fire(space, "PostToolUse")


def test_a_commit_of_a_tool_is_its_own_when_the_hook_of_its_call_returns(tmp_path: Path) -> None:
    root = new_space(tmp_path.resolve() / "root")
    env = environment(tmp_path, CLIA_HOOK_INGEST="60") | {"GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "t@example.org"}
    assert clia("init", cwd=root, env=env).code == 0

    def send(name: str, **fields: Any) -> None:
        body = {"session_id": "abcdef12-9", "hook_event_name": name, "cwd": str(root), **fields}
        assert fire(root, json.dumps(body).encode(), env=env) == QUIET

    send("SessionStart", source="startup")
    send("UserPromptSubmit", prompt="Do it.", prompt_id="p1")
    call = {"tool_name": "Bash", "tool_use_id": "t1"}
    send("PreToolUse", **call, tool_input={"command": "git commit"})
    (root / "made.txt").write_text("made\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=The tool's", cwd=root)
    send("PostToolUse", **call, tool_response="")
    blamed = clia("blame", "main", "made.txt", cwd=root, env=env)
    assert "claude-abcdef12" in blamed.out


def test_ingest_is_not_started_if_it_runs_already_or_is_disabled(space: Path, spy: SpawnSpy) -> None:
    assert not spy.fire(space, "Stop", CLIA_HOOK_INGEST="off")
    with open(spool_of(space) / "ingest.lock", "w") as lock:
        assert spy.fire(space, "Stop")
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not spy.fire(space, "Stop")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert spy.fire(space, "Stop")
    assert len(events(spool_of(space))) == 4


# Imports


def test_the_installed_program_imports_only_the_hook(space: Path) -> None:
    """Apart from what bare Python imports, and ``re``, which the scripts of some installers import."""
    loaded = imported(program(), "hook", "claude-code", cwd=space)
    modules = {"clia", "clia.errors", "clia.cli", "clia.cli.entry", "clia.capture", "clia.capture.hook", "clia.capture.spool"}
    assert loaded - imported("-c", "import re", cwd=space) == modules | {"__future__"}
    assert len(events(spool_of(space))) == 1


def imported(*arguments: str, cwd: Path) -> set[str]:
    """The modules that Python imports for a command."""
    command = [sys.executable, "-X", "importtime", *arguments]
    result = subprocess.run(command, cwd=cwd, env=environment(None), input=EVENT, capture_output=True, check=True)
    return {line.rpartition("|")[2].strip() for line in result.stderr.decode().splitlines() if line.startswith("import time:")}
