"""What every tool must do: its turns are recorded, in order and once, whether it ends, is killed, or runs beside another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia as library
from support.model_server import Gate, Reply
from support.real_tool_setups import CLAUDE_CODE_OLD, CODEX_OLD, COPILOT, OPENCODE, QWEN, TOOLS, succeeded
from support.real_tools import Computer, finish, kill, read_record, untouched
from support.space_driver import settings

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


@every_tool
def test_lines_keep_their_authors_in_commits_of_the_tool_and_of_the_person(tool: RealTool, computer: Computer) -> None:
    """The tool commits on another branch and on the person's, stashes, and merges. The person edits as soon as a turn has ended."""
    tool.set_up(computer)
    git = "git -c user.name=x -c user.email=x@example.org"  # some tools hide the person's configuration
    stock = computer.root / "stock.txt"
    one = computer.model.script(
        Reply("I write.", (tool.write(computer, "notes.txt", "one\ntwo\n"),)),
        Reply(
            "Aside.",
            (tool.shell(f"git checkout -q -b side && git add notes.txt && {git} commit -qm Notes && git checkout -q main"),),
        ),
        Reply("Here.", (tool.shell(f"echo tool >> stock.txt && git add stock.txt && {git} commit -qm Stock"),)),
        Reply("Done."),
    )
    tool.turn(computer, f"Write. {one}")
    stock.write_text(stock.read_text() + "person\n")
    two = computer.model.script(
        Reply("On.", (tool.shell(f"{git} stash -q && {git} merge -q side && {git} stash pop -q && echo three >> notes.txt"),)),
        Reply("Done, too."),
    )
    tool.another_turn(computer, f"Go on. {two}")
    computer.clia("ingest")
    for words in (["add", "stock.txt", "notes.txt"], ["commit", "-qm", "Mine"]):
        assert computer.run(["git", *words]).code == 0
    with library.open(computer.root, settings=settings()) as space:
        (agent,) = space.agents()
        assert [line.agent for line in space.blame("main", "stock.txt")] == [None, agent, None]
        assert [line.agent for line in space.blame("main", "notes.txt")] == [agent] * 3
        assert [line.agent for line in space.blame("side", "notes.txt")] == [agent] * 2
        adopted = sorted(commit.subject for commit in space.log(agent, own=True) if commit.own is not None)
        assert adopted == ["Merge branch 'side'", "Notes", "Stock"]
        assert space.verify().clean


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
