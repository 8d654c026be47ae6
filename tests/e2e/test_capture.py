"""Capture with the installed program: killed tools, concurrent tools and ingests, and the user's own work."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import clia as library
from clia.workers.setup import WorkerOverrides, open_worker
from support import clia, git, program
from support.captured import agent_of, check_once, common_dir, new_space, put, recorded, rehearse, run_ingest, waiting
from support.disks import small_disk
from support.hook_spools import QUIET, environment, fire
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Script = list[dict[str, Any]]

OFF = {"CLIA_HOOK_INGEST": "off"}
TURN: Script = [{"prompt": "Write."}, {"write": "main.txt", "text": "main\n"}, {"say": "Done."}, {"stop": True}]
END: Script = [{"end": "other"}]


def sub_agent_step(kind: str) -> dict[str, Any]:
    steps = [{"write": f"{kind}.txt", "text": "x\n"}, {"say": "Helped."}]
    return {"subagent": kind, "task": "Help.", "steps": steps, "parallel": True}


class RehearsalProcess:
    """A running ``clia hook rehearse`` of the installed program."""

    def __init__(self, root: Path, tool: str, script: Script, *arguments: str, env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [program(), "hook", "rehearse", tool, "--path", ".", "--script", "-", "--json", *arguments],
            cwd=root,
            env=environment(None, CLIA_HOOK_INGEST="") | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(script).encode())
        self._process.stdin.close()
        self._process.stdin = None  # otherwise communicate() writes to it

    def report(self, code: int = 0) -> dict[str, Any]:
        out, _ = self._process.communicate()
        assert self._process.returncode == code
        report: dict[str, Any] = json.loads(out)
        return report


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "space")


def ingested(root: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    ran = clia("ingest", "--json", *arguments, cwd=root)
    assert ran.code == code, ran.err
    report: dict[str, Any] = ran.json()
    return report


# From hooks to commits


def test_hooks_record_a_killed_and_resumed_session_with_sub_agents(root: Path) -> None:
    """Only the hooks start ingest. The last one may still run, so the test's own ingest waits for it."""
    until: Script = [
        *TURN,
        {"prompt": "Go on."},
        sub_agent_step("left"),
        sub_agent_step("right"),
        {"write": "left-over.txt", "text": "x\n"},
    ]
    reports = [RehearsalProcess(root, "claude-code", [*until, {"crash": True}], "--seed", "5").report(-signal.SIGKILL)]
    reports.append(RehearsalProcess(root, "claude-code", [{"resume": 1}, {"prompt": "Go on."}, *END], "--seed", "5").report())
    assert ingested(root)["trouble"] == []
    assert waiting(root) == []
    check_once(root, *reports)
    with library.open(root, settings=settings()) as space:
        agent = f"claude-{reports[0]['session'][:8]}"
        assert {"main.txt", "left.txt", "right.txt", "left-over.txt"} <= set(space.files(agent))
        assert len(space.relations.sub_agents(agent)) == len(space.relations.merged(agent)) == 2
    assert clia("verify", cwd=root).code == 0


def test_concurrent_tools_are_separate_agents(root: Path) -> None:
    """Two in one worktree, a third in another one: no event is mixed up, lost or recorded twice."""
    linked = root.parent / "linked"
    git("worktree", "add", "--quiet", "-b", "side", str(linked), cwd=root)
    git("commit", "--quiet", "--allow-empty", "--message=side", cwd=linked)
    script: Script = [*TURN, {"prompt": "Write."}, sub_agent_step("helper"), {"say": "Done."}, {"stop": True}, *END]
    rehearsals = [
        RehearsalProcess(root, "claude-code", script, env=OFF),
        RehearsalProcess(root, "codex", script),
        RehearsalProcess(linked, "claude-code", script, "--seed", "9", env=OFF),
    ]
    reports = [rehearsal.report() for rehearsal in rehearsals]
    assert ingested(root)["trouble"] == []
    check_once(root, *reports)
    with library.open(root, settings=settings()) as space:
        agents = [agent_of(space, report["tool"], report["session"]) for report in reports]
        assert len(set(agents)) == 3
        side = git("rev-parse", "side", cwd=root).strip()
        assert [side in git("rev-list", f"agents/{agent}", cwd=root).split() for agent in agents] == [False, False, True]


