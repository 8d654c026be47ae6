"""Patterns of rules: generous where they restrict, exact where they allow."""

from __future__ import annotations

import pytest

from clia.rules.command_lines import parse_command
from clia.rules.patterns import command_matches, command_may_match, could_equal, path_matches, path_may_match


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("deploy", "deploy", True),
        ("deploy", "deploy prod", False),
        ("deploy prod", "deploy prod", True),
        ("deploy prod", "deploy --now prod", True),
        ("deploy prod", "deploy test", False),
        ("deploy *", "deploy", True),
        ("deploy-*", "deploy-all x", False),
        ("deploy-* *", "deploy-all x", True),
        ("git push *", "git -C /x --no-pager push origin", True),
        ("git push *", "git -c a=b push", True),
        ("git push *", "git stash push", False),
        ("git push *", "git pull", False),
        ("git push --force *", "git push origin main --force", True),
        ("git push --force *", "git push --force-with-lease", False),
        ("git push --force* *", "git push --force-with-lease", True),
        ("git push --force *", "git push origin", False),
        ("rm -rf *", "rm -f -r x", True),
        ("rm -rf *", "rm -fr x", True),
        ("rm -rf *", "rm -r x", False),
        ("rm -rf *", "rm x", False),
        ("rm -rf *", "rm $X", True),
        ("git commit --no-verify *", 'git commit -m "$X"', False),
        ("git push *", "git $X", True),
        ("git push *", "git add *", False),
        ("/opt/deploy *", "/opt/deploy x", True),
        ("/opt/deploy *", "deploy x", True),
        ("* --force *", "anything --force", True),
        ("deploy 'two words'", "deploy 'two words'", True),
        ("unbalanced 'x", 'unbalanced "\'x"', True),
    ],
)
def test_a_restricting_pattern_matches_in_any_spelling(pattern: str, line: str, expected: bool) -> None:
    assert any(command_may_match(pattern, command) for command in parse_command(line).commands) is expected


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("git status *", "git status -s", True),
        ("git status *", "git -C x status", False),
        ("git status *", "./git status", False),
        ("git status *", "GIT status", False),
        ("git log *", "git log $X", False),
        ("npm test", "npm test", True),
        ("env *", "env deploy", False),
        ("python3 *", "python3 -c x", False),
        ("python3 -m pytest *", "python3 -m pytest -q", True),
        ("uv run pytest *", "uv run pytest -q", True),
    ],
)
def test_an_allowing_pattern_matches_word_by_word(pattern: str, line: str, expected: bool) -> None:
    assert command_matches(pattern, parse_command(line).commands[0]) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("infra/**", "infra/a/b.tf", True),
        ("infra/**", "infra", True),
        ("infra/**", "INFRA/x", True),
        ("infra/**", "\uff49nfra/x", True),
        ("infra/**", "in\u200bfra/x", True),
        ("infra/**", "a/../infra/x", True),
        ("infra/**", "infrastructure/x", False),
        ("infra/**", "a/infra/x", False),
        ("infra", "a/infra/x", True),
        ("infra/", "infra/x", True),
        ("/infra", "a/infra", False),
        ("*.pem", "keys/a.PEM", True),
        ("**/*.pem", "a.pem", True),
        ("a/*/c", "a/b/c", True),
        ("a/*/c", "a/b/d/c", False),
        ("a/**/c", "a/c", True),
        ("vendor/infra/**", "vendor/", True),
        ("vendor/infra/**", "vendor/other/", False),
        ("vendor/infra/**", "vendor", False),
        ("**", "x", True),
        ("a\\b", "a/b", True),
    ],
)
def test_a_restricting_path_ignores_case_width_and_detours(pattern: str, path: str, expected: bool) -> None:
    assert path_may_match(pattern, path) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [("docs/**", "docs/a/b", True), ("docs/**", "DOCS/a", False), ("docs/**", "docs/../src/a", False), ("*.md", "a/b.md", True)],
)
def test_an_allowing_path_is_exact(pattern: str, path: str, expected: bool) -> None:
    assert path_matches(pattern, path) is expected


@pytest.mark.parametrize(
    ("pattern", "word", "expected"),
    [
        ("a*c", "a\0c", True),
        ("a*c", "\0", True),
        ("abc", "a\0d", False),
        ("a?c", "a\0", True),
        ("[ab]c", "\0c", True),
        ("ab", "a\0", True),
    ],
)
def test_a_word_with_unknown_parts_overlaps_a_pattern(pattern: str, word: str, expected: bool) -> None:
    assert could_equal(pattern, word) is expected
