"""What the tools' hooks send: payloads in the shapes that the tools document, and ones that should never come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "hooks"
FOLDERS = {"claude-code": "claude-code-2.1.325", "codex": "codex-0.150", "gemini": "gemini-0.61.0"}
TOOLS = tuple(FOLDERS)

# What must be there, as the tools' types and schemas say: in every event, and besides in those that a rehearsal plays.
_BASE = {
    "claude-code": "session_id transcript_path cwd hook_event_name",
    "codex": "session_id transcript_path cwd hook_event_name",
    "gemini": "session_id transcript_path cwd hook_event_name timestamp",
}
_BESIDES = {
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
    return {*_BASE[tool].split(), *_BESIDES[tool].get(event, "").split()}


def played(tool: str) -> set[str]:
    """The events that a rehearsal of the tool can have."""
    return set(_BESIDES[tool])


def a_result(tool: str) -> dict[str, Any]:
    """The payload that carries what a tool gave back."""
    found = payloads(tool)
    return found["AfterTool-run_shell_command" if tool == "gemini" else "PostToolUse-Bash"]


def huge(tool: str, size: int = 5 * 2**20) -> bytes:
    """A payload with a tool's answer of some megabytes, in more than one kind of character."""
    given, text = a_result(tool), "naïve ☃ 🙂 line\n" * (size // 21 + 1)
    answer = {"claude-code": {"stdout": text, "stderr": ""}, "codex": text, "gemini": {"llmContent": text, "returnDisplay": ""}}[
        tool
    ]
    return json.dumps(given | {"tool_response": answer}, ensure_ascii=False).encode()


def broken(tool: str) -> dict[str, bytes]:
    """What is not as it should be, by what is wrong with it; the first half names no session or event that could be one."""
    given = a_result(tool)
    whole = json.dumps(given).encode()
    return {
        "empty": b"",
        "blank": b" \n",
        "truncated": whole[: len(whole) // 2],
        "no JSON": b"hello\n",
        "no UTF-8": b'{"session_id": "\xff\xfe"}',
        "NUL": b"\0" * 16,
        "a list": b"[" + whole + b"]",
        "null": b"null",
        "too deep": b"[" * 100_000,
        "no session": _json({key: value for key, value in given.items() if key != "session_id"}),
        "session of a wrong type": _json(given | {"session_id": 7}),
        "no event": _json({key: value for key, value in given.items() if key != "hook_event_name"}),
        "event of a wrong type": _json(given | {"hook_event_name": ["PostToolUse"]}),
    }


def odd(tool: str) -> dict[str, bytes]:
    """What is strange, and yet names a session and an event: it can be recorded."""
    given = a_result(tool)
    wrong = {key: 7 for key in given if key not in ("session_id", "hook_event_name")}
    return {
        "unknown event": _json(given | {"hook_event_name": "EventOfTomorrow"}),
        "unknown fields": _json(given | {"field_of_tomorrow": {"deep": [1, None]}, "another": "text"}),
        "wrong types": _json(given | wrong),
        "nulls": _json(given | dict.fromkeys(wrong)),
        "nothing else": _json({key: given[key] for key in ("session_id", "hook_event_name")}),
        "a path that is not there": _json(given | {"transcript_path": "/nowhere/at/all.jsonl", "cwd": "/nowhere"}),
        "half a surrogate": _json(given | {"tool_response": "\ud83d"}),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
