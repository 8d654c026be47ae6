"""Payloads of hooks: those that the tools document, and unusual and invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "hooks"
FOLDERS = {"claude-code": "claude-code-2.1.325", "codex": "codex-0.150", "gemini": "gemini-0.61.0"}
TOOLS = tuple(FOLDERS)

# The fields that the tools' schemas require: in every event, and additionally in the events of a rehearsal.
_BASE = {
    "claude-code": "session_id transcript_path cwd hook_event_name",
    "codex": "session_id transcript_path cwd hook_event_name",
    "gemini": "session_id transcript_path cwd hook_event_name timestamp",
}
_ADDITIONAL = {
    "claude-code": {
        "SessionStart": "source",
        "UserPromptSubmit": "prompt",
        "PreToolUse": "tool_name tool_input tool_use_id",
        "PostToolUse": "tool_name tool_input tool_response tool_use_id",
        "PostToolUseFailure": "tool_name tool_input tool_use_id error",
        "SubagentStart": "agent_id agent_type",
        "SubagentStop": "stop_hook_active agent_id agent_transcript_path agent_type",
        "Stop": "stop_hook_active",
        "StopFailure": "error",
        "PreCompact": "trigger custom_instructions",
        "PostCompact": "trigger compact_summary",
        "SessionEnd": "reason",
    },
    "codex": {
        "SessionStart": "model permission_mode source",
        "UserPromptSubmit": "model permission_mode prompt turn_id",
        "PreToolUse": "model permission_mode tool_input tool_name tool_use_id turn_id",
        "PostToolUse": "model permission_mode tool_input tool_name tool_response tool_use_id turn_id",
        "SubagentStart": "agent_id agent_type model permission_mode turn_id",
        "SubagentStop": (
            "agent_id agent_transcript_path agent_type last_assistant_message model permission_mode stop_hook_active turn_id"
        ),
        "Stop": "last_assistant_message model permission_mode stop_hook_active turn_id",
        "PreCompact": "model trigger turn_id",
        "PostCompact": "model trigger turn_id",
        "SessionEnd": "reason",
    },
    "gemini": {
        "SessionStart": "source",
        "BeforeAgent": "prompt",
        "BeforeTool": "tool_name tool_input",
        "AfterTool": "tool_name tool_input tool_response",
        "AfterAgent": "prompt prompt_response stop_hook_active",
        "PreCompress": "trigger",
        "SessionEnd": "reason",
    },
}


def payloads(tool: str) -> dict[str, dict[str, Any]]:
    """Every payload of a tool, by the name of its file: ``PreToolUse-Bash``."""
    return {path.stem: json.loads(path.read_bytes()) for path in sorted((FIXTURES / FOLDERS[tool]).glob("*.json"))}


def transcript(tool: str, name: str = "transcript") -> str:
    """A transcript of a tool, of the session or (``transcript-of-subagent``) of a sub-agent."""
    return (FIXTURES / FOLDERS[tool] / f"{name}.jsonl").read_text(encoding="utf-8")


def required(tool: str, event: str) -> set[str]:
    return {*_BASE[tool].split(), *_ADDITIONAL[tool].get(event, "").split()}


def played(tool: str) -> set[str]:
    """The events that a rehearsal of the tool can have."""
    return set(_ADDITIONAL[tool])


def tool_result(tool: str) -> dict[str, Any]:
    """The payload with the result of a tool call."""
    documented = payloads(tool)
    return documented["AfterTool-run_shell_command" if tool == "gemini" else "PostToolUse-Bash"]


def huge(tool: str, size: int = 5 * 2**20) -> bytes:
    """A payload with a tool result of some megabytes, with characters of several scripts."""
    result, text = tool_result(tool), "naïve ☃ 🙂 line\n" * (size // 21 + 1)
    answer = {"claude-code": {"stdout": text, "stderr": ""}, "codex": text, "gemini": {"llmContent": text, "returnDisplay": ""}}[
        tool
    ]
    return json.dumps(result | {"tool_response": answer}, ensure_ascii=False).encode()


def broken(tool: str) -> dict[str, bytes]:
    """Invalid payloads, by what is wrong with them."""
    result = tool_result(tool)
    text = json.dumps(result).encode()
    return {
        "empty": b"",
        "blank": b" \n",
        "truncated": text[: len(text) // 2],
        "not JSON": b"hello\n",
        "not UTF-8": b'{"session_id": "\xff\xfe"}',
        "NUL": b"\0" * 16,
        "a list": b"[" + text + b"]",
        "null": b"null",
        "too deep": b"[" * 100_000,
        "no session": _json({key: value for key, value in result.items() if key != "session_id"}),
        "session of a wrong type": _json(result | {"session_id": 7}),
        "no event": _json({key: value for key, value in result.items() if key != "hook_event_name"}),
        "event of a wrong type": _json(result | {"hook_event_name": ["PostToolUse"]}),
    }


def odd(tool: str) -> dict[str, bytes]:
    """Unusual payloads that name a session and an event, and so can be recorded."""
    result = tool_result(tool)
    wrong_types = {key: 7 for key in result if key not in ("session_id", "hook_event_name")}
    return {
        "unknown event": _json(result | {"hook_event_name": "EventOfTomorrow"}),
        "unknown fields": _json(result | {"field_of_tomorrow": {"deep": [1, None]}, "another": "text"}),
        "wrong types": _json(result | wrong_types),
        "nulls": _json(result | dict.fromkeys(wrong_types)),
        "nothing else": _json({key: result[key] for key in ("session_id", "hook_event_name")}),
        "a missing path": _json(result | {"transcript_path": "/nowhere/at/all.jsonl", "cwd": "/nowhere"}),
        "half a surrogate": _json(result | {"tool_response": "\ud83d"}),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
