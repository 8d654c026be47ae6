"""What cannot work in a flow, before it runs: CPython's reader, our rules, the engine's own compiler, its type checker.

Invariant: nothing of the flow is run: the engine is given the text below a line that stops it. What is said comes in the flow's
own lines, each thing once.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import json
import warnings
from contextlib import contextmanager

from clia.engine import flow_rules as catalog
from clia.engine.flow_rules import problems_of
from clia.engine.flow_source import HOST, READING, UNREADABLE, FlowText, parse
from clia.engine.records import LOST, Problem
from clia.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic_monty import MontyRuntimeError, MontySession, MontySyntaxError

    Open = Callable[..., MontySession]  # a session, entered
    Missing = Callable[[str], str | None]  # why a line of Python fails in the engine

MAX_SOURCE = 262_144
"""Bytes of a flow's text."""

_STOP = "_clia_stop_()"
_SHIFT = 1  # the line that stops it
_STUBS = """\
from typing import Any

{form} request(kind: str, payload: Any = None, tag: str | None = None) -> Any: ...
{form} suspend(tag: str, payload: Any = None) -> Any: ...
"""
# What our own rules say better, or what does not hold in a flow.
_NOT_TYPES = frozenset({"unresolved-reference", "unresolved-import"})


def check_flow(source: str, open_session: Open, *, types: bool) -> list[Problem]:
    """What cannot work, sorted by line and column."""
    unfit = _unfit(source)
    if unfit is not None:
        return [unfit]
    unread, of_engine = _unreadable(source), _compiled(source, open_session)
    if unread is None:
        text = FlowText(source, parse(source))
        with _released(open_session()) as session:
            found = [*problems_of(text), *_names(text, lambda line: _missing(session, line))]
        told = {problem.line for problem in found if problem.severity == "error"}
        found += [problem for problem in of_engine if problem.line not in told]
    else:
        found = [_weighed(unread, source, of_engine)]
    if types and not any(problem.code == "syntax" and problem.severity == "error" for problem in found):
        told = {problem.line for problem in found if problem.severity == "error"}
        stubs = _STUBS.format(form="async def" if unread is None and FlowText(source, parse(source)).is_async else "def")
        found += [problem for problem in _typed(source, stubs, open_session) if problem.line not in told]
    return sorted(set(found), key=lambda problem: (problem.line, problem.column, problem.code, problem.message))


@contextmanager
def _released(session: MontySession) -> Iterator[MontySession]:
    try:
        yield session
    finally:
        session.__exit__(None, None, None)


def _unfit(source: str) -> Problem | None:
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return Problem("syntax", "the text holds half of a surrogate pair", 1, 1)
    return Problem("too-large", f"the text has {size} bytes, more than {MAX_SOURCE}", 1, 1) if size > MAX_SOURCE else None


def _unreadable(source: str) -> Problem | None:
    """Why CPython cannot read the text; None where it can. Compiling runs nothing."""
    try:
        with READING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "flow", "exec", dont_inherit=True)
    except SyntaxError as err:
        return Problem("syntax", err.msg or "invalid syntax", err.lineno or 1, max(err.offset or 1, 1))
    except UNREADABLE:
        return Problem("syntax", "the text is nested too deeply, or holds NUL bytes", 1, 1)
    return None


def _weighed(unread: Problem, source: str, of_engine: list[Problem]) -> Problem:
    """The engine reads newer Python than an older interpreter does: then its word counts, and our rules cannot be asked."""
    try:
        parse(source)
    except UNREADABLE:
        if not of_engine and "\0" not in source:
            return unread._replace(severity="warning", message=f"only the engine can read this: {unread.message}")
    return unread


def _compiled(source: str, open_session: Open) -> list[Problem]:
    """What the engine's own compiler says: one thing at most."""
    from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

    try:
        with _released(open_session()) as session:
            session.feed_start(f"{_STOP}\n{source}")
    except (MontySyntaxError, MontyRuntimeError) as err:
        code = "syntax" if isinstance(err, MontySyntaxError) else "unsupported"
        message = str(err).removeprefix("NotImplementedError: ").removeprefix("The monty syntax parser does not yet support ")
        return [Problem(code, message if code == "syntax" else f"not in a flow: {message}", *_place(err))]
    except MontyCrashedError:
        return [Problem("unsupported", "the engine's process ends when it reads this text", 1, 1)]
    return []


