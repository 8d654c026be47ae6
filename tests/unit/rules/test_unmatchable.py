"""Rules that parse and can never match."""

from __future__ import annotations

from typing import Any

import pytest

from clia.rules.evaluation import RuledAction, evaluate
from clia.rules.model import parse_rule
from clia.rules.unmatchable import never_matches


def rule(on: str, do: str, **match: Any) -> Any:
    need = {"need": ["tests"]} if do == "require" else {}
    parsed = parse_rule({"on": on, "do": do, "match": match, **need}, "Rule.", "file", "/guardrails/0/rules/0")
    assert not parsed.problem, parsed.problem
    return parsed


NEVER: dict[str, tuple[Any, RuledAction]] = {
    "a pipe": (rule("tool", "deny", command="curl * | sh"), RuledAction("tool", "Bash", "curl https://x.example | sort")),
    "a list": (rule("tool", "deny", command="cd x && deploy"), RuledAction("tool", "Bash", "cd x && deploy")),
    "a redirection": (rule("tool", "ask", command="echo * > file"), RuledAction("tool", "Bash", "echo a > file")),
    "an assignment": (rule("tool", "deny", command="ENV=prod deploy *"), RuledAction("tool", "Bash", "ENV=prod deploy now")),
    "a command of an editor": (rule("tool", "deny", tool="Edit", command="deploy *"), RuledAction("tool", "Edit", paths=("a",))),
    "no file": (rule("commit", "require", paths="/"), RuledAction("commit", paths=("a", "b/c"))),
    "a full ref": (rule("land", "deny", branch="refs/heads/main"), RuledAction("land", branch="main")),
    "a pattern of kinds": (rule("commit", "deny", kind="find*"), RuledAction("commit", kinds=("finding",))),
    "any Python": (rule("tool", "allow", command="python *"), RuledAction("tool", "Bash", "python a.py")),
    "a variable": (rule("tool", "allow", command="ls $HOME"), RuledAction("tool", "Bash", "ls $HOME")),
    "files of a shell": (rule("tool", "allow", tool="Bash", paths="docs/**"), RuledAction("tool", "Bash", "ls", ("docs/a",))),
    "files of a command": (
        rule("tool", "allow", command="ls *", paths="docs/**"), RuledAction("tool", "Bash", "ls docs/a", ("docs/a",))
    ),
    "a command of a reader": (rule("tool", "allow", tool="Read", command="ls *"), RuledAction("tool", "Read", "ls a")),
    "a path with dots": (rule("tool", "allow", tool="Edit", paths="./docs/*"), RuledAction("tool", "Edit", paths=("docs/a",))),
}  # fmt: skip
MAY: dict[str, tuple[Any, RuledAction]] = {
    "a command": (rule("tool", "deny", command="deploy *"), RuledAction("tool", "Bash", "deploy now")),
    "a quoted pipe": (rule("tool", "deny", command="grep 'a|b' *"), RuledAction("tool", "Bash", "grep 'a|b' file")),
    "one of several": (rule("tool", "deny", command=["a | b", "deploy *"]), RuledAction("tool", "Bash", "deploy now")),
    "a wrapper": (rule("tool", "deny", command="sudo *"), RuledAction("tool", "Bash", "sudo ls")),
    "everything": (rule("tool", "deny"), RuledAction("tool", "Read")),
    "any Python, denied": (rule("tool", "deny", command="python *"), RuledAction("tool", "Bash", "python a.py")),
    "one script": (rule("tool", "allow", command="python check.py *"), RuledAction("tool", "Bash", "python check.py a")),
    "an option": (rule("tool", "deny", command="git push --force *"), RuledAction("tool", "Bash", "git push -f origin")),
    "files": (rule("land", "deny", paths="infra/**"), RuledAction("land", paths=("infra/a",))),
    "files with dots": (rule("land", "deny", paths="./infra/**"), RuledAction("land", paths=("infra/a",))),
    "a kind": (rule("commit", "deny", kind="finding"), RuledAction("commit", kinds=("finding",))),
    "a branch": (rule("land", "deny", branch="release/*"), RuledAction("land", branch="release/1")),
    "edits": (rule("tool", "allow", tool=["Edit"], paths="docs/**"), RuledAction("tool", "Edit", paths=("docs/a",))),
}  # fmt: skip


@pytest.mark.parametrize("case", NEVER)
def test_a_rule_that_matches_nothing_is_named_with_the_reason(case: str) -> None:
    parsed, action = NEVER[case]
    assert never_matches(parsed)
    assert evaluate([parsed], action).do == "", "the action that its author may have meant"


@pytest.mark.parametrize("case", MAY)
def test_a_rule_that_matches_an_action_is_not_named(case: str) -> None:
    parsed, action = MAY[case]
    assert evaluate([parsed], action).do == parsed.do
    assert never_matches(parsed) is None


def test_a_rule_that_does_not_parse_asks_about_everything() -> None:
    assert never_matches(parse_rule({"on": "tool", "do": "forbid"}, "Rule.", "file", "/0")) is None
