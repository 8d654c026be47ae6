"""Which arguments flows may pass to listed programs."""

from __future__ import annotations

import pytest

from clia.errors import NotAllowed
from clia.facade.config import Config, ProgramRule
from clia.workers.effects import Effects
from clia.workers.effects.program_arguments import bare_program, check_arguments


@pytest.mark.parametrize(
    "run",
    [
        ("python3",),
        ("/usr/bin/python3.12", "-u"),
        ("python", "-X", "dev"),
        ("sh",),
        ("bash", "-l"),
        ("env",),
        ("env", "A=b", "python3", "agent.py"),
        ("/usr/bin/xargs", "echo"),
        ("sudo", "-u", "root"),
        ("timeout", "5"),
        ("node",),
        ("BASH",),
    ],
)
def test_a_program_that_runs_others_needs_a_script_or_listed_arguments(run: tuple[str, ...]) -> None:
    assert bare_program(ProgramRule(run)) is not None
    with pytest.raises(NotAllowed, match="list its arguments") as caught:
        check_arguments("agent", ProgramRule(run), ["x"])
    assert caught.value.code == "program-needs-arguments"
    assert 'arguments = ["*"]' in caught.value.hints[0]
    check_arguments("agent", ProgramRule(run, arguments=("*",)), ["-c", "anything"])
    problems = Effects(Config(programs={"agent": ProgramRule(run)}), {}).problems
    assert "list its arguments" in problems["command: agent"]


@pytest.mark.parametrize(
    "run", [("claude", "-p"), ("python3", "agent.py"), ("python3", "-m", "x"), ("sh", "-c", "make"), ("make", "test")]
)
def test_other_programs_take_any_arguments_as_before(run: tuple[str, ...]) -> None:
    check_arguments("agent", ProgramRule(run), ["anything", "$(x)"])
    assert "command: agent" not in Effects(Config(programs={"agent": ProgramRule(run)}), {}).problems


@pytest.mark.parametrize(
    ("patterns", "arguments", "fits"),
    [
        (("-m pytest *",), ["-m", "pytest", "-q"], True),
        (("-m pytest *",), ["-m", "pytest"], True),
        (("-m pytest *",), ["-m", "pip"], False),
        (("-m pytest *",), ["-q", "-m", "pytest"], False),
        (("a", "b *"), ["b", "c"], True),
        (("a",), ["a", "c"], False),
        ((), [], True),
        ((), ["a"], False),
        (("a",), [], True),
        (("'two words'",), ["two words"], True),
    ],
)
def test_listed_arguments_are_matched_word_by_word(patterns: tuple[str, ...], arguments: list[str], fits: bool) -> None:
    rule = ProgramRule(("env",), arguments=patterns)
    if fits:
        check_arguments("agent", rule, arguments)
    else:
        with pytest.raises(NotAllowed) as caught:
            check_arguments("agent", rule, arguments)
        assert caught.value.code == "arguments-not-listed"
