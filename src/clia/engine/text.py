"""A flow's tree with what every rule of the check asks of it.

Invariant: names are resolved over the whole text, not by scope: a rule may miss what hides behind two meanings of one name,
and never blames a name that the text has given another meaning.
"""

from __future__ import annotations

import ast
from functools import cached_property

from clia.engine.interface import REQUEST, SUSPEND, Problem
from clia.engine.scopes import names_of
from clia.engine.source import main_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.engine.scopes import Names

    Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

HOST = (REQUEST, SUSPEND)
STOPS = (*HOST, "time.sleep")
"""Calls that stop the flow where they stand."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Text:
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
    def names(self) -> Names:
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
        while around is not None and not isinstance(around, _FUNCTIONS):
            around = self.parents.get(around)
        return around


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that happen when this function, or expression, is run; not those in functions that it only makes."""
    body = node.body if isinstance(node, _FUNCTIONS) else node
    open_list: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while open_list:
        item = open_list.pop()
        if isinstance(item, ast.Call):
            yield item
        if not isinstance(item, _FUNCTIONS):
            open_list.extend(ast.iter_child_nodes(item))
