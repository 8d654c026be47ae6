"""Replay: the same answers in the same order give the same calls, numbers and result, with or without dumps in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.engine.monty import MontyEngine
from clia.engine.records import FlowAnswer, FlowProgram
from support.flows import FLOWS, INPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.engine.records import Turn

MOST = 25
"""Answers to one run: enough for the longest of the flows, and an end for those that never stop asking."""


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    monty = MontyEngine()
    yield monty
    monty.close()


class ReplayStep(NamedTuple):
    which: int  # of the pending calls
    answer: FlowAnswer
    dumped: bool  # before the answer


scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-1e6, 1e6) | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3))
answers = st.builds(FlowAnswer, value=values) | st.builds(FlowAnswer, error=st.text(max_size=8))
steps = st.lists(st.builds(ReplayStep, st.integers(0, 9), answers, st.booleans()), max_size=MOST)


class Grammar:
    """Flows from a small grammar: requests in loops, branches, handlers and gathers, each of which is logged."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._is_async = draw(st.booleans())
        self._await, self._async = ("await ", "async ") if self._is_async else ("", "")

    def flow(self) -> str:
        head = ["import asyncio", "import random", f"{self._async}def main(input):", "    log = []"]
        return "\n".join([*head, *self._block(0), "    return log", ""])

    def _number(self, most: int) -> int:
        return self._draw(st.integers(0, most))

    def _ask(self) -> str:
        return f"{self._await}request('{'abc'[self._number(2)]}', [len(log), {self._number(9)}])"

    def _block(self, depth: int) -> list[str]:
        return [f"    {line}" for _ in range(1 + self._number(2)) for line in self._statement(depth)]

    def _statement(self, depth: int) -> list[str]:
        forms = [self._asks, self._draws, self._is_refused]
        if self._is_async:
            forms.append(self._gathers)
        if depth < 2:
            deeper = self._block(depth + 1)
            forms += [
                lambda: self._loops(deeper),
                lambda: self._branches(deeper),
                lambda: self._catches(deeper),
                lambda: self._calls(deeper),
            ]
        return self._draw(st.sampled_from(forms))()

    def _asks(self) -> list[str]:
        return [f"log.append({self._ask()})"]

    def _draws(self) -> list[str]:
        return ["log.append(random.randint(0, 99))", "print(len(log))"]

    def _is_refused(self) -> list[str]:
        return ["try:", f"    {self._await}request('bad', {{1}})", "except TypeError:", "    log.append('bad')"]

    def _gathers(self) -> list[str]:
        calls = ", ".join(f"request('gathered', {index})" for index in range(self._number(4)))
        return [f"log.append(await asyncio.gather({calls}))"]

    def _loops(self, inner: list[str]) -> list[str]:
        return [f"for step in range({self._number(3)}):", *inner]

    def _branches(self, inner: list[str]) -> list[str]:
        return [f"if {self._ask()}:", *inner, "else:", "    log.append('else')"]

    def _catches(self, inner: list[str]) -> list[str]:
        return ["try:", *inner, "except RuntimeError as error:", "    log.append(str(error))"]

    def _calls(self, inner: list[str]) -> list[str]:
        return [f"{self._async}def helper(x):", *inner, "    return x", f"log.append({self._await}helper(1))"]


@st.composite
def generated_flows(draw: st.DrawFn) -> str:
    return Grammar(draw).flow()


def turns_of(engine: MontyEngine, program: FlowProgram, plan: list[ReplayStep], *, with_dumps: bool) -> list[tuple[int, Turn]]:
    """Every turn of a run, with the number of the request that was answered before it."""
    run = engine.start(program)
    turns = [(0, run.turn)]
    for step in plan:
        if run.turn.ended:
            break
        if with_dumps and step.dumped:
            pending, dump = run.turn.pending, run.dump()
            run.__exit__()
            run = engine.load(program, dump, pending)
            assert run.turn.pending == pending
        number = run.turn.pending[step.which % len(run.turn.pending)].number
        turns.append((number, run.answer(number, step.answer)))
    run.__exit__()
    return turns


def same(engine: MontyEngine, source: str, value: Any, plan: list[ReplayStep]) -> None:
    program = FlowProgram(source, value, "seed", "2026-05-01T08:00:00+02:00", "Europe/Berlin")
    first = turns_of(engine, program, plan, with_dumps=False)
    assert turns_of(engine, program, plan, with_dumps=False) == first
    assert turns_of(engine, program, plan, with_dumps=True) == first
    numbers = [number for number, _ in first if number]
    assert len(set(numbers)) == len(numbers)


@given(name=st.sampled_from(sorted(FLOWS)), plan=steps)
def test_a_replay_of_a_sample_flow_gives_the_same_turns(engine: MontyEngine, name: str, plan: list[ReplayStep]) -> None:
    same(engine, FLOWS[name], INPUTS[name], plan)


@given(source=generated_flows(), plan=steps)
def test_a_replay_of_a_generated_flow_gives_the_same_turns(engine: MontyEngine, source: str, plan: list[ReplayStep]) -> None:
    assert [problem for problem in engine.check(source) if problem.severity == "error"] == []
    same(engine, source, None, plan)


@given(source=generated_flows(), plan=steps, seed=st.text(max_size=4))
def test_a_fork_shares_its_history_and_then_differs(engine: MontyEngine, source: str, plan: list[ReplayStep], seed: str) -> None:
    """A prefix of the answers gives a prefix of the turns."""
    program = FlowProgram(source, None, seed, "2026-05-01T08:00:00+00:00")
    complete = turns_of(engine, program, plan, with_dumps=False)
    prefix = plan[: len(plan) // 2]
    assert turns_of(engine, program, prefix, with_dumps=True) == complete[: len(prefix) + 1]
