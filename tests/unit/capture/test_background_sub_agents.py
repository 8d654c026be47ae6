"""Sub-agents of Claude Code that run in the background: each file is committed by the agent that wrote it.

The events have the shape and the order of sessions of Claude Code 2.1.325: the session starts a sub-agent and continues, its turn
ends while the sub-agent runs (`background_tasks`), and a `<task-notification>` starts its next turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.captured import agent_of, hook, run_ingest, texts_of_kind

if TYPE_CHECKING:
    from pathlib import Path

    import clia

SESSION, SUB = "abcdef12-9", "a1b2c3d4e5f60718"
RUNNING = [{"id": SUB, "type": "subagent", "status": "running", "description": "Slow work", "agent_type": "general-purpose"}]
SUB_FIELDS = {"agent_id": SUB, "agent_type": "general-purpose"}


class Tool:
    """Claude Code at work in a repository; ingest runs after each event, or at the end (``live`` False)."""

    def __init__(self, root: Path, *, live: bool = True) -> None:
        self.root, self.live = root, live

    def send(self, name: str, **more: Any) -> None:
        hook(self.root, name, **more)
        if self.live:
            run_ingest(self.root)

    def start(self) -> None:
        self.send("SessionStart", source="startup")
        self.send("UserPromptSubmit", prompt="Work.", prompt_id="p1")
        call = {"tool_name": "Agent", "tool_use_id": "t-agent", "tool_input": {"description": "Slow work", "prompt": "Write slow."}}
        self.send("PreToolUse", **call)
        self.send("PostToolUse", **call, tool_response={"isAsync": True, "status": "async_launched", "agentId": SUB})
        self.send("SubagentStart", **SUB_FIELDS)

    def write(self, name: str, **more: Any) -> None:
        call = {"tool_name": "Write", "tool_use_id": f"t-{name}", "tool_input": {"file_path": str(self.root / name)}, **more}
        self.send("PreToolUse", **call)
        (self.root / name).write_text(f"{name}\n")
        self.send("PostToolUse", **call, tool_response={"type": "create"})

    def shell(self, name: str, **more: Any) -> None:
        call = {"tool_name": "Bash", "tool_use_id": f"t-{name}", "tool_input": {"command": f"echo > {name}"}, **more}
        self.send("PreToolUse", **call)
        (self.root / name).write_text(f"{name}\n")
        self.send("PostToolUse", **call, tool_response={"stdout": ""})

    def end(self) -> None:
        self.send("SubagentStop", **SUB_FIELDS, last_assistant_message="The slow work is done.", background_tasks=RUNNING)
        self.send("UserPromptSubmit", prompt=f"<task-notification>\n<task-id>{SUB}</task-id>", prompt_id="p2")
        self.send("Stop", last_assistant_message="All done.", background_tasks=[])
        self.send("SessionEnd", reason="other")
        run_ingest(self.root)


def authors(space: clia.Space, *paths: str) -> dict[str, str]:
    """For each file, whether the session (``main``) or the sub-agent (``sub``) wrote it."""
    names = {agent_of(space, "claude-code", SESSION): "main", agent_of(space, "claude-code", SESSION, SUB): "sub"}
    agent = agent_of(space, "claude-code", SESSION)
    return {path: names[str(line.agent)] for path in paths for line in space.blame(agent, path)}


@pytest.mark.parametrize("live", [True, False], ids=["at each event", "afterwards"])
def test_files_of_a_running_sub_agent_are_left_to_it(root: Path, space: clia.Space, live: bool) -> None:
    tool = Tool(root, live=live)
    tool.start()
    tool.write("slow1.txt", **SUB_FIELDS)
    tool.write("mine.txt")
    tool.send("Stop", last_assistant_message="My part is done.", background_tasks=RUNNING)
    if live:
        files = space.files(agent_of(space, "claude-code", SESSION))
        assert "mine.txt" in files
        assert "slow1.txt" not in files
    tool.write("slow2.txt", **SUB_FIELDS)
    tool.end()
    expected = {"mine.txt": "main", "slow1.txt": "sub", "slow2.txt": "sub"}
    assert authors(space, *expected) == expected


def test_a_sub_agent_that_works_alone_keeps_the_files_of_its_shell_commands(root: Path, space: clia.Space) -> None:
    """The session's turn ends while it runs, and names no files."""
    tool = Tool(root)
    tool.start()
    tool.shell("made.txt", **SUB_FIELDS)
    tool.send("Stop", last_assistant_message="I wait.", background_tasks=RUNNING)
    assert "made.txt" not in space.files(agent_of(space, "claude-code", SESSION))
    tool.end()
    assert authors(space, "made.txt") == {"made.txt": "sub"}


