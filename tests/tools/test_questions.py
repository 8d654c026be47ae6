"""Questions over MCP that a person answers in the forge: while the tool waits, beside another session, and after it was killed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.model_server import Reply
from support.real_tool_setups import CLAUDE_CODE, CODEX, GEMINI, TOOLS, succeeded
from support.real_tools import finish, kill, serving, untouched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.real_tool_setups import RealTool
    from support.real_tools import AgentRecord, Computer, Forge

every_tool = pytest.mark.parametrize("tool", TOOLS, ids=repr)
the_first_tools = pytest.mark.parametrize("tool", [CLAUDE_CODE, CODEX, GEMINI], ids=repr)


@pytest.fixture
def forge(computer: Computer) -> Iterator[Forge]:
    with serving(computer) as forge:
        yield forge


def asking(tool: RealTool, computer: Computer, question: str = "Delete the notes?") -> str:
    """A prompt whose turn asks a person and ends with the answer."""
    ask = tool.server("request_decision", question=question, choices=["yes", "no"], wait=300)

    def answer(conversation: str) -> Reply:
        values = re.findall(r"""value[\\'": ]+(yes|no)""", conversation)
        return Reply(f"The answer is {values[-1] if values else 'unknown'}.")

    return f"Ask. {computer.model.script(Reply('I ask.', (ask,)), answer)}"


def answered(agent: AgentRecord) -> str:
    """The answer that reached the model."""
    return agent.texts("said")[-1].rpartition("The answer is ")[2]


@every_tool
def test_the_answer_of_a_person_reaches_the_tool_that_waits(tool: RealTool, computer: Computer, forge: Forge) -> None:
    tool.set_up(computer, mcp=True)
    with untouched(computer.root):
        process = computer.start(tool.words(asking(tool, computer)))
        (question,) = forge.wait_for_questions(process)
        forge.answer(question, "no")
        succeeded(finish(process))
        agent = computer.record().only()
    assert question["agent"] == agent.name
    assert answered(agent) == "no."


@the_first_tools
def test_two_sessions_that_ask_at_once_get_their_own_answers(tool: RealTool, computer: Computer, forge: Forge) -> None:
    tool.set_up(computer, mcp=True)
    names = ("notes", "stock")
    with untouched(computer.root):
        processes = [computer.start(tool.words(asking(tool, computer, f"Delete the {name}?"))) for name in names]
        questions = sorted(forge.wait_for_questions(*processes), key=lambda question: question["payload"]["question"])
        for question, value in zip(questions, ("no", "yes"), strict=True):
            forge.answer(question, value)
        for process in processes:
            succeeded(finish(process))
        record = computer.record()
    assert [question["payload"]["question"] for question in questions] == [f"Delete the {name}?" for name in names]
    assert [answered(record.agents[question["agent"]]) for question in questions] == ["no.", "yes."]
    assert len(record.agents) == 2


@pytest.mark.parametrize("answer_comes", ["before the tool is resumed", "after the tool was resumed"])
@the_first_tools
def test_a_tool_that_was_killed_while_it_waited_gets_the_answer_to_its_question(
    tool: RealTool, computer: Computer, forge: Forge, answer_comes: str
) -> None:
    tool.set_up(computer, mcp=True)
    with untouched(computer.root):
        process = computer.start(tool.words(asking(tool, computer)))
        (question,) = forge.wait_for_questions(process)
        kill(process)
        if answer_comes.startswith("before"):
            forge.answer(question, "no")
        process = computer.start(tool.resumed(asking(tool, computer)))
        if answer_comes.startswith("after"):
            assert forge.wait_for_questions(process) == [question]
            forge.answer(question, "no")
        succeeded(finish(process))
        agent = computer.record().only()
    assert question["agent"] == agent.name
    assert answered(agent) == "no."
    assert [subject for subject, _ in agent.commits].count("it is time") == 1, "the question is answered once"
