"""The rules of the engine, on the real one: values, refusals, limits, dumps and crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from clia.engine.monty import MAX_WORKERS, MontyEngine
from clia.engine.records import (
    LIMIT,
    LOST,
    PATIENCE,
    RAISED,
    RESULT,
    TIMER,
    EngineLimits,
    Failure,
    FlowAnswer,
    FlowCall,
    FlowProgram,
    Turn,
)
from clia.engine.runs import MontyRun, PrintBuffer, processor_seconds
from clia.errors import EngineError, InvalidAnswer, InvalidFlow, InvalidInput
from support import flows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.engine.records import FlowRun

AT = "2026-03-29T00:59:59.123456+00:00"
QUICK = EngineLimits(turn_seconds=0.5)
SMALL = EngineLimits(memory=16 * 1024 * 1024)


@pytest.fixture(scope="module")
def quick() -> Iterator[MontyEngine]:
    """An engine with a short time limit."""
    new_engine = MontyEngine(QUICK)
    yield new_engine
    new_engine.close()


@pytest.fixture(scope="module")
def small() -> Iterator[MontyEngine]:
    """An engine with little memory."""
    new_engine = MontyEngine(SMALL)
    yield new_engine
    new_engine.close()


def program(source: str, value: Any = None, seed: str = "seed", started_at: str = AT, timezone: str = "UTC") -> FlowProgram:
    return FlowProgram(source, value, seed, started_at, timezone)


def body(*lines: str, head: str = "") -> str:
    return "\n".join([*head.splitlines(), "def main(input):", *(f"    {line}" for line in lines), ""])


def end_of(engine: MontyEngine, source: str, *answers: FlowAnswer, value: Any = None) -> Turn:
    """The last turn of a flow whose first pending call gets each answer in turn."""
    with engine.start(program(source, value)) as run:
        for answer in answers:
            run.answer(run.turn.pending[0].number, answer)
        return run.turn


def failure_of(engine: MontyEngine, source: str, *answers: FlowAnswer) -> Failure:
    failure = end_of(engine, source, *answers).failure
    assert failure is not None
    return failure


def worker_of(run: FlowRun) -> int:
    assert isinstance(run, MontyRun)
    assert run.session is not None
    pid = run.session.worker_pid
    assert isinstance(pid, int)
    return pid


# --- turns of a run


def test_a_flow_stops_at_each_request_and_ends_with_its_result(engine: MontyEngine) -> None:
    with engine.start(program(flows.PLAN, {"goal": "g"})) as run:
        assert run.turn == Turn(pending=(FlowCall(1, "llm", None, {"prompt": "g"}, 2),))
        payload = {"question": "Go on?", "plan": ["p"], "choices": ["approve", "reject"]}
        assert run.answer(1, FlowAnswer(["p"])).pending == (FlowCall(2, "human", "gate", payload, 3),)
        turn = run.answer(2, FlowAnswer("approve"))
        assert turn == run.turn == Turn(result={"status": "done", "plan": ["p"]})
        assert turn.ended


def test_printed_text_belongs_to_its_turn(engine: MontyEngine) -> None:
    source = body("print('one')", "request('a')", "print('two', 'more', end='!')", "return 1")
    with engine.start(program(source)) as run:
        assert run.turn.printed == "one\n"
        assert run.answer(1, FlowAnswer()).printed == "two more!"


def test_suspend_has_a_tag_and_an_optional_payload(engine: MontyEngine) -> None:
    with engine.start(program(flows.WAIT, "w")) as run:
        assert run.turn.pending == (FlowCall(1, "suspend", "start", None, 3),)
        assert run.answer(1, FlowAnswer(5)).pending == (FlowCall(2, "suspend", "go on", {"first": 5}, 4),)


def test_sleeping_is_a_timer_and_zero_seconds_are_not(engine: MontyEngine) -> None:
    with engine.start(program(flows.SLEEP)) as run:
        assert run.turn.pending == (FlowCall(1, TIMER, None, {"seconds": 0.5}, 6),)
        (second,) = run.answer(1, FlowAnswer("whatever")).pending
        assert (second.kind, second.payload) == (TIMER, {"seconds": 2.0})
        (third,) = run.answer(second.number, FlowAnswer()).pending
        assert third.kind == "awake"


def test_sleep_returns_its_own_result_for_any_answer(engine: MontyEngine) -> None:
    assert end_of(engine, body("return [time.sleep(1)]", head="import time"), FlowAnswer("x")).result == [None]
    source = "import asyncio\nasync def main(input):\n    return await asyncio.sleep(1, 'slept')\n"
    assert end_of(engine, source, FlowAnswer("x")).result == "slept"


def test_a_flow_can_request_a_timer_by_name_and_gets_its_answer(engine: MontyEngine) -> None:
    assert end_of(engine, body("return request('timer', {'seconds': 1})"), FlowAnswer("rang")).result == "rang"


def test_an_error_is_raised_at_the_request(engine: MontyEngine) -> None:
    source = body("try:", "    request('a')", "except RuntimeError as e:", "    return ['caught', str(e)]")
    assert end_of(engine, source, FlowAnswer(error="no luck")).result == ["caught", "no luck"]
    failure = failure_of(engine, body("x = 1", "return request('a')"), FlowAnswer(error="no\nluck \ud800"))
    assert failure == Failure(RAISED, "RuntimeError: no luck ?", 3, failure.trace)
    assert "line 3, in main\n    return request('a')" in failure.trace
    assert "_clia" not in failure.trace


def test_an_uncaught_exception_has_its_line_and_calls(engine: MontyEngine) -> None:
    source = "def inner(x):\n    raise ValueError(f'no {x}')\n\n\ndef main(input):\n    return inner('plan')\n"
    assert failure_of(engine, source) == Failure(
        RAISED,
        "ValueError: no plan",
        2,
        "Traceback (most recent call last):\n"
        "  line 6, in main\n    return inner('plan')\n"
        "  line 2, in inner\n    raise ValueError(f'no {x}')\n"
        "ValueError: no plan",
    )


@pytest.mark.parametrize("raised", ["SystemExit", "SystemExit('bye')", "KeyboardInterrupt", "BaseException('b')"])
def test_any_exception_of_a_flow_ends_only_the_flow(engine: MontyEngine, raised: str) -> None:
    failure = failure_of(engine, body(f"raise {raised}"))
    assert failure.reason == RAISED
    assert failure.repeats
    assert failure.message.startswith(raised.partition("(")[0])


def test_an_exception_named_like_a_limit_is_not_a_limit(engine: MontyEngine) -> None:
    for raised in ("TimeoutError('mine')", "MemoryError('mine')", "TimeoutError('turn time limit exceeded: 6s > 5s')"):
        assert failure_of(engine, body(f"raise {raised}")).reason == RAISED


def test_a_syntax_error_fails_with_its_line(engine: MontyEngine) -> None:
    failure = failure_of(engine, "def main(input):\n    return )\n")
    assert (failure.reason, failure.line) == (RAISED, 2)
    assert failure.message.startswith("SyntaxError")
    assert failure_of(engine, "").message == "NameError: name 'main' is not defined"
    assert failure_of(engine, "def main(input):\n    yield 1\n").line == 2


def test_a_failure_has_one_line_of_message_and_a_bounded_trace(engine: MontyEngine) -> None:
    failure = failure_of(engine, body("raise ValueError('long\\n' * 100_000)"))
    assert "\n" not in failure.message
    assert len(failure.message) <= 500
    assert len(failure.trace) <= 8000
    deep = failure_of(engine, "def a(n):\n    return b(n)\ndef b(n):\n    return a(n)\ndef main(input):\n    return a(1)\n")
    assert deep.message == "RecursionError: maximum recursion depth exceeded"
    assert deep.trace.count("line ") <= 51
    assert "more …" in deep.trace


# --- async flows


def test_calls_of_one_gather_are_pending_together_and_answered_in_any_order(engine: MontyEngine) -> None:
    with engine.start(program(flows.GATHER)) as run:
        assert [(call.number, call.kind, call.tag) for call in run.turn.pending] == [
            (1, "review", "a"),
            (2, "review", "b"),
            (3, "review", "c"),
        ]
        assert [call.number for call in run.answer(3, FlowAnswer("C")).pending] == [1, 2, 4]
        assert [call.number for call in run.answer(1, FlowAnswer("A")).pending] == [2, 4, 5]
        run.answer(5, FlowAnswer("AA"))
        run.answer(2, FlowAnswer("B"))
        run.answer(6, FlowAnswer("BB"))
        (last,) = run.answer(4, FlowAnswer("CC")).pending
        assert last.kind == "last"
        pair = [["a", "A", "AA"], ["b", "B", "BB"]]
        assert run.answer(last.number, FlowAnswer(0)).result == {"pair": pair, "alone": ["c", "C", "CC"], "last": 0}


def test_one_failure_of_a_gather_leaves_the_other_calls_open(engine: MontyEngine) -> None:
    with engine.start(program(flows.HANDLED)) as run:
        turn = run.answer(2, FlowAnswer(error="bad"))
        assert [call.kind for call in turn.pending] == ["firm", "risky", "risky", "risky"]
        for call in turn.pending[:3]:
            run.answer(call.number, FlowAnswer(call.number))
        assert run.answer(turn.pending[3].number, FlowAnswer(error="worse")).result == ["bad", [3, 4, "lost 3: worse"]]


def test_a_request_that_is_not_awaited_is_refused_at_its_line(engine: MontyEngine) -> None:
    failure = failure_of(engine, "async def main(input):\n    # é\n    request('notify')\n    return 1\n")
    assert failure.line == 3
    assert "await request" in failure.message


def test_a_plain_sleep_in_an_async_flow_is_refused(engine: MontyEngine) -> None:
    failure = failure_of(engine, "import time\nasync def main(input):\n    time.sleep(1)\n")
    assert failure.line == 3
    assert "asyncio.sleep" in failure.message


def test_plain_helpers_of_an_async_flow_return_awaitables(engine: MontyEngine) -> None:
    source = "def ask(x):\n    return request('a', x)\nasync def main(input):\n    return [await ask(1), await ask(2)]\n"
    assert end_of(engine, source, FlowAnswer("one"), FlowAnswer("two")).result == ["one", "two"]


def test_an_async_flow_can_use_newer_syntax_than_the_host(engine: MontyEngine) -> None:
    source = "async def main(input):\n    return f'{(await request('a'))['b']}'\n"
    assert end_of(engine, source, FlowAnswer({"b": "newer"})).result == "newer"


def test_functions_of_the_host_are_values_too(engine: MontyEngine) -> None:
    assert end_of(engine, flows.VALUES, FlowAnswer(1), FlowAnswer(2), FlowAnswer(3)).result == [[1, 2], 3]


# --- values


CROSSES = [None, True, 0, -(2**53) + 1, 2**53 - 1, 1.5, -0.0, "", "é\0😀", [], {}, [[1, {"a": [None]}]], {"": {"a b": 1}}]


@pytest.mark.parametrize("value", CROSSES, ids=range(len(CROSSES)))
def test_json_is_unchanged_as_input_payload_answer_and_result(engine: MontyEngine, value: Any) -> None:
    with engine.start(program("def main(input):\n    return [request('a', input), input]\n", value)) as run:
        assert repr(run.turn.pending[0].payload) == repr(value)
        assert repr(run.answer(1, FlowAnswer(value)).result) == repr([value, value])


def test_a_tuple_becomes_a_list(engine: MontyEngine) -> None:
    with engine.start(program(body("return (1, request('a', (2, (3,))))"))) as run:
        assert run.turn.pending[0].payload == [2, [3]]
        assert run.answer(1, FlowAnswer((4,))).result == [1, [4]]


NO_JSON = [
    ("{1}", "TypeError", "payload is a set, which cannot cross"),
    ("b'x'", "TypeError", "payload is bytes, which cannot cross"),
    ("{'items': [1, 2, {3}]}", "TypeError", "payload.items[2] is a set, which cannot cross"),
    ("{'a b': {'c': ...}}", "TypeError", 'payload["a b"].c is ..., which cannot cross'),
    ("{1: 2}", "TypeError", "payload has a key that is an int: the keys must be strings"),
    ("[{None: 2}]", "TypeError", "payload[0] has a key that is None: the keys must be strings"),
    ("float('nan')", "ValueError", "payload is nan, which JSON does not have"),
    ("[float('-inf')]", "ValueError", "payload[0] is -inf, which JSON does not have"),
    ("2**53", "ValueError", "payload is a whole number beyond 2**53 - 1, which JSON does not carry exactly"),
    ("10**4500", "ValueError", "payload is a whole number beyond 2**53 - 1, which JSON does not carry exactly"),
    ("Point()", "TypeError", "payload is a Point object, which cannot cross"),
    ("print", "TypeError", "payload is the type or function print, which cannot cross"),
    ("int", "TypeError", "payload is the type int, which cannot cross"),
    ("{}.keys()", "TypeError", "payload is dict_keys([]), which cannot cross"),
    ("ValueError('x')", "TypeError", "payload is a ValueError, which cannot cross"),
    ("deep(200)", "ValueError", "… is nested deeper than 128 levels"),
    ("deep(200_000)", "ValueError", "… is nested deeper than 128 levels"),
    ("'x' * 1_100_000", "ValueError", "payload takes 1100002 bytes as JSON, more than 1048576"),
]
HEAD = "class Point:\n    pass\ndef deep(n):\n    x = 1\n    for _ in range(n):\n        x = [x]\n    return x\n"


@pytest.mark.parametrize(("value", "error", "message"), NO_JSON, ids=[row[0] for row in NO_JSON])
def test_a_payload_that_is_not_json_is_refused_inside_the_flow_with_its_path(
    engine: MontyEngine, value: str, error: str, message: str
) -> None:
    lines = ("try:", f"    request('a', {value})", f"except {error} as e:", "    said = str(e)", "return [said, request('b')]")
    turn = end_of(engine, body(*lines, head=HEAD), FlowAnswer("after"))
    assert turn.failure is None
    assert turn.result[0].endswith(message)
    assert turn.result[1] == "after"


@pytest.mark.parametrize(("value", "error", "message"), NO_JSON, ids=[row[0] for row in NO_JSON])
def test_a_result_that_is_not_json_fails_the_flow_with_its_path(engine: MontyEngine, value: str, error: str, message: str) -> None:
    failure = failure_of(engine, body(f"return {value}", head=HEAD))
    assert failure.reason == RESULT
    assert failure.message.startswith("the result")
    assert failure.message.endswith(message.removeprefix("payload"))


def test_a_coroutine_as_a_result_is_reported_as_a_missing_await(engine: MontyEngine) -> None:
    failure = failure_of(engine, "async def h():\n    return 1\nasync def main(input):\n    return {'x': h()}\n")
    assert failure.reason == RESULT
    assert failure.message == "the result.x is <coroutine object h>, which cannot cross; is an `await` missing?"


@pytest.mark.parametrize("value", [{1}, b"x", float("nan"), 2**53, {1: 2}, "\ud800", object()], ids=range(7))
def test_an_input_or_answer_that_is_not_json_is_refused_first(engine: MontyEngine, value: Any) -> None:
    with pytest.raises(InvalidInput, match="input") as caught:
        engine.start(program(flows.WAIT, [value]))
    assert caught.value.fields == {"field": "input"}
    with engine.start(program(flows.WAIT, 1)) as run:
        before = run.turn
        with pytest.raises(InvalidAnswer, match="the answer"):
            run.answer(1, FlowAnswer([value]))
        assert run.turn == before
        assert run.answer(1, FlowAnswer("good")).pending[0].number == 2


@pytest.mark.parametrize("text", ["dict_keys(['a'])", "<coroutine object h>", "<module 'json'>"])
def test_text_from_outside_is_never_interpreted(engine: MontyEngine, text: str) -> None:
    source = body("return [len(input), len(request('a'))]")
    assert end_of(engine, source, FlowAnswer(text), value=text).result == [len(text)] * 2


def test_an_answer_can_be_large(engine: MontyEngine) -> None:
    assert end_of(engine, body("return len(request('a'))"), FlowAnswer("x" * 8_000_000)).result == 8_000_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("request()", "TypeError: request() missing its argument 'kind'"),
        ("request('')", "ValueError: kind must have 1 to 100 characters, not 0"),
        ("request('x' * 101)", "ValueError: kind must have 1 to 100 characters, not 101"),
        ("request('a b')", "ValueError: kind must consist of letters, digits and . _ / -"),
        ("request(3)", "TypeError: kind must be a string, not int"),
        ("request('a', tag=3)", "TypeError: tag must be a string, not int"),
        ("request('a', 1, 't', 4)", "TypeError: request() takes at most 3 arguments (kind, payload, tag), 4 were given"),
        ("request('a', kind='b')", "TypeError: request() got multiple values for argument 'kind'"),
        ("request('a', wait=1)", "TypeError: request() got an unexpected keyword argument 'wait'; it takes kind, payload, tag"),
        ("suspend()", "TypeError: suspend() missing its argument 'tag'"),
        ("suspend(None)", "TypeError: tag must be a string, not NoneType"),
        ("requst('a')", "NameError: name 'requst' is not defined. Did you mean: 'request'?"),
        ("unheard_of(1)", "NameError: name 'unheard_of' is not defined"),
        ("unheard_of", "NameError: name 'unheard_of' is not defined"),
        ("globals()", "NameError: name 'globals' is not defined"),
    ],
)
def test_a_wrong_call_raises_at_its_line(engine: MontyEngine, call: str, message: str) -> None:
    failure = failure_of(engine, body("x = 1", f"return {call}"))
    assert (failure.message, failure.line) == (message, 3)


def test_refused_calls_take_a_number_the_same_on_every_run(engine: MontyEngine) -> None:
    source = body("try:", "    request('a', {1})", "except TypeError:", "    pass", "return request('b')")
    for _ in range(2):
        with engine.start(program(source)) as run:
            assert [call.number for call in run.turn.pending] == [2]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("open('/etc/passwd')", "PermissionError"),
        ("Path('/etc/passwd').read_text()", "PermissionError"),
        ("Path('/tmp/x').write_text('x')", "PermissionError"),
        ("Path('/').exists()", "PermissionError"),
        ("os.listdir('/')", "PermissionError"),
        ("os.getenv('HOME')", "PermissionError"),
        ("os.environ['HOME']", "PermissionError"),
        ("os.urandom(3)", "PermissionError"),
        ("__import__('socket')", "NameError"),
        ("exec('import socket')", "ModuleNotFoundError"),
        ("exec('import subprocess')", "ModuleNotFoundError"),
        ("eval('open(\"/etc/passwd\")')", "PermissionError"),
    ],
)
def test_a_flow_cannot_access_files_environment_or_network(engine: MontyEngine, line: str, error: str) -> None:
    failure = failure_of(engine, body(line, head="import os\nfrom pathlib import Path"))
    assert failure.reason == RAISED
    assert failure.message.startswith(f"{error}:")


def test_the_input_is_not_a_global_variable(engine: MontyEngine) -> None:
    assert failure_of(engine, "def main(x):\n    return input\n").message == "NameError: name 'input' is not defined"


# --- the clock and random numbers


def test_clock_and_random_numbers_come_only_from_the_program(engine: MontyEngine) -> None:
    def run_of(flow_program: FlowProgram) -> tuple[Any, Any]:
        with engine.start(flow_program) as run:
            return run.turn.pending[0].payload, run.answer(1, FlowAnswer("x")).result

    first = run_of(program(flows.CHANCE))
    assert run_of(program(flows.CHANCE)) == first
    assert first[0]["now"] == AT
    assert first[0]["local"] == "2026-03-29 00:59:59.123456"
    assert run_of(program(flows.CHANCE, seed="other"))[1] != first[1]
    abroad = run_of(program(flows.CHANCE, timezone="Europe/Berlin"))[0]
    assert (abroad["now"], abroad["local"]) == (AT, "2026-03-29 01:59:59.123456")


def test_two_processes_draw_the_same_random_numbers(engine: MontyEngine) -> None:
    """Another engine has other workers, other hash seeds and other addresses."""
    source = body("import random", "return [hash('a'), list({'x', 'y', 'z', 'é'}), random.random(), id([])]")
    second_engine = MontyEngine()
    assert end_of(engine, source).result == end_of(second_engine, source).result
    second_engine.close()


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"timezone": "Mars/Phobos"}, "timezone"),
        ({"timezone": ""}, "timezone"),
        ({"timezone": "../etc/passwd"}, "timezone"),
        ({"started_at": "yesterday"}, "started_at"),
        ({"started_at": "2026-01-01T00:00:00"}, "started_at"),
        ({"seed": "\ud800"}, "seed"),
    ],
)
def test_an_invalid_program_is_refused_by_field(engine: MontyEngine, changed: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        engine.start(program(flows.WAIT)._replace(**changed))
    assert caught.value.fields["field"] == field


def test_text_that_cannot_be_encoded_is_refused(engine: MontyEngine) -> None:
    with pytest.raises(InvalidFlow, match="surrogate"):
        engine.start(program("x = '\ud800'"))


# --- limits


def test_an_endless_loop_ends_as_a_limit(quick: MontyEngine) -> None:
    failure = failure_of(quick, body("try:", "    while True:", "        pass", "except BaseException:", "    return 'caught'"))
    assert failure.reason == LIMIT
    assert failure.message == "time: a turn used more than 0.5 seconds of processor time"
    assert failure.used is not None
    assert not failure.repeats


def test_the_time_limit_applies_to_a_turn(quick: MontyEngine) -> None:
    """After the first answers a flow still has all of its time; the limit applies in a later turn too."""
    source = body("for _ in range(20):", "    request('a')", "while True:", "    pass")
    assert failure_of(quick, source, *[FlowAnswer()] * 20).reason == LIMIT


@pytest.mark.parametrize(
    "bomb",
    [
        "[0] * 10**9",
        "'x' * 10**10",
        "10 ** 10 ** 9",
        "[list(range(10**6)) for _ in range(1000)]",
        "eval('[' * 3 + '0' + ']' * 3 + ' * 100000000')",
    ],
)
def test_a_memory_bomb_ends_as_a_limit(small: MontyEngine, bomb: str) -> None:
    failure = failure_of(small, body("try:", f"    x = {bomb}", "except BaseException:", "    return 'caught'"))
    assert failure.reason == LIMIT
    assert failure.message == "memory: it took more than 16 MiB"
    assert failure.line == 3


def test_deep_recursion_is_an_exception_that_a_flow_can_catch(engine: MontyEngine) -> None:
    source = body("try:", "    f(0)", "except RecursionError:", "    return request('a')", head="def f(n):\n    return f(n + 1)")
    assert end_of(engine, source, FlowAnswer("continued")).result == "continued"


def test_the_recursion_limit_is_the_engines_and_deterministic(engine: MontyEngine) -> None:
    lines = ("try:", "    f()", "except RecursionError:", "    return len(seen)")
    source = body(*lines, head="seen = []\ndef f():\n    seen.append(1)\n    f()")
    shallow = MontyEngine(EngineLimits(depth=50))
    for limited, most in ((engine, 200), (shallow, 50)):
        results = {end_of(limited, source).result for _ in range(3)}
        assert len(results) == 1
        assert most - 5 < results.pop() <= most
    shallow.close()


def test_endless_printing_is_truncated(quick: MontyEngine) -> None:
    limited = MontyEngine(EngineLimits(printed=1000))
    with limited.start(program(body("for n in range(10_000):", "    print('0123456789')", "return request('a')"))) as run:
        printed = run.turn.printed
        assert printed.startswith("0123456789\n")
        assert printed[1000:] == "\n[cut: more than 1000 characters]\n"
        assert run.answer(1, FlowAnswer(1)).printed == ""
    limited.close()
    endless = end_of(quick, body("while True:", "    print('x' * 1000)"))
    assert endless.failure is not None
    assert endless.failure.reason == LIMIT
    assert len(endless.printed) < 1_100_000


def test_after_a_limit_the_engine_runs_the_next_flow(quick: MontyEngine, small: MontyEngine) -> None:
    for limited, bomb in ((quick, "while True: pass"), (small, "x = [0] * 10**9")):
        assert failure_of(limited, body(bomb)).reason == LIMIT
        assert end_of(limited, body("return 1")).result == 1


def test_a_patient_run_has_more_time(quick: MontyEngine) -> None:
    """The work takes more than the usual time, and far less than the patient one."""
    source = body("n = 0", "for _ in range(input):", "    n += 1", "return n")
    steps = 1_000_000
    while end_of(quick, source, value=steps).failure is None:
        steps *= 2
    with quick.start(program(source, steps), patience=PATIENCE) as run:
        assert run.turn.result == steps


def test_a_patient_run_is_bounded_too() -> None:
    patient_engine = MontyEngine(EngineLimits(turn_seconds=0.02))
    with patient_engine.start(program(body("while True:", "    pass")), patience=10) as run:
        failure = run.turn.failure
        assert failure is not None
        assert (failure.reason, failure.message) == (LIMIT, "time: a turn used more than 0.02 seconds of processor time")
    patient_engine.close()


class StoppedWorker:
    """Stops the worker of a run when the flow prints, and continues it after some seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.worker: int | None = None
        take = PrintBuffer.take

        def stop(buffer: PrintBuffer, stream: Any, text: str) -> None:
            take(buffer, stream, text)
            if self.worker is not None:
                os.kill(self.worker, signal.SIGSTOP)
                threading.Timer(seconds, os.kill, (self.worker, signal.SIGCONT)).start()
                self.worker = None

        monkeypatch.setattr(PrintBuffer, "take", stop)


