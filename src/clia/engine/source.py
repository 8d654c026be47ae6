"""What must be known of a flow's text to run it: whether ``main`` is async, and which calls throw away what they return.

Invariant: it depends on the text alone. The engine is the judge of what is Python: text that this interpreter cannot
read is looked at line by line.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What reading a text may raise: NUL bytes give a ValueError, deep nesting one of the last two."""

_ASYNC_MAIN = re.compile(r"^async[ \t]+def[ \t]+main\b", re.MULTILINE)
READING = threading.Lock()


class Form(NamedTuple):
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
def form_of(source: str) -> Form:
    try:
        tree = parse(source)
    except UNREADABLE:
        return Form(_ASYNC_MAIN.search(source) is not None, frozenset())
    if not isinstance(main_of(tree), ast.AsyncFunctionDef):
        return Form(is_async=False, discarded=frozenset())
    starts = [0, *accumulate(len(line) + 1 for line in source.encode().split(b"\n"))]
    calls = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return Form(is_async=True, discarded=frozenset(_bytes_of(call, starts) for call in calls))


def _bytes_of(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
