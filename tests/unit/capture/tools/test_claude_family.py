"""Tools whose events resemble those of Claude Code: what their payloads and transcript lines become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.capture import hook
from clia.capture.events import ToolEvent
from clia.capture.installation import hook_tools
from clia.capture.tools import tool_of
from clia.capture.tools.claude_family import TOOLS

if TYPE_CHECKING:
    from pathlib import Path

CLAUDE = {"hook_event_name": "PostToolUse", "session_id": "s-1", "cwd": "/shop"}
WRITE = {"file_path": "/shop/notes.txt", "content": "one\n"}
# One result of a tool call as each tool reports it.
RESULTS: dict[str, dict[str, Any]] = {
    "copilot": {
        **CLAUDE,
        "timestamp": "2026-11-16T17:45:40.002Z",
        "tool_name": "Write",
        "tool_input": {"path": "/shop/notes.txt", "file_text": "one\n"},
        "tool_result": {"result_type": "success", "text_result_for_llm": "written"},
    },
    "qwen": {
        **CLAUDE,
        "tool_name": "write_file",
        "tool_input": WRITE,
        "tool_response": {"llmContent": "written", "returnDisplay": {}},
        "tool_use_id": "toolu_1",
        "tool_call_id": "call_1",
    },
    "openhands": {
        "event_type": "PostToolUse",
        "session_id": "s-1",
        "working_dir": "/shop",
        "tool_name": "file_editor",
        "tool_input": {"command": "create", "path": "/shop/notes.txt"},
        "tool_response": {"output": "written"},
        "message": None,
        "metadata": {},
    },
    "kimi": {
        **CLAUDE,
        "tool_name": "WriteFile",
        "tool_input": {"path": "notes.txt"},
        "tool_output": "written",
        "tool_call_id": "call_1",
    },
    "cline": {
        "clineVersion": "3.0.65",
        "hookName": "PostToolUse",
        "timestamp": "1794991094",
        "taskId": "s-1",
        "workspaceRoots": ["/shop"],
        "postToolUse": {
            "toolName": "write_to_file",
            "parameters": {"path": "notes.txt"},
            "result": "written",
            "executionTimeMs": 3,
        },
    },
    "opencode": {**CLAUDE, "tool_name": "write", "tool_response": "written", "tool_use_id": "call_1"},
    "amp": {**CLAUDE, "tool_name": "create_file", "tool_response": "written", "tool_use_id": "call_1"},
}


def reported(tool: str, **payload: Any) -> tuple[ToolEvent, ...]:
    return tool_of(tool).from_hook(payload).events


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS])
def test_a_result_is_that_of_its_call_with_its_text(tool: str) -> None:
    report = tool_of(tool).from_hook(RESULTS[tool])
    (event,) = report.events
    assert (report.session, event.what, event.text) == ("s-1", "tool-result", "written")
    assert event.data["tool"] == (RESULTS[tool].get("tool_name") or "write_to_file")
    assert event.data["id"] == ("" if tool in ("copilot", "openhands", "cline") else "call_1")


@pytest.mark.parametrize(
    ("tool", "name", "arguments"),
    [
        ("copilot", "Write", {"path": "/shop/a"}),
        ("kimi", "WriteFile", {"path": "/shop/a"}),
        ("opencode", "write", {"filePath": "/shop/a"}),
    ],
)
def test_a_call_names_the_file_that_it_writes(tool: str, name: str, arguments: dict[str, str]) -> None:
    (call,) = reported(tool, **CLAUDE | {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": arguments})
    assert (call.what, call.text, call.paths) == ("tool-call", f"{name}: /shop/a", ("/shop/a",))


def test_an_empty_prompt_is_no_prompt() -> None:
    """Qwen Code reports one whenever it returns results to the model."""
    assert reported("qwen", **CLAUDE | {"hook_event_name": "UserPromptSubmit", "prompt": "", "prompt_id": "p"}) == ()
    (prompt,) = reported("openhands", event_type="UserPromptSubmit", session_id="s-1", message="Write.")
    assert (prompt.what, prompt.text) == ("prompt", "Write.")


def test_tasks_of_cline_are_sessions() -> None:
    kinds = {"TaskStart": "start", "TaskResume": "start", "TaskComplete": "turn-end", "TaskCancel": "turn-end"}
    assert {name: reported("cline", hookName=name, taskId="t")[0].what for name in kinds} == kinds
    (prompt,) = reported("cline", hookName="UserPromptSubmit", taskId="t", userPromptSubmit={"prompt": "Write.", "attachments": []})
    assert prompt.text == "Write."


CLINE = {
    "clineVersion": "",
    "taskId": "conv_1",
    "sessionContext": {"rootSessionId": "1795062683629_ldw1g"},
    "workspaceRoots": ["/shop"],
    "agent_id": "agent_1",
    "parent_agent_id": None,
}
"""What every event of Cline's command line has, as of 3.0.65. ``taskId`` is another one for each turn."""


