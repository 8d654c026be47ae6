"""What only Codex does: forks, sub-agents of two generations, and scripts that call its tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.model_server import Gate, Reply, ToolCall
from support.real_tool_setups import CODEX, Codex, succeeded
from support.real_tools import finish, json_lines, untouched

if TYPE_CHECKING:
    from support.real_tools import Computer

IDS, NAMED = Codex(model="gpt-5.1-codex"), Codex(model="gpt-6.1-sol")


def patch(name: str) -> str:
    return f"*** Begin Patch\n*** Add File: {name}\n+{name}\n*** End Patch\n"


def script_of(call: str) -> ToolCall:
    """A script of the model that calls one of Codex's tools."""
    return ToolCall("exec", f"const result = await tools.{call}; text(JSON.stringify(result));")


def test_a_forked_session_is_a_fork_that_does_not_repeat_its_parent(computer: Computer) -> None:
    CODEX.set_up(computer)
    first = "First. " + computer.model.script(
        Reply("I write.", (CODEX.write(computer, "first.txt", "first\n"),), "A first thought."), Reply("First is there.")
    )
    lines = json_lines(CODEX.turn(computer, first).out)
    (session,) = (line["thread_id"] for line in lines if line["type"] == "thread.started")
    parent = computer.record().only()
    gate = Gate()
    forked = "Fork. " + computer.model.script(
        Reply("I write.", (CODEX.write(computer, "fork.txt", "fork\n"),), gate=gate), Reply("Fork is there.")
    )
    process = computer.start(CODEX.forked(session, forked))
    gate.wait_until_reached(process)
    computer.clia("ingest")
    gate.open()
    succeeded(finish(process))
    record = computer.record()
    (fork,) = (agent for agent in record.agents.values() if agent.name != parent.name)
    assert record.parents[fork.name] == parent.name
    assert (fork.texts("prompt"), fork.texts("said"), fork.texts("thinking")) == ([forked], ["I write.", "Fork is there."], [])
    assert fork.files == {"fork.txt"}
    assert record.agents[parent.name] == parent


def test_a_sub_agent_with_an_id_has_its_own_files(computer: Computer) -> None:
    IDS.set_up(computer)
    gate = Gate()
    task = "Help. " + computer.model.script(Reply("I write.", (IDS.shell("echo sub > sub.txt"),), gate=gate), Reply("Helped."))

    def wait(conversation: str) -> Reply:
        (ident,) = re.findall(r"agent_id\W+([0-9a-f-]{36})", conversation)[-1:]
        return Reply("I wait.", (ToolCall("wait_agent", {"targets": [ident], "timeout_ms": 60000}, "multi_agent_v1"),))

    script = computer.model.script(
        Reply("Help me.", (ToolCall("spawn_agent", {"message": task}, "multi_agent_v1"),)),
        wait,
        Reply("And I.", (IDS.shell("echo own > own.txt"),)),
        Reply("Done."),
    )
    with untouched(computer.root):
        process = computer.start(IDS.words(f"Delegate. {script}"))
        gate.wait_until_reached(process)
        computer.clia("ingest")  # as the hooks do in the background
        gate.open()
        succeeded(finish(process))
        record = computer.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert sub.texts("prompt") == [task]
    assert sub.changes == [(task, {"sub.txt"})]
    assert sub.texts("said") == ["I write.", "Helped."]
    assert agent.changes[-1] == (f"Delegate. {script}", {"own.txt"})
    assert agent.texts("prompt") == [f"Delegate. {script}"]
    assert agent.merged == {sub.name}


def test_a_sub_agent_with_a_name_has_it_and_its_own_files(computer: Computer) -> None:
    NAMED.set_up(computer)
    task = "Help. " + computer.model.script(Reply("I write.", (script_of(f"apply_patch({patch('sub.txt')!r})"),)), Reply("Helped."))
    spawn = {"task_name": "readme", "message": task, "fork_turns": "none"}
    script = computer.model.script(
        Reply("Help me.", (ToolCall("spawn_agent", spawn, "collaboration"),)),
        Reply("I wait.", (ToolCall("wait_agent", {"timeout_ms": 60000}, "collaboration"),)),
        Reply("And I.", (script_of(f"apply_patch({patch('own.txt')!r})"),)),
        Reply("Done."),
    )
    with untouched(computer.root):
        NAMED.turn(computer, f"Delegate. {script}")
        record = computer.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert "-readme-" in sub.name
    assert sub.files == {"sub.txt"}
    assert sub.texts("said") == ["I write.", "Helped."]
    assert agent.changes[-1] == (f"Delegate. {script}", {"own.txt"})
    assert agent.merged == {sub.name}


def test_what_a_script_of_the_model_runs_is_recorded_with_exit_codes(computer: Computer) -> None:
    NAMED.set_up(computer)
    commands = ("echo one > one.txt", "ls no-such-file")
    steps = [Reply("Run.", (script_of(f"exec_command({{cmd: {command!r}}})"),)) for command in commands]
    prompt = f"Write. {computer.model.script(*steps, Reply('Done.'))}"
    with untouched(computer.root):
        NAMED.turn(computer, prompt)
        agent = computer.record().only()
    assert agent.changes[-1] == (prompt, {"one.txt"})
    assert [text for text in agent.texts("tool-call") if text.startswith("Bash")] == [f"Bash: {command}" for command in commands]
    assert any("no-such-file" in text for text in agent.texts("tool-failure"))
