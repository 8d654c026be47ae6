"""The tools as people mostly use them: with a full screen, several prompts, interruptions, and commands of the tool itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.full_screen import ESCAPE
from support.model_server import SUMMARY, Gate, Reply
from support.real_tool_setups import CLAUDE_CODE, CODEX, TOOLS
from support.real_tools import untouched

if TYPE_CHECKING:
    from support.full_screen import FullScreen
    from support.real_tool_setups import RealTool
    from support.real_tools import Computer, Record


def typed_turn(tool: RealTool, computer: Computer, screen: FullScreen, name: str) -> str:
    """Type a prompt whose turn writes a file, and wait until it is recorded; return the prompt."""
    gate = Gate()
    script = computer.model.script(
        Reply("I write.", (tool.write(computer, f"{name}.txt", f"{name}\n"),), gate=gate), Reply(f"Wrote {name}.")
    )
    prompt = f"Write {name}. {script}"
    screen.enter(prompt, gate.is_reached)
    computer.clia("ingest")  # as the hooks do in the background
    gate.open()

    def is_recorded(record: Record) -> bool:
        return any((prompt, {f"{name}.txt"}) in agent.changes for agent in record.agents.values())

    computer.wait_for(is_recorded)
    return prompt


@pytest.mark.parametrize("tool", TOOLS, ids=repr)
def test_each_prompt_typed_at_a_full_screen_becomes_a_commit(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    (computer.root / "stock.txt").write_text("apples 2\n")  # the person's own change
    with untouched(computer.root), tool.screen(computer) as screen:
        one = typed_turn(tool, computer, screen, "one")
        (computer.root / "mine.txt").write_text("mine\n")
        two = typed_turn(tool, computer, screen, "two")
        screen.leave(tool.leave)
        agent = computer.record().only()
    assert agent.changes == [(one, {"one.txt"}), (two, {"two.txt"})]
    assert agent.texts("prompt") == [one, two]
    assert agent.texts("said")[-1].endswith("Wrote two.")
    assert agent.kinds["tool-call"] == agent.kinds["tool-result"] == 2


@pytest.mark.parametrize("tool", [CLAUDE_CODE, CODEX], ids=repr)
def test_the_files_of_a_turn_that_a_person_interrupts_are_the_agents(tool: RealTool, computer: Computer) -> None:
    tool.set_up(computer)
    gate = Gate()
    script = computer.model.script(
        Reply("I write.", (tool.write(computer, "half.txt", "half\n"),)), Reply("Never shown.", gate=gate)
    )
    with untouched(computer.root), tool.screen(computer) as screen:
        screen.enter(f"Write. {script}", gate.is_reached)
        screen.wait_until((computer.root / "half.txt").exists, "half.txt")
        screen.press(ESCAPE)
        screen.wait_until(lambda: "interrupted" in screen.shown.lower(), "interruption")
        prompt = typed_turn(tool, computer, screen, "more")
        screen.leave(tool.leave)
        gate.open()
        agent = computer.record().only()
    assert [files for _, files in agent.changes] == [{"half.txt"}, {"more.txt"}]
    assert agent.texts("prompt") == [f"Write. {script}", prompt]
    assert "Never shown." not in agent.texts("said")


def test_a_cleared_conversation_is_another_agent(computer: Computer) -> None:
    CLAUDE_CODE.set_up(computer)
    with untouched(computer.root), CLAUDE_CODE.screen(computer) as screen:
        one = typed_turn(CLAUDE_CODE, computer, screen, "one")
        screen.enter("/clear", lambda: computer.sessions() == 2)
        two = typed_turn(CLAUDE_CODE, computer, screen, "two")
        screen.leave(CLAUDE_CODE.leave)
        record = computer.record()
    assert sorted(agent.texts("prompt") for agent in record.agents.values()) == [[one], [two]]
    assert sorted(agent.changes for agent in record.agents.values()) == [[(one, {"one.txt"})], [(two, {"two.txt"})]]


def test_a_compacted_conversation_of_codex_continues_as_the_same_agent(computer: Computer) -> None:
    CODEX.set_up(computer)
    with untouched(computer.root), CODEX.screen(computer) as screen:
        one = typed_turn(CODEX, computer, screen, "one")
        screen.enter("/compact", lambda: "compacted" in screen.shown)
        two = typed_turn(CODEX, computer, screen, "two")
        screen.leave(CODEX.leave)
        agent = computer.record().only()
    assert agent.texts("prompt") == [one, two]
    assert agent.changes == [(one, {"one.txt"}), (two, {"two.txt"})]
    assert not any(SUMMARY in text for text in agent.texts("said"))
