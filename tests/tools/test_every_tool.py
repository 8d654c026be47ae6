"""What every tool must do: its turns are recorded, in order and once, whether it ends, is killed, or runs beside another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.model_server import Gate, Reply
from support.real_tool_setups import CLAUDE_CODE_OLD, CODEX_OLD, COPILOT, OPENCODE, QWEN, TOOLS, succeeded
from support.real_tools import Computer, finish, kill, read_record, untouched

if TYPE_CHECKING:
    from pathlib import Path

    from support.model_server import ModelServer
    from support.real_tool_setups import Copilot, OpenCode, Qwen, RealTool
    from support.real_tools import AgentRecord

every_tool = pytest.mark.parametrize("tool", TOOLS, ids=repr)


def check_first_turn(agent: AgentRecord, prompt: str) -> None:
    """The entries and the commit of the turn that ``notes`` scripts."""
    assert agent.changes[-1] == (prompt, {"notes.txt"})
    assert agent.texts("prompt") == [prompt]
    assert agent.texts("said")[-1].endswith("Two lines.")
    assert agent.kinds["tool-call"] == agent.kinds["tool-result"] + agent.kinds["tool-failure"] == 3
    assert any("2 notes.txt" in text for text in agent.texts("tool-result"))


def notes(tool: RealTool, computer: Computer, gate: Gate | None = None) -> str:
    """Script a turn: write a file, look at it, and run a command that fails."""
    return computer.model.script(
        Reply("I write.", (tool.write(computer, "notes.txt", "one\ntwo\n"),), "They want notes.", gate=gate),
        Reply("I count.", (tool.shell("wc -l notes.txt"),)),
        Reply("I look.", (tool.shell("ls no-such-file"),)),
        Reply("Two lines."),
    )


@every_tool
def test_turns_of_a_session_become_commits_of_one_agent(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    (computer.root / "stock.txt").write_text("apples 2\n")  # the person's own change
    with untouched(computer.root):
        gate = Gate()
        prompt = f"Write notes. {notes(tool, computer, gate)}"
        process = computer.start(tool.words(prompt))
        gate.wait_until_reached(process)
        computer.clia("ingest")  # as the hooks do in the background
        gate.open()
        succeeded(finish(process))
        check_first_turn(computer.record().only(), prompt)
        more = computer.model.script(Reply("On.", (tool.write(computer, "more.txt", "more\n"),)), Reply("More."))
        tool.another_turn(computer, f"Go on. {more}")
        agent = computer.record().only()
    assert agent.changes[-1] == (f"Go on. {more}", {"more.txt"})
    assert agent.files == {"notes.txt", "more.txt"}
    assert agent.texts("prompt") == [prompt, f"Go on. {more}"]


@pytest.mark.parametrize("tool", [CLAUDE_CODE_OLD, CODEX_OLD], ids=repr)
def test_an_older_version_is_recorded_too(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    with untouched(computer.root):
        prompt = f"Write notes. {notes(tool, computer)}"
        tool.turn(computer, prompt)
        check_first_turn(computer.record().only(), prompt)


@every_tool
def test_a_killed_tool_leaves_its_prompt_and_files_in_the_record(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    gate = Gate()
    script = computer.model.script(
        Reply("I write.", (tool.write(computer, "half.txt", "half\n"),)), Reply("Never said.", gate=gate)
    )
    with untouched(computer.root):
        process = computer.start(tool.words(f"Write. {script}"))
        gate.wait_until_reached(process)
        kill(process)
        gate.open()
        agent = computer.record().only()
        assert agent.texts("prompt") == [f"Write. {script}"]
        assert agent.kinds["tool-call"] == 1
        tool.another_turn(computer, f"Again. {computer.model.script(Reply('Again.'))}")
        agent = computer.record().only()
    assert "half.txt" in agent.files


@every_tool
def test_two_sessions_at_once_are_two_agents(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    tool.start_once(computer)
    gates = [Gate(), Gate()]
    prompts = [
        f"Write {name}. "
        + computer.model.script(
            Reply("I write.", (tool.write(computer, f"{name}.txt", f"{name}\n"),)), Reply(f"Wrote {name}.", gate=gate)
        )
        for name, gate in zip(("one", "two"), gates, strict=True)
    ]
    with untouched(computer.root):
        processes = [computer.start(tool.words(prompt)) for prompt in prompts]
        for gate, process in zip(gates, processes, strict=True):
            gate.wait_until_reached(process)
        for gate, process in zip(gates, processes, strict=True):
            gate.open()
            assert finish(process).code == 0
        record = computer.record()
    assert sorted(text for agent in record.agents.values() for text in agent.texts("prompt")) == sorted(prompts)
    for agent in record.agents.values():
        (prompt,) = agent.texts("prompt")
        assert agent.kinds["tool-call"] == agent.kinds["tool-result"] == 1
        assert {subject for subject, _ in agent.changes} == {prompt}
    assert {file for agent in record.agents.values() for file in agent.files} == {"one.txt", "two.txt"}


@every_tool
def test_a_tool_works_where_clia_is_missing(tool: RealTool, tmp_path: Path, model: ModelServer) -> None:
    computer = Computer(tmp_path.resolve(), model, with_clia=False)
    tool.set_up(computer)
    ended = tool.turn(computer, f"Write notes. {notes(tool, computer)}")
    assert "Two lines." in ended.out
    assert (computer.root / "notes.txt").read_text() == "one\ntwo\n"
    assert read_record(computer.root).agents == {}


@every_tool
def test_clia_run_records_a_tool_as_the_named_agent(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    script = computer.model.script(Reply("I write.", (tool.shell("echo run > run.txt"),)), Reply("Written."))
    prompt = f"Write. {script}"
    with untouched(computer.root):
        computer.clia("run", "fixer", "--", *tool.words(prompt))
        agent = computer.record().only()
    assert agent.name == "fixer"
    assert agent.files == {"run.txt"}
    assert agent.texts("prompt") == [prompt]
    assert not (computer.root / "run.txt").exists()


@every_tool
def test_a_question_over_mcp_is_answered_by_a_person(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer, mcp=True)
    ask = tool.server("request_decision", question="Delete the notes?", choices=["yes", "no"], wait=60)

    def answer(conversation: str) -> Reply:
        values = re.findall(r"""value[\\'": ]+(yes|no)""", conversation)
        return Reply(f"The answer is {values[-1] if values else 'unknown'}.")

    prompt = f"Ask. {computer.model.script(Reply('I ask.', (ask,)), answer)}"
    with untouched(computer.root):
        process = computer.start(tool.words(prompt))
        question = computer.wait_for_question(process)
        computer.clia("decide", question["agent"], "no", "--by", "tess")
        succeeded(finish(process))
        agent = computer.record().only()
    assert question["agent"] == agent.name
    assert agent.texts("said")[-1].endswith("The answer is no.")


@pytest.mark.parametrize("tool", [COPILOT, QWEN, OPENCODE], ids=repr)
def test_a_sub_agent_is_an_agent_with_its_own_files(tool: Copilot | Qwen | OpenCode, computer: Computer) -> None:
    tool.set_up(computer)
    help_script = computer.model.script(Reply("I help.", (tool.write(computer, "sub.txt", "sub\n"),)), Reply("Helped."))
    script = computer.model.script(
        Reply("Help me.", (tool.agent(f"Help. {help_script}"),)),
        Reply("And I.", (tool.write(computer, "own.txt", "own\n"),)),
        Reply("Done."),
    )
    with untouched(computer.root):
        tool.turn(computer, f"Delegate. {script}")
        record = computer.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert (sub.kinds["tool-call"], agent.kinds["tool-call"]) == (1, 2)
    assert (sub.files, agent.files - sub.files) == ({"sub.txt"}, {"own.txt"})
    assert agent.changes[-1] == (f"Delegate. {script}", {"own.txt"})
    assert agent.merged == {sub.name}