def test_a_turn_of_a_stopped_worker_has_not_used_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = MontyEngine(EngineLimits(turn_seconds=1))
    stopped = StoppedWorker(monkeypatch, 1.1)
    with limited.start(program(body("request('a')", "while True:", "    print('x')"))) as run:
        stopped.worker = worker_of(run)
        failure = run.answer(1, FlowAnswer()).failure
    limited.close()
    assert failure is not None
    assert failure.reason == LIMIT
    assert failure.used is not None
    assert failure.used < 0.9


def test_processor_time_grows_with_work_and_is_unknown_for_a_process_that_is_gone() -> None:
    before = processor_seconds(os.getpid())
    assert before is not None
    sum(range(1_000_000))
    after = processor_seconds(os.getpid())
    assert after is not None
    assert after > before
    assert processor_seconds(2**22 + 1) is None
    assert processor_seconds(None) is None


# --- dumps


def reload(engine: MontyEngine, flow_program: FlowProgram, run: MontyRun) -> MontyRun:
    return engine.load(flow_program, run.dump(), run.turn.pending)


def test_a_loaded_dump_has_the_same_calls_and_the_same_end(engine: MontyEngine) -> None:
    flow_program = program(flows.NAPS)
    with engine.start(flow_program) as run:
        run.answer(run.turn.pending[2].number, FlowAnswer())
        with reload(engine, flow_program, run) as copy:
            assert copy.turn.pending == run.turn.pending
            while not run.turn.ended:
                number = run.turn.pending[-1].number
                assert copy.answer(number, FlowAnswer(number)) == run.answer(number, FlowAnswer(number))
            assert copy.turn.result == run.turn.result


