"""The evaluator of rules: what the rules of an agent say about one action.

Invariant: a pure function of the rules and the action. The strictest rule that matches wins, whatever the order of the rules:
`deny`, then `ask` and `require`, then `allow`. `allow` counts only for an action that is fully written out.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.rules.command_lines import ParsedCommand, parse_command
from clia.rules.model import (
    ALLOW,
    ASK,
    COMMAND,
    DECISION,
    DENY,
    EFFECT,
    NEEDS,
    RECORDED,
    REQUIRE,
    TOOL,
    GuardrailRule,
)
from clia.rules.patterns import command_matches, command_may_match, could_equal, path_matches, path_may_match
from clia.rules.shell_scripts import SEVERAL, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHELL_TOOLS = frozenset(
    ("bash", "shell", "local_shell", "run_shell_command", "exec_command", "unified_exec", "execute_command", "terminal",
     "powershell", "write_stdin")
)  # fmt: skip
EDIT_TOOLS = frozenset(
    ("edit", "multiedit", "write", "notebookedit", "apply_patch", "replace", "write_file", "create_file", "str_replace_editor")
)
_STRENGTH = {"": 0, ALLOW: 1, ASK: 2, REQUIRE: 2, DENY: 3}


class RuledAction(NamedTuple):
    """An action that rules are asked about."""

    on: str  # `tool`, `command`, `effect`, `commit`, `land` or `push`
    tool: str = ""  # name of the tool
    command: str | tuple[str, ...] | None = None  # a shell command line, or the words of a command
    paths: tuple[str, ...] = ()  # files, relative to the repository; a directory that may have changed as a whole ends in `/`
    program: str = ""  # the program's name in the worker's list
    effect: str = ""  # kind of the request to a worker
    branch: str = ""  # target branch, without `refs/heads/`
    kinds: tuple[str, ...] = ()  # the commit's kind and the kinds above it


class MatchedRule(NamedTuple):
    """A rule that applies to an action."""

    rule: GuardrailRule  # the rule, with its file
    what: str  # the part of the action that matches: a command, a file, a tool
    is_certain: bool = True  # false: it may match; the command is not written out, or the rule does not parse


class RuleVerdict(NamedTuple):
    """What the rules say about an action."""

    do: str  # `deny`, `ask`, `require` or `allow`; empty: no rule applies
    need: tuple[str, ...]  # of `require`: `decision`, `tests`, `trace`, `signature`
    rule: GuardrailRule | None  # the first of the strictest rules
    matches: tuple[MatchedRule, ...]  # all rules that apply, the strictest first
    overruled: tuple[MatchedRule, ...]  # rules that match, and that a stricter one overrules

    @property
    def risk(self) -> str | None:
        """The highest risk that an applying rule states."""
        risks = [match.rule.risk for match in self.matches]
        return next((risk for risk in ("high", "medium", "low") if risk in risks), None)


def evaluate(rules: Iterable[GuardrailRule], action: RuledAction) -> RuleVerdict:
    """The verdict of the rules on an action."""
    relevant = [rule for rule in rules if action.on in rule.on or (action.on == COMMAND and EFFECT in rule.on)]
    parsed = parse_command(action.command) if action.command and any(rule.match.command for rule in relevant) else None
    matches = [match for rule in relevant if rule.do != ALLOW for match in _restricts(rule, action, parsed)]
    matches += _allowances([rule for rule in relevant if rule.do == ALLOW], action, parsed)
    matches.sort(key=lambda match: -_STRENGTH[match.rule.do])  # stable: outer rules come first
    if not matches:
        return RuleVerdict("", (), None, (), ())
    strongest = _STRENGTH[matches[0].rule.do]
    applying = tuple(match for match in matches if _STRENGTH[match.rule.do] == strongest)
    overruled = tuple(match for match in matches if _STRENGTH[match.rule.do] < strongest)
    do, need = _outcome(applying, action.on)
    return RuleVerdict(do, need, applying[0].rule, applying, overruled)


def _outcome(applying: Sequence[MatchedRule], on: str) -> tuple[str, tuple[str, ...]]:
    """What is to be done, and what is needed: for actions on the record, `ask` requires a decision."""
    do = applying[0].rule.do
    if do not in (ASK, REQUIRE):
        return do, ()
    if on not in RECORDED:
        return ASK, ()
    needed = {need for match in applying for need in (match.rule.need if match.rule.do == REQUIRE else (DECISION,))}
    return REQUIRE, tuple(need for need in NEEDS if need in needed)


def _restricts(rule: GuardrailRule, action: RuledAction, parsed: ParsedCommand | None) -> list[MatchedRule]:
    """The rule with the first part of the action that it matches, if any."""
    if rule.problem:
        return [MatchedRule(rule, f"the rule does not parse: {rule.problem}", is_certain=False)]
    match = rule.match
    if not (_named(match.tool, action) and _is_one_of(match.program, action.program) and _is_one_of(match.branch, action.branch)):
        return []
    if not _is_one_of(match.effect, action.effect) or (match.kind and not any(kind in match.kind for kind in action.kinds)):
        return []
    what, is_certain = action.tool or action.program or action.effect or action.branch or action.on, True
    if match.command:
        commands = () if parsed is None else parsed.commands
        command = next((one for one in commands if any(command_may_match(pattern, one) for pattern in match.command)), None)
        if command is None:
            return []
        what = " ".join(command.words).replace(SEVERAL, "…").replace(UNKNOWN, "…")
        is_certain = not any(UNKNOWN in word for word in command.words) and not command.is_inner
    if match.paths:
        path = next((one for one in action.paths if any(path_may_match(pattern, one) for pattern in match.paths)), None)
        if path is None:
            return []
        what = f"{what}: {path}" if match.command else path
    return [MatchedRule(rule, what, is_certain)]


def _allowances(rules: Sequence[GuardrailRule], action: RuledAction, parsed: ParsedCommand | None) -> list[MatchedRule]:
    """The allowing rules, if they cover the whole action: each command of a line and each file."""
    fitting = [rule for rule in rules if not rule.problem and _fits(rule, action)]
    whole = [MatchedRule(rule, action.tool or action.on) for rule in fitting if not rule.match.command]
    is_shell = not action.tool or action.tool.casefold() in SHELL_TOOLS
    if whole or parsed is None or not parsed.is_plain or not parsed.commands or not is_shell:
        return whole
    covering = []
    for command in parsed.commands:
        rule = next((rule for rule in fitting if any(command_matches(pattern, command) for pattern in rule.match.command)), None)
        if rule is not None:
            covering.append(MatchedRule(rule, " ".join(command.words)))
        elif not command.is_inner:
            return []
    return list({id(match.rule): match for match in covering}.values())


def _fits(rule: GuardrailRule, action: RuledAction) -> bool:
    match = rule.match
    if match.paths and (
        action.tool.casefold() in SHELL_TOOLS
        or not action.paths
        or not all(any(path_matches(pattern, path) for pattern in match.paths) for path in action.paths)
    ):
        return False
    kinds = not match.kind or (bool(action.kinds) and action.kinds[0] in match.kind)
    named = _named(match.tool, action) and _is_one_of(match.program, action.program)
    return named and kinds and _is_one_of(match.branch, action.branch) and _is_one_of(match.effect, action.effect)


def _is_one_of(patterns: Sequence[str], value: str) -> bool:
    return not patterns or any(could_equal(pattern, value) for pattern in patterns)


def _named(patterns: Sequence[str], action: RuledAction) -> bool:
    """Whether the tool is one of those named. `Bash` names the shell of any tool, `Edit` and `Write` what changes files."""
    if not patterns:
        return True
    name = action.tool.casefold()
    own = {name}
    if action.on == TOOL and name in SHELL_TOOLS:
        own.add("bash")
    if action.on == TOOL and name in EDIT_TOOLS:
        own |= {"edit", "write"}
    return any(could_equal(pattern.casefold(), one) for pattern in patterns for one in own)


# Words for people and models


def describe(match: MatchedRule) -> str:
    """A rule in one line: what it does, the guardrail, and where it is written."""
    rule = match.rule
    may = "" if match.is_certain else " (may match)"
    needs = f" {', '.join(rule.need)}" if rule.need else ""
    text = f' "{rule.text}"' if rule.text else ""
    return f"{rule.do}{needs}{may}:{text} {rule.path} {rule.pointer}: {match.what}"


def reason(verdict: RuleVerdict) -> str:
    """Why an action is refused or asked about, for the tool and its model."""
    rule = verdict.rule
    if rule is None:
        return "no rule applies"
    where = f"{rule.path} {rule.pointer}"
    if rule.problem:
        return f"a rule of the guardrail {rule.text!r} does not parse: {where} {rule.problem}"
    return f"{rule.text} (rule {where})" if rule.text else f"rule {where}"
