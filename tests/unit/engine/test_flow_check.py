"""The flow checker: no problems in valid flows; line, column and reason of each problem in others."""

from __future__ import annotations

import re

import pytest

from clia.engine import flow_rules as catalog
from clia.engine.monty import MontyEngine
from clia.engine.records import FlowProgram, Problem
from support.flows import FLOWS, INPUTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    monty = MontyEngine()
    yield monty
    monty.close()


def flow(body: str, head: str = "", *, plain: bool = True) -> str:
    """A flow with statements in its main function, which start at line 2 if there is no head."""
    lines = [f"    {line}" for line in body.splitlines()]
    return "\n".join([*head.splitlines(), f"{'' if plain else 'async '}def main(input):", *lines, ""])


def failure_of(engine: MontyEngine, source: str) -> str:
    with engine.start(FlowProgram(source, {}, "seed", "2026-01-01T00:00:00+00:00")) as run:
        failure = run.turn.failure
    return "" if failure is None else failure.message


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("types", [False, True])
def test_valid_flows_have_no_problems_and_start(engine: MontyEngine, name: str, types: bool) -> None:
    assert engine.check(FLOWS[name], types=types) == []
    with engine.start(FlowProgram(FLOWS[name], INPUTS[name], "seed", "2026-01-01T00:00:00+00:00")) as run:
        assert run.turn.pending
        assert run.turn.failure is None


