"""Claude Code 2.1.325, as seen in its hooks and transcripts.

Invariant: hook payloads have the fields of the vendor's types (``HookInput`` of the Agent SDK 0.3.325). Transcript lines are
undocumented and follow observed files: one content block per line, chained by ``parentUuid``.
"""

from __future__ import annotations

import difflib
import json
import re

from clia.capture.rehearsal.stage import Actor, RehearsedTool, ToolUse, lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.capture.rehearsal.stage import FileJob, JobOutcome, Line

MODEL = "claude-sonnet-4-6"
_NAMES = {"read": "Read", "write": "Write", "edit": "Edit", "bash": "Bash"}
_USAGE = {"input_tokens": 9, "cache_creation_input_tokens": 214, "cache_read_input_tokens": 18240, "output_tokens": 120}


class ClaudeCode(RehearsedTool):
    version = "2.1.325"
    prompt_id = ""

    def transcript_of(self, session: str) -> str:
        return f"{self._project()}/{session}.jsonl"

    def _project(self) -> str:
        return f"{self.stage.setting.home}/projects/{re.sub(r'[^A-Za-z0-9]', '-', self.stage.setting.directory)}"

    # The session.

    def start(self, source: str) -> None:
        lines: list[Line] = []
        if source == "startup":
            text = "Caveat: what follows was made by local commands, not by the person."
            lines = [self._line(self.main, "user", message={"role": "user", "content": text}, isMeta=True)]
        elif source == "resume":
            self.main.tip = self._last_uuid()
        hook = {**self.base("SessionStart"), "source": source, "model": MODEL}
        if source in ("resume", "fork"):
            hook |= {"seconds_since_last_response": 42, "context_tokens": 18583, "prompt_cache_likely_expired": False}
        self.stage.happen("start", text=source, lines=lines, hook=hook, session=self.session)

    def _last_uuid(self) -> str | None:
        known = (json.loads(line) for line in lines_of(self.main.transcript) if line.startswith("{") and line.endswith("}"))
        return next((each["uuid"] for each in reversed(list(known)) if isinstance(each.get("uuid"), str)), None)

    def resumed(self) -> None:
        super().resumed()
        self.prompt_id = ""

    def fork(self) -> None:
        old, source = self.session, self.main.transcript
        self.new_session()
        renamed: dict[str, str] = {}
        lines: list[Line] = []
        for each in map(json.loads, filter(lambda line: line.startswith("{") and line.endswith("}"), lines_of(source))):
            if not isinstance(each.get("uuid"), str):
                continue  # a fork starts without file history
            renamed[each["uuid"]] = self.stage.uuid("line")
            each["forkedFrom"] = {"sessionId": old, "messageUuid": each["uuid"]}
            each |= {"uuid": renamed[each["uuid"]], "sessionId": self.session}
            each["parentUuid"] = renamed.get(each["parentUuid"])
            lines.append((self.main.transcript, each))
            self.main.tip = each["uuid"]
        self.stage.happen("line", text="fork", lines=lines, session=self.session)
        self.start("fork")

    def prompt(self, text: str) -> None:
        self.prompt_id, self.prompt_text = self.stage.uuid("prompt"), text
        message = self.stage.uuid("line")
        snapshot = {"messageId": message, "trackedFileBackups": {}, "timestamp": self.stage.stamp()}
        before = {"type": "file-history-snapshot", "messageId": message, "snapshot": snapshot, "isSnapshotUpdate": False}
        path, record = self._line(
            self.main, "user", uuid=message, message={"role": "user", "content": text}, permissionMode="default"
        )
        hook = {**self._base_of(self.main, "UserPromptSubmit"), "prompt": text, "source": "user"}
        lines = [(path, before), (path, record)]
        self._happen("prompt", self.main, text=text, lines=lines, hook=hook)
        self.main.message = None

    def stop(self, error: str = "") -> None:
        said: dict[str, Any] = {"last_assistant_message": self.main.said} if self.main.said else {}
        if error:
            hook = {
                **self._base_of(self.main, "StopFailure"),
                "error": error,
                "error_details": f"The model answered: {error}",
                **said,
            }
            lines: list[Line] = []
        else:
            lines = [self._system(self.main, "turn_duration", durationMs=1000 + self.stage.number("turn", 9000), isMeta=False)]
            hook = {**self._base_of(self.main, "Stop", effort=True), "stop_hook_active": False, **said, **_nothing_runs()}
        self._happen("turn-end", self.main, text=self.main.said, lines=lines, hook=hook, **({"error": error} if error else {}))
        self.main.message, self.main.said = None, ""

    def compact(self, trigger: str, summary: str) -> None:
        before = {**self._base_of(self.main, "PreCompact", mode=False), "trigger": trigger, "custom_instructions": None}
        self._happen("note", self.main, text=f"compact: {trigger}", hook=before)
        last, self.main.tip = self.main.tip, None
        meta = {"trigger": trigger, "preTokens": 155000 + self.stage.number("tokens", 9000)}
        boundary = self._system(
            self.main,
            "compact_boundary",
            content="Conversation compacted",
            compactMetadata=meta,
            logicalParentUuid=last,
            isMeta=False,
        )
        message = {"role": "user", "content": summary}
        told = self._line(self.main, "user", message=message, isCompactSummary=True, isVisibleInTranscriptOnly=True)
        after = {**self._base_of(self.main, "PostCompact", mode=False), "trigger": trigger, "compact_summary": summary}
        self._happen("note", self.main, text=summary, lines=[boundary, told], hook=after)
        self.start("compact")

    def end(self, reason: str) -> None:
        summary = {"type": "summary", "summary": self.prompt_text[:60], "leafUuid": self.main.tip}
        hook = {**self._base_of(self.main, "SessionEnd", mode=False), "reason": reason}
        self._happen("end", self.main, text=reason, lines=[(self.main.transcript, summary)], hook=hook)

    # What the model says and does.

    def say(self, who: Actor, text: str) -> None:
        self._happen("said", who, text=text, lines=[self._block(who, {"type": "text", "text": text})])
        who.said = text

    def think(self, who: Actor, text: str) -> None:
        block = {"type": "thinking", "thinking": text, "signature": self.stage.word("signature", 40)}
        self._happen("thinking", who, text=text, lines=[self._block(who, block)])

    def call(self, who: Actor, job: FileJob) -> ToolUse:
        return self._call(who, _NAMES[job.kind], _input_of(job))

    def _call(self, who: Actor, name: str, given: dict[str, Any], report: str = "") -> ToolUse:
        use = f"toolu_01{self.stage.word('use', 22)}"
        block = {"type": "tool_use", "id": use, "name": name, "input": given, "caller": {"type": "direct"}}
        line = self._block(who, block)
        hook = {**self._base_of(who, "PreToolUse", effort=True), "tool_name": name, "tool_input": given, "tool_use_id": use}
        self._happen("tool-call", who, text=name, lines=[line], hook=hook, tool=name, input=given, tool_use_id=use)
        who.uses += 1
        return ToolUse(use, name, given, line[1]["uuid"], report)

    def result(self, who: Actor, use: ToolUse, job: FileJob, outcome: JobOutcome) -> None:
        if outcome.ok:
            self._succeed(who, use, _shown(job, outcome), _response(job, outcome))
            return
        error = f"Exit code {outcome.code}\n{outcome.output}".rstrip() if job.kind == "bash" else outcome.output
        hook = self._after(who, use, "PostToolUseFailure") | {"error": error, "is_interrupt": False, "duration_ms": self._took()}
        shown = error if job.kind == "bash" else f"<tool_use_error>{error}</tool_use_error>"
        block = {"type": "tool_result", "content": shown, "is_error": True, "tool_use_id": use.id}
        line = self._answer(who, use, block, f"Error: {error}")
        self._happen("tool-failure", who, text=error, lines=[line], hook=hook, tool=use.name, tool_use_id=use.id)

    def _succeed(self, who: Actor, use: ToolUse, shown: Any, response: dict[str, Any]) -> None:
        hook = self._after(who, use, "PostToolUse") | {"tool_response": response, "duration_ms": self._took()}
        line = self._answer(who, use, {"tool_use_id": use.id, "type": "tool_result", "content": shown}, response)
        text = shown if isinstance(shown, str) else shown[0]["text"]
        self._happen("tool-result", who, text=text, lines=[line], hook=hook, tool=use.name, tool_use_id=use.id)

    def _after(self, who: Actor, use: ToolUse, name: str) -> dict[str, Any]:
        base = self._base_of(who, name, effort=True)
        return {**base, "tool_name": use.name, "tool_input": use.input, "tool_use_id": use.id}

    def _took(self) -> int:
        return 3 + self.stage.number("took", 400)

    # Sub-agents.

    def delegate(self, kind: str, task: str, about: str) -> tuple[ToolUse, Actor]:
        given = {"description": about, "prompt": task, "subagent_type": kind, "run_in_background": False}
        use = self._call(self.main, "Agent", given, task)
        name = f"a{self.stage.fresh('agent')[:16]}"
        child = Actor(f"{self._project()}/{self.session}/subagents/agent-{name}.jsonl", name, kind)
        self.agents.append(child)
        return use, child

    def launch(self, use: ToolUse, child: Actor) -> None:
        hook = self._base_of(child, "SubagentStart", mode=False)
        self._happen("sub-start", child, text=child.type, hook=hook, agent_type=child.type, tool_use_id=use.id)
        line = self._line(child, "user", message={"role": "user", "content": use.report})
        self._happen("prompt", child, text=use.report, lines=[line])

    def settle(self, use: ToolUse, child: Actor) -> None:
        said = {"last_assistant_message": child.said} if child.said else {}
        path = {"agent_transcript_path": child.transcript}
        hook = {**self._base_of(child, "SubagentStop", effort=True), "stop_hook_active": False, **path, **said, **_nothing_runs()}
        self._happen("sub-stop", child, text=child.said, hook=hook, agent_type=child.type)
        content = [{"type": "text", "text": child.said}]
        response: dict[str, Any] = {
            "status": "completed",
            "prompt": use.report,
            "agentId": child.id,
            "agentType": child.type,
            "content": content,
        }
        response |= {"totalDurationMs": 900 + self._took(), "totalTokens": 18583, "totalToolUseCount": child.uses}
        response |= {"usage": {**_USAGE, "server_tool_use": None, "service_tier": "standard", "cache_creation": None}}
        self.main.message = None
        self._succeed(self.main, use, content, response)

    # Hooks and lines.

    def base(self, name: str) -> dict[str, Any]:
        return self._base_of(self.main, name, mode=False)

    def _base_of(self, who: Actor, name: str, *, mode: bool = True, effort: bool = False) -> dict[str, Any]:
        known: dict[str, Any] = {"session_id": self.session, "transcript_path": self.main.transcript}
        known["cwd"] = self.stage.setting.directory
        if self.prompt_id:
            known["prompt_id"] = self.prompt_id
        if mode:
            known["permission_mode"] = "default"
        if who.id:
            known |= {"agent_id": who.id, "agent_type": who.type}
        if effort:
            known["effort"] = {"level": "high"}
        return {**known, "hook_event_name": name}

    def _happen(self, kind: str, who: Actor, **more: Any) -> None:
        told: Sequence[Line] = more.get("lines", ())
        if told and "uuid" in told[-1][1]:
            more["uuid"] = told[-1][1]["uuid"]
        if self.prompt_id:
            more["prompt_id"] = self.prompt_id
        self.stage.happen(kind, who.id, **more, session=self.session)

    def _line(self, who: Actor, kind: str, *, uuid: str = "", **fields: Any) -> Line:
        """A line of the conversation, chained to the previous one."""
        parent, who.tip = who.tip, uuid or self.stage.uuid("line")
        record: dict[str, Any] = {"parentUuid": parent, "isSidechain": bool(who.id)}
        if kind == "user" and self.prompt_id:
            record["promptId"] = self.prompt_id
        if who.id:
            record["agentId"] = who.id
        record |= {"type": kind, **fields, "uuid": who.tip, "timestamp": self.stage.stamp(), "userType": "external"}
        record |= {"entrypoint": "cli", "cwd": self.stage.setting.directory, "sessionId": self.session, "version": self.version}
        return who.transcript, record | {"gitBranch": self.stage.setting.branch}

    def _system(self, who: Actor, subtype: str, **fields: Any) -> Line:
        return self._line(who, "system", subtype=subtype, level="info", **fields)

    def _block(self, who: Actor, block: dict[str, Any]) -> Line:
        """One block of a model message: blocks have separate lines and share the message id."""
        if who.message is None:
            who.message = (f"msg_01{self.stage.word('message', 22)}", f"req_011C{self.stage.word('request', 20)}")
        name, request = who.message
        reason = "tool_use" if block["type"] == "tool_use" else None
        message = {"model": MODEL, "id": name, "type": "message", "role": "assistant", "content": [block]}
        message |= {"stop_reason": reason, "stop_sequence": None, "usage": _USAGE}
        return self._line(who, "assistant", message=message, requestId=request)

    def _answer(self, who: Actor, use: ToolUse, block: dict[str, Any], result: Any) -> Line:
        who.message = None
        message = {"role": "user", "content": [block]}
        return self._line(who, "user", message=message, toolUseResult=result, sourceToolAssistantUUID=use.source)


def _nothing_runs() -> dict[str, Any]:
    return {"background_tasks": [], "session_crons": []}


def _input_of(job: FileJob) -> dict[str, Any]:
    if job.kind == "bash":
        return {"command": job.command, "description": job.about}
    if job.kind == "write":
        return {"file_path": job.path, "content": job.new}
    if job.kind == "edit":
        return {"file_path": job.path, "old_string": job.old, "new_string": job.new, "replace_all": False}
    return {"file_path": job.path}


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
        known: dict[str, Any] = {"filePath": job.path, "oldString": job.old, "newString": job.new, "originalFile": outcome.before}
        return {**known, "structuredPatch": _hunks(outcome), "userModified": False, "replaceAll": False}
    kind, patch = ("create", []) if outcome.before is None else ("update", _hunks(outcome))
    known = {"type": kind, "filePath": job.path, "content": job.new, "structuredPatch": patch}
    return {**known, "originalFile": outcome.before, "userModified": False}


def _hunks(outcome: JobOutcome) -> list[dict[str, Any]]:
    old, new = (outcome.before or "").splitlines(), (outcome.after or "").splitlines()
    found = []
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
        found.append({**place, "lines": lines})
    return found