def test_concurrent_ingests_and_hooks_duplicate_and_lose_nothing(root: Path) -> None:
    reports = [rehearse(root, [*TURN, sub_agent_step("helper"), *TURN, *END], seed=seed) for seed in (1, 2)]
    arguments = [program(), "ingest", "--path", str(root)]
    racing = [subprocess.Popen([*arguments, *more], stdout=subprocess.DEVNULL) for more in ((), ("--json",), ("--quiet",))]
    reports += [
        rehearse(root, [*TURN, sub_agent_step("helper"), *END], tool, seed=3) for tool in ("claude-code", "codex", "gemini")
    ]
    assert [process.wait() for process in racing] == [0, 0, 0]
    ingested(root)
    assert waiting(root) == []
    check_once(root, *reports)


def test_a_quiet_ingest_leaves_the_work_to_a_running_one(root: Path) -> None:
    rehearse(root, TURN)
    events = waiting(root)
    with open(root / ".git/clia/spool/ingest.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = clia("ingest", "--quiet", cwd=root)
        assert (ran.code, ran.out, ran.err) == (0, "", "")
        assert waiting(root) == events
    assert clia("ingest", "--quiet", cwd=root).code == 0
    assert waiting(root) == []


def test_ingest_reports_counts_rejected_events_and_trouble(root: Path) -> None:
    """As text and as JSON, including why events are left in the spool."""
    assert clia("ingest", cwd=root).out == "nothing to ingest\n"
    assert clia("ingest", "--json", cwd=root.parent).code != 0
    rehearse(root, [*TURN, *END])
    put(root, b"{half")
    ran = clia("ingest", cwd=root)
    assert (ran.code, ran.out) == (0, "6 events, 5 trace entries, 1 new agent, 1 commit, 1 event rejected\n")
    assert "clia doctor" in ran.err
    assert ingested(root) == dict.fromkeys(library_fields(), 0) | {"trouble": []}
    rehearse(root, TURN, seed=2)
    refs = root / ".git/refs/clia/agents"
    refs.rename(refs.with_name("aside"))
    refs.write_text("in the way")
    report = ingested(root, code=1)
    assert report["left"] == len(waiting(root)) == 5
    assert report["trouble"][0]["code"]
    assert json.loads((root / ".git/clia/spool/last-error.json").read_text())["code"] == report["trouble"][0]["code"]
    refs.unlink()
    refs.with_name("aside").rename(refs)
    assert ingested(root)["events"] == 5
    assert not (root / ".git/clia/spool/last-error.json").exists()


def library_fields() -> list[str]:
    from clia.capture.entries import IngestCounts

    return list(IngestCounts._fields)


def test_a_worker_ingests_the_events_of_hooks(root: Path) -> None:
    report = rehearse(root, [*TURN, *END])
    with open_worker(str(root), settings(), WorkerOverrides(), lambda _: None, environment={}):
        assert waiting(root) == []
    check_once(root, report)


def test_events_of_a_read_only_repository_are_kept_in_the_home_directory(tmp_path: Path) -> None:
    """Ingest reports the error and removes nothing; it records the events when the repository is writable again."""
    home = tmp_path / "home"
    env = environment(home) | {"COLUMNS": "100", "NO_COLOR": "1", "XDG_STATE_HOME": str(home / ".local/state")}
    with small_disk(tmp_path / "disk", 64 << 20) as disk:
        root = new_space(disk.resolve() / "space")
        assert fire(root, prompt("first"), env=env) == QUIET
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert fire(root, prompt("second"), env=env) == QUIET
        (fallback,) = (home / ".local/state/clia/spool").iterdir()
        assert (len(os.listdir(fallback / "new")), len(waiting(root))) == (1, 1)
        ran = clia("ingest", cwd=root, env=env)
        assert ran.code != 0
        assert "ead-only" in ran.err or "read only" in ran.err, ran.err
        assert "Traceback" not in ran.err
        assert (len(os.listdir(fallback / "new")), len(waiting(root))) == (1, 1)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert clia("ingest", cwd=root, env=env).code == 0
        assert (os.listdir(fallback / "new"), waiting(root)) == ([], [])
        with library.open(root, settings=settings()) as space:
            assert [entry["text"] for _, entry in recorded(space)] == ["first", "second"]


def prompt(text: str) -> bytes:
    return json.dumps({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": text, "prompt_id": text}).encode()


# The user's own work


def _all_kinds_of_changes(root: Path) -> None:
    (root / ".gitignore").write_text(".env\nbuild/\n")
    git("add", ".gitignore", cwd=root)
    git("commit", "--quiet", "--message=ignore", cwd=root)
    (root / "README.md").write_text("stashed\n")
    git("stash", "--quiet", cwd=root)
    (root / ".env").write_text("SECRET=1\n")
    (root / "build").mkdir()
    (root / "build/out").write_text("out\n")
    (root / "staged.txt").write_text("staged\n")
    git("add", "staged.txt", cwd=root)
    (root / "staged.txt").write_text("changed since\n")
    (root / "README.md").write_text("unstaged\n")
    (root / "untracked.txt").write_text("untracked\n")


def _merge_in_progress(root: Path) -> None:
    git("checkout", "--quiet", "-b", "other", cwd=root)
    (root / "README.md").write_text("theirs\n")
    git("commit", "--quiet", "--all", "--message=theirs", cwd=root)
    git("checkout", "--quiet", "main", cwd=root)
    (root / "README.md").write_text("ours\n")
    git("commit", "--quiet", "--all", "--message=ours", cwd=root)
    assert subprocess.run(["git", "merge", "--quiet", "other"], cwd=root, capture_output=True, check=False).returncode == 1


def _detached(root: Path) -> None:
    git("checkout", "--quiet", "--detach", cwd=root)


def _odd_names(root: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", b'"quoted"', "ünï".encode(), b"-dash", b" blank "):
        with open(os.path.join(os.fsencode(root), name), "wb") as file:
            file.write(b"odd\n")
    (root / "link").symlink_to("nowhere/at/all")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    git("add", "--all", cwd=root)


def _submodule(root: Path) -> None:
    part = root.parent / "part"
    part.mkdir()
    git("init", "--quiet", "--template=", cwd=part)
    git("commit", "--quiet", "--allow-empty", "--message=part", cwd=part)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "part", cwd=root)


def _rebase_in_progress(root: Path) -> None:
    _merge_in_progress(root)
    git("merge", "--abort", cwd=root)
    assert subprocess.run(["git", "rebase", "--quiet", "other"], cwd=root, capture_output=True, check=False).returncode == 1


def _sparse(root: Path) -> None:
    for name in ("here", "away"):
        (root / name).mkdir()
        (root / name / "file.txt").write_text(f"{name}\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=two folders", cwd=root)
    git("sparse-checkout", "set", "here", cwd=root)
    assert not (root / "away").exists()


def _line_endings_and_names(root: Path) -> None:
    """Lines end in CRLF, a file is binary, and a name changes only in case."""
    git("config", "core.autocrlf", "true", cwd=root)
    (root / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "binary.dat").write_bytes(bytes(range(256)))
    git("add", "--all", cwd=root)
    git("mv", "README.md", "Readme.md", cwd=root)


def _unchanged(root: Path) -> None:
    del root


STATES: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "all kinds of changes": (_all_kinds_of_changes, {".gitignore", "README.md", "staged.txt"}),
    "a merge in progress": (_merge_in_progress, {"README.md"}),
    "a detached head": (_detached, {"README.md"}),
    "a rebase in progress": (_rebase_in_progress, {"README.md"}),
    "a sparse checkout": (_sparse, {"README.md", "here/file.txt", "away/file.txt"}),
    "line endings and names": (_line_endings_and_names, {"Readme.md", "windows.txt", "binary.dat"}),
    "odd names": (
        _odd_names,
        {"README.md", "new\nline", "\udcff\udcfe", '"quoted"', "ünï", "-dash", " blank ", "link", "run.sh"},
    ),
    "a submodule": (_submodule, {"README.md", ".gitmodules", "part"}),
    "an unborn branch": (_unchanged, set()),
    "a linked worktree": (_unchanged, {"README.md"}),
}


PRESERVED = (
    "HEAD",
    "index",
    "MERGE_HEAD",
    "ORIG_HEAD",
    "MERGE_MSG",
    "REBASE_HEAD",
    "rebase-merge/git-rebase-todo",
    "rebase-merge/head-name",
    "info/sparse-checkout",
    "config",
    "logs/HEAD",
    "logs/refs/heads/main",
    "logs/refs/stash",
)


def state_of(place: Path) -> dict[str, object]:
    """The user's files, refs, index and stash, which ingest must not change."""
    common, admin = common_dir(place), git("rev-parse", "--absolute-git-dir", cwd=place).strip()
    state: dict[str, object] = {
        "status": git("--no-optional-locks", "status", "--porcelain", "--ignored", cwd=place),
        "refs": [
            line
            for line in git("for-each-ref", "--format=%(refname) %(objectname) %(symref)", cwd=place).splitlines()
            if not line.startswith(("refs/clia/", "refs/clia-local/", "refs/notes/clia/", "refs/heads/agents/"))
        ],
        "stash": git("stash", "list", cwd=place),
    }
    for path in {os.path.join(base, name) for base in (common, admin) for name in PRESERVED}:
        if os.path.exists(path):
            with open(path, "rb") as file:
                state[path] = (file.read(), os.stat(path).st_mtime_ns)
    for folder, folders, names in os.walk(os.fsencode(place)):
        folders[:] = [name for name in folders if name != b".git"]
        for file_path in (os.path.join(folder, name) for name in names if name != b".git"):
            info = os.lstat(file_path)
            state[os.fsdecode(file_path)] = (info.st_mtime_ns, info.st_mode, info.st_ino, info.st_size)
    return state


@contextmanager
def untouched(place: Path) -> Iterator[None]:
    before = state_of(place)
    yield
    assert state_of(place) == before


@pytest.mark.parametrize("name", STATES)
def test_ingest_does_not_change_the_users_index_branch_worktree_or_stash(tmp_path: Path, name: str) -> None:
    """In every state, the agent's commits contain the tracked files of the worktree, and those that the session made."""
    make, files = STATES[name]
    root = new_space(tmp_path.resolve() / "space", commit=name != "an unborn branch")
    place = root
    if name == "a linked worktree":
        place = root.parent / "linked"
        git("worktree", "add", "--quiet", "-b", "side", str(place), cwd=root)
    make(place)
    reports = [rehearse(place, [])]
    for script in ([*TURN, sub_agent_step("helper"), {"stop": True}], [{"bash": "echo more > more.txt"}, {"stop": True}, *END]):
        with untouched(place), untouched(root):
            assert not run_ingest(root).trouble
        reports.append(rehearse(place, [{"resume": len(reports)}, *script]))
    with untouched(place), untouched(root):
        assert not run_ingest(root).trouble
    check_once(root, *reports)
    with library.open(root, settings=settings()) as space:
        agent = agent_of(space, "claude-code", reports[0]["session"])
        assert set(space.files(agent)) == files | {"main.txt", "helper.txt", "more.txt"}
        for agent_name in space.agents():
            listed = git("log", "--all", "--format=", "--name-only", f"agents/{agent_name}", cwd=root).split("\n")
            assert not {".env", "build/out", "untracked.txt"} & set(listed)


def test_a_partial_clone_is_recorded_without_its_missing_files(tmp_path: Path) -> None:
    """Files that the clone has not fetched stay as they are."""
    origin = new_space(tmp_path.resolve() / "origin")
    (origin / "large.txt").write_text("large\n")
    git("add", ".", cwd=origin)
    git("commit", "--quiet", "--message=large", cwd=origin)
    git("config", "uploadpack.allowFilter", "true", cwd=origin)
    root = tmp_path.resolve() / "clone"
    git("clone", "--quiet", "--filter=blob:none", "--sparse", f"file://{origin}", str(root), cwd=tmp_path)
    git("sparse-checkout", "set", "--no-cone", "/README.md", cwd=root)
    library.init(root, settings=settings()).close()
    report = rehearse(root, [*TURN, *END])
    with untouched(root):
        assert not run_ingest(root).trouble
    check_once(root, report)
    with library.open(root, settings=settings()) as space:
        files = git("ls-tree", "-r", "--name-only", f"agents/{agent_of(space, 'claude-code', report['session'])}", cwd=root)
        assert set(files.split()) == {"README.md", "large.txt", "main.txt"}