# Source, code, line and column, and a word of the message.
WRONG = [
    ("def main(input:\n    pass\n", "syntax", 1, None, ""),
    ("def main(input):\n  x = 1\n    y = 2\n", "syntax", 3, None, "indent"),
    ("def main(input):\n    return 1\nreturn 2\n", "syntax", 3, None, "return"),
    ("def main(input):\n    break\n", "syntax", 2, None, "break"),
    ("def main(input):\n    def h():\n        await request('a')\n    return h()\n", "syntax", 3, None, "await"),
    ("x = '\ud800'\n", "syntax", 1, None, "surrogate"),
    ("x = '\0'\n", "syntax", 1, None, "null|NUL"),
    ("x = " + "-" * 20_000 + "1\n", "syntax", 1, None, "deep"),
    ("#" * 300_000, "too-large", 1, 1, "bytes"),
    ("", "no-main", 1, 1, "def main"),
    ("def man(input):\n    return 1\n", "no-main", 1, 1, "def main"),
    ("if True:\n    def main(input):\n        return 1\n", "no-main", 2, 5, "top"),
    ("def main():\n    return 1\n", "no-main", 1, 1, "one argument"),
    ("def main(a, b):\n    return 1\n", "no-main", 1, 1, "one argument"),
    ("def main(a, *, b):\n    return 1\n", "no-main", 1, 1, "one argument"),
    (flow("return 1", "class A:\n    x = 1\nclass B(A):\n    pass"), "unsupported", 3, 1, "inherits"),
    (flow("return 1", "class E(Exception):\n    pass"), "unsupported", 1, 1, "inherits"),
    (flow("return 1", "class A:\n    @property\n    def x(self):\n        return 1"), "unsupported", 2, 6, "decorated"),
    (flow("return 1", "class A:\n    class B:\n        pass"), "unsupported", 2, 5, "class may hold"),
    (flow("return 1", "def many():\n    yield 1"), "unsupported", 2, 5, "yield"),
    (flow("x = [1]\ndel x[0]"), "unsupported", 3, 5, "del"),
    (flow("try:\n    pass\nexcept* ValueError:\n    pass"), "unsupported", 2, 5, r"except\*"),
    (flow("async for x in input:\n    pass", plain=False), "unsupported", 2, 5, "async for"),
    (flow("async with input:\n    pass", plain=False), "unsupported", 2, 5, "async with"),
    (flow("return [x async for x in input]", plain=False), "unsupported", 2, 12, "comprehension"),
    (flow("input @= 2"), "unsupported", 2, 5, "@="),
    (flow("return next(x for x in input)"), "unsupported", 2, 12, "list in a flow"),
    (flow("raise ValueError('a', 'b')"), "unsupported", 2, 11, "one text"),
    (flow("raise SystemExit(3)"), "unsupported", 2, 11, "one text"),
    (flow("return 1", "from math import *"), "unsupported", 1, 1, "import names from a module"),
    (flow("return 1", "from . import x"), "unsupported", 1, 1, "one text"),
    (flow("return 1", "import requests"), "unsupported", 1, 1, "no module requests.*request"),
    (flow("return 1", "import collections.abc"), "unsupported", 1, 1, "no module collections.abc"),
    (flow("return 1", "from functools import wraps"), "unsupported", 1, 1, "functools has no wraps"),
    (flow("return asyncio.create_task(1)", "import asyncio"), "unsupported", 3, 12, "asyncio has no create_task"),
    (flow("import enum"), "unsupported", 2, 5, "no module enum"),
    (flow("return super()"), "unsupported", 2, 12, "no `super`"),
    (flow("return requst('a')"), "unknown-name", 2, 12, "did you mean 'request'"),
    (flow("return inputs"), "unknown-name", 2, 12, "did you mean 'input'"),
    (flow("return [x for x in input] + [x]"), "unknown-name", 2, 34, "'x'"),
    (flow("return x", "class A:\n    x = 1"), "unknown-name", 4, 12, "'x'"),
    (flow("return 1", "class A:\n    n = 1\n    def f(self):\n        return n"), "unknown-name", 4, 16, "'n'"),
    (flow("return sorted(input, key=lambda x: request('rank', x))"), "suspends-in-callback", 2, 40, r"request\(\) cannot wait"),
    (flow("return list(map(ask, input))", "def ask(x):\n    return request('a', x)"), "suspends-in-callback", 4, 21, r"ask\(\)"),
    (
        flow("return max(input, key=far)", "def near(x):\n    return suspend('a')\ndef far(x):\n    return near(x)"),
        "suspends-in-callback",
        6,
        27,
        r"far\(\)",
    ),
    (flow("return list(filter(request, input))"), "suspends-in-callback", 2, 24, "request"),
    (flow("input.sort(key=ask)", "ask = lambda x: request('a', x)"), "suspends-in-callback", 3, 20, "ask"),
    (flow("return 1", "class A:\n    def __eq__(self, o):\n        return request('a')"), "suspends-in-callback", 3, 16, "__eq__"),
    (flow("request('a')\nreturn 1", plain=False), "missing-await", 2, 5, "await request"),
    (flow("return request('a')", plain=False), "missing-await", 2, 12, "await request"),
    (flow("if request('a') == 'yes':\n    return 1", plain=False), "missing-await", 2, 8, "await request"),
    (flow("return request('a')['b']", plain=False), "missing-await", 2, 12, "await request"),
    (flow("asyncio.sleep(1)", "import asyncio", plain=False), "missing-await", 3, 5, "await asyncio.sleep"),
    (flow("time.sleep(1)", "import time", plain=False), "missing-await", 3, 5, "asyncio.sleep"),
    (flow("nap(1)", "from time import sleep as nap", plain=False), "missing-await", 3, 5, "asyncio.sleep"),
    (
        flow("return asyncio.run(h())", "import asyncio\nasync def h():\n    return await request('a')"),
        "await-in-plain-flow",
        3,
        18,
        "async def main",
    ),
    (
        flow("return await asyncio.gather(request('a'), return_exceptions=True)", "import asyncio", plain=False),
        "unsupported",
        3,
        18,
        "return_exceptions",
    ),
    (flow("request()"), "bad-call", 2, 5, "kind"),
    (flow("request('a kind')"), "bad-call", 2, 5, "kind must"),
    (flow("request(3)"), "bad-call", 2, 5, "kind must be a string"),
    (flow("request('a', tagg='b')"), "bad-call", 2, 5, "tagg"),
    (flow("suspend('')"), "bad-call", 2, 5, "1 to 100"),
    (flow("return open('x').read()"), "denied", 2, 12, "no files"),
    (flow("return os.environ['HOME']", "import os"), "denied", 3, 12, "no environment"),
]


