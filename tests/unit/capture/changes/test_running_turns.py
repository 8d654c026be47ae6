"""Lines of commits that a tool makes in a turn that is still running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support import git
from support.captured import run_ingest
from support.spaces import settings
from support.tool_turns import agent_of, bash, begin_call, commit_all, end_call, send, start, stop

if TYPE_CHECKING:
    from pathlib import Path


def by_agent(space: clia.Space, path: str, revision: str = "main") -> list[tuple[str, str | None]]:
    return [(line.text, line.agent) for line in space.blame(revision, path)]


def test_a_commit_of_the_running_turn_is_the_tools_as_soon_as_its_call_is_recorded(root: Path, space: clia.Space) -> None:
    (root / "README.md").write_text("people\nperson before the turn\n")
    start(root)
    (root / "README.md").write_text("people\nperson before the turn\ntool\n")
    bash(root, *commit_all("The tool's"))
    run_ingest(root)
    agent = agent_of(space)
    expected = [("people", None), ("person before the turn", None), ("tool", agent)]
    assert by_agent(space, "README.md") == expected
    with clia.open(root, settings=settings()) as other:  # of a stranger, such as the forge
        assert by_agent(other, "README.md") == expected
        assert other.history.authorship("main").agents == {agent: 1}
    (note,) = git("log", "-1", "--format=%N", "--notes=refs/notes/clia/attribution", "main", cwd=root).splitlines()[:1] or [""]
    assert agent not in note, "what the turn adds is not recorded before the turn"
    stop(root)
    assert by_agent(space, "README.md") == expected
    assert space.captures.running_commits() == {}


def test_commits_of_people_during_a_running_turn_stay_theirs(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "person.txt").write_text("person\n")
    for words in commit_all("A person's, between two calls"):
        git(*words, cwd=root)
    (root / "tool.txt").write_text("tool\n")
    bash(root, *commit_all("The tool's"))
    git("checkout", "-q", "-b", "side", "main~1", cwd=root)
    (root / "side.txt").write_text("side\n")
    for words in commit_all("Another person's"):
        git(*words, cwd=root)
    call = begin_call(root, "git cherry-pick side")
    git("checkout", "-q", "main", cwd=root)
    git("cherry-pick", "side", cwd=root)
    end_call(root, call)
    run_ingest(root)
    agent = agent_of(space)
    assert by_agent(space, "person.txt") == [("person", None)]
    assert by_agent(space, "tool.txt") == [("tool", agent)]
    assert by_agent(space, "side.txt") == [("side", None)]
    send(root, "SessionEnd", reason="other")
    run_ingest(root)
    assert by_agent(space, "tool.txt") == [("tool", agent)]
