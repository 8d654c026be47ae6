"""Calls of tools as people read them in a question: the command, the difference, the rule."""

from __future__ import annotations

import difflib
import os
from typing import Any

from clia.capture.installation.hook_tools import TOOLS
from clia.capture.permissions.ruled_calls import action_of, command_of_call, in_worktree
from clia.rules.evaluation import EDIT_TOOLS, SHELL_TOOLS
from clia.rules.model import ALLOW, DENY
from clia.values.canonical import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.rules.evaluation import RuleVerdict

_LINE_MAX, _TEXT_MAX, _FILE_MAX = 200, 20_000, 1_000_000
_ALWAYS = "always"
_LEFT_OUT = ("description",)  # differs from call to call, and has no effect


def scope_of(fields: Mapping[str, Any]) -> str:
    """The digest of what a call does: the same command line, or the same change."""
    command, tool = command_of_call(fields), str(fields.get("tool_name"))
    tool_input = fields.get("tool_input")
    arguments = (
        {key: value for key, value in tool_input.items() if key not in _LEFT_OUT} if isinstance(tool_input, dict) else tool_input
    )
    family = "shell" if tool.casefold() in SHELL_TOOLS else tool
    where = str(fields.get("cwd") or "")
    return digest([family, where, command or arguments])


def question_payload(tool: str, fields: Mapping[str, Any], verdict: RuleVerdict, until: str = "") -> dict[str, Any]:
    """The payload of the question whether a call may run. ``until``: when a grant would end."""
    title = TOOLS[tool].title if tool in TOOLS else tool
    name, command = str(fields.get("tool_name") or "a tool"), command_of_call(fields)
    paths = files_of(fields)
    what = command or (", ".join(paths) if paths else name)
    payload: dict[str, Any] = {
        "question": f"{title}: may {name} run: {_short(what)}?",
        "choices": [ALLOW, DENY, _ALWAYS],
        "tool": name,
    }
    if isinstance(fields.get("cwd"), str):
        payload["directory"] = in_worktree(fields["cwd"])
    if verdict.risk == "high":
        payload["choices"] = [ALLOW, DENY]
    elif until:
        payload[_ALWAYS] = f"allows the same call in this directory until {until}"
    if command:
        payload["command"] = _cut(command)
    if paths:
        payload["files"] = list(paths)[:100]
    change = diff_of(fields)
    if change:
        payload["diff"] = _cut(change)
    if verdict.rule is not None:
        rule = verdict.rule
        payload["rule"] = {"guardrail": rule.text, "file": rule.path, "at": rule.pointer}
        payload["matches"] = verdict.matches[0].what
    if verdict.risk:
        payload["risk"] = verdict.risk
    if not command and not change:
        payload["input"] = _cut(str(fields.get("tool_input")))
    return payload


def files_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a call names; none for commands, whose words only may be files."""
    return () if command_of_call(fields) else action_of(fields, os.path.abspath(os.curdir)).paths


def diff_of(fields: Mapping[str, Any]) -> str:
    """The change that a call makes to files, as a patch; empty if it makes none."""
    tool_input, tool = fields.get("tool_input"), str(fields.get("tool_name")).casefold()
    if not isinstance(tool_input, dict) or tool not in EDIT_TOOLS:
        return ""
    for key in ("command", "patch", "input"):
        if isinstance(tool_input.get(key), str) and "*** Begin Patch" in tool_input[key]:
            return str(tool_input[key])
    path = str(tool_input.get("file_path") or tool_input.get("path") or "")
    if isinstance(tool_input.get("new_string"), str):
        return _patch(path, str(tool_input.get("old_string") or ""), tool_input["new_string"])
    if isinstance(tool_input.get("edits"), list):
        edits = [edit for edit in tool_input["edits"] if isinstance(edit, dict)]
        return "\n".join(_patch(path, str(edit.get("old_string") or ""), str(edit.get("new_string") or "")) for edit in edits)
    if isinstance(tool_input.get("content"), str):
        return _patch(path, _content(os.path.join(str(fields.get("cwd") or ""), path)), tool_input["content"])
    return ""


def _patch(path: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines)


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_FILE_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}…"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}\n… {len(text) - _TEXT_MAX} more characters"