@pytest.mark.parametrize(("source", "code", "line", "column", "word"), WRONG, ids=range(len(WRONG)))
def test_a_problem_has_its_code_line_and_column(
    engine: MontyEngine, source: str, code: str, line: int, column: int | None, word: str
) -> None:
    """The column of a syntax error depends on the version of CPython: None means any."""
    problems = engine.check(source)
    assert [(problem.code, problem.line) for problem in problems] == [(code, line)]
    assert column is None or problems[0].column == column
    assert re.search(word, problems[0].message, re.IGNORECASE)
    assert problems[0].severity == "error"


MAY_WORK = [
    (flow("later = request('a')\nreturn 1", plain=False), "missing-await", 2),
    (flow("h()\nreturn await request('a')", "async def h():\n    pass", plain=False), "missing-await", 4),
    (flow("return 1", "def request(kind):\n    return 3"), "shadowed", 1),
    (flow("for suspend in input:\n    pass"), "shadowed", 2),
    (flow("return hasattr(input, 'join')"), "unsupported", 2),
    (flow("try:\n    import numpy\nexcept ImportError:\n    return 1"), "unsupported", 3),
]


@pytest.mark.parametrize(("source", "code", "line"), MAY_WORK, ids=range(len(MAY_WORK)))
def test_a_probable_mistake_is_a_warning(engine: MontyEngine, source: str, code: str, line: int) -> None:
    assert [(problem.code, problem.line, problem.severity) for problem in engine.check(source)] == [(code, line, "warning")]


FINE = [
    flow("global seen\nseen = 1\nreturn seen"),
    flow("return [y for x in input if (y := x)], y"),
    flow("try:\n    pass\nexcept ValueError as e:\n    return e.args\nfinally:\n    pass"),
    flow("a, *b = input\nreturn {**{'a': a}, 'b': [*b]}"),
    flow("match input:\n    case {'a': a, **rest}:\n        return a, rest\n    case [b, *c] as d:\n        return b, c, d"),
    flow("return f(1)", "def f(x: Unknown, *args: Other, y=2, **k) -> Missing:\n    z: Strange = x\n    return z"),
    flow("return A().f()", "class A:\n    n = 1\n    def f(self):\n        return A.n"),
    flow("return sorted(input, key=lambda x: -x), sum(request('a', x) for x in input)"),
    flow("return [f for f in map(str, input)]", "import json as j, os.path\nfrom math import sqrt as root"),
    flow("return await asyncio.gather(*map(h, input))", "import asyncio\nasync def h(x):\n    return 1", plain=False),
    flow("return await ask(1)", "def ask(x):\n    return request('a', x)", plain=False),
    flow("def later():\n    return early()\ndef early():\n    return 1\nreturn later()"),
    flow("from functools import cache\n@cache\ndef f(x):\n    return x\nreturn f(1)"),
    flow("return '\\d' + __name__"),
    "def main(input, more=2):\n    return 1\n",
    "def main(*args):\n    return 1\n",
    "# é\ndef main(input):\n    é = 'ü'; return é\n",
    "def main(input):\r\n    x = 1\r\n    return x\r\n",
]


@pytest.mark.parametrize("source", FINE, ids=range(len(FINE)))
def test_valid_code_has_no_problems(engine: MontyEngine, source: str) -> None:
    assert engine.check(source) == []


def test_all_problems_are_reported_in_order(engine: MontyEngine) -> None:
    source = "import requests\ndef man(x):\n    del x\n    yield 1\n    return undefined\n"
    problems = engine.check(source)
    assert [(problem.line, problem.code) for problem in problems] == [
        (1, "no-main"),
        (1, "unsupported"),
        (3, "unsupported"),
        (4, "unsupported"),
        (5, "unknown-name"),
    ]


