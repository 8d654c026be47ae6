"""Codex, as seen in its hooks and rollout files (sources of summer 2026, 0.150).

Invariant: hook payloads have the fields of the vendor's generated schemas, and rollout lines those of ``RolloutLine``. Codex has no
event for a failed tool: the rollout has a command's exit code, and a failed patch runs no second hook. Ids are version 7 UUIDs,
so those of about the same time share a prefix.
"""

from __future__ import annotations

import json

from clia.capture.rehearsal.stage import PlayedToolUse, RehearsedTool, earlier, lines_of, stamp_of, uuid_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.capture.rehearsal.stage import Actor, FileJob, JobOutcome, Line

MODEL = "gpt-5.2-codex"
_BEGIN = 1_777_600_000_000  # milliseconds: ids contain a time, which must be deterministic
_APART = 100_000  # between two seeds


class Codex(RehearsedTool):
    version = "0.150.0"

    def name_session(self) -> str:
        return self._id("session", self.stage.run)

    def _id(self, *names: object) -> str:
        stage = self.stage
        moment = _BEGIN + stage.setting.seed % 2**31 * _APART + int(stage.digest("ms", *names)[:3], 16)
        return uuid_of(f"{moment:012x}" + stage.digest(*names)[:20], "7")

    def transcript_of(self, session: str) -> str:
        folder, start = f"{self.stage.setting.home}/sessions", self.stage.setting.start
        new = f"{folder}/{start:%Y/%m/%d}/rollout-{start:%Y-%m-%dT%H-%M-%S}-{session}.jsonl"
        return earlier(folder, f"*/*/*/rollout-*-{session}.jsonl") or new

    # The session.

    def start(self, source: str) -> None:
        self._started(source, [self._meta(self.main)] if source == "startup" else [])

    def _started(self, source: str, lines: list[Line]) -> None:
        hook = {**self.base("SessionStart"), "source": source}
        self.stage.happen("start", text=source, lines=lines, hook=hook, session=self.session)

    def _meta(self, actor: Actor, **extra: Any) -> Line:
        setting = self.stage.setting
        fields = {"session_id": self.session, "id": actor.id or self.session, **extra, "timestamp": stamp_of(setting.start)}
        fields |= {"cwd": setting.directory, "originator": "codex_cli_rs", "cli_version": self.version}
        source: Any = "cli"
        if actor.id:
            spawned = {"parent_thread_id": self.session, "depth": 1, "agent_nickname": None, "agent_role": actor.type}
            source = {"subagent": {"thread_spawn": spawned}}
        fields |= {"source": source, "model_provider": "openai", "base_instructions": None, "history_mode": "legacy"}
        return self._line(actor, "session_meta", fields | {"git": {"branch": setting.branch}})

    def fork(self) -> None:
        old, source = self.session, self.main.transcript
        self.new_session()
        copied: list[Line] = [self._meta(self.main, forked_from_id=old)]
        copied += [(self.main.transcript, line) for line in lines_of(source)[1:]]
        self.stage.happen("line", text="fork", lines=copied, session=self.session)
        self._started("startup", [])

    def prompt(self, text: str) -> None:
        self.turn, self.prompt_text = self._id(self.stage.fresh("turn")), text
        self._ask(self.main, text)

    def _ask(self, actor: Actor, text: str) -> None:
        started: dict[str, Any] = {"type": "task_started", "turn_id": self.turn, "model_context_window": 272000}
        started["collaboration_mode_kind"] = "default"
        context: dict[str, Any] = {"turn_id": self.turn, "cwd": self.stage.setting.directory, "approval_policy": "on-request"}
        context |= {"sandbox_policy": {"type": "workspace-write"}, "model": MODEL, "effort": "medium", "summary": "auto"}
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        message = {"type": "user_message", "message": text, "images": [], "local_images": [], "text_elements": []}
        records = (("event_msg", started), ("turn_context", context), ("response_item", item), ("event_msg", message))
        lines = [self._line(actor, kind, record) for kind, record in records]
        hook = {**self._base_of(actor, "UserPromptSubmit"), "prompt": text}
        self._happen("prompt", actor, text=text, lines=lines, hook=hook)

    def stop(self, error: str = "") -> None:
        message = self.main.last_text or None
        completion: dict[str, Any] = {"type": "task_complete", "turn_id": self.turn, "last_agent_message": message}
        if error:
            completion["error"] = {"message": error, "codex_error_info": "other"}
        hook = {**self._base_of(self.main, "Stop"), "stop_hook_active": False, "last_assistant_message": message}
        line = self._line(self.main, "event_msg", completion)
        fields = {"error": error} if error else {"hook": hook}
        self._happen("turn-end", self.main, text=self.main.last_text, lines=[line], **fields)
        self.main.last_text = ""

    def compact(self, trigger: str, summary: str) -> None:
        fields = {"turn_id": self.turn, "model": MODEL, "trigger": trigger}
        before, after = ({**self._root(self.main, name), **fields} for name in ("PreCompact", "PostCompact"))
        self._happen("note", self.main, text=f"compact: {trigger}", hook=before)
        lines = [self._line(self.main, "compacted", {"message": summary})]
        lines += [self._line(self.main, "event_msg", {"type": "context_compacted"})]
        self._happen("note", self.main, text=summary, lines=lines, hook=after)
        self.start("compact")

    def end(self, reason: str) -> None:
        del reason  # Codex has only one
        hook = {**self._root(self.main, "SessionEnd"), "reason": "other"}
        self._happen("end", self.main, text="other", hook=hook)

    # What the model says and does.

    def say(self, actor: Actor, text: str) -> None:
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        event = {"type": "agent_message", "message": text, "phase": None, "memory_citation": None}
        lines = [self._line(actor, "event_msg", event), self._line(actor, "response_item", item)]
        self._happen("said", actor, text=text, lines=lines)
        actor.last_text = text

    def think(self, actor: Actor, text: str) -> None:
        item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": None}
        lines = [
            self._line(actor, "event_msg", {"type": "agent_reasoning", "text": text}),
            self._line(actor, "response_item", item),
        ]
        self._happen("thinking", actor, text=text, lines=lines)

    def call(self, actor: Actor, job: FileJob) -> PlayedToolUse:
        if job.kind in ("write", "edit"):
            patch = _patch(job)
            item = {"type": "custom_tool_call", "status": "completed", "name": "apply_patch", "input": patch}
            return self._call(actor, "apply_patch", {"command": patch}, item)
        command = job.command or f"cat {job.name}"
        return self._call(actor, "Bash", {"command": command}, _function_call("exec_command", {"cmd": command}))

    def _call(self, actor: Actor, name: str, arguments: Mapping[str, Any], item: Mapping[str, Any]) -> PlayedToolUse:
        use = f"call_{self.stage.word('use', 24)}"
        hook = {**self._base_of(actor, "PreToolUse"), "tool_name": name, "tool_input": arguments, "tool_use_id": use}
        lines = [self._line(actor, "response_item", {**item, "call_id": use})]
        self._happen("tool-call", actor, text=name, lines=lines, hook=hook, tool=name, input=arguments, tool_use_id=use)
        actor.uses += 1
        return PlayedToolUse(use, name, arguments)

    def result(self, actor: Actor, use: PlayedToolUse, job: FileJob, outcome: JobOutcome) -> None:
        if use.name == "Bash":
            output = outcome.output if job.kind == "bash" or outcome.ok else f"cat: {job.name}: No such file or directory"
            code = outcome.code if job.kind == "bash" else int(not outcome.ok)
            header = f"Chunk ID: {self.stage.fresh('chunk')[:6]}\nWall time: 0.0312 seconds\nProcess exited with code {code}"
            full = f"{header}\nOriginal token count: {len(output) // 4}\nOutput:\n{output}"
            self._return(actor, use, full, output, kind="function_call_output", exit_code=code)
        elif outcome.ok:
            output = f"Success. Updated the following files:\n{'A' if outcome.before is None else 'M'} {job.name}\n"
            self._return(actor, use, output, output, kind="custom_tool_call_output")
        else:
            failed = f"apply_patch verification failed: {outcome.output}"
            line = self._line(actor, "response_item", {"type": "custom_tool_call_output", "call_id": use.id, "output": failed})
            self._happen("tool-failure", actor, text=failed, lines=[line], tool=use.name, tool_use_id=use.id)

    def _return(self, actor: Actor, use: PlayedToolUse, full: str, content: str, *, kind: str, **fields: Any) -> None:
        line = self._line(actor, "response_item", {"type": kind, "call_id": use.id, "output": full})
        hook = {**self._base_of(actor, "PostToolUse"), "tool_name": use.name, "tool_input": use.input}
        hook |= {"tool_response": content, "tool_use_id": use.id}
        self._happen("tool-result", actor, text=content, lines=[line], hook=hook, tool=use.name, tool_use_id=use.id, **fields)

    # Sub-agents: separate threads, started and awaited by tools.

    def delegate(self, kind: str, task: str, about: str) -> tuple[PlayedToolUse, Actor]:
        del about
        arguments = {"message": task, "agent_type": kind}
        use = self._call(self.main, "spawn_agent", arguments, _function_call("spawn_agent", arguments))
        name = self._id("agent", self.stage.fresh("agent"))
        child = self.add_agent(self.transcript_of(name), name, kind, task)
        answer = json.dumps({"agent_id": name, "nickname": None})
        self._return(self.main, use, answer, answer, kind="function_call_output")
        return use, child

    def launch(self, use: PlayedToolUse, child: Actor) -> None:
        line = self._meta(child, parent_thread_id=self.session, agent_role=child.type)
        hook = self._base_of(child, "SubagentStart")
        self._happen("sub-start", child, text=child.type, lines=[line], hook=hook, agent_type=child.type, tool_use_id=use.id)
        self._ask(child, child.task)

    def settle(self, use: PlayedToolUse, child: Actor) -> None:
        del use
        completion = {"type": "task_complete", "turn_id": self.turn, "last_agent_message": child.last_text or None}
        hook = {**self._base_of(child, "SubagentStop"), "transcript_path": self.main.transcript, "stop_hook_active": False}
        hook |= {"agent_transcript_path": child.transcript, "last_assistant_message": child.last_text or None}
        lines = [self._line(child, "event_msg", completion)]
        self._happen("sub-stop", child, text=child.last_text, lines=lines, hook=hook, agent_type=child.type)

    def gather(self, children: Sequence[Actor]) -> None:
        arguments = {"targets": [child.id for child in children]}
        use = self._call(self.main, "wait_agent", arguments, _function_call("wait_agent", arguments))
        answer = json.dumps({"status": {child.id: {"completed": child.last_text} for child in children}, "timed_out": False})
        self._return(self.main, use, answer, answer, kind="function_call_output")

    # Hooks and lines.

    def base(self, name: str) -> dict[str, Any]:
        return self._base_of(self.main, name, turn=False)

    def _root(self, actor: Actor, name: str) -> dict[str, Any]:
        fields = {"session_id": self.session, "transcript_path": actor.transcript, "cwd": self.stage.setting.directory}
        return {**fields, "hook_event_name": name}

    def _base_of(self, actor: Actor, name: str, *, turn: bool = True) -> dict[str, Any]:
        fields = {**self._root(actor, name), "model": MODEL, "permission_mode": "default"}
        if turn:
            fields["turn_id"] = self.turn
        if actor.id:
            fields |= {"agent_id": actor.id, "agent_type": actor.type}
        return fields

    def _happen(self, kind: str, actor: Actor, **fields: Any) -> None:
        self.stage.happen(kind, actor.id, **fields, turn_id=self.turn, session=self.session)

    def _line(self, actor: Actor, kind: str, payload: Mapping[str, Any]) -> Line:
        return actor.transcript, {"timestamp": self.stage.stamp(), "type": kind, "payload": payload}


def _function_call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def _patch(job: FileJob) -> str:
    if job.kind == "write":
        lines = [f"*** Add File: {job.name}", *(f"+{line}" for line in job.new.splitlines())]
    else:
        lines = [f"*** Update File: {job.name}", "@@", *(f"-{line}" for line in job.old.splitlines())]
        lines += [f"+{line}" for line in job.new.splitlines()]
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
