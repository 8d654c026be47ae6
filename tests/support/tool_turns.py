"""Turns of a captured tool that uses git in a person's repository, event by event."""

from __future__ import annotations

import json
from itertools import count
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any

import pytest

from support import git
from support.captured import put, run_ingest

if TYPE_CHECKING:
    from pathlib import Path

    import clia

CALLS = count(1)


def send(root: Path, name: str, cwd: Path | None = None, **fields: Any) -> None:
    """Put an event with the state of git into the spool."""
    body = {"session_id": "abcdef12-9", "hook_event_name": name, "cwd": str(cwd or root), **fields}
    put(root, json.dumps(body).encode(), cwd=str(cwd or root), git_state=True)


def start(root: Path) -> None:
    send(root, "SessionStart", source="startup")
    prompt(root)


def prompt(root: Path) -> None:
    send(root, "UserPromptSubmit", prompt="Do it.", prompt_id=f"p{next(CALLS)}")
    run_ingest(root)


def begin_call(root: Path, command: str = "", cwd: Path | None = None) -> dict[str, Any]:
    call = {"tool_name": "Bash", "tool_use_id": f"t{next(CALLS)}"}
    send(root, "PreToolUse", cwd, **call, tool_input={"command": command})
    return call


def end_call(root: Path, call: dict[str, Any], cwd: Path | None = None) -> None:
    send(root, "PostToolUse", cwd, **call, tool_response="")


def bash(root: Path, *commands: tuple[str, ...], cwd: Path | None = None) -> None:
    """A tool call that runs git commands."""
    call = begin_call(root, " && ".join(" ".join(("git", *words)) for words in commands), cwd)
    for words in commands:
        git(*words, cwd=cwd or root)
    end_call(root, call, cwd)


def failing_call(root: Path, *words: str) -> None:
    """A tool call that runs a git command in vain, such as a merge with conflicts."""
    call = begin_call(root, " ".join(("git", *words)))
    with pytest.raises(CalledProcessError):
        git(*words, cwd=root)
    end_call(root, call)


def commit_changes(directory: Path, message: str) -> None:
    """Commit all changes in a directory, as a person does."""
    for words in commit_all(message):
        git(*words, cwd=directory)


def commit_all(message: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("add", "-A"), ("commit", "-qm", message)


def stop(root: Path) -> None:
    send(root, "Stop", last_assistant_message="Done.")
    run_ingest(root)


def agent_of(space: clia.Space) -> str:
    (agent,) = space.agents()
    return agent


def adopted_turns(space: clia.Space) -> list[tuple[str, str | None]]:
    """Subject and original of the agent's turns, oldest first."""
    return [(commit.subject, commit.own) for commit in reversed(space.log(agent_of(space), own=True)) if commit.kind == "turn"]


def subjects(space: clia.Space) -> list[str]:
    return [subject for subject, _ in adopted_turns(space)]


def agents_lines(space: clia.Space, path: str, revision: str | None = None) -> list[str]:
    """The lines of a file, on the agent's branch or another one, that are the agent's."""
    agent = agent_of(space)
    return [line.text for line in space.blame(revision or agent, path) if line.agent == agent]


def people_lines(space: clia.Space, path: str) -> list[str]:
    """The lines of a file on the agent's branch that are no agent's."""
    return [line.text for line in space.blame(agent_of(space), path) if line.agent is None]


def state_of(root: Path) -> tuple[str, str, str, str]:
    """What belongs to the person: branches, tags and stashes, HEAD, index, and the state of the files."""
    refs = git("for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/remotes", cwd=root)
    people = "".join(line for line in refs.splitlines(keepends=True) if "refs/heads/agents/" not in line)
    files = git("status", "--porcelain", "--branch", cwd=root)
    return people, git("rev-parse", "--symbolic-full-name", "HEAD", cwd=root), git("ls-files", "--stage", cwd=root), files
