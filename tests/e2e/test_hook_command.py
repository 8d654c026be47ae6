"""``clia hook TOOL`` as a tool meets it: the event lies in the right spool, and the tool never notices."""

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
    words = ["bash", "-c", script, program()]
    done = subprocess.run(words, cwd=cwd, env=env or environment(None), stdin=stdin, capture_output=True, check=False)
    return Fired(done.returncode, done.stdout, done.stderr)


# Where an event goes


@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini"])
def test_an_event_lies_in_the_spool_as_it_came(space: Path, tool: str) -> None:
    """Truncated JSON, bytes that are no text: ingest judges them, the hook does not."""
    broken = b'{"hook_event_name": "PreToolUse", "tool_input": {"command": "\xff\0\n\n'
    assert fire(space, broken, tool) == QUIET
    (event,) = events(spool_of(space))
    assert event.payload == broken
    assert event.head == {"tool": tool.encode(), "cwd": os.fsencode(space), "commit": head_of(space)}


def head_of(space: Path) -> bytes:
    return git("rev-parse", "HEAD", cwd=space).strip().encode()


def test_the_head_names_the_agent_and_any_directory(space: Path) -> None:
    inner = os.fsencode(space) + b"/a\n%0A\xff b"
    os.mkdir(inner)
    assert fire(inner, env=environment(None, CLIA_AGENT="scout", GIT_DIR="/elsewhere", GIT_WORK_TREE="/elsewhere")) == QUIET
    (event,) = events(spool_of(space))
    assert event.head == {"tool": b"claude-code", "cwd": inner, "agent": b"scout", "commit": head_of(space)}


def test_a_space_of_clia_init_is_one_for_a_hook_too(tmp_path: Path) -> None:
    assert clia("init", "made", cwd=tmp_path).code == 0
    assert fire(tmp_path / "made") == QUIET
    assert len(events(spool_of(tmp_path / "made"))) == 1


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with linked worktrees and a submodule that has one too; both are spaces."""
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
def test_an_event_goes_to_the_git_directory_that_git_itself_would_name(family: Path, name: str) -> None:
    common = git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=family / name).strip()
    spool = type(family)(common) / "clia/spool"
    payload = json.dumps(name).encode()
    assert fire(family / name, payload) == QUIET
    assert [event.head["cwd"] for event in events(spool) if event.payload == payload] == [os.fsencode(family / name)]


def test_elsewhere_nothing_is_written(tree: Tree) -> None:
    """A plug-in may be installed for every repository. A large event is read all the same: the tool's pipe stays open."""
    home = tree.directory("home")
    plain = tree.directory("plain")
    git("init", "--quiet", cwd=plain)
    tree.write("broken/.git", "nonsense\n")
    tree.write("dangling/.git", "gitdir: ../nowhere\n")
    before = tree.snapshot()
    for name in ("plain", "broken", "dangling", "home"):
        assert in_shell(f"{LARGE} hook codex; exit ${{PIPESTATUS[0]}}", tree.root / name, environment(home)) == QUIET
    assert tree.snapshot() == before


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for_and_says_nothing(space: Path, spy: Spy) -> None:
    """As ``.git`` it makes no repository, as ``commondir`` no worktree of another, as the lock no ingest that runs."""
    for name in ("outside/.git", "space/.git/commondir"):
        path = space.parent / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    assert fire(space.parent / "outside") == QUIET
    assert fire(space) == QUIET
    os.mkfifo(spool_of(space) / "ingest.lock")
    assert spy.fire(space, "Stop")
    assert len(events(spool_of(space))) == 2


def test_a_git_file_that_leads_into_somebody_elses_repository_records_nothing(family: Path) -> None:
    """Whoever wrote it, the repository itself must know the worktree; only a way back that leads to this file says so."""
    outer = family / "outer/.git"
    known, copied = outer / "worktrees/linked", family / "foreign/copied"
    copied.mkdir(parents=True)
    (copied / "commondir").write_text(f"{outer}\n")
    (copied / "gitdir").write_text(f"{family}/foreign/.git\n")
    (outer / "worktrees/lost").mkdir()
    (outer / "worktrees/lost/commondir").write_text("../..\n")
    for target in (known, outer / "worktrees/lost", copied, outer):
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


