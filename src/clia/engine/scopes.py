"""Which names a text binds, scope by scope, and which it uses without binding them.

Invariant: it follows Python's own rules: a class's names are not seen in its methods, a comprehension's targets not outside
of it, an assignment expression binds outside of its comprehension. A name is free where no scope around it binds it.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Names(NamedTuple):
    scopes: list[Scope]

    def free(self) -> Iterator[ast.Name]:
        """The uses of names that nothing in the text binds."""
        for scope in self.scopes:
            for name in scope.used:
                if not scope.sees(name.id):
                    yield name

    def everything_bound(self) -> set[str]:
        return {name for scope in self.scopes for name in scope.bound}


def names_of(tree: ast.Module) -> Names:
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
    return Names(scopes)


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
