"""What only Gemini CLI does: its hooks do not tell the calls of a sub-agent from those of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.model_server import Reply, ToolCall
from support.real_tool_setups import GEMINI
from support.real_tools import untouched

if TYPE_CHECKING:
    from support.real_tools import Computer


def test_a_sub_agent_has_its_texts_and_its_files_belong_to_the_session(computer: Computer) -> None:
    GEMINI.set_up(computer)
    task = "Help. " + computer.model.script(
        Reply("I write.", (GEMINI.write(computer, "sub.txt", "sub\n"),), "They want help."),
        Reply("Helped.", (ToolCall("complete_task", {"result": "sub.txt is there."}),)),
        Reply("Helped."),
    )
    script = computer.model.script(
        Reply("Help me.", (ToolCall("invoke_agent", {"agent_name": "generalist", "prompt": task}),)),
        Reply("And I.", (GEMINI.write(computer, "own.txt", "own\n"),)),
        Reply("Done."),
    )
    prompt = f"Delegate. {script}"
    with untouched(computer.root):
        GEMINI.turn(computer, prompt)
        record = computer.record()
    agent = record.only()
    (sub,) = record.sub_agents(agent)
    assert agent.texts("prompt") == [prompt]
    assert agent.changes[-1] == (prompt, {"sub.txt", "own.txt"})
    assert any(task in text for text in sub.texts("prompt"))
    assert "I write." in sub.texts("said")
    assert sub.files == set()
