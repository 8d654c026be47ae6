"""What only Claude Code does: forks, compaction, sub-agents of three kinds, and commands without a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support import git
from support.model_server import SUMMARY, Gate, Reply
from support.real_tool_setups import CLAUDE_CODE as CLAUDE
from support.real_tool_setups import succeeded
from support.real_tools import finish, json_lines, untouched

if TYPE_CHECKING:
    from support.real_tools import Computer


@pytest.fixture
def claude(computer: Computer) -> Computer:
    CLAUDE.set_up(computer)
    return computer


def a_file(computer: Computer, name: str, gate: Gate | None = None) -> str:
    """Script a turn that writes one file."""
    write = CLAUDE.write(computer, name, f"{name}\n")
    return computer.model.script(Reply(f"I write {name}.", (write,), gate=gate), Reply(f"{name} is there."))


def test_a_forked_session_is_a_fork_that_does_not_repeat_its_parent(claude: Computer) -> None:
    first = f"First. {a_file(claude, 'first.txt')}"
    (result,) = json_lines(CLAUDE.turn(claude, first).out)
    parent = claude.record().only()
    gate = Gate()
    forked = f"Fork. {a_file(claude, 'fork.txt', gate)}"
    process = claude.start([*CLAUDE.words(forked), "--resume", result["session_id"], "--fork-session"])
    gate.wait_until_reached(process)
    claude.clia("ingest")  # as the hooks do in the background
    gate.open()
    succeeded(finish(process))
    record = claude.record()
    (fork,) = (agent for agent in record.agents.values() if agent.name != parent.name)
    assert fork.texts("prompt") == [forked]
    assert fork.files == {"fork.txt"}
    assert record.agents[parent.name].texts("prompt") == [first]
    assert record.parents[fork.name] == parent.name


def test_compacting_makes_a_note_and_no_sub_agent(claude: Computer) -> None:
    prompts = [f"First. {a_file(claude, 'first.txt')}", "/compact", f"Then. {a_file(claude, 'then.txt')}"]
    CLAUDE.turn(claude, prompts[0])
    for prompt in prompts[1:]:
        CLAUDE.another_turn(claude, prompt)
    record = claude.record()
    (agent,) = record.agents.values()
    assert agent.files == {"first.txt", "then.txt"}
    assert agent.texts("prompt") == [prompts[0], prompts[2]]
    assert any(SUMMARY in note for note in agent.texts("note"))


def test_a_sub_agent_in_front_commits_its_own_files_and_is_merged(claude: Computer) -> None:
    task = f"Help. {a_file(claude, 'sub.txt')}"
    script = claude.model.script(
        Reply("Help me.", (CLAUDE.agent(task, run_in_background=False),)),
        Reply("And I.", (CLAUDE.write(claude, "own.txt", "own\n"),)),
        Reply("Done."),
    )
    with untouched(claude.root):
        CLAUDE.turn(claude, f"Delegate. {script}")
        record = claude.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert sub.commits[-1] == (task, {"sub.txt"})
    assert sub.texts("said")[-1] == "sub.txt is there."
    assert agent.commits[-1] == (f"Delegate. {script}", {"own.txt"})
    assert agent.merged == {sub.name}


def test_a_sub_agent_in_the_background_keeps_its_files(claude: Computer) -> None:
    """The session's turn ends while the sub-agent works: its files are not the session's."""
    gate = Gate()
    task = "Help. " + claude.model.script(
        Reply("I write.", (CLAUDE.write(claude, "early.txt", "early\n"),)),
        Reply("Still.", (CLAUDE.write(claude, "late.txt", "late\n"),), gate=gate),
        Reply("Helped."),
    )
    script = claude.model.script(
        Reply("Help me.", (CLAUDE.agent(task),)),
        Reply("And I.", (CLAUDE.write(claude, "own.txt", "own\n"),)),
        Reply("My part is done."),
    )
    with untouched(claude.root):
        process = claude.start(CLAUDE.words(f"Delegate. {script}"))
        gate.wait_until_reached(process)
        claude.wait_for(lambda record: any("own.txt" in agent.files for agent in record.agents.values()))
        gate.open()
        succeeded(finish(process))
        record = claude.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert agent.texts("prompt") == [f"Delegate. {script}"]
    assert sub.files == {"early.txt", "late.txt"}
    assert {file for subject, files in agent.commits if subject.startswith("Delegate.") for file in files} == {"own.txt"}


def test_a_sub_agent_in_a_worktree_leaves_the_persons_files_alone(claude: Computer) -> None:
    """Claude Code itself creates the worktree with a branch, and leaves both if files changed. clia changes nothing."""
    (claude.root / "draft.txt").write_text("the person's\n")
    task = "Help. " + claude.model.script(Reply("I write.", (CLAUDE.shell("echo apart > apart.txt"),)), Reply("Apart."))
    gate = Gate()
    script = claude.model.script(
        Reply("Help me.", (CLAUDE.agent(task, isolation="worktree", run_in_background=False),), gate=gate), Reply("Done.")
    )
    with untouched(claude.root, created="worktree-agent-"):
        process = claude.start(CLAUDE.words(f"Delegate. {script}"))
        gate.wait_until_reached(process)
        claude.clia("ingest")
        gate.open()
        succeeded(finish(process))
        with untouched(claude.root):
            record = claude.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert sub.files == {"apart.txt"}
    assert (claude.root / "draft.txt").read_text() == "the person's\n"
    for name in record.agents:
        assert "160000" not in git("ls-tree", "-r", f"refs/heads/agents/{name}", cwd=claude.root)
    assert not {"draft.txt", "apart.txt"} & agent.files


def test_a_failed_request_to_the_model_is_the_subject(claude: Computer) -> None:
    script = claude.model.script(
        Reply("I write.", (CLAUDE.write(claude, "half.txt", "half\n"),)), Reply("the model is broken", status=400)
    )
    claude.run(CLAUDE.words(f"Write. {script}"))
    agent = claude.record().only()
    subject, files = agent.commits[-1]
    assert subject.startswith("model error: Write.")
    assert files == {"half.txt"}
    assert any("the model is broken" in note for note in agent.texts("note"))


def test_commands_without_a_conversation_make_no_agent(claude: Computer) -> None:
    (claude.root / "draft.txt").write_text("the person's\n")
    with untouched(claude.root):
        succeeded(claude.run(["claude", "mcp", "list"]))
        assert claude.record().agents == {}
