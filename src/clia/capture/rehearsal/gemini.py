"""Gemini CLI 0.61.0, as seen in its hooks and chat files.

Invariant: hook payloads have the fields of the vendor's types: tool calls have no id, and calls of sub-agents look like the
session's. The chat file is append-only: a changed message is written again under the same id.
"""

from __future__ import annotations

import hashlib
import os
import re

from clia.capture.rehearsal.stage import PlayedToolUse, RehearsedTool, earlier, input_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.capture.rehearsal.stage import Actor, FileJob, JobOutcome, Line

MODEL = "gemini-3-pro-preview"
_NAMES = {"read": "read_file", "write": "write_file", "edit": "replace", "bash": "run_shell_command"}
_SHOWN = {"read_file": "ReadFile", "write_file": "WriteFile", "replace": "Edit", "run_shell_command": "Shell"}
_ERRORS = {"read": "file_not_found", "write": "file_write_failure", "edit": "edit_no_occurrence_found"}
_TOKENS = {"input": 9120, "output": 84, "cached": 0, "thoughts": 31, "tool": 0, "total": 9235}


class Gemini(RehearsedTool):
    version = "0.61.0"

    def transcript_of(self, session: str) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", os.path.basename(self.stage.setting.directory).lower()).strip("-") or "project"
        chats = os.path.join(self.stage.setting.home, "tmp", name, "chats")
        new = f"{chats}/session-{self.stage.setting.start:%Y-%m-%dT%H-%M}-{session[:8]}.jsonl"
        return earlier(chats, f"session-*-{session[:8]}.jsonl") or new

    # The session.

    def start(self, source: str) -> None:
        lines = [self._first(self.main, "main")] if source == "startup" else []
        if source == "resume":
            lines = [(self.main.transcript, {"$set": {"sessionId": self.session}})]
        hook = {**self.base("SessionStart"), "source": source}
        self.stage.happen("start", text=source, lines=lines, hook=hook, session=self.session)

    def _first(self, actor: Actor, kind: str) -> Line:
        now, directory = self.stage.stamp(), self.stage.setting.directory
        record = {"sessionId": actor.id or self.session, "projectHash": hashlib.sha256(directory.encode()).hexdigest()}
        record |= {"startTime": now, "lastUpdated": now, "kind": kind}
        return actor.transcript, record if kind == "main" else {**record, "directories": [directory]}

    def prompt(self, text: str) -> None:
        self.prompt_text = text
        lines = self._user(self.main, text)
        self._happen("prompt", self.main, text=text, lines=lines, hook={**self.base("BeforeAgent"), "prompt": text})

    def _user(self, actor: Actor, text: str) -> list[Line]:
        actor.message = None
        return self._message(actor, {"id": self.stage.uuid("line"), "type": "user", "content": [{"text": text}]})

    def stop(self, error: str = "") -> None:
        if error:
            lines = self._message(self.main, {"id": self.stage.uuid("line"), "type": "error", "content": error})
            self._happen("turn-end", self.main, text=self.main.last_text, lines=lines, error=error)
        else:
            fields = {"prompt": self.prompt_text, "prompt_response": self.main.last_text, "stop_hook_active": False}
            self._happen("turn-end", self.main, text=self.main.last_text, hook={**self.base("AfterAgent"), **fields})
        self.main.message, self.main.last_text = None, ""

    def compact(self, trigger: str, summary: str) -> None:
        message = {"id": self.stage.uuid("line"), "timestamp": self.stage.stamp(), "type": "user", "content": [{"text": summary}]}
        lines = [(self.main.transcript, {"$set": {"messages": [message], "lastUpdated": self.stage.stamp()}})]
        hook = {**self.base("PreCompress"), "trigger": trigger}
        self._happen("note", self.main, text=f"compact: {trigger}", lines=lines, hook=hook)
        self.main.message = None

    def end(self, reason: str) -> None:
        self._happen("end", self.main, text=reason, hook={**self.base("SessionEnd"), "reason": reason})

    # What the model says and does.

    def say(self, actor: Actor, text: str) -> None:
        self._open(actor)["content"] = text
        self._happen("said", actor, text=text, lines=self._message(actor, actor.message))
        actor.last_text = text

    def think(self, actor: Actor, text: str) -> None:
        thought = {"subject": text.partition(".")[0][:60], "description": text, "timestamp": self.stage.stamp()}
        self._open(actor)["thoughts"].append(thought)
        self._happen("thinking", actor, text=text, lines=self._message(actor, actor.message))

    def _open(self, actor: Actor) -> dict[str, Any]:
        """The message being written; one with text is closed by the next text."""
        if actor.message is None or actor.message["content"] or actor.message.get("toolCalls"):
            actor.message = {"id": self.stage.uuid("line"), "type": "gemini", "content": "", "thoughts": []}
            actor.message |= {"tokens": _TOKENS, "model": MODEL}
        message: dict[str, Any] = actor.message
        return message

    def call(self, actor: Actor, job: FileJob) -> PlayedToolUse:
        return self._call(actor, _NAMES[job.kind], input_of(job, {"instruction": "Change it"}))

    def _call(self, actor: Actor, name: str, arguments: dict[str, Any]) -> PlayedToolUse:
        use = f"{name}_{self.stage.number('use', 10**13):013d}_{actor.uses}"
        hook = {**self.base("BeforeTool"), "tool_name": name, "tool_input": arguments}
        self._happen("tool-call", actor, text=name, hook=hook, tool=name, input=arguments, tool_use_id=use)
        actor.uses += 1
        return PlayedToolUse(use, name, arguments)

    def result(self, actor: Actor, use: PlayedToolUse, job: FileJob, outcome: JobOutcome) -> None:
        if outcome.ok or job.kind == "bash":
            code = {"exit_code": outcome.code} if job.kind == "bash" else {}
            content = _shown(job, outcome)
            self._return(actor, use, {"llmContent": content, "returnDisplay": outcome.output or content}, **code)
        else:
            error = {"message": outcome.output, "type": _ERRORS[job.kind]}
            self._return(actor, use, {"llmContent": outcome.output, "returnDisplay": f"Error: {outcome.output}", "error": error})

    def _return(self, actor: Actor, use: PlayedToolUse, response: dict[str, Any], **fields: Any) -> None:
        failed = "error" in response
        hook = {**self.base("AfterTool"), "tool_name": use.name, "tool_input": use.input, "tool_response": response}
        answer = {"error" if failed else "output": response["llmContent"]}
        record = {"id": use.id, "name": use.name, "args": use.input, "status": "error" if failed else "success"}
        record["result"] = [{"functionResponse": {"id": use.id, "name": use.name, "response": answer}}]
        record |= {"timestamp": self.stage.stamp(), "resultDisplay": response["returnDisplay"]}
        record |= {"displayName": _SHOWN.get(use.name, use.name), "description": "", "renderOutputAsMarkdown": False}
        if actor.message is None:
            self._open(actor)
        actor.message.setdefault("toolCalls", []).append(record)
        lines = self._message(actor, actor.message)[:1]
        kind, text = ("tool-failure" if failed else "tool-result"), response["llmContent"]
        self._happen(kind, actor, text=text, lines=lines, hook=hook, tool=use.name, tool_use_id=use.id, **fields)

    # Sub-agents: Gemini has no hooks for them.

    def delegate(self, kind: str, task: str, about: str) -> tuple[PlayedToolUse, Actor]:
        del about
        use = self._call(self.main, "invoke_agent", {"agent_name": kind, "prompt": task})
        name = self.stage.uuid("agent")
        return use, self.add_agent(f"{os.path.dirname(self.main.transcript)}/{self.session}/{name}.jsonl", name, kind, task)

    def launch(self, use: PlayedToolUse, child: Actor) -> None:
        lines = [self._first(child, "subagent"), *self._user(child, child.task)]
        self._happen("prompt", child, text=child.task, lines=lines, agent_type=child.type, tool_use_id=use.id)

    def settle(self, use: PlayedToolUse, child: Actor) -> None:
        self._return(self.main, use, {"llmContent": child.last_text, "returnDisplay": child.last_text})

    # Hooks and lines.

    def base(self, name: str) -> dict[str, Any]:
        fields = {"session_id": self.session, "transcript_path": self.main.transcript, "cwd": self.stage.setting.directory}
        return {**fields, "hook_event_name": name, "timestamp": self.stage.stamp()}

    def _happen(self, kind: str, actor: Actor, **fields: Any) -> None:
        ids = [record["id"] for _, record in fields.get("lines", ()) if "id" in record]
        self.stage.happen(kind, actor.id, **fields, **({"uuid": ids[0]} if ids else {}), session=self.session)

    def _message(self, actor: Actor, record: dict[str, Any]) -> list[Line]:
        """A message in its current form, and the chat's last change."""
        record.setdefault("timestamp", self.stage.stamp())
        return [(actor.transcript, {**record}), (actor.transcript, {"$set": {"lastUpdated": self.stage.stamp()}})]


def _shown(job: FileJob, outcome: JobOutcome) -> str:
    """The result as the model sees it."""
    if job.kind == "bash":
        return f"Output: {outcome.output or '(empty)'}" + (f"\nExit Code: {outcome.code}" if outcome.code else "")
    if job.kind == "read":
        return outcome.output
    if job.kind == "write":
        return f"Successfully {'created and wrote to new' if outcome.before is None else 'overwrote'} file: {job.path}."
    return f"Successfully modified file: {job.path} (1 replacements)."