def test_a_dump_is_read_by_another_process_of_the_same_engine(engine: MontyEngine) -> None:
    flow_program = program(flows.WAIT, 1)
    second_engine = MontyEngine()
    with engine.start(flow_program) as run, reload(second_engine, flow_program, run) as copy:
        assert copy.answer(1, FlowAnswer(2)).pending == (FlowCall(2, "suspend", "go on", {"first": 2}, 4),)
    second_engine.close()


def test_a_loaded_run_has_the_same_limits(quick: MontyEngine, small: MontyEngine) -> None:
    for limited, bomb in ((quick, "while True: pass"), (small, "x = [0] * 10**9")):
        flow_program = program(body("request('a')", bomb))
        with limited.start(flow_program) as run, reload(limited, flow_program, run) as copy:
            failure = copy.answer(1, FlowAnswer()).failure
            assert failure is not None
            assert failure.reason == LIMIT


@pytest.mark.parametrize("cut", [0, 1, 11, 27, 28, 200, -1])
def test_a_damaged_dump_is_an_error_and_not_a_crash(engine: MontyEngine, cut: int) -> None:
    flow_program = program(flows.WAIT, 1)
    with engine.start(flow_program) as run:
        dump, pending = run.dump(), run.turn.pending
    flipped = dump[:-50] + bytes([dump[-50] ^ 1]) + dump[-49:]
    for bad in (dump[:cut], flipped, b"garbage", dump + b"x"):
        with pytest.raises(EngineError) as caught:
            engine.load(flow_program, bad, pending)
        assert caught.value.code == "dump-unusable"
    with engine.load(flow_program, dump, pending) as run:
        assert run.answer(1, FlowAnswer(1)).pending


