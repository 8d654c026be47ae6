"""The troubleshooting page: what each error code means and what to do, read from the places that raise it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from clia import errors
from reference_markdown import page, prose

SOURCE = Path(__file__).resolve().parent.parent / "src" / "clia"
_SHOWN = 3


class Advice(NamedTuple):
    """A message of a code, and what it suggests."""

    message: str
    hints: tuple[str, ...]


def troubleshooting() -> str:
    """One section for each code, with its messages and hints."""
    sections = []
    for name, advice in sorted(advice_by_code().items()):
        sections.append(f"## {name}")
        for entry in advice[:_SHOWN]:
            sections.append("\n".join([f"- {prose(entry.message)}", *(f"    - {prose(hint)}" for hint in entry.hints)]))
    return page(
        "# Troubleshooting",
        "An error is printed as `error: CODE: MESSAGE`, with hints below it. This page lists the codes, the messages that come "
        "with them (`…` stands for a value), and what to do. [Errors and exit codes](errors.md) has the classes. If events of "
        "tools do not arrive, or lines have no author, run `clia doctor` first.",
        *sections,
    )


def advice_by_code() -> dict[str, list[Advice]]:
    """The messages and hints of each code that is raised with a text of its own."""
    advice_by_code: dict[str, list[Advice]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            texts = {
                target.id: node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
                advice = _advice(call, texts)
                if advice is not None and advice[1] not in advice_by_code.setdefault(advice[0], []):
                    advice_by_code[advice[0]].append(advice[1])
    return {name: entries for name, entries in advice_by_code.items() if entries}


def _advice(call: ast.Call, texts: dict[str, ast.expr]) -> tuple[str, Advice] | None:
    kind = call.func.id if isinstance(call.func, ast.Name) else ""
    error = getattr(errors, kind, None)
    if not (isinstance(error, type) and issubclass(error, errors.CliaError)) or not call.args:
        return None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    named = keywords.get("code")
    name = named.value if isinstance(named, ast.Constant) else error.code if named is None else None
    message = _text(call.args[0], texts)
    if not isinstance(name, str) or not message:
        return None
    hints = keywords.get("hints")
    hints = texts.get(hints.id, hints) if isinstance(hints, ast.Name) else hints
    listed = hints.elts if isinstance(hints, (ast.List, ast.Tuple)) else []
    return name, Advice(message, tuple(filter(None, (_text(hint, texts) for hint in listed))))


def _text(node: ast.expr, texts: dict[str, ast.expr]) -> str:
    """A text with ``…`` for each value in it; empty if it is not a text."""
    if isinstance(node, ast.Name):
        node = texts.get(node.id, node)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return "".join(map(str, parts))
    return ""