def _place(err: MontySyntaxError | MontyRuntimeError) -> tuple[int, int]:
    frames = err.traceback()
    return (max(frames[-1].line - _SHIFT, 1), frames[-1].column) if frames else (1, 1)


def _missing(session: MontySession, line: str) -> str | None:
    from pydantic_monty import MontyCrashedError, MontyRuntimeError

    try:
        session.feed_run(line, print_callback=_ignore)
    except MontyRuntimeError as err:
        name = type(err.exception()).__name__
        return str(err) if name in ("NameError", "ImportError", "ModuleNotFoundError", "AttributeError") else None
    except MontyCrashedError as err:
        raise EngineError(f"the process that checked the flow was lost: {err}", code=LOST) from None
    return None


def _ignore(_stream: str, _text: str) -> None:
    """Nobody wants to know what a name prints."""


def _names(text: FlowText, missing: Missing) -> Iterator[Problem]:
    yield from _imports(text, missing)
    known: dict[str, bool] = {}
    for use in text.names.free():
        if use.id in HOST or known.setdefault(use.id, missing(use.id) is None):
            continue
        if hasattr(builtins, use.id):
            yield text.problem("unsupported", f"there is no `{use.id}` in a flow", use)
        else:
            yield text.problem("unknown-name", f"the name {use.id!r} is not defined{_close(text, use.id)}", use)


def _close(text: FlowText, name: str) -> str:
    near = difflib.get_close_matches(name, sorted({*text.names.everything_bound(), *HOST, *dir(builtins)}), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _imports(text: FlowText, missing: Missing) -> Iterator[Problem]:
    for node, line in _import_lines(text):
        why = missing(line)
        if why is None:
            continue
        module = line.split()[1]
        instead = catalog.NO_SUCH_MODULE.get(module) or catalog.NO_SUCH_MODULE.get(module.partition(".")[0])
        what = line.split()[-1] if line.startswith("from") and "ImportError: cannot" in why else None
        message = f"{module} has no {what} in a flow" if what else f"there is no module {module} in a flow"
        caught = any(isinstance(around, ast.Try) for around in _around(text, node))
        yield text.problem(
            "unsupported", f"{message}: {instead}" if instead and not what else message, node, "warning" if caught else "error"
        )


def _import_lines(text: FlowText) -> Iterator[tuple[ast.AST, str]]:
    """Each thing that is taken from a module, as a line that would take it."""
    for node in text.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, f"import {alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node, f"from {node.module} import {alias.name}") for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = text.imported.get(node.value.id)
            if module is not None and any(isinstance(use, ast.Import) for use in text.bindings(node.value.id)):
                yield node, f"from {module} import {node.attr}"


def _around(text: FlowText, node: ast.AST) -> Iterator[ast.AST]:
    parent = text.parents.get(node)
    while parent is not None:
        yield parent
        parent = text.parents.get(parent)


def _typed(source: str, stubs: str, open_session: Open) -> list[Problem]:
    """What the engine's type checker says. It always has something to say: the line that stops the flow is unknown to it."""
    from pydantic_monty import MontyTypingError

    try:
        with _released(open_session(type_check=True, type_check_stubs=stubs, type_check_format="json")) as session:
            session.feed_start(f"{_STOP}\n{source}")
    except MontyTypingError as err:
        return list(_of_types(json.loads(err.display())))
    return []


def _of_types(said: Iterable[dict[str, object]]) -> Iterator[Problem]:
    for item in said:
        place = item["location"]
        assert isinstance(place, dict)  # noqa: S101 - the format has it always
        line = int(place["row"]) - _SHIFT
        if line >= 1 and item["code"] not in _NOT_TYPES:
            severity = "error" if item.get("severity") == "error" else "warning"
            yield Problem("type", f"{item['message']} [{item['code']}]", line, int(place["column"]), severity)