def test_a_sealed_dump_that_the_interpreter_cannot_use_is_an_error(engine: MontyEngine) -> None:
    """White box: the seal is valid, the content is not."""
    from clia.engine import runs

    flow_program = program(flows.WAIT, 1)
    with engine.start(flow_program) as run:
        dump, pending, identity = run.dump(), run.turn.pending, run.program.identity
    state = dump[27:]
    for bad in (b"x", state[:100], state[:-3], bytes(1000), state[:20] + bytes(50) + state[70:]):
        with pytest.raises(EngineError):
            engine.load(flow_program, runs.seal(identity, bad), pending).answer(1, FlowAnswer(1))
    assert end_of(engine, body("return 1")).result == 1


def test_a_dump_of_another_flow_input_or_limit_is_refused(engine: MontyEngine, quick: MontyEngine) -> None:
    flow_program = program(flows.WAIT, 1)
    with engine.start(flow_program) as run:
        dump, pending = run.dump(), run.turn.pending
    for changed in (
        flow_program._replace(input=2),
        flow_program._replace(seed="z"),
        flow_program._replace(source=flows.WAIT + "\n"),
    ):
        with pytest.raises(EngineError, match="another flow"):
            engine.load(changed, dump, pending)
    with pytest.raises(EngineError, match="another flow"):
        quick.load(flow_program, dump, pending)