def test_a_git_directory_that_is_kept_apart_is_its_worktrees(tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    git("init", "--quiet", "--separate-git-dir=../kept.git", cwd=tmp_path / "apart")
    (tmp_path / "kept.git/clia").mkdir()
    assert fire(tmp_path / "apart") == QUIET
    assert len(events(tmp_path / "kept.git/clia/spool")) == 1


@pytest.mark.parametrize(
    ("tool", "variable"), [("claude-code", "CLAUDE_PROJECT_DIR"), ("gemini", "GEMINI_PROJECT_DIR"), ("codex", "CODEX_HOME")]
)
def test_a_session_that_left_its_project_is_still_recorded_there(space: Path, tool: str, variable: str) -> None:
    """In a directory that is gone, and in one of no space. Codex names no project: its event is nobody's."""
    script = f'cd "$(mktemp -d)" && rmdir "$PWD" && echo gone | "$0" hook {tool}; cd / && echo aside | "$0" hook {tool}'
    assert in_shell(script, space, environment(None, **{variable: str(space)})) == QUIET
    assert [event.payload for event in events(spool_of(space))] == ([] if tool == "codex" else [b"gone\n", b"aside\n"])
    assert all(event.head["cwd"] == os.fsencode(space) for event in events(spool_of(space)))


def test_a_spool_that_cannot_be_written_has_one_in_the_home_beside_it(space: Path, tmp_path: Path) -> None:
    spool_of(space).write_text("no directory")
    home = tmp_path / "home"
    assert fire(space, env=environment(home)) == QUIET
    name = hashlib.sha256(os.fsencode(space / ".git")).hexdigest()[:16]
    (event,) = events(home / ".local/state/clia/spool" / name)
    assert event.payload == EVENT


# What a tool must never notice


@pytest.mark.parametrize("home", [None, "", "relative", os.devnull])
def test_an_event_that_can_be_put_nowhere_is_one_line_and_no_failure(space: Path, home: str | None) -> None:
    spool_of(space).write_text("no directory")
    fired = fire(space, env=environment(None) | ({} if home is None else {"HOME": home}))
    assert (fired.code, fired.out) == (0, b"")
    assert fired.err.startswith(b"clia hook: the event was not stored: ")
    assert fired.err.count(b"\n") == 1
    script = '"$0" hook codex 2>&- <<< "{}"; "$0" hook codex 2>/dev/full <<< "{}"'
    assert in_shell(script, space, environment(None)) == QUIET


@pytest.mark.parametrize("closed", ["<&-", "</dev/null", "0>/dev/null", "<&- >&-", "<&- >&- 2>&-", ">&-", ">/dev/full"])
def test_a_hook_ends_well_whatever_is_closed(space: Path, closed: str) -> None:
    assert in_shell(f'"$0" hook claude-code {closed}', space) == QUIET
    assert events(spool_of(space)) == []


def test_whoever_types_it_at_a_terminal_does_not_wait_for_ever(space: Path) -> None:
    ours, theirs = os.openpty()
    fired = in_shell('"$0" hook codex', space, stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert (fired.code, fired.out, fired.err.count(b"\n")) == (0, b"", 1)
    assert b"terminal" in fired.err


def test_a_tool_that_is_not_known_is_told_and_not_failed(space: Path) -> None:
    """The settings may be those of a newer version. A large event is read, so that the tool does not write into a closed pipe."""
    fired = fire(space, b"x" * 3_000_000, "no\nsuch")
    assert (fired.code, fired.out) == (0, b"")
    assert fired.err == b"clia hook: the event was not stored: unknown tool 'no\\nsuch'; known tools: claude-code, codex, gemini\n"
    assert events(spool_of(space)) == []


def test_words_that_are_no_tool_go_to_the_usual_commands(space: Path) -> None:
    assert fire(space, words=["--from-a-newer-version"]) == QUIET
    fire(space, words=["--help"])
    link = space / "cadence-agent-cli"
    link.symlink_to(program())
    assert clia("hook", "codex", cwd=space, executable=str(link)).code == 2, "an agent's own program has no such command"
    for words in (["hook"], ["hook", "--frobnicate"]):
        ran = clia(*words, cwd=space)
        assert ran.code == 2
        assert clia("-m", "clia", *words, cwd=space, executable=sys.executable) == ran
    assert len(events(spool_of(space))) == 1


def test_as_a_module_and_under_its_other_name_it_is_the_same_hook(space: Path) -> None:
    script = f'echo 1 | {sys.executable} -m clia hook codex; echo 2 | "$0-agent-cli" hook codex'
    assert in_shell(script, space) == QUIET
    assert [event.payload for event in events(spool_of(space))] == [b"1\n", b"2\n"]


def test_an_interrupted_hook_fails_nobody_and_leaves_nothing(space: Path) -> None:
    with subprocess.Popen(
        [program(), "hook", "codex"], cwd=space, env=environment(None), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as hook:
        assert hook.stdin is not None
        hook.stdin.write(b"x" * 3_000_000)  # more than a pipe holds and more than is kept in memory: it has begun
        hook.send_signal(signal.SIGINT)
        _, said = hook.communicate()
    assert (hook.returncode, said) == (0, b"clia hook: the event was not stored: KeyboardInterrupt: \n")
    assert events(spool_of(space)) == []


# What it starts

SPY = """
import json, os, sys
def tell(event, args):
    if event == "os.posix_spawn":
        words, passed = ([os.fsdecode(each) for each in args[1]], {os.fsdecode(k): os.fsdecode(v) for k, v in args[2].items()})
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


class Spy:
    """Looks at what a hook starts, in the hook itself and in what it started."""

    def __init__(self, directory: Path) -> None:
        (directory / "spy").mkdir()
        (directory / "spy/sitecustomize.py").write_text(SPY)
        self.told, self.child = directory / "told.json", directory / "child"
        os.mkfifo(self.child)
        # Open before anybody writes, and for both: nobody waits for the other side to be there.
        self.pipe = os.open(self.child, os.O_RDWR | os.O_NONBLOCK)
        path = os.pathsep.join([str(directory / "spy"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = environment(None, PYTHONPATH=path, SPY=str(self.told), SPY_CHILD=str(self.child), CLIA_HOOK_INGEST="")

    def fire(self, cwd: Path, event: str, tool: str = "claude-code", **more: str) -> dict[str, Any] | None:
        """What the hook started, if it did."""
        assert fire(cwd, b'{"hook_event_name": "%s"}' % event.encode(), tool, env=self.environment | more) == QUIET
        told: dict[str, Any] | None = json.loads(self.told.read_text()) if self.told.exists() else None
        self.told.unlink(missing_ok=True)
        return told

    def seen_by_child(self) -> Any:
        assert select.select([self.pipe], [], [], 60)[0], "it was not started"
        return json.loads(os.read(self.pipe, 1 << 16))


@pytest.fixture
def spy(tmp_path: Path) -> Spy:
    return Spy(tmp_path)


def test_the_end_of_something_starts_ingest_apart_from_the_tool(space: Path, spy: Spy) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    git_words = {"GIT_DIR": "/x", "GIT_INDEX_FILE": "/y", "GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "t@example.org"}
    script = f'echo \'{{"hook_event_name":"Stop"}}\' | "$0" hook codex {theirs}>&{theirs}'
    done = subprocess.run(
        ["bash", "-c", script, program()],
        cwd=space,
        env=spy.environment | git_words | {"CLIA_AGENT": "scout", "CODEX_HOME": "/codex"},
        pass_fds=[theirs],
        capture_output=True,
        check=True,
    )
    told, child = json.loads(spy.told.read_text()), spy.seen_by_child()
    os.close(theirs)
    assert os.read(ours, 1) == b"", "somebody still holds the tool's pipe"
    os.close(ours)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert told["words"] == [sys.executable, "-P", "-m", "clia", "ingest", "--quiet", "--path", str(space)]
    assert {key for key in told["environment"] if key.startswith("GIT_")} == {"GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"}
    assert told["environment"]["CODEX_HOME"] == "/codex"
    assert "CLIA_AGENT" not in told["environment"]
    assert child["leader"]
    assert child["path"] != str(space)
    assert {child["files"][each] for each in ("0", "1", "2")} == {os.devnull}
    assert not [each for each in child["files"].values() if each.startswith("pipe:")]


def test_only_what_begins_or_ends_something_starts_ingest(space: Path, spy: Spy) -> None:
    turns = ["SessionStart", "StopFailure", "SubagentStart", "SubagentStop", "SessionEnd", "AfterAgent"]
    started = [name for name in [*turns, "PreToolUse", "BeforeTool", "Stopped"] if spy.fire(space, name, "gemini")]
    assert started == turns
    assert len(events(spool_of(space))) == 9


def test_ingest_is_not_started_where_it_runs_already_or_is_not_wanted(space: Path, spy: Spy) -> None:
    assert not spy.fire(space, "Stop", CLIA_HOOK_INGEST="off")
    with open(spool_of(space) / "ingest.lock", "w") as lock:
        assert spy.fire(space, "Stop")
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not spy.fire(space, "Stop")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert spy.fire(space, "Stop")
    assert len(events(spool_of(space))) == 4


# What it costs


def test_the_installed_program_loads_for_a_hook_nothing_but_the_hook(space: Path) -> None:
    """Beside what bare Python has, and ``re``, which the script of some installers wants."""
    loaded = imported(program(), "hook", "claude-code", cwd=space)
    ours = {"clia", "clia.errors", "clia.cli", "clia.cli.entry", "clia.capture", "clia.capture.hook", "clia.capture.spool"}
    assert loaded - imported("-c", "import re", cwd=space) == ours | {"__future__"}
    assert len(events(spool_of(space))) == 1


def imported(*words: str, cwd: Path) -> set[str]:
    """Every module that Python loads to run something."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, cwd=cwd, env=environment(None), input=EVENT, capture_output=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if line.startswith("import time:")}
