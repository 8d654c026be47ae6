"""Types of signatures and records, resolved from their annotations.

Annotations are text (``from __future__ import annotations``), and most of the names in them are imported for type checkers only. A
name is looked up in the module, then in its ``if TYPE_CHECKING:`` block, which is read from the source; what that imports is
imported when the name is needed.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from functools import cache
from importlib import import_module
from typing import ForwardRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any


def resolve(annotation: Any, module: str) -> Any:
    """The type that an annotation in a module means; ``NameError`` if it cannot be resolved."""
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    if not isinstance(text, str):
        return text
    return eval(text, {}, _namespace(module))  # noqa: S307  # annotations of our own code


@cache
def _namespace(module: str) -> Namespace:
    return Namespace(sys.modules[module])


class Namespace(dict[str, "Any"]):
    """The names that annotations in a module may use."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self._module = module
        self._unresolved = _type_checking_names(inspect.getsource(module))

    def __missing__(self, name: str) -> Any:
        if name in vars(self._module):
            return vars(self._module)[name]
        if name in self._unresolved:
            self[name] = self._load(self._unresolved[name])
            return self[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"{name!r} in an annotation of {self._module.__name__} cannot be resolved")

    def _load(self, source: tuple[str, str] | ast.expr) -> Any:
        if isinstance(source, ast.expr):
            return eval(compile(ast.Expression(source), self._module.__name__, "eval"), {}, self)  # noqa: S307  # our own code
        module, name = source
        found = import_module(module)
        return getattr(found, name) if hasattr(found, name) else resolve(name, module)


def _type_checking_names(source: str) -> Mapping[str, tuple[str, str] | ast.expr]:
    """The names that a module defines for type checkers only: imports by module and name, aliases by their value."""
    names: dict[str, tuple[str, str] | ast.expr] = {}
    for block in ast.parse(source).body:
        if not (isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"):
            continue
        for statement in block.body:
            if isinstance(statement, ast.ImportFrom) and statement.module is not None:
                names |= {each.asname or each.name: (statement.module, each.name) for each in statement.names}
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                names[statement.targets[0].id] = statement.value
    return names