@pytest.mark.parametrize("source", [flows.WAIT, flows.GATHER])
def test_a_dump_that_waits_for_other_calls_is_refused(engine: MontyEngine, source: str) -> None:
    flow_program = program(source, 1)
    with engine.start(flow_program) as run:
        dump, pending = run.dump(), run.turn.pending
    for calls in ((), pending[1:], (*pending, FlowCall(9, "a", None, None, 1)), (pending[0]._replace(number=7), *pending[1:])):
        if calls != pending:
            with pytest.raises(EngineError, match="other calls"):
                engine.load(flow_program, dump, calls)


def test_only_a_run_that_waits_can_be_dumped_or_answered(engine: MontyEngine) -> None:
    with engine.start(program(body("return 1"))) as run:
        with pytest.raises(InvalidInput):
            run.dump()
        with pytest.raises(InvalidInput, match="not pending"):
            run.answer(1, FlowAnswer())
    with engine.start(program(flows.WAIT)) as run:
        for number in (0, 2, -1):
            with pytest.raises(InvalidInput, match="not pending"):
                run.answer(number, FlowAnswer())
    with pytest.raises(EngineError):
        run.answer(1, FlowAnswer())


def test_three_thousand_answers(engine: MontyEngine) -> None:
    source = body("total = 0", "for _ in range(3000):", "    total += request('n', total % 7)", "return total")
    with engine.start(program(source)) as run:
        for number in range(1, 3001):
            assert run.turn.pending[0].number == number
            run.answer(number, FlowAnswer(number))
        assert run.turn.result == sum(range(3001))


