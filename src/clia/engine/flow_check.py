"""Check a flow before it runs, with CPython's parser, our rules, the engine's compiler and its type checker.

Invariant: nothing of the flow runs: the engine gets the source below a line that stops it. Problems have the flow's own line
numbers, and each is reported once.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import json
from contextlib import contextmanager

from clia.engine import flow_rules as catalog
from clia.engine.flow_rules import problems_of
from clia.engine.flow_source import HOST, UNREADABLE, FlowText, parse, without_warnings
from clia.engine.records import LOST, Problem
from clia.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic_monty import MontySession

    Open = Callable[..., MontySession]  # a session, entered
    Missing = Callable[[str], str | None]  # why a line of Python fails in the engine

MAX_SOURCE = 262_144
"""Bytes of a flow's source."""
_STOP = "_clia_stop_()"
_SHIFT = 1  # line
_STUBS = """\
from typing import Any

{form} request(kind: str, payload: Any = None, tag: str | None = None) -> Any: ...
{form} suspend(tag: str, payload: Any = None) -> Any: ...
"""
# Our own rules have better messages for these, or they do not apply to a flow.
_NOT_TYPES = frozenset({"unresolved-reference", "unresolved-import"})


def check_flow(source: str, open_session: Open, *, types: bool) -> list[Problem]:
    """Return the problems of a flow, sorted by line and column."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return [Problem("syntax", "the text contains a lone surrogate", 1, 1)]
    if size > MAX_SOURCE:
        return [Problem("too-large", f"the text has {size} bytes, more than {MAX_SOURCE}", 1, 1)]
    syntax_problem, engine_problems = _syntax_problem(source), _compiled(source, open_session)
    is_async = False
    if syntax_problem is None:
        text = FlowText(source, parse(source))
        is_async = text.is_async
        with _released(open_session()) as session:
            problems = [*problems_of(text), *_names(text, lambda line: _missing(session, line))]
        problems += _elsewhere(engine_problems, problems)
    else:
        problems = [_weighed(syntax_problem, source, engine_problems)]
    if types and not any(problem.code == "syntax" and problem.severity == "error" for problem in problems):
        stubs = _STUBS.format(form="async def" if is_async else "def")
        problems += _elsewhere(_typed(source, stubs, open_session), problems)
    return sorted(set(problems), key=lambda problem: (problem.line, problem.column, problem.code, problem.message))


def _elsewhere(problems: list[Problem], others: list[Problem]) -> list[Problem]:
    """Return the problems on lines where the others have no error."""
    lines = {problem.line for problem in others if problem.severity == "error"}
    return [problem for problem in problems if problem.line not in lines]


@contextmanager
def _released(session: MontySession) -> Iterator[MontySession]:
    try:
        yield session
    finally:
        session.__exit__(None, None, None)


def _syntax_problem(source: str) -> Problem | None:
    """Return why CPython cannot compile the source, or None. Compiling runs nothing."""
    try:
        with without_warnings():
            compile(source, "flow", "exec", dont_inherit=True)
    except SyntaxError as err:
        return Problem("syntax", err.msg or "invalid syntax", err.lineno or 1, max(err.offset or 1, 1))
    except UNREADABLE:
        return Problem("syntax", "the text is nested too deeply, or holds NUL bytes", 1, 1)
    return None


def _weighed(problem: Problem, source: str, engine_problems: list[Problem]) -> Problem:
    """Return a syntax problem as a warning if the engine knows newer Python than this interpreter and accepts the source."""
    try:
        parse(source)
    except UNREADABLE:
        if not engine_problems and "\0" not in source:
            return problem._replace(severity="warning", message=f"only the engine can read this: {problem.message}")
    return problem


def _compiled(source: str, open_session: Open) -> list[Problem]:
    """Return the problem that the engine's compiler reports, if any."""
    from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

    try:
        with _released(open_session()) as session:
            session.feed_start(f"{_STOP}\n{source}")
    except (MontySyntaxError, MontyRuntimeError) as err:
        code = "syntax" if isinstance(err, MontySyntaxError) else "unsupported"
        message = str(err).removeprefix("NotImplementedError: ").removeprefix("The monty syntax parser does not yet support ")
        frames = err.traceback()
        line, column = (max(frames[-1].line - _SHIFT, 1), frames[-1].column) if frames else (1, 1)
        return [Problem(code, message if code == "syntax" else f"not in a flow: {message}", line, column)]
    except MontyCrashedError:
        return [Problem("unsupported", "the engine's process ends when it reads this text", 1, 1)]
    return []


