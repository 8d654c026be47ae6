"""Kills ingest at every named step, and the tool beside it: afterwards everything is recorded exactly once."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from support import git
from support.captured import check_once, check_sound, hook, new_space, rehearse, run_ingest, waiting
from support.crashes import KILLED, CrashHook, CrashPoint, assert_killed, exit_code_of, run_all
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

TEAM: list[dict[str, Any]] = [
    {
        "subagent": "general-purpose",
        "task": "Write the one.",
        "steps": [{"think": "How?"}, {"write": "one.txt", "text": "one\n"}, {"say": "Done."}],
        "parallel": True,
    },
    {
        "subagent": "code-reviewer",
        "task": "Write the other.",
        "steps": [{"write": "other.txt", "text": "other\n"}, {"fail": "exit 3"}, {"say": "Done."}],
        "parallel": True,
    },
]
UNTIL_KILLED: list[dict[str, Any]] = [
    {"prompt": "Go on."},
    {"think": "I start."},
    {"write": "main.txt", "text": "first\n"},
    {"say": "Done."},
    {"stop": True},
    {"prompt": "Have it done."},
    *TEAM,
    {"edit": "main.txt", "old": "first", "new": "second"},
    {"crash": True},
]
AFTERWARDS: list[dict[str, Any]] = [
    {"resume": 1},
    {"prompt": "Go on."},
    {"bash": "echo more > more.txt"},
    {"say": "Done."},
    {"stop": True},
    {"end": "other"},
]
SHORT: list[dict[str, Any]] = [
    {"prompt": "Write."},
    {"write": "main.txt", "text": "main\n"},
    {"subagent": "explorer", "task": "Help.", "steps": [{"write": "sub.txt", "text": "sub\n"}, {"say": "Helped."}]},
    {"say": "Written."},
    {"stop": True},
    {"end": "other"},
]
INGEST_STEPS = {"entries-made", "entries-recorded", "baseline-recorded", "turn-recorded", "event-recorded"}


class Spooled(NamedTuple):
    """A space with events that are not ingested yet, and the reports of the rehearsals that sent them."""

    root: Path
    reports: tuple[dict[str, Any], ...]

    def copy(self, root: Path) -> Path:
        """A copy at another path, which the events and the transcripts name."""
        shutil.copytree(self.root, root, symlinks=True)
        transcripts = (root / ".git/clia/rehearsal").rglob("*.jsonl")
        for path in (*(root / ".git/clia/spool/new").iterdir(), *transcripts):
            path.write_bytes(path.read_bytes().replace(str(self.root).encode(), str(root).encode()))
        return root


def ingest_at(root: Path, crash: CrashHook | None = None) -> None:
    result = run_ingest(root, crash)
    assert not result.trouble, result.trouble


def survives(root: Path, at: int) -> bool:
    """Run an ingest that is killed when it reaches this number of steps; return whether it ended before."""
    code = exit_code_of(partial(ingest_at, root, CrashHook(at, armed=True)))
    assert code in (0, KILLED), code
    return code == 0


def check_all(root: Path, reports: tuple[dict[str, Any], ...]) -> None:
    assert waiting(root) == []
    check_once(root, *reports)


def files(root: Path, agent: str) -> set[str]:
    return set(git("ls-tree", "-r", "--name-only", f"agents/{agent}", cwd=root).split())


def test_a_session_with_sub_agents_is_recorded_once_if_the_tool_and_ingest_are_killed(tmp_path: Path) -> None:
    """Ingest is killed at its first step, the next at its second, and so on, each on what the last one left, until one ends."""
    root = new_space(tmp_path / "space")
    reports = (rehearse(root, UNTIL_KILLED), rehearse(root, AFTERWARDS))
    assert reports[0]["ended"] == "crashed"
    deaths = 0
    while not survives(root, deaths + 1):
        deaths += 1
    assert deaths >= 15
    check_all(root, reports)
    with clia.open(root, settings=settings()) as space:
        (session,) = (name for name in space.agents() if space.parent_agent(name) is None)
        assert len(space.sub_agents(session)) == 2
        assert {"main.txt", "more.txt", "one.txt", "other.txt"} <= files(root, session)
        assert space.files(session)["main.txt"] == b"second\n"
        assert sorted(space.merged_sessions(session)) == sorted(space.sub_agents(session))
        texts = [entry["text"] for entry in space.trace_pending(session)]
        assert texts == []


@pytest.fixture(scope="module")
def spooled(tmp_path_factory: pytest.TempPathFactory) -> Spooled:
    root = new_space(tmp_path_factory.mktemp("spooled").resolve() / "space")
    return Spooled(root, (rehearse(root, SHORT),))


@pytest.fixture(scope="module")
def points(spooled: Spooled, tmp_path_factory: pytest.TempPathFactory) -> list[CrashPoint]:
    """Every step of an ingest that is not killed."""
    watch = CrashHook(armed=True)
    run_ingest(spooled.copy(tmp_path_factory.mktemp("watched").resolve() / "space"), watch)
    return watch.passed


def _is_killed_once(spooled: Spooled, root: Path, number: int) -> None:
    spooled.copy(root)
    assert not survives(root, number)
    ingest_at(root)
    check_all(root, spooled.reports)
    shutil.rmtree(root)


def test_after_a_kill_at_any_step_the_next_ingest_continues(
    spooled: Spooled, points: list[CrashPoint], tmp_path: Path, soak: bool
) -> None:
    """Each step on a separate copy: the first of each name, and some more; all of them in a soak."""
    assert {point.step for point in points} >= INGEST_STEPS | {"intent-recorded", "committed", "notes-bound", "finished"}
    numbers = {number for number, point in enumerate(points, 1) if point.number == 1} | set(
        range(1, len(points) + 1, 1 if soak else 17)
    )
    run_all([partial(_is_killed_once, spooled, tmp_path / str(number), number) for number in sorted(numbers)])


def test_a_store_that_is_lost_halfway_duplicates_nothing(tmp_path: Path) -> None:
    """Recorded entries are found in git; the transcripts are read again from the beginning."""
    root = new_space(tmp_path / "space")
    first = rehearse(root, UNTIL_KILLED)
    ingest_at(root)
    with clia.open(root, settings=settings()) as space:
        agents = space.agents()
        for name in agents:  # pending entries were only in the store
            if space.trace_pending(name):
                space.commit_with_trace(name, "finding", changes={})
    for path in (root / ".git/clia").glob("space.db*"):
        path.unlink()
    second = rehearse(root, AFTERWARDS)
    assert [problem.code for problem in run_ingest(root, None).trouble] == ["store-lost"]
    with clia.open(root, settings=settings()) as space:
        space.doctor(repair=True)
    ingest_at(root)
    check_all(root, (first, second))
    with clia.open(root, settings=settings()) as space:
        assert space.agents() == agents


def test_a_turn_that_was_committed_before_the_kill_is_not_committed_again(tmp_path: Path) -> None:
    """Even if files changed since; those belong to the next turn."""
    root = new_space(tmp_path / "space")
    report = rehearse(root, SHORT[:2] + SHORT[3:5])
    assert_killed(partial(ingest_at, root, CrashHook(CrashPoint("turn-recorded", 1), armed=True)))
    assert len(waiting(root)) > 0
    (root / "later.txt").write_text("later\n")
    ingest_at(root)
    check_all(root, (report,))
    with clia.open(root, settings=settings()) as space:
        (agent,) = space.agents()
        assert [commit.message for commit in space.log(agent) if commit.kind == "turn"] == ["Write.\n\nWritten."]


def test_changes_of_people_before_a_prompt_stay_theirs_if_ingest_is_killed(tmp_path: Path) -> None:
    """The next ingest runs when the turn has made changes, too."""
    root = new_space(tmp_path / "space")
    hook(root, "SessionStart", source="startup")
    hook(root, "Stop")
    ingest_at(root)
    (root / "mine.txt").write_text("mine\n")
    (root / "README.md").write_text("people\nmine\n")
    hook(root, "UserPromptSubmit", prompt="Write.", prompt_id="p")
    assert_killed(partial(ingest_at, root, CrashHook(CrashPoint("baseline-recorded", 1), armed=True)))
    hook(root, "PreToolUse", tool_name="Bash", tool_use_id="t", tool_input={"command": "make"})
    (root / "made.txt").write_text("made\n")
    hook(root, "Stop")
    ingest_at(root)
    with clia.open(root, settings=settings()) as space:
        (agent,) = space.agents()
        assert set(space.files(agent)) == {"README.md", "made.txt"}
        assert [line.agent for path in ("README.md", "made.txt") for line in space.blame(agent, path)] == [None, None, agent]
        check_sound(root, space)


def test_lines_that_a_session_found_in_untracked_files_stay_theirs_if_ingest_is_killed(tmp_path: Path) -> None:
    """Ingest is killed at its first step, the next at its second, and so on, until one ends. The files that it found stay out."""
    root = new_space(tmp_path / "space")
    (root / "notes.txt").write_text("mine\n")
    (root / ".env").write_text("TOKEN=correct-horse-7\n")
    hook(root, "SessionStart", source="startup")
    hook(root, "UserPromptSubmit", prompt="Write.", prompt_id="p")
    ingest_at(root)
    (root / "notes.txt").write_text("mine\nthe tool's\n")
    (root / "made.txt").write_text("made\n")
    (root / "key.txt").write_text("ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5\n")
    hook(root, "Stop")
    deaths = 0
    while not survives(root, deaths + 1):
        deaths += 1
    assert deaths >= 8
    with clia.open(root, settings=settings()) as space:
        (agent,) = space.agents()
        assert set(space.files(agent)) == {"README.md", "made.txt", "notes.txt"}
        assert [line.agent for line in space.blame(agent, "notes.txt")] == [None, agent]
        subjects = [commit.subject for commit in space.log(agent) if commit.agent == agent]
        assert sorted(subjects)[:2] == ["Write.", "spawn: claude-code session abcdef12"], subjects
        check_sound(root, space)
    words = ["git", "cat-file", "--batch-all-objects", "--batch"]
    everything = subprocess.run(words, cwd=root, capture_output=True, check=True).stdout
    assert b"correct-horse-7" not in everything
    assert b"aB3dE5fG7hI9" not in everything
    assert not list((root / ".git/clia/staging").iterdir())