# --- processes


def test_a_worker_that_is_killed_loses_its_run_and_nothing_else(engine: MontyEngine) -> None:
    flow_program = program(flows.WAIT, 1)
    with engine.start(flow_program) as run, engine.start(flow_program) as bystander:
        dump, pending = run.dump(), run.turn.pending
        os.kill(worker_of(run), signal.SIGKILL)
        with pytest.raises(EngineError) as caught:
            run.answer(1, FlowAnswer(1))
        assert caught.value.retryable
        assert caught.value.code == LOST
        assert bystander.answer(1, FlowAnswer(1)).pending
    with engine.load(flow_program, dump, pending) as again:
        assert again.answer(1, FlowAnswer(1)).pending


def test_a_worker_that_is_killed_while_it_runs(engine: MontyEngine) -> None:
    source = body("request('a')", "while True:", "    pass")
    with engine.start(program(source)) as run:
        killer = threading.Timer(0.2, os.kill, (worker_of(run), signal.SIGKILL))
        killer.start()
        with pytest.raises(EngineError, match="lost"):
            run.answer(1, FlowAnswer())
        killer.join()
    assert end_of(engine, body("return 1")).result == 1


def test_a_worker_that_hangs_is_ended_as_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.engine.monty.GRACE_SECONDS", 0.1)
    limited = MontyEngine(EngineLimits(turn_seconds=2))
    with limited.start(program(flows.WAIT)) as run:
        os.kill(worker_of(run), signal.SIGSTOP)
        os.waitid(os.P_PID, worker_of(run), os.WSTOPPED)
        over = "time: a turn used more than 2 seconds of processor time"
        assert run.answer(1, FlowAnswer()).failure == Failure(LIMIT, over, None, used=1.0)
    assert end_of(limited, body("return 1")).result == 1
    limited.close()