def cline(name: str, **payload: Any) -> tuple[str, ToolEvent]:
    """The session and the event that an event of Cline's command line becomes."""
    report = tool_of("cline").from_hook({**CLINE, "hookName": name, **payload})
    (event,) = report.events
    return report.session, event


def test_events_of_clines_command_line_belong_to_its_session() -> None:
    kinds = {"agent_start": "start", "agent_resume": "start", "agent_end": "turn-end", "agent_abort": "turn-end"}
    kinds |= {"session_shutdown": "end", "prompt_submit": "prompt"}
    for name, kind in kinds.items():
        session, event = cline(name, userPromptSubmit={"prompt": "Write.", "attachments": []}, turn={"outputText": "Done."})
        assert (session, event.what, event.sub) == ("1795062683629_ldw1g", kind, "")
        assert event.text.startswith({"prompt": "Write.", "turn-end": "Done." if name == "agent_end" else ""}.get(kind, ""))


def test_calls_of_clines_command_line_have_their_result_and_files() -> None:
    called = {"id": "call_1", "name": "editor", "input": {"path": "/shop/a", "new_text": "x"}}
    _, call = cline("tool_call", tool_call=called, preToolUse={"toolName": "editor", "parameters": {"path": "/shop/a"}})
    assert (call.what, call.text, call.key, call.paths) == ("tool-call", "editor: /shop/a", "call:call_1", ("/shop/a",))
    output = {"query": "edit:/shop/a", "result": "File created.", "success": True}
    _, result = cline("tool_result", tool_result={**called, "output": output, "durationMs": 3})
    assert (result.what, result.text, result.key, result.data["ms"]) == ("tool-result", "File created.", "result:call_1", 3)
    called = {"id": "call_2", "name": "run_commands", "input": {"commands": ["ls x", "ls y"]}}
    assert cline("tool_call", tool_call=called)[1].text == "run_commands: ls x ls y"
    failed = {"query": "ls x", "result": "[Command exited with code 2]", "error": "Command exited with code 2", "success": False}
    _, failure = cline("tool_result", tool_result={**called, "output": [failed, {"result": "y", "success": True}]})
    assert (failure.what, failure.text) == ("tool-failure", "[Command exited with code 2]\ny")


def test_a_model_error_of_clines_command_line_ends_the_turn() -> None:
    report = tool_of("cline").from_hook({**CLINE, "hookName": "agent_error", "error": {"name": "Error", "message": "no model"}})
    events = [(event.what, event.text) for event in report.events]
    assert events == [("note", "the turn ended with an error: no model"), ("turn-end", "")]


