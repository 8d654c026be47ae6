"""Docstrings, comments and names are plain technical English: words that made earlier texts hard to read do not return."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\b(whoever|whomever|somebody|anybody|anew|for ever|says so|said so|which there is not)\b", re.IGNORECASE)
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