def _missing(session: MontySession, line: str) -> str | None:
    from pydantic_monty import MontyCrashedError, MontyRuntimeError

    try:
        session.feed_run(line, print_callback=lambda _stream, _text: None)
    except MontyRuntimeError as err:
        name = type(err.exception()).__name__
        return str(err) if name in ("NameError", "ImportError", "ModuleNotFoundError", "AttributeError") else None
    except MontyCrashedError as err:
        raise EngineError(f"the process that checked the flow was lost: {err}", code=LOST) from None
    return None


def _names(text: FlowText, missing: Missing) -> Iterator[Problem]:
    yield from _imports(text, missing)
    exists: dict[str, bool] = {}
    for use in (name for scope in text.scopes for name in scope.used if not scope.sees(name.id)):
        if use.id == "hasattr":
            message = "hasattr() does not see the methods of built-in types in a flow: it is False for them; use isinstance()"
            yield text.problem("unsupported", message, use, "warning")
        if use.id in HOST or exists.setdefault(use.id, missing(use.id) is None):
            continue
        if hasattr(builtins, use.id):
            yield text.problem("unsupported", f"there is no `{use.id}` in a flow", use)
        else:
            close = difflib.get_close_matches(use.id, sorted({*text.bound, *HOST, *dir(builtins)}), n=1)
            suggestion = f"; did you mean {close[0]!r}?" if close else ""
            yield text.problem("unknown-name", f"the name {use.id!r} is not defined{suggestion}", use)


def _imports(text: FlowText, missing: Missing) -> Iterator[Problem]:
    for node, line in _import_lines(text):
        why = missing(line)
        if why is None:
            continue
        module = line.split()[1]
        instead = catalog.NO_SUCH_MODULE.get(module) or catalog.NO_SUCH_MODULE.get(module.partition(".")[0])
        if line.startswith("from") and "ImportError: cannot" in why:
            message = f"{module} has no {line.split()[-1]} in a flow"
        else:
            message = f"there is no module {module} in a flow" + (f": {instead}" if instead else "")
        caught = any(isinstance(parent, ast.Try) for parent in text.around(node))
        yield text.problem("unsupported", message, node, "warning" if caught else "error")


def _import_lines(text: FlowText) -> Iterator[tuple[ast.AST, str]]:
    """Yield everything that is used of a module, as a line that imports it."""
    for node in text.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, f"import {alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node, f"from {node.module} import {alias.name}") for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = text.imported.get(node.value.id)
            if module is not None and any(isinstance(use, ast.Import) for use in text.bindings(node.value.id)):
                yield node, f"from {module} import {node.attr}"


def _typed(source: str, stubs: str, open_session: Open) -> list[Problem]:
    """Return the problems that the engine's type checker reports. The type checker always raises, so the line that stops the flow
    is unknown."""
    from pydantic_monty import MontyTypingError

    problems = []
    try:
        with _released(open_session(type_check=True, type_check_stubs=stubs, type_check_format="json")) as session:
            session.feed_start(f"{_STOP}\n{source}")
    except MontyTypingError as err:
        reports = [(report, report["location"], int(report["location"]["row"]) - _SHIFT) for report in json.loads(err.display())]
        for report, location, line in reports:
            if line >= 1 and report["code"] not in _NOT_TYPES:
                severity = "error" if report.get("severity") == "error" else "warning"
                message = f"{report['message']} [{report['code']}]"
                problems.append(Problem("type", message, line, int(location["column"]), severity))
    return problems
