"""At most one of 1,000 ordinary lines is changed: sources, documentation, lock files, diffs and JSON logs."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.redaction.secrets import START, redact, redact_chunk

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).parents[3]
_STDLIB = Path(sysconfig.get_path("stdlib"))


def _lines(*patterns: tuple[Path, str]) -> list[str]:
    paths = sorted(path for root, pattern in patterns for path in root.glob(pattern) if path.is_file())
    lines = [line for path in paths for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[:: len(lines) // 20_000 + 1]


@pytest.fixture(scope="module", params=["this repository", "the standard library", "lock files"])
def lines(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "this repository":
        return _lines((_ROOT, "src/clia/**/*.py"), (_ROOT, "docs/**/*.md"), (_ROOT, "tests/e2e/*.py"))
    if request.param == "lock files":
        return _lines((_ROOT, "requirements/*.txt"), (_ROOT, "assets/package-lock.json"), (_ROOT, "pyproject.toml"))
    return _lines(*((_STDLIB, pattern) for pattern in ("http/*.py", "urllib/*.py", "s*.py", "p*.py", "t*.py", "email/*.py")))


_FORMS: dict[str, Callable[[str], str]] = {
    "line": lambda line: line,
    "diff": lambda line: f"+{line}",
    "log": lambda line: json.dumps({"level": "info", "at": "2026-07-01T12:00:00Z", "message": line}),
}


@pytest.mark.parametrize("form", _FORMS)
def test_ordinary_lines_stay(lines: list[str], form: str) -> None:
    texts = [_FORMS[form](line) for line in lines]
    changed = [text for text in texts if redact(text).count]
    assert len(texts) > 1000
    assert len(changed) <= len(texts) / 1000, changed


def test_ordinary_lines_without_a_line_end_stay(lines: list[str]) -> None:
    """The end of an entry may be the start of a secret, so a little more is redacted; still within the limit."""
    changed = [line for line in lines if redact_chunk(line, START)[0].count]
    assert len(changed) <= len(lines) / 1000, changed
