"""The source of a flow, parsed: whether ``main`` is async, which calls discard their result, scopes and names.

Invariant: everything depends on the source alone. The engine decides what is Python: source that this interpreter cannot parse
is searched line by line.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

from clia.engine.records import REQUEST, SUSPEND, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What parsing may raise: NUL bytes give a ValueError, deep nesting one of the last two."""

_ASYNC_MAIN = re.compile(r"^async[ \t]+def[ \t]+main\b", re.MULTILINE)
_PARSING = threading.Lock()


class FlowForm(NamedTuple):
    is_async: bool
    discarded: frozenset[tuple[int, int]]  # first and last byte of calls that are statements, in an async flow


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore the parser's warnings. The filters belong to the whole process, hence the lock."""
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse(source: str) -> ast.Module:
    with without_warnings():
        return ast.parse(source)


def main_of(tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the last ``main`` at the top level: the one that is called."""
    mains = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main"]
    return mains[-1] if mains else None


@lru_cache(maxsize=256)
def form_of(source: str) -> FlowForm:
    try:
        tree = parse(source)
    except UNREADABLE:
        return FlowForm(_ASYNC_MAIN.search(source) is not None, frozenset())
    if not isinstance(main_of(tree), ast.AsyncFunctionDef):
        return FlowForm(is_async=False, discarded=frozenset())
    starts = [0, *accumulate(len(line) + 1 for line in source.encode().split(b"\n"))]
    calls = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    places = ((call.lineno, call.col_offset, call.end_lineno or 1, call.end_col_offset or 0) for call in calls)
    discarded = frozenset((starts[line - 1] + at, starts[end_line - 1] + end) for line, at, end_line, end in places)
    return FlowForm(is_async=True, discarded=discarded)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bound: dict[str, ast.AST] = {}
        self.outside: set[str] = set()  # declared global or nonlocal here
        self.used: list[ast.Name] = []

    def bind(self, name: str, node: ast.AST) -> None:
        if name in self.outside and self.parent is not None:
            self.parent.bind(name, node)
        else:
            self.bound.setdefault(name, node)

    def sees(self, name: str) -> bool:
        """Whether the source binds the name for this scope."""
        scope = self.parent
        while scope is not None and (name not in scope.bound or isinstance(scope.node, ast.ClassDef)):
            scope = scope.parent
        return name in self.bound or scope is not None


def scopes_of(tree: ast.Module) -> list[Scope]:
    """Return all scopes, the top level first. Visits each node once, in any order: a use may come before its binding."""
    top = Scope(tree, None)
    scopes = [top]
    stack: list[tuple[ast.AST, Scope]] = [(child, top) for child in ast.iter_child_nodes(tree)]
    while stack:
        node, scope = stack.pop()
        _bind(node, scope)
        inner = scope
        if isinstance(node, (*FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            inner = Scope(node, scope)
            inner.outside = _declared(node)
            scopes.append(inner)
        stack.extend((child, inner if inside else scope) for child, inside in _children(node))
    return scopes


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes below, and whether each belongs to the scope that the node opens."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue  # the engine ignores them
        outer = field in ("decorator_list", "bases", "keywords") and isinstance(node, (*FUNCTIONS, ast.ClassDef))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, not outer


def _declared(node: ast.AST) -> set[str]:
    body = getattr(node, "body", [])
    names: set[str] = set()
    stack = list(body) if isinstance(body, list) else []
    while stack:
        item = stack.pop()
        if isinstance(item, (ast.Global, ast.Nonlocal)):
            names.update(item.names)
        if not isinstance(item, (*FUNCTIONS, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(item))
    return names


def _bind(node: ast.AST, scope: Scope) -> None:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            scope.used.append(node)
        else:
            scope.bind(node.id, node)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope.bind(node.name, node)
    elif isinstance(node, ast.arg):
        scope.bind(node.arg, node)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            scope.bind(alias.asname or alias.name.split(".")[0], node)
    elif isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
        while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        scope.bind(node.target.id, node)
    else:
        for field in ("name", "rest"):  # except … as name, and names that patterns of a match capture
            name = getattr(node, field, None)
            if isinstance(name, str) and not isinstance(node, (ast.alias, ast.keyword)):
                scope.bind(name, node)


HOST = (REQUEST, SUSPEND)
STOPS = (*HOST, "time.sleep")
"""Calls that suspend a flow that is not async."""


class FlowText:
    def __init__(self, source: str, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self.main = main_of(tree)
        self.is_async = isinstance(self.main, ast.AsyncFunctionDef)
        self._lines = source.split("\n")
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]

    def problem(self, code: str, message: str, node: ast.AST | None, severity: str = "error") -> Problem:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        before = self._lines[line - 1].encode()[:column] if line <= len(self._lines) else b""
        return Problem(code, message, line, len(before.decode(errors="ignore")) + 1, severity)

    @cached_property
    def scopes(self) -> list[Scope]:
        return scopes_of(self.tree)

    @cached_property
    def bound(self) -> set[str]:
        """All names that the source binds."""
        return {name for scope in self.scopes for name in scope.bound}

    @cached_property
    def imported(self) -> dict[str, str]:
        """What each imported name refers to: ``t`` to time, ``nap`` to time.sleep."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    @cached_property
    def functions(self) -> dict[str, list[Function]]:
        """The functions of the source, by name."""
        functions: dict[str, list[Function]] = {}
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not isinstance(self.parents.get(node), ast.ClassDef):
                functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        functions.setdefault(target.id, []).append(node.value)
        return functions

    @cached_property
    def stopping(self) -> set[str]:
        """The names of the source's plain functions that suspend the flow, directly or through others."""
        plain = [
            (name, list(calls_in(function)))
            for name, functions in self.functions.items()
            for function in functions
            if not isinstance(function, ast.AsyncFunctionDef)
        ]
        names = {name for name, calls in plain if any(self.meaning(call.func) in STOPS for call in calls)}
        while True:
            callers = {name for name, calls in plain if any(getattr(call.func, "id", None) in names for call in calls)}
            if callers <= names:
                return names
            names |= callers

    def meaning(self, node: ast.expr) -> str | None:
        """Return what a name or attribute refers to: request, time.sleep, sorted; None if the source defines it."""
        if isinstance(node, ast.Name):
            if node.id in self.imported:
                return self.imported[node.id]
            return None if node.id in self.bound else node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.imported:
            return f"{self.imported[node.value.id]}.{node.attr}"
        return None

    def bindings(self, name: str) -> list[ast.AST]:
        return [scope.bound[name] for scope in self.scopes if name in scope.bound]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain a node, the nearest first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that happen when this function or expression runs; not those in functions that it only defines."""
    body = node.body if isinstance(node, FUNCTIONS) else node
    stack: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.Call):
            yield item
        if not isinstance(item, FUNCTIONS):
            stack.extend(ast.iter_child_nodes(item))
