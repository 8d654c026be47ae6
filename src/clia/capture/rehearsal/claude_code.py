"""Claude Code 2.1.325, as seen in its hooks and transcripts.

Invariant: hook payloads have the fields of the vendor's types (``HookInput`` of the Agent SDK 0.3.325). Transcript lines are
undocumented and follow observed files: one content block per line, chained by ``parentUuid``.
"""

from __future__ import annotations

import difflib
import json
import re

from clia.capture.rehearsal.stage import PlayedToolUse, RehearsedTool, input_of, lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.capture.rehearsal.stage import Actor, FileJob, JobOutcome, Line

MODEL = "claude-sonnet-4-6"
_NAMES = {"read": "Read", "write": "Write", "edit": "Edit", "bash": "Bash"}
_USAGE = {"input_tokens": 9, "cache_creation_input_tokens": 214, "cache_read_input_tokens": 18240, "output_tokens": 120}


class ClaudeCode(RehearsedTool):
    version = "2.1.325"

    def transcript_of(self, session: str) -> str:
        return f"{self._project()}/{session}.jsonl"

    def _project(self) -> str:
        return f"{self.stage.setting.home}/projects/{re.sub(r'[^A-Za-z0-9]', '-', self.stage.setting.directory)}"

    # The session.

    def start(self, source: str) -> None:
        lines: list[Line] = []
        if source == "startup":
            text = "Caveat: what follows was made by local commands, not by the person."
            lines = [self._line(self.main, "user", message=_said(text), isMeta=True)]
        elif source == "resume":
            self.main.tip = next((message["uuid"] for message in reversed(list(_messages(self.main.transcript)))), None)
        hook = {**self.base("SessionStart"), "source": source, "model": MODEL}
        if source in ("resume", "fork"):
            hook |= {"seconds_since_last_response": 42, "context_tokens": 18583, "prompt_cache_likely_expired": False}
        self.stage.happen("start", text=source, lines=lines, hook=hook, session=self.session)

    def fork(self) -> None:
        old, messages = self.session, _messages(self.main.transcript)  # a fork starts without file history
        self.new_session()
        renamed: dict[str, str] = {}
        lines: list[Line] = []
        for message in messages:
            uuid = renamed[message["uuid"]] = self.stage.uuid("line")
            message["forkedFrom"] = {"sessionId": old, "messageUuid": message["uuid"]}
            message |= {"uuid": uuid, "sessionId": self.session, "parentUuid": renamed.get(message["parentUuid"])}
            lines.append((self.main.transcript, message))
            self.main.tip = uuid
        self.stage.happen("line", text="fork", lines=lines, session=self.session)
        self.start("fork")

    def prompt(self, text: str) -> None:
        self.turn, self.prompt_text = self.stage.uuid("prompt"), text
        message = self.stage.uuid("line")
        snapshot = {"messageId": message, "trackedFileBackups": {}, "timestamp": self.stage.stamp()}
        before = {"type": "file-history-snapshot", "messageId": message, "snapshot": snapshot, "isSnapshotUpdate": False}
        line = self._line(self.main, "user", uuid=message, message=_said(text), permissionMode="default")
        hook = {**self._base_of(self.main, "UserPromptSubmit"), "prompt": text, "source": "user"}
        self._happen("prompt", self.main, text=text, lines=[(self.main.transcript, before), line], hook=hook)
        self.main.message = None

    def stop(self, error: str = "") -> None:
        if error:
            hook = self._base_of(self.main, "StopFailure") | {"error": error, "error_details": f"The model answered: {error}"}
            self._happen("turn-end", self.main, text=self.main.last_text, hook=hook | _last_message(self.main), error=error)
        else:
            line = self._system("turn_duration", durationMs=1000 + self.stage.number("turn", 9000), isMeta=False)
            hook = {**self._base_of(self.main, "Stop", effort=True), **_stopped(self.main)}
            self._happen("turn-end", self.main, text=self.main.last_text, lines=[line], hook=hook)
        self.main.message, self.main.last_text = None, ""

    def compact(self, trigger: str, summary: str) -> None:
        before = {**self._base_of(self.main, "PreCompact", mode=False), "trigger": trigger, "custom_instructions": None}
        self._happen("note", self.main, text=f"compact: {trigger}", hook=before)
        last, self.main.tip = self.main.tip, None
        meta = {"trigger": trigger, "preTokens": 155000 + self.stage.number("tokens", 9000)}
        fields = {"content": "Conversation compacted", "compactMetadata": meta, "logicalParentUuid": last, "isMeta": False}
        boundary = self._system("compact_boundary", **fields)
        line = self._line(self.main, "user", message=_said(summary), isCompactSummary=True, isVisibleInTranscriptOnly=True)
        after = {**self._base_of(self.main, "PostCompact", mode=False), "trigger": trigger, "compact_summary": summary}
        self._happen("note", self.main, text=summary, lines=[boundary, line], hook=after)
        self.start("compact")

    def end(self, reason: str) -> None:
        summary = {"type": "summary", "summary": self.prompt_text[:60], "leafUuid": self.main.tip}
        hook = {**self._base_of(self.main, "SessionEnd", mode=False), "reason": reason}
        self._happen("end", self.main, text=reason, lines=[(self.main.transcript, summary)], hook=hook)

    # What the model says and does.

    def say(self, actor: Actor, text: str) -> None:
        self._happen("said", actor, text=text, lines=[self._block(actor, {"type": "text", "text": text})])
        actor.last_text = text

    def think(self, actor: Actor, text: str) -> None:
        block = {"type": "thinking", "thinking": text, "signature": self.stage.word("signature", 40)}
        self._happen("thinking", actor, text=text, lines=[self._block(actor, block)])

    def call(self, actor: Actor, job: FileJob) -> PlayedToolUse:
        return self._call(actor, _NAMES[job.kind], input_of(job, {"replace_all": False}))

    def _call(self, actor: Actor, name: str, arguments: dict[str, Any]) -> PlayedToolUse:
        use = f"toolu_01{self.stage.word('use', 22)}"
        block = {"type": "tool_use", "id": use, "name": name, "input": arguments, "caller": {"type": "direct"}}
        line = self._block(actor, block)
        hook = {**self._base_of(actor, "PreToolUse", effort=True), "tool_name": name, "tool_input": arguments, "tool_use_id": use}
        self._happen("tool-call", actor, text=name, lines=[line], hook=hook, tool=name, input=arguments, tool_use_id=use)
        actor.uses += 1
        return PlayedToolUse(use, name, arguments, line[1]["uuid"])

    def result(self, actor: Actor, use: PlayedToolUse, job: FileJob, outcome: JobOutcome) -> None:
        if outcome.ok:
            self._succeed(actor, use, _shown(job, outcome), _response(job, outcome))
            return
        error = f"Exit code {outcome.code}\n{outcome.output}".rstrip() if job.kind == "bash" else outcome.output
        hook = self._after(actor, use, "PostToolUseFailure", error=error, is_interrupt=False)
        content = error if job.kind == "bash" else f"<tool_use_error>{error}</tool_use_error>"
        block = {"type": "tool_result", "content": content, "is_error": True, "tool_use_id": use.id}
        line = self._answer(actor, use, block, f"Error: {error}")
        self._happen("tool-failure", actor, text=error, lines=[line], hook=hook, tool=use.name, tool_use_id=use.id)

    def _succeed(self, actor: Actor, use: PlayedToolUse, content: Any, response: dict[str, Any]) -> None:
        hook = self._after(actor, use, "PostToolUse", tool_response=response)
        line = self._answer(actor, use, {"tool_use_id": use.id, "type": "tool_result", "content": content}, response)
        text = content if isinstance(content, str) else content[0]["text"]
        self._happen("tool-result", actor, text=text, lines=[line], hook=hook, tool=use.name, tool_use_id=use.id)

    def _after(self, actor: Actor, use: PlayedToolUse, name: str, **outcome: Any) -> dict[str, Any]:
        fields = {"tool_name": use.name, "tool_input": use.input, "tool_use_id": use.id, **outcome}
        return self._base_of(actor, name, effort=True) | fields | {"duration_ms": self._took()}

    def _took(self) -> int:
        return 3 + self.stage.number("took", 400)

    # Sub-agents.

    def delegate(self, kind: str, task: str, about: str) -> tuple[PlayedToolUse, Actor]:
        arguments = {"description": about, "prompt": task, "subagent_type": kind, "run_in_background": False}
        use = self._call(self.main, "Agent", arguments)
        name = f"a{self.stage.fresh('agent')[:16]}"
        return use, self.add_agent(f"{self._project()}/{self.session}/subagents/agent-{name}.jsonl", name, kind, task)

    def launch(self, use: PlayedToolUse, child: Actor) -> None:
        hook = self._base_of(child, "SubagentStart", mode=False)
        self._happen("sub-start", child, text=child.type, hook=hook, agent_type=child.type, tool_use_id=use.id)
        self._happen("prompt", child, text=child.task, lines=[self._line(child, "user", message=_said(child.task))])

    def settle(self, use: PlayedToolUse, child: Actor) -> None:
        hook = {**self._base_of(child, "SubagentStop", effort=True), "agent_transcript_path": child.transcript, **_stopped(child)}
        self._happen("sub-stop", child, text=child.last_text, hook=hook, agent_type=child.type)
        content = [{"type": "text", "text": child.last_text}]
        response: dict[str, Any] = {"status": "completed", "prompt": child.task, "agentId": child.id, "agentType": child.type}
        response |= {"content": content, "totalDurationMs": 900 + self._took(), "totalTokens": 18583}
        response |= {"totalToolUseCount": child.uses}
        response |= {"usage": {**_USAGE, "server_tool_use": None, "service_tier": "standard", "cache_creation": None}}
        self.main.message = None
        self._succeed(self.main, use, content, response)

    # Hooks and lines.

    def base(self, name: str) -> dict[str, Any]:
        return self._base_of(self.main, name, mode=False)

    def _base_of(self, actor: Actor, name: str, *, mode: bool = True, effort: bool = False) -> dict[str, Any]:
        fields: dict[str, Any] = {"session_id": self.session, "transcript_path": self.main.transcript}
        fields["cwd"] = self.stage.setting.directory
        if self.turn:
            fields["prompt_id"] = self.turn
        if mode:
            fields["permission_mode"] = "default"
        if actor.id:
            fields |= {"agent_id": actor.id, "agent_type": actor.type}
        if effort:
            fields["effort"] = {"level": "high"}
        return {**fields, "hook_event_name": name}

    def _happen(self, kind: str, actor: Actor, **fields: Any) -> None:
        for _, record in fields.get("lines", ())[-1:]:
            if "uuid" in record:
                fields["uuid"] = record["uuid"]
        if self.turn:
            fields["prompt_id"] = self.turn
        self.stage.happen(kind, actor.id, **fields, session=self.session)

    def _line(self, actor: Actor, kind: str, *, uuid: str = "", **fields: Any) -> Line:
        """A line of the conversation, chained to the previous one."""
        parent, actor.tip = actor.tip, uuid or self.stage.uuid("line")
        record: dict[str, Any] = {"parentUuid": parent, "isSidechain": bool(actor.id)}
        if kind == "user" and self.turn:
            record["promptId"] = self.turn
        if actor.id:
            record["agentId"] = actor.id
        record |= {"type": kind, **fields, "uuid": actor.tip, "timestamp": self.stage.stamp(), "userType": "external"}
        record |= {"entrypoint": "cli", "cwd": self.stage.setting.directory, "sessionId": self.session, "version": self.version}
        return actor.transcript, record | {"gitBranch": self.stage.setting.branch}

    def _system(self, subtype: str, **fields: Any) -> Line:
        return self._line(self.main, "system", subtype=subtype, level="info", **fields)

    def _block(self, actor: Actor, block: dict[str, Any]) -> Line:
        """One block of a model message: blocks have separate lines and share the message id."""
        if actor.message is None:
            actor.message = (f"msg_01{self.stage.word('message', 22)}", f"req_011C{self.stage.word('request', 20)}")
        name, request = actor.message
        reason = "tool_use" if block["type"] == "tool_use" else None
        message = {"model": MODEL, "id": name, "type": "message", "role": "assistant", "content": [block]}
        message |= {"stop_reason": reason, "stop_sequence": None, "usage": _USAGE}
        return self._line(actor, "assistant", message=message, requestId=request)

    def _answer(self, actor: Actor, use: PlayedToolUse, block: dict[str, Any], result: Any) -> Line:
        actor.message = None
        message = {"role": "user", "content": [block]}
        return self._line(actor, "user", message=message, toolUseResult=result, sourceToolAssistantUUID=use.source)


