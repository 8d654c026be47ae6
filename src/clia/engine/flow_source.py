"""What must be known of a flow's text to run it: whether ``main`` is async, and which calls throw away what they return.

Invariant: it depends on the text alone. The engine is the judge of what is Python: text that this interpreter cannot
read is looked at line by line.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

from clia.engine.records import REQUEST, SUSPEND, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What reading a text may raise: NUL bytes give a ValueError, deep nesting one of the last two."""

_ASYNC_MAIN = re.compile(r"^async[ \t]+def[ \t]+main\b", re.MULTILINE)
READING = threading.Lock()


class FlowForm(NamedTuple):
    """``discarded`` holds the bytes, from and to, of calls that are statements of their own, in an async flow."""

    is_async: bool
    discarded: frozenset[tuple[int, int]]


def parse(source: str) -> ast.Module:
    """The text's tree. Warnings about it are nobody's business here; the filters are the process's, hence the lock."""
    with READING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def main_of(tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last ``main`` at the top of the text: the one that is called."""
    found = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main"]
    return found[-1] if found else None


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
    return FlowForm(is_async=True, discarded=frozenset(_bytes_of(call, starts) for call in calls))


def _bytes_of(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
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
        """Whether the name means something of the text's own, seen from here."""
        if name in self.bound:
            return True
        scope = self.parent
        while scope is not None:
            if name in scope.bound and not isinstance(scope.node, ast.ClassDef):
                return True
            scope = scope.parent
        return False


class ScopedNames(NamedTuple):
    scopes: list[Scope]

    def free(self) -> Iterator[ast.Name]:
        """The uses of names that nothing in the text binds."""
        for scope in self.scopes:
            for name in scope.used:
                if not scope.sees(name.id):
                    yield name

    def everything_bound(self) -> set[str]:
        return {name for scope in self.scopes for name in scope.bound}


def names_of(tree: ast.Module) -> ScopedNames:
    """Looks at each node once; the order does not matter, since a use may stand above its binding."""
    top = Scope(tree, None)
    scopes = [top]
    open_list: list[tuple[ast.AST, Scope]] = [(child, top) for child in ast.iter_child_nodes(tree)]
    while open_list:
        node, scope = open_list.pop()
        _bind(node, scope)
        inner = scope
        if isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            inner = Scope(node, scope)
            inner.outside = _declared(node)
            scopes.append(inner)
        open_list.extend((child, inner if inside else scope) for child, inside in _children(node))
    return ScopedNames(scopes)


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """The nodes below, and whether each belongs to the scope that the node opens."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue  # the engine never looks at them
        outer = field in ("decorator_list", "bases", "keywords") and isinstance(node, (*_FUNCTIONS, ast.ClassDef))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, not outer


def _declared(node: ast.AST) -> set[str]:
    body = getattr(node, "body", [])
    found: set[str] = set()
    open_list = list(body) if isinstance(body, list) else []
    while open_list:
        item = open_list.pop()
        if isinstance(item, (ast.Global, ast.Nonlocal)):
            found.update(item.names)
        if not isinstance(item, (*_FUNCTIONS, ast.ClassDef)):
            open_list.extend(ast.iter_child_nodes(item))
    return found


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
        for field in ("name", "rest"):  # except … as name, and what patterns of a match capture
            name = getattr(node, field, None)
            if isinstance(name, str) and not isinstance(node, (ast.alias, ast.keyword)):
                scope.bind(name, node)


HOST = (REQUEST, SUSPEND)
STOPS = (*HOST, "time.sleep")
"""Calls that stop the flow where they stand."""
_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


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
    def names(self) -> ScopedNames:
        return names_of(self.tree)

    @cached_property
    def imported(self) -> dict[str, str]:
        """What each imported name stands for: ``t`` for time, ``nap`` for time.sleep."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    @cached_property
    def functions(self) -> dict[str, list[Function]]:
        """The text's own functions, by the name that they are called by."""
        found: dict[str, list[Function]] = {}
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not isinstance(self.parents.get(node), ast.ClassDef):
                found.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(node.value)
        return found

    @cached_property
    def stopping(self) -> set[str]:
        """The names of the text's own plain functions that stop the flow, themselves or through others."""
        found: set[str] = set()
        while True:
            more = {
                name for name, all_of_it in self.functions.items() if any(self._stops(function, found) for function in all_of_it)
            }
            if more == found:
                return found
            found = more

    def _stops(self, function: Function, known: set[str]) -> bool:
        return not isinstance(function, ast.AsyncFunctionDef) and any(
            self.meaning(call.func) in STOPS or (isinstance(call.func, ast.Name) and call.func.id in known)
            for call in calls_in(function)
        )

    def meaning(self, node: ast.expr) -> str | None:
        """What a called or named thing is: request, time.sleep, sorted; None where the text says what it is."""
        if isinstance(node, ast.Name):
            if node.id in self.imported:
                return self.imported[node.id]
            return None if node.id in self._bound else node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.imported:
            return f"{self.imported[node.value.id]}.{node.attr}"
        return None

    @cached_property
    def _bound(self) -> set[str]:
        return self.names.everything_bound()

    def bindings(self, name: str) -> list[ast.AST]:
        return [scope.bound[name] for scope in self.names.scopes if name in scope.bound]

    def function_around(self, node: ast.AST) -> ast.AST | None:
        around = self.parents.get(node)
        while around is not None and not isinstance(around, _FUNCTION_NODES):
            around = self.parents.get(around)
        return around


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that happen when this function, or expression, is run; not those in functions that it only makes."""
    body = node.body if isinstance(node, _FUNCTION_NODES) else node
    open_list: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while open_list:
        item = open_list.pop()
        if isinstance(item, ast.Call):
            yield item
        if not isinstance(item, _FUNCTION_NODES):
            open_list.extend(ast.iter_child_nodes(item))