def test_a_dump_of_a_lost_worker_is_an_error(engine: MontyEngine) -> None:
    with engine.start(program(flows.WAIT)) as run:
        os.kill(worker_of(run), signal.SIGKILL)
        with pytest.raises(EngineError) as caught:
            run.dump()
        assert caught.value.code == LOST


def test_idle_workers_that_are_killed_are_replaced(engine: MontyEngine) -> None:
    runs = [engine.start(program(flows.WAIT)) for _ in range(3)]
    pids = [worker_of(run) for run in runs]
    for run in runs:
        run.__exit__()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert end_of(engine, body("return 1")).result == 1


def test_threads_share_an_engine(engine: MontyEngine) -> None:
    def whole(number: int) -> Any:
        with engine.start(program(flows.LOOP, {"steps": 20})) as run:
            while not run.turn.ended:
                run.answer(run.turn.pending[0].number, FlowAnswer(number))
            return run.turn.result

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(whole, range(40))) == [20 * number for number in range(40)]


def test_many_runs_can_be_open_at_the_same_time(engine: MontyEngine) -> None:
    runs = [engine.start(program(flows.WAIT, number)) for number in range(30)]
    for number, run in enumerate(runs):
        with run:
            run.answer(1, FlowAnswer(number))
            assert run.answer(2, FlowAnswer(None)).result == [number, None]