def _messages(path: str) -> Iterator[dict[str, Any]]:
    """The messages of a transcript, without its other lines."""
    for line in lines_of(path):
        record = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
        if isinstance(record.get("uuid"), str):
            yield record


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _last_message(actor: Actor) -> dict[str, Any]:
    return {"last_assistant_message": actor.last_text} if actor.last_text else {}


def _stopped(actor: Actor) -> dict[str, Any]:
    return {"stop_hook_active": False, **_last_message(actor), "background_tasks": [], "session_crons": []}


def _shown(job: FileJob, outcome: JobOutcome) -> str:
    """The result as the model sees it."""
    if job.kind == "bash":
        return outcome.output or "(Bash completed with no output)"
    if job.kind == "read":
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(outcome.output.splitlines(), 1))
    if job.kind == "write" and outcome.before is None:
        return f"File created successfully at: {job.path}"
    return f"The file {job.path} has been updated successfully."


def _response(job: FileJob, outcome: JobOutcome) -> dict[str, Any]:
    """The result as hooks get it."""
    if job.kind == "bash":
        return {"stdout": outcome.output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    if job.kind == "read":
        count = len(outcome.output.splitlines())
        file = {"filePath": job.path, "content": outcome.output, "numLines": count, "startLine": 1, "totalLines": count}
        return {"type": "text", "file": file}
    if job.kind == "edit":
        fields: dict[str, Any] = {"filePath": job.path, "oldString": job.old, "newString": job.new, "originalFile": outcome.before}
        return {**fields, "structuredPatch": _hunks(outcome), "userModified": False, "replaceAll": False}
    kind, patch = ("create", []) if outcome.before is None else ("update", _hunks(outcome))
    fields = {"type": kind, "filePath": job.path, "content": job.new, "structuredPatch": patch}
    return {**fields, "originalFile": outcome.before, "userModified": False}


def _hunks(outcome: JobOutcome) -> list[dict[str, Any]]:
    old, new = (outcome.before or "").splitlines(), (outcome.after or "").splitlines()
    hunks = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        lines: list[str] = []
        for tag, left, until_left, right, until_right in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[left:until_left]]
                continue
            lines += [f"-{line}" for line in old[left:until_left]]
            lines += [f"+{line}" for line in new[right:until_right]]
        first, last = group[0], group[-1]
        place = {"oldStart": first[1] + 1, "oldLines": last[2] - first[1], "newStart": first[3] + 1, "newLines": last[4] - first[3]}
        hunks.append({**place, "lines": lines})
    return hunks