def test_the_type_checker_reports_lines_of_the_flow(engine: MontyEngine) -> None:
    source = "def f(x: int) -> str:\n    return x\n\n\ndef main(input):\n    return f('a')\n"
    assert engine.check(source) == []
    problems = engine.check(source, types=True)
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [("type", 2, 12), ("type", 6, 14)]
    assert "expected `str`" in problems[0].message


def test_the_type_checker_knows_our_functions(engine: MontyEngine) -> None:
    source = "def main(input):\n    kind: int = 3\n    return request(kind, payload={1, 2})\n"
    assert engine.check(source) == []
    problems = engine.check(source, types=True)
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [("type", 3, 20)]


def test_the_engine_may_read_newer_python_than_this_one(engine: MontyEngine) -> None:
    """A syntax error of CPython alone is a warning; one of both is an error."""
    newer = "def main(input):\n    return t(f'{input['a']}')\ndef t[T](x: T) -> T:\n    return x\n"
    assert all(problem.severity == "warning" for problem in engine.check(newer))
    assert failure_of(engine, newer) == "KeyError: a"


def test_a_check_runs_nothing(engine: MontyEngine) -> None:
    """A flow that would loop forever or send requests is only parsed."""
    source = "while True:\n    print('x')\n\n\ndef main(input):\n    return 1\n"
    assert engine.check(source, types=True) == []


@pytest.mark.parametrize("module", sorted(catalog.NO_SUCH_MODULE))
def test_modules_that_the_catalog_lists_as_missing_are_missing(engine: MontyEngine, module: str) -> None:
    assert "ModuleNotFoundError" in failure_of(engine, flow(f"import {module}"))


USES = {
    "sorted": "sorted([2, 1], key=stop)",
    "min": "min([2, 1], key=stop)",
    "max": "max([2, 1], key=stop)",
    "sort": "[2, 1].sort(key=stop)",
    "bisect": "bisect.bisect([1], 1, key=stop)",
    "groupby": "list(itertools.groupby([1], stop))",
    "accumulate": "list(itertools.accumulate([1, 2], stop))",
    "map": "list(map(stop, [1]))",
    "filter": "list(filter(stop, [1]))",
    "iter": "list(iter(stop, 1))",
    "starmap": "list(itertools.starmap(stop, [(1,)]))",
    "takewhile": "list(itertools.takewhile(stop, [1]))",
    "dropwhile": "list(itertools.dropwhile(stop, [1]))",
    "filterfalse": "list(itertools.filterfalse(stop, [1]))",
    "defaultdict": "collections.defaultdict(stop)['a']",
    "field": "Record()",
}
HEAD = """\
import bisect, collections, itertools
from dataclasses import dataclass, field


def stop(*args):
    return request("a")


@dataclass
class Record:
    x: int = field(default_factory=stop)
"""


@pytest.mark.parametrize("name", sorted({name for name in catalog.NO_CALLBACK if not name.startswith(("bisect_", "insort"))}))
def test_the_engine_cannot_suspend_where_the_catalog_states_it(engine: MontyEngine, name: str) -> None:
    source = flow(f"return {USES[name]}", HEAD)
    assert "cannot suspend" in failure_of(engine, source)
    assert [problem.code for problem in engine.check(source)].count("suspends-in-callback") >= 1


@pytest.mark.parametrize("method", sorted(catalog.STOPPING_METHODS))
def test_the_engine_can_suspend_in_these_methods(engine: MontyEngine, method: str) -> None:
    lines = ["class A:"]
    for name in sorted(catalog.STOPPING_METHODS):
        lines += [f"    def {name}(self, *a):", "        request('a')" if name == method else "        pass"]
    source = flow("with A() as a:\n    A()()", "\n".join(lines))
    assert engine.check(source) == []
    with engine.start(FlowProgram(source, {}, "seed", "2026-01-01T00:00:00+00:00")) as run:
        assert [call.kind for call in run.turn.pending] == ["a"]


def test_a_problem_is_plain_data(engine: MontyEngine) -> None:
    assert engine.check("") == [Problem("no-main", "a flow starts with `def main(input)`, which is missing in it", 1, 1, "error")]
