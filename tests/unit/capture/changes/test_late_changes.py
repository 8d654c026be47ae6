"""A tool is killed in a turn, and a person goes on in the same files: their lines stay theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture import hook, spool
from clia.capture.processes import has_ended
from support.captured import common_dir, later_file_time, run_ingest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia

SESSION, OTHER = "abcdef12-9", "12345678-9"


class Tool:
    """A tool with a process that can be killed."""

    def __init__(self, root: Path, session: str = SESSION) -> None:
        self.root, self.session, self.calls = root, session, 0
        self.child = subprocess.Popen(["sleep", "600"])
        self.process = hook.tool_process(self.child.pid)
        assert self.process

    def send(self, name: str, **fields: Any) -> None:
        body = {"session_id": self.session, "hook_event_name": name, "cwd": str(self.root), **fields}
        place = os.fsencode(self.root)
        head = spool.head(b"claude-code", place, process=self.process)
        spool.put([spool.spool_of(os.fsencode(common_dir(self.root)))], [head, json.dumps(body).encode()])

    def start(self, source: str = "startup") -> None:
        self.send("SessionStart", source=source)
        run_ingest(self.root)
        self.send("UserPromptSubmit", prompt="Do it.", prompt_id=f"p{self.calls}")
        run_ingest(self.root)

    def write(self, path: str, text: str, *, ends: bool = True) -> None:
        before = (self.root / path).read_text() if (self.root / path).exists() else None
        self.calls += 1
        edit = {"file_path": str(self.root / path), "content": text}
        if before is not None:
            edit = {"file_path": edit["file_path"], "old_string": before, "new_string": text}
        call = {"tool_name": "Write" if before is None else "Edit", "tool_use_id": f"{self.session}-t{self.calls}"}
        self.send("PreToolUse", **call, tool_input=edit)
        (self.root / path).write_text(text)
        if ends:
            self.send("PostToolUse", **call, tool_response="")

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        later_file_time(self.root)


@pytest.fixture
def tool(root: Path) -> Iterator[Tool]:
    tool = Tool(root)
    yield tool
    tool.kill()


def person_goes_on(root: Path) -> None:
    (root / "README.md").write_text("people\ntool\nperson\n")
    (root / "made.txt").write_text("person\nmade\n")
    (root / "other.txt").write_text("other\n")


def uncommitted(space: clia.Space, path: str) -> list[tuple[str, str | None]]:
    lines = space.history.blame_worktree(path, space.captures.running_turns(path))
    return [(line.text, line.agent) for line in lines]


def blamed(space: clia.Space, agent: str, path: str) -> list[tuple[str, str | None]]:
    return [(line.text, line.agent) for line in space.blame(agent, path)]


@pytest.mark.parametrize("ends", [True, False])
def test_lines_that_a_person_adds_after_the_tool_was_killed_are_the_persons_at_once(
    root: Path, space: clia.Space, tool: Tool, ends: bool
) -> None:
    tool.start()
    tool.write("README.md", "people\ntool\n")
    tool.write("made.txt", "made\n", ends=ends)
    run_ingest(root)
    (agent,) = space.agents()
    tool.kill()
    assert uncommitted(space, "README.md") == [("people", None), ("tool", agent)]
    assert uncommitted(space, "made.txt") == [("made", agent)]
    person_goes_on(root)
    assert uncommitted(space, "README.md") == [("people", None), ("tool", agent), ("person", None)]
    assert uncommitted(space, "made.txt") == [("person", None), ("made", agent)]


def test_while_the_tool_runs_edits_count_as_the_turns(root: Path, space: clia.Space, tool: Tool) -> None:
    tool.start()
    tool.write("README.md", "people\ntool\n")
    run_ingest(root)
    (agent,) = space.agents()
    later_file_time(root)
    person_goes_on(root)
    assert uncommitted(space, "README.md") == [("people", None), ("tool", agent), ("person", agent)]


def test_a_session_that_continues_after_it_was_killed_leaves_a_persons_lines_to_them(
    root: Path, space: clia.Space, tool: Tool
) -> None:
    tool.start()
    tool.write("README.md", "people\ntool\n")
    tool.write("made.txt", "made\n")
    run_ingest(root)
    (agent,) = space.agents()
    tool.kill()
    person_goes_on(root)
    again = Tool(root)
    again.calls = 10
    try:
        again.start("resume")
        assert blamed(space, agent, "README.md") == [("people", None), ("tool", agent), ("person", None)]
        assert blamed(space, agent, "made.txt") == [("person", None), ("made", agent)]
        again.write("README.md", "people\ntool\nperson\nagain\n")
        again.send("Stop", last_assistant_message="Done.")
        run_ingest(root)
        lines = [("people", None), ("tool", agent), ("person", None), ("again", agent)]
        assert blamed(space, agent, "README.md") == lines
        assert space.files(agent)["made.txt"] == b"person\nmade\n"
        assert space.verify().findings == ()
    finally:
        again.kill()


def test_another_session_records_of_a_killed_one_only_what_it_wrote(root: Path, space: clia.Space, tool: Tool) -> None:
    tool.start()
    tool.write("README.md", "people\ntool\n")
    tool.write("made.txt", "made\n")
    run_ingest(root)
    (agent,) = space.agents()
    tool.kill()
    person_goes_on(root)
    second = Tool(root, OTHER)
    try:
        second.start()
        assert space.files(agent)["README.md"] == b"people\ntool\n"
        assert blamed(space, agent, "README.md") == [("people", None), ("tool", agent)]
        assert space.files(agent)["made.txt"] == b"made\n"
        other = next(name for name in space.agents() if name != agent)
        assert ("person", None) in blamed(space, other, "README.md")
    finally:
        second.kill()


def test_a_process_has_ended_only_if_that_is_certain() -> None:
    child = subprocess.Popen(["sleep", "600"])
    number, begun, namespace = hook.tool_process(child.pid).decode().split(" ")
    assert not has_ended(f"{number} {begun} {namespace}")
    assert has_ended(f"{number} {int(begun) + 1} {namespace}"), "the id is used again"
    assert not has_ended(f"{number} {int(begun) + 1} pid:[1]"), "of a container"
    for text in ("", "x", "x 1 2", f"{number} {begun}"):
        assert not has_ended(text)
    child.kill()
    child.wait()
    assert has_ended(f"{number} {begun} {namespace}")


def test_the_process_of_a_tool_is_above_the_shells_that_run_its_hook() -> None:
    program = "import os; from clia.capture.hook import tool_process; print(tool_process(os.getppid()).decode(), flush=True)"
    out = subprocess.run(
        ["sh", "-c", 'sh -c \'"$0" -c "$1"; true\' "$0" "$1"; true', sys.executable, program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.split()[0] == str(os.getpid())
