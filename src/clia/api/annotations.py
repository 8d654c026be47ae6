"""Types of signatures and records, resolved from their annotations, and the documentation of a record's fields.

Annotations are text (``from __future__ import annotations``), and most of the names in them are imported for type checkers only. A
name is looked up in the module, then in its ``if TYPE_CHECKING:`` block, which is read from the source; what that imports is
imported when the name is needed. Only the block or class in question is parsed: a whole module takes a hundred times longer.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from functools import cache
from importlib import import_module
from typing import ForwardRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any


def resolve(annotation: Any, module: str) -> Any:
    """The type that an annotation in a module means; ``NameError`` if it cannot be resolved."""
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    return eval(text, {}, _namespace(module)) if isinstance(text, str) else text  # noqa: S307  # annotations of our own code


@cache
def _namespace(module: str) -> Namespace:
    return Namespace(sys.modules[module])


class Namespace(dict[str, "Any"]):
    """The names that annotations in a module may use."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self._module = module
        self._for_type_checkers: dict[str, ast.ImportFrom | ast.expr] | None = None

    def __missing__(self, name: str) -> Any:
        for names in (vars(self._module), vars(builtins)):
            if name in names:
                return names[name]
        if self._for_type_checkers is None:
            self._for_type_checkers = dict(_type_checking_names(self._module))
        if name not in self._for_type_checkers:
            raise NameError(f"{name!r} in an annotation of {self._module.__name__} cannot be resolved")
        self[name] = self._load(name, self._for_type_checkers[name])
        return self[name]

    def _load(self, name: str, source: ast.ImportFrom | ast.expr) -> Any:
        if isinstance(source, ast.expr):
            return eval(compile(ast.Expression(source), self._module.__name__, "eval"), {}, self)  # noqa: S307  # our own code
        home = str(source.module)
        original = next(alias.name for alias in source.names if name in (alias.name, alias.asname))
        loaded = import_module(home)
        return getattr(loaded, original) if hasattr(loaded, original) else resolve(original, home)


def _type_checking_names(module: ModuleType) -> Iterator[tuple[str, ast.ImportFrom | ast.expr]]:
    """The names that a module defines for type checkers only: imports, and the values of aliases."""
    for statement in _block("if TYPE_CHECKING:", module)[0]:
        if isinstance(statement, ast.ImportFrom):
            yield from ((alias.asname or alias.name, statement) for alias in statement.names)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value


def field_docs(record: type) -> dict[str, str]:
    """The description of each field of a record: the comment beside it, or the docstring below it."""
    statements, lines = _block(f"class {record.__name__}(", sys.modules[record.__module__])
    docs = {}
    for field, below in zip(statements, [*statements[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            comment = lines[(field.end_lineno or 0) - 1].partition("  # ")[2].partition("noqa")[0]
            docstring = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
            docs[field.target.id] = comment or " ".join(docstring.split())
    return docs


def _block(opening: str, module: ModuleType) -> tuple[list[ast.stmt], list[str]]:
    """The statements of a block of a module, and the lines that their numbers refer to."""
    match = re.search(rf"^{re.escape(opening)}.*\n(?:(?:[ ].*)?\n)+", inspect.getsource(module), re.MULTILINE)
    if match is None:
        return [], []
    (block,) = ast.parse(match[0]).body
    return getattr(block, "body"), match[0].splitlines()  # noqa: B009  # an if or a class
