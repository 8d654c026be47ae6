"""Calls of tools as actions, and the answers that each tool understands."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clia.capture.permissions.call_texts import diff_of, question_payload, scope_of
from clia.capture.permissions.ruled_calls import action_of, answer_to
from clia.rules.evaluation import RuleVerdict, evaluate
from clia.rules.model import parse_rule

HOOKS = Path(__file__).parents[3] / "fixtures" / "hooks"
NOTHING = RuleVerdict("", (), None, (), ())


def recorded(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((HOOKS / f"{name}.json").read_text("utf-8"))
    return event


@pytest.mark.parametrize(
    ("name", "tool", "command", "path"),
    [
        ("claude-code-2.1.325/PreToolUse-Bash", "Bash", "cat greet.py", "greet.py"),
        ("claude-code-2.1.325/PreToolUse-Edit", "Edit", None, "greet.py"),
        ("claude-code-2.1.325/PreToolUse-Write", "Write", None, "greet.py"),
        ("claude-code-2.1.325/PermissionRequest", "Bash", "rm greet.py", "greet.py"),
        ("codex-0.150/PreToolUse-Bash", "Bash", "cat greet.py", "greet.py"),
        ("codex-0.150/PreToolUse-apply_patch", "apply_patch", None, "greet.py"),
        ("codex-0.150/PermissionRequest", "Bash", "rm greet.py", "greet.py"),
        ("gemini-0.61.0/BeforeTool-run_shell_command", "run_shell_command", "cat greet.py", "greet.py"),
        ("gemini-0.61.0/BeforeTool-replace", "replace", None, "greet.py"),
    ],
)
def test_recorded_calls_have_their_command_and_files(tmp_path: Path, name: str, tool: str, command: str | None, path: str) -> None:
    event = json.loads(json.dumps(recorded(name)).replace("/home/tess/project", str(tmp_path)))
    (tmp_path / ".git").mkdir()
    action = action_of(event, str(tmp_path))
    assert (action.on, action.tool, action.command) == ("tool", tool, command)
    assert path in action.paths


def test_files_are_found_behind_links_detours_and_changes_of_directory(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "infra").mkdir()
    (tmp_path / "other").symlink_to("infra")
    rule = parse_rule({"on": "tool", "match": {"paths": "infra/**"}, "do": "deny"}, "", "f", "")
    calls: list[dict[str, Any]] = [
        {"tool_name": "Write", "tool_input": {"file_path": f"{tmp_path}/infra/a"}},
        {"tool_name": "Write", "tool_input": {"file_path": f"{tmp_path}/other/a"}},
        {"tool_name": "Write", "tool_input": {"file_path": f"{tmp_path}/x/../INFRA/a"}},
        {"tool_name": "Bash", "tool_input": {"command": "cd infra && rm a"}},
        {"tool_name": "Bash", "tool_input": {"command": "echo x > infra/a"}},
        {"tool_name": "Bash", "tool_input": {"command": "dd of=infra/a"}},
        {"tool_name": "Bash", "tool_input": {"command": "tar -Cinfra -xf x"}},
        {"tool_name": "shell", "tool_input": {"command": ["bash", "-lc", "rm other/a"]}},
        {"tool_name": "mcp__files__move", "tool_input": {"source": "src/a", "destination": "infra/a"}},
        {"tool_name": "mcp__files__write", "tool_input": {"edits": [{"targetFile": "file://infra/a"}]}},
        {"tool_name": "mcp__shell__run", "tool_input": {"cmd": "rm infra/a"}},
        {"tool_name": "apply_patch", "tool_input": {"command": "*** Begin Patch\n*** Move to: infra/b\n*** End Patch"}},
    ]
    for call in calls:
        assert evaluate([rule], action_of({**call, "cwd": str(tmp_path)}, str(tmp_path))).do == "deny", call
    assert evaluate([rule], action_of({"tool_name": "Read", "tool_input": {"file_path": "/etc/x"}}, str(tmp_path))).do == ""


def test_commands_of_other_tools_are_refused_by_rules_and_never_allowed(tmp_path: Path) -> None:
    event = {"tool_name": "mcp__shell__run", "tool_input": {"command": "deploy prod"}, "cwd": str(tmp_path)}
    for do, verdict in (("deny", "deny"), ("ask", "ask"), ("allow", "")):
        rule = parse_rule({"on": "tool", "match": {"command": "deploy *"}, "do": do}, "", "f", "")
        assert evaluate([rule], action_of(event, str(tmp_path))).do == verdict
    text = {"tool_name": "mcp__wiki__write", "tool_input": {"text": "infra/a", "query": "deploy prod"}, "cwd": str(tmp_path)}
    assert action_of(text, str(tmp_path)).paths == ()


def test_hostile_events_are_read_without_an_error(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {},
        {"tool_name": 7, "tool_input": "x", "cwd": 5},
        {"tool_name": "Bash", "tool_input": {"command": {"a": 1}}},
        {"tool_name": "Edit", "tool_input": {"file_path": ["a", 5, "b\0c"], "edits": [5, {}]}},
        {"tool_name": "Bash", "tool_input": {"command": "\ud800 $(("}},
    ]
    for event in events:
        action_of(event, str(tmp_path))
        question_payload("claude-code", event, NOTHING)


@pytest.mark.parametrize(
    ("tool", "event", "do", "expected"),
    [
        ("claude-code", "PreToolUse", "ask", {"permissionDecision": "ask"}),
        ("claude-code", "PreToolUse", "allow", {"permissionDecision": "allow"}),
        ("claude-code", "PreToolUse", "deny", {"permissionDecision": "deny"}),
        ("claude-code", "PermissionRequest", "allow", {"decision": {"behavior": "allow"}}),
        ("claude-code", "PermissionRequest", "deny", {"decision": {"behavior": "deny", "message": "why"}}),
        ("claude-code", "PermissionRequest", "ask", None),
        ("codex", "PreToolUse", "deny", {"permissionDecision": "deny"}),
        ("codex", "PreToolUse", "ask", {"permissionDecision": "deny"}),
        ("codex", "PreToolUse", "allow", None),
        ("codex", "PermissionRequest", "allow", {"decision": {"behavior": "allow"}}),
        ("codex", "PermissionRequest", "ask", None),
    ],
)
def test_an_answer_has_the_form_of_the_tool(tool: str, event: str, do: str, expected: dict[str, Any] | None) -> None:
    answer = answer_to(tool, event, do, "why")
    if expected is None:
        assert answer is None
    else:
        assert answer is not None
        assert expected.items() <= answer["hookSpecificOutput"].items()
        assert answer["hookSpecificOutput"]["hookEventName"] == event


def test_gemini_is_answered_in_its_form_and_other_tools_are_not() -> None:
    assert answer_to("gemini", "BeforeTool", "ask", "why") == {"decision": "ask", "reason": "why"}
    assert answer_to("gemini", "BeforeTool", "", "why") is None
    assert answer_to("kimi", "PreToolUse", "deny", "why") is None


def test_a_question_shows_the_command_or_the_change_and_the_rule() -> None:
    rule = parse_rule({"on": "tool", "do": "ask", "risk": "high"}, "Ask first.", "f.json", "/guardrails/0/rules/0")
    event = recorded("claude-code-2.1.325/PreToolUse-Bash")
    payload = question_payload("claude-code", event, evaluate([rule], action_of(event, "/")))
    assert payload["question"] == "Claude Code: may Bash run: cat greet.py?"
    assert (payload["command"], payload["risk"], payload["choices"]) == ("cat greet.py", "high", ["allow", "deny"])
    assert payload["rule"] == {"guardrail": "Ask first.", "file": "f.json", "at": "/guardrails/0/rules/0"}
    edit = recorded("gemini-0.61.0/BeforeTool-replace")
    assert "-hello\n+good morning" in diff_of(edit)
    assert question_payload("gemini", edit, NOTHING)["choices"] == ["allow", "deny", "always"]


def test_the_scope_of_a_grant_is_the_same_call_in_the_same_directory() -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": "ls", "description": "List"}, "cwd": "/a", "tool_use_id": "1"}
    same = [{**call, "tool_use_id": "2"}, {**call, "tool_input": {"command": "ls", "description": "Other"}}]
    other = [{**call, "cwd": "/b"}, {**call, "tool_input": {"command": "ls -l"}}, {**call, "tool_name": "Write"}]
    assert {scope_of(one) for one in same} == {scope_of(call)}
    assert scope_of(call) not in {scope_of(one) for one in other}


def test_a_long_command_is_shortened_in_the_question(tmp_path: Path) -> None:
    event = {"tool_name": "Bash", "tool_input": {"command": "x" * 50_000}, "cwd": os.fspath(tmp_path)}
    payload = question_payload("claude-code", event, NOTHING)
    assert len(payload["question"]) < 300
    assert payload["command"].endswith("more characters")
