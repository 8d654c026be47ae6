from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support.captured import agent_of, new_space, put, recorded, rehearse, take_in
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "repo")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as made:
        yield made


def at_once(root: Path, script: list[dict[str, Any]]) -> str:
    """A session whose events are all taken in as they come; its agent."""
    told = rehearse(root, script, after=lambda: take_in(root))
    take_in(root)
    return f"claude-{told['session'][:8]}"


def writer(name: str) -> dict[str, Any]:
    return {"subagent": name, "task": f"Write {name}.txt.", "steps": [{"write": f"{name}.txt", "text": f"{name}\n"}, {"say": name}]}


def authors(space: clia.Space, agent: str, path: str) -> set[str | None]:
    return {line.agent for line in space.blame(agent, path)}


def test_the_work_of_sub_agents_one_after_the_other_is_each_ones_own(root: Path, space: clia.Space) -> None:
    """The second one's start commits what is there: the first one's offer is taken in before that."""
    agent = at_once(root, [{"prompt": "Go."}, writer("one"), writer("two"), {"say": "Done."}, {"stop": True}])
    for name in ("one", "two"):
        (author,) = authors(space, agent, f"{name}.txt")
        assert author is not None
        assert author.startswith(f"{agent}-{name}-")
    assert [each.kind for each in space.relations(agent) if each.kind == "offers-merge"] == []


def test_the_work_of_a_sub_agent_is_its_own_after_the_session_was_killed_and_resumed(root: Path, space: clia.Space) -> None:
    agent = at_once(root, [{"prompt": "Go."}, writer("one"), {"say": "Now I die."}])
    at_once(root, [{"resume": 1}, {"prompt": "Go on."}, {"say": "Done."}, {"stop": True}])
    (author,) = authors(space, agent, "one.txt")
    assert author is not None
    assert author.startswith(f"{agent}-one-")


def hook(root: Path, name: str, session: str = "abcdef12-9", **more: Any) -> None:
    body = {"session_id": session, "hook_event_name": name, "cwd": str(root), **more}
    put(root, json.dumps(body).encode())


def test_a_sub_agent_that_goes_on_beside_others_has_the_files_that_it_named_since(root: Path, space: clia.Space) -> None:
    """What it named before, and others have changed meanwhile, is not its work a second time."""
    for sub in ("s1", "s2"):
        hook(root, "SubagentStart", agent_id=sub, agent_type="maker")
    for name in ("a.txt", "b.txt"):
        hook(root, "PreToolUse", agent_id="s1", tool_name="Write", tool_use_id=name, tool_input={"file_path": str(root / name)})
        (root / name).write_text("s1\n")
        hook(root, "SubagentStop", agent_id="s1")
        take_in(root)
        (root / "a.txt").write_text("another\n")
    maker = agent_of(space, "claude-code", "abcdef12-9", "s1")
    assert space.files(maker) == {"README.md": b"people\n", "a.txt": b"s1\n", "b.txt": b"s1\n"}


def test_what_a_sub_agent_said_last_is_its_own_also_where_it_has_no_transcript(root: Path, space: clia.Space) -> None:
    hook(root, "SubagentStart", agent_id="s1", agent_type="maker")
    hook(root, "SubagentStop", agent_id="s1", last_assistant_message="Made it.")
    take_in(root)
    maker = agent_of(space, "claude-code", "abcdef12-9", "s1")
    assert [(agent, entry["text"]) for agent, entry in recorded(space) if entry["kind"] == "said"] == [(maker, "Made it.")]


def late(root: Path, script: list[dict[str, Any]]) -> str:
    """A session that is taken in when it is over; its agent."""
    told = rehearse(root, script)
    take_in(root)
    return f"claude-{told['session'][:8]}"


def test_a_sub_agent_of_after_a_resumption_is_not_taken_for_one_of_before(root: Path, space: clia.Space) -> None:
    """Its transcript lies there already when the first end is taken in."""
    (root / "mine.txt").write_text("mine\n")
    first: list[dict[str, Any]] = [{"prompt": "One."}, {"write": "one.txt", "text": "one\n"}, {"stop": True}, {"end": "other"}]
    agent = late(root, [*first, {"resume": 1}, {"prompt": "Two."}, writer("two"), {"say": "Done."}, {"stop": True}])
    (sub,) = space.sub_agents(agent)
    assert sub.startswith(f"{agent}-two-")
    assert [each.kind for each in space.session_log(sub)] == ["turn", "spawn"]
    assert set(space.files(sub)) - {"README.md"} <= {"two.txt"}
    assert [each.kind for each in space.session_log(agent)].count("session-merge") <= 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_lines_of_others_in_a_file_that_a_sub_agent_named_are_not_its_own(root: Path, space: clia.Space, when: str) -> None:
    """Late, nobody can tell whose each line is: the file comes with the session's turn."""
    edits: dict[str, Any] = {"subagent": "alpha", "task": "T.", "steps": [{"edit": "s.txt", "old": "one", "new": "alpha"}]}
    start = {"write": "s.txt", "text": "one\nthree\n"}
    after: list[dict[str, Any]] = [{"edit": "s.txt", "old": "three", "new": "parent"}] if when == "after" else []
    if when == "after":
        (root / "s.txt").write_text("one\nthree\n")
    steps = [edits, *after] if when == "after" else [start, edits]
    agent = late(root, [{"prompt": "Go."}, *steps, {"say": "Done."}, {"stop": True}])
    assert authors(space, agent, "s.txt") == {agent}
