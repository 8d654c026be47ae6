"""Docstrings, comments and names are plain technical English: words that made earlier texts hard to read do not return."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(
    r"\b(whoever|whomever|somebody|anybody|everybody|anew|for ever|says so|said so|which there is not|of ours|so many|goes on"
    r"|went on|mend|mends|mended|in the hands of|is no (error|person|loss|link))\b",
    re.IGNORECASE,
)
VAGUE = {"made", "said", "found", "each", "known", "given", "told", "seen", "kept", "asked", "here", "there"}
"""Names that do not say what a variable holds."""
OLD_CODE = ROOT / "tests/fixtures/first_stores/make.py"
"""It runs with the code of an earlier release."""


def prose(source: str) -> list[str]:
    """The comments, docstrings and names of functions and classes. Other strings are data."""
    texts = [token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.append(node.value.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            texts.append(node.name.replace("_", " "))
    return texts


def unwanted(source: str) -> list[str]:
    if not WORDS.search(source.replace("_", " ")):
        return []
    return [text for text in prose(source) if WORDS.search(text)]


@pytest.mark.parametrize("folder", ["src", "tests", "tools", "benchmarks"])
def test_prose_has_no_unwanted_words(folder: str) -> None:
    modules = [path for path in sorted((ROOT / folder).rglob("*.py")) if path not in (OLD_CODE, Path(__file__))]
    assert modules
    assert {str(path): texts for path in modules if (texts := unwanted(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source", ["# made anew", '"""For whoever asks."""', "def test_it_says_so(): ...", "class A:\n    'Somebody.'"]
)
def test_unwanted_words_are_found_in_prose(source: str) -> None:
    assert unwanted(source)


def test_other_strings_are_data() -> None:
    assert unwanted('question = "Is anybody there?"') == []


def vague_names(source: str) -> list[str]:
    """The variables of functions with vague names."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    stored = {node for function in functions for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in VAGUE}
    return sorted(f"{node.id}, line {node.lineno}" for node in stored if isinstance(node.ctx, ast.Store))


@pytest.mark.parametrize("folder", ["src", "tools", "benchmarks"])
def test_variables_say_what_they_hold(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert {str(path): names for path in modules if (names := vague_names(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize("source", ["def f():\n    found = []", "def f():\n    for each in (): ...", "def f():\n    g(kept := 1)"])
def test_vague_names_are_found(source: str) -> None:
    assert vague_names(source)


def test_class_names_of_the_source_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
