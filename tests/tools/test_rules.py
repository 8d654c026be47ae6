"""Rules of guardrails in real tools: calls that are refused, and calls that a person is asked about in the forge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.model_server import Reply
from support.real_tool_setups import CLAUDE_CODE, CODEX, GEMINI, succeeded
from support.real_tools import finish, kill, serving, write_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.real_tool_setups import RealTool
    from support.real_tools import Computer, Forge

answering_tools = pytest.mark.parametrize("tool", [CLAUDE_CODE, CODEX, GEMINI], ids=repr)


@pytest.fixture
def forge(computer: Computer) -> Iterator[Forge]:
    with serving(computer) as forge:
        yield forge


def deploying(tool: RealTool, computer: Computer) -> str:
    """A prompt whose turn runs one command."""
    return f"Deploy. {computer.model.script(Reply('I do.', (tool.shell('echo deployed > deployed.txt'),)), Reply('That was it.'))}"


@answering_tools
def test_a_denied_call_does_not_run(tool: RealTool, computer: Computer) -> None:
    write_rules(computer, {"on": "tool", "match": {"tool": "Bash", "command": "echo deployed *"}, "do": "deny"})
    tool.set_up(computer)
    tool.turn(computer, deploying(tool, computer))
    assert not (computer.root / "deployed.txt").exists()
    agent = computer.record().only()
    texts = agent.texts("tool-failure") + agent.texts("tool-result") + agent.texts("note")
    # Gemini CLI records nothing of a refused call.
    assert tool is GEMINI or any("A person decides about deploys." in text for text in texts), texts


@answering_tools
@pytest.mark.parametrize("answer", ["allow", "deny"])
def test_the_answer_of_a_person_decides_about_the_call(tool: RealTool, computer: Computer, forge: Forge, answer: str) -> None:
    write_rules(computer, {"on": "tool", "match": {"tool": "Bash", "command": "echo deployed *"}, "do": "ask"})
    tool.set_up(computer)
    process = computer.start(tool.words(deploying(tool, computer)))
    (question,) = forge.wait_for_questions(process)
    assert question["payload"]["command"] == "echo deployed > deployed.txt"
    forge.answer(question, answer)
    succeeded(finish(process))
    assert (computer.root / "deployed.txt").exists() is (answer == "allow")
    assert forge.questions() == []


def test_a_killed_tool_leaves_one_question_that_is_closed_or_marked(computer: Computer, forge: Forge) -> None:
    write_rules(computer, {"on": "tool", "match": {"command": "echo deployed *"}, "do": "ask"})
    CLAUDE_CODE.set_up(computer)
    process = computer.start(CLAUDE_CODE.words(deploying(CLAUDE_CODE, computer)))
    (question,) = forge.wait_for_questions(process)
    kill(process)
    computer.clia("ingest")
    assert [pending["id"] for pending in forge.questions()] in ([question["id"]], [])
    assert not (computer.root / "deployed.txt").exists()