def test_a_run_that_has_ended_holds_no_worker(engine: MontyEngine) -> None:
    """There are more runs than workers, and none is closed explicitly."""
    ended = [engine.start(program(body("return 1"))) for _ in range(MAX_WORKERS + 3)]
    assert all(run.turn.result == 1 for run in ended)


def test_close_ends_the_idle_workers_and_the_engine_stays_usable() -> None:
    """A run that is still open keeps its worker to its end."""
    new_engine = MontyEngine()
    with new_engine.start(program(flows.WAIT)) as run:
        new_engine.close()
        new_engine.close()
        assert end_of(new_engine, body("return 1")).result == 1
        run.answer(1, FlowAnswer(1))
        assert run.answer(2, FlowAnswer(2)).result == [1, 2]
    new_engine.close()


CHILD = """
import os, sys
from clia.engine.monty import MontyEngine
from clia.errors import EngineError
from clia.engine.records import FlowAnswer, FlowProgram

made = FlowProgram("def main(input):\\n    return [request('a'), request('b')]\\n", 1, "s", "2026-01-01T00:00:00+00:00")
engine = MontyEngine()
"""


def in_a_process(code: str, before: str = CHILD) -> str:
    result = subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_a_process_can_end_with_open_runs() -> None:
    assert in_a_process("runs = [engine.start(made) for _ in range(3)]\nprint(len(runs))\n") == "3\n"
    assert in_a_process("run = engine.start(made)\nsys.exit(0)\n") == ""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "del run, engine; import gc; gc.collect(); sys.exit(0)"])
def test_a_fork_does_not_affect_the_parents_runs(end: str) -> None:
    code = f"""
run = engine.start(made)
if not (child := os.fork()):
    try:
        run.answer(1, FlowAnswer(1))
    except EngineError as err:
        print(err.code, flush=True)
    run.__exit__(None, None, None)
    {end}
assert os.waitpid(child, 0)[1] == 0
run.answer(1, FlowAnswer(1))
print(run.answer(2, FlowAnswer(2)).result)
with engine.start(made) as again:
    print(len(again.turn.pending))
"""
    assert in_a_process(code) == "run-inherited\n[1, 2]\n1\n"


def test_a_fork_after_the_first_flow_refuses_to_run_flows() -> None:
    """The threads of the interpreter belong to the parent process. Without the error, the child would wait forever."""
    code = """
engine.start(made).__exit__(None, None, None)
if not (child := os.fork()):
    for one in (engine, MontyEngine()):
        try:
            one.start(made)
        except EngineError as err:
            print(err.code, err.retryable, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert in_a_process(code) == "engine-forked False\n" * 2


def test_a_fork_before_the_first_flow_has_its_own_workers() -> None:
    code = """
if not (child := os.fork()):
    with engine.start(made) as run:
        print(len(run.turn.pending), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
with engine.start(made) as run:
    print(len(run.turn.pending))
"""
    assert in_a_process(code) == "1\n1\n"


AT_ONCE = """
import sys, threading
sys.setswitchinterval(1e-6)

def at_once(does):
    go, made = threading.Barrier(8), []
    threads = [threading.Thread(target=lambda: (go.wait(), made.append(does()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made
"""


def test_engines_can_be_used_first_by_many_threads_at_once() -> None:
    """Python fills the table by which the engine's program is found without a lock."""
    code = """
def waits():
    with MontyEngine().start(made) as run:
        return len(run.turn.pending)

print(at_once(waits))
"""
    assert in_a_process(AT_ONCE + code) == f"{[1] * 8}\n"
    # Without this, threads can find the table complete by luck.
    assert in_a_process("import sysconfig\nprint(sysconfig._CONFIG_VARS is not None)\n") == "True\n"


def test_concurrent_threads_get_one_engine_for_the_process() -> None:
    code = """
from clia.facade import backends
from clia.facade.config import FlowLimits

got = at_once(lambda: backends.engine_with(FlowLimits()))
print(len(got), len({id(each) for each in got}))
"""
    assert in_a_process(AT_ONCE + code, before="") == "8 1\n"


def test_importing_the_engine_does_not_load_the_interpreter() -> None:
    assert in_a_process("print('pydantic_monty' in sys.modules)") == "False\n"


def test_the_version_names_the_interpreter_and_our_rules(engine: MontyEngine) -> None:
    from pydantic_monty import __version__

    assert engine.version == f"pydantic-monty {__version__} rules 1"