def test_a_file_that_the_session_is_writing_when_a_sub_agent_starts_is_the_sessions(root: Path, space: clia.Space) -> None:
    """The sub-agent's start may be reported after the session's next call."""
    tool = Tool(root)
    tool.send("SessionStart", source="startup")
    tool.send("UserPromptSubmit", prompt="Work.", prompt_id="p1")
    call = {"tool_name": "Write", "tool_use_id": "t-mine", "tool_input": {"file_path": str(root / "mine.txt")}}
    tool.send("PreToolUse", **call)
    tool.send("SubagentStart", **SUB_FIELDS)
    (root / "mine.txt").write_text("mine.txt\n")
    tool.send("PostToolUse", **call, tool_response={"type": "create"})
    tool.write("slow1.txt", **SUB_FIELDS)
    tool.send("Stop", last_assistant_message="My part is done.", background_tasks=RUNNING)
    tool.end()
    assert authors(space, "mine.txt", "slow1.txt") == {"mine.txt": "main", "slow1.txt": "sub"}


def test_a_sub_agent_that_is_no_longer_listed_has_ended(root: Path, space: clia.Space) -> None:
    """A person stopped it: no event reports its end."""
    tool = Tool(root)
    tool.start()
    tool.shell("made.txt", **SUB_FIELDS)
    tool.send("Stop", last_assistant_message="It was stopped.", background_tasks=[])
    tool.send("UserPromptSubmit", prompt="Next.", prompt_id="p3")
    tool.shell("next.txt")
    tool.send("Stop", last_assistant_message="Done.", background_tasks=[])
    assert authors(space, "made.txt", "next.txt") == {"made.txt": "sub", "next.txt": "main"}


def test_a_sub_agent_that_is_sent_another_message_continues(root: Path, space: clia.Space) -> None:
    tool = Tool(root)
    tool.start()
    tool.write("slow1.txt", **SUB_FIELDS)
    tool.send("SubagentStop", **SUB_FIELDS, last_assistant_message="Done.", background_tasks=RUNNING)
    tool.write("mine.txt")
    tool.write("more.txt", **SUB_FIELDS)
    tool.send("Stop", last_assistant_message="It continues.", background_tasks=RUNNING)
    assert "more.txt" not in space.files(agent_of(space, "claude-code", SESSION))
    tool.end()
    expected = {"slow1.txt": "sub", "mine.txt": "main", "more.txt": "sub"}
    assert authors(space, *expected) == expected


def test_files_of_people_at_a_prompt_are_not_those_of_a_running_sub_agent(root: Path, space: clia.Space) -> None:
    tool = Tool(root)
    tool.start()
    tool.write("mine.txt")
    tool.send("Stop", last_assistant_message="It runs.", background_tasks=RUNNING)
    tool.write("slow1.txt", **SUB_FIELDS)
    for path in ("README.md", "people.txt"):
        (root / path).write_text("a person's\n")
    tool.send("UserPromptSubmit", prompt="Next.", prompt_id="p3")
    agent = agent_of(space, "claude-code", SESSION)
    assert "slow1.txt" not in space.files(agent)
    tool.write("next.txt")
    tool.send("Stop", last_assistant_message="Done.", background_tasks=RUNNING)
    tool.end()
    expected = {"mine.txt": "main", "slow1.txt": "sub", "next.txt": "main"}
    assert authors(space, *expected) == expected
    assert [line.agent for line in space.blame(agent, "README.md")] == [None]
    assert "people.txt" not in space.files(agent)


def test_a_notification_of_a_task_is_not_a_prompt(root: Path, space: clia.Space) -> None:
    tool = Tool(root)
    tool.start()
    tool.end()
    assert texts_of_kind(space, "prompt") == ["Work."]