def test_sub_agents_of_clines_command_line_name_the_agent_that_started_them() -> None:
    sub = {"agent_id": "agent_2", "parent_agent_id": "agent_1", "taskId": "conv_2"}
    assert cline("agent_start", **sub)[1]._replace(data={}) == ToolEvent("sub-start", "sub-agent started: agent", sub="agent_2")
    session, end = cline("agent_end", **sub, turn={"outputText": "Helped."})
    assert (session, end.what, end.text, end.sub) == ("1795062683629_ldw1g", "sub-stop", "Helped.", "agent_2")


def test_sub_agents_of_copilot_belong_to_the_session_that_started_them() -> None:
    sub = {"agent_id": "sub", "agent_type": "general-purpose", "parent_agent_id": "s-1"}
    start = tool_of("copilot").from_hook({"sessionId": "s-1", "agentName": "general-purpose", **sub})
    assert (start.session, start.events[0].what, start.events[0].sub) == ("s-1", "sub-start", "sub")
    prompt = tool_of("copilot").from_hook(
        {**CLAUDE, **sub, "session_id": "sub", "hook_event_name": "UserPromptSubmit", "prompt": "Help."}
    )
    assert (prompt.session, prompt.events[0].what, prompt.events[0].sub) == ("s-1", "prompt", "sub")


def test_plug_ins_report_what_the_model_said_and_thought() -> None:
    payload = CLAUDE | {"hook_event_name": "AssistantMessage", "agent_id": "sub", "text": "Done.", "thought": "Hm."}
    assert [(event.what, event.text, event.sub) for event in reported("opencode", **payload)] == [
        ("thinking", "Hm.", "sub"),
        ("said", "Done.", "sub"),
    ]


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("copilot", {"type": "assistant.message", "data": {"messageId": "m", "content": "Done.", "reasoningText": "Hm."}}),
        (
            "qwen",
            {
                "type": "assistant",
                "message": {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Done."}, {"functionCall": {}}]},
            },
        ),
    ],
)
def test_transcripts_add_what_the_model_said_and_thought(tool: str, line: dict[str, Any]) -> None:
    at = "2026-11-18T08:38:14.263Z"
    events = tool_of(tool).from_line(line | {"timestamp": at})
    assert [(event.what, event.text, event.at) for event in events] == [("thinking", "Hm.", at), ("said", "Done.", at)]
    for odd in ({}, {"type": line["type"]}, line | {"data": 7, "message": []}, {"type": "user"}):
        assert tool_of(tool).from_line(odd) == []


def test_a_transcript_names_its_session() -> None:
    start = {"type": "session.start", "data": {"sessionId": "s-1", "context": {"cwd": "/shop"}}}
    assert tool_of("copilot").owner(start) == ("s-1", "/shop")
    assert tool_of("qwen").owner({"sessionId": "s-1", "cwd": "/shop"}) == ("s-1", "/shop")
    assert tool_of("kimi").owner(start) == tool_of("copilot").owner({"type": "user.message"}) == ("", "")


def test_hooks_of_claude_code_that_copilot_runs_are_copilots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless Copilot CLI has hooks of its own, which report the same events."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COPILOT_PROJECT_DIR", str(tmp_path))
    monkeypatch.delenv("COPILOT_CLI", raising=False)
    assert hook.caller("claude-code") == "claude-code"
    monkeypatch.setenv("COPILOT_CLI", "1")
    assert [hook.caller(tool) for tool in ("claude-code", "copilot", "codex")] == ["copilot", "copilot", "codex"]
    own = tmp_path / ".github" / hook_tools.TOOLS["copilot"].files["project"]
    own.parent.mkdir(parents=True)
    own.touch()
    assert [hook.caller(tool) for tool in ("claude-code", "copilot")] == ["", "copilot"]


def test_the_event_is_found_by_the_name_of_its_field() -> None:
    for payload in (b'{"hook_event_name": "Stop"}', b'{"event_type":"Stop"}', b'{"clineVersion": "3", "hookName": "Stop"}'):
        assert hook.event_name(payload) == b"Stop"
    assert hook.event_name(b"{}") == b""
