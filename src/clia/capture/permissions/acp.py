"""Permission requests of agents that speak the Agent Client Protocol: a relay between an editor and the agent.

The relay passes every message on, and looks at those with which the agent asks for permission, writes a file through the editor
or runs a command in a terminal of the editor.

Invariant: what a rule denies never reaches the editor. What a rule asks about is a question to people first; without an answer in
time, the editor asks in its own way, and a write or a command is refused. Nothing is allowed by timeout. What people allowed is
used once.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from clia.capture.permissions.budgets import budget_refusal
from clia.capture.permissions.prompts import CallAnswer, PermissionPrompt, PromptedCall
from clia.capture.permissions.questions import forwards
from clia.capture.permissions.ruled_calls import PRE, action_of
from clia.errors import CliaError
from clia.rules.evaluation import evaluate, reason
from clia.rules.model import ALLOW, ASK, DENY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from clia.facade.space import Space

TOOL = "acp"
PERMISSION, WRITE, TERMINAL = "session/request_permission", "fs/write_text_file", "terminal/create"
_NEW, _LOAD, _CANCEL = "session/new", ("session/load", "session/resume"), "session/cancel"
_TOOLS = {"execute": "Bash", "edit": "Edit", "delete": "Edit", "move": "Edit", "read": "Read", "fetch": "WebFetch"}
_REFUSED = -32000
_GONE = "gone"


class Channel:
    """One direction of a connection: whole lines, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, line: bytes) -> bool:
        """Write a line; false if the other side is gone."""
        try:
            with self._lock:
                self._stream.write(line)
                self._stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.close()


class _RelayedQuestion(NamedTuple):
    """A question that the relay waits for."""

    session: str
    reader: int  # closing it ends the wait


class Relay:
    """Passes messages between an editor and an agent."""

    def __init__(self, space: Space, agent: str, environment: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._space = space
        self._agent = agent
        self._environment = environment
        self._tell = tell
        self._lock = threading.Lock()
        self._directories: dict[str, str] = {}  # of sessions, and of requests for new ones
        self._waiting: dict[int, _RelayedQuestion] = {}
        self._allowed: list[tuple[str, str]] = []  # session, and what a person allowed: a file or a command line
        self._cancelled: set[str] = set()

    # Both directions

    def from_editor(self, source: BinaryIO, agent: Channel) -> None:
        """Pass on what the editor sends, until it closes."""
        for line in iter(source.readline, b""):
            for message in _messages(line):
                self._note(message)
            if not agent.send(line):
                break
        agent.close()

    def from_agent(self, source: BinaryIO, agent: Channel, editor: Channel) -> None:
        """Pass on what the agent sends, until it ends; answer what rules and people decide."""
        threads: list[threading.Thread] = []
        for line in iter(source.readline, b""):
            messages = _messages(line)
            if not any(message.get("method") in (PERMISSION, WRITE, TERMINAL) for message in messages):
                for message in messages:
                    self._note_session(message)
                editor.send(line)
                continue
            for message in messages:
                threads.append(threading.Thread(target=self._handle, args=(message, agent, editor), daemon=True))
                threads[-1].start()
        self.stop()
        for thread in threads:
            thread.join()

    def stop(self, session: str | None = None) -> None:
        """End the waits of a session or of all: the agent is gone, or the editor cancelled its turn."""
        with self._lock:
            for key, waiting in list(self._waiting.items()):
                if session in (None, waiting.session):
                    del self._waiting[key]
                    os.close(waiting.reader)

    def _note(self, message: Mapping[str, Any]) -> None:
        """Learn what the editor says about sessions."""
        method, params = message.get("method"), _object(message, "params")
        cwd, session = params.get("cwd"), str(params.get("sessionId") or "")
        if method == _NEW and isinstance(cwd, str):
            self._directories[f"request {message.get('id')}"] = cwd
        elif method in _LOAD and isinstance(cwd, str):
            self._directories[session] = cwd
        elif method == _CANCEL:
            self._cancelled.add(session)
            self.stop(session)
        elif method == "session/prompt":
            self._cancelled.discard(session)

    def _note_session(self, message: Mapping[str, Any]) -> None:
        """Learn the id of a new session."""
        cwd = self._directories.pop(f"request {message.get('id')}", None) if "method" not in message else None
        session = _object(message, "result").get("sessionId")
        if cwd is not None and isinstance(session, str):
            self._directories[session] = cwd

    # What the agent asks for

    def _handle(self, message: dict[str, Any], agent: Channel, editor: Channel) -> None:
        """Answer a message of the agent, or pass it on."""
        try:
            answer = self._answer(message)
        except Exception as err:  # noqa: BLE001  # a failure must not let anything run unasked
            answer = CallAnswer(ASK, f"clia could not ask a person: {type(err).__name__}: {err}")
        if answer.do == _GONE and str(_object(message, "params").get("sessionId") or "") not in self._cancelled:
            return
        reply = self._reply(message, answer)
        if answer.reason and answer.do in (DENY, ASK):
            self._tell(answer.reason)
        if reply is None:
            editor.send(_line(message))
        elif "id" in message:
            agent.send(_line({"jsonrpc": "2.0", "id": message["id"], **reply}))

    def _reply(self, message: Mapping[str, Any], answer: CallAnswer) -> dict[str, Any] | None:
        """The reply to the agent; None: the editor answers."""
        if message.get("method") != PERMISSION:
            if answer.do in ("", ALLOW):
                return None
            return {"error": {"code": _REFUSED, "message": answer.reason}}
        params = _object(message, "params")
        if str(params.get("sessionId") or "") in self._cancelled:
            return {"result": {"outcome": {"outcome": "cancelled"}}}
        if answer.do not in (ALLOW, DENY):
            return None
        kinds = ("allow_once",) if answer.do == ALLOW else ("reject_once", "reject_always")
        options = params.get("options")
        listed = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
        chosen = next((option["optionId"] for kind in kinds for option in listed if option.get("kind") == kind), None)
        if chosen is not None:
            return {"result": {"outcome": {"outcome": "selected", "optionId": chosen}}}
        return None if answer.do == ALLOW else {"result": {"outcome": {"outcome": "cancelled"}}}

    def _answer(self, message: Mapping[str, Any]) -> CallAnswer:
        space, agent = self._space, self._agent
        fields, is_written_out = self._fields(message)
        refusal = budget_refusal(space, agent)
        if refusal is not None:
            return CallAnswer(DENY, refusal)
        rules = [space.identities.shown(rule) for rule in space.identities.rules_in_force(agent)]
        verdict = evaluate(rules, action_of(fields, fields["cwd"]))
        method = message.get("method")
        if verdict.do == DENY or (verdict.do == ALLOW and is_written_out):
            return CallAnswer(verdict.do, reason(verdict))
        if method != PERMISSION and self._is_allowed(fields):
            return CallAnswer(ALLOW, "")
        own = not verdict.do and method == PERMISSION and forwards(space.local.config.prompts, self._environment)
        if verdict.do != ASK and not own:
            return CallAnswer("", "")
        return self._asked(PromptedCall(TOOL, PRE, fields, agent), verdict)

    def _asked(self, call: PromptedCall, verdict: Any) -> CallAnswer:
        options = self._space.local.config.prompts
        prompt = PermissionPrompt(self._space, call, verdict, options.grant_seconds)
        reader, writer = os.pipe()
        with self._lock:
            self._waiting[writer] = _RelayedQuestion(str(call.fields["session_id"]), reader)
        try:
            answer = prompt.answer(options.wait_seconds, writer)
        finally:
            with self._lock:
                waiting = self._waiting.pop(writer, None)
            if waiting is not None:
                os.close(reader)
            os.close(writer)
        if not answer.do:  # the agent or its turn is gone
            with suppress(CliaError):
                self._space.sessions.cancel(self._agent, answer.reason, session_id=prompt.request.rpartition(".")[0])
            return CallAnswer(_GONE, "")
        if answer.do == ALLOW:
            session = str(call.fields["session_id"])
            self._allowed += [(session, text) for text in _texts(call.fields)]
        return answer

    def _is_allowed(self, fields: Mapping[str, Any]) -> bool:
        """Whether a person just allowed the request for permission that this write or command belongs to; counts once."""
        session = str(fields["session_id"])
        with self._lock:
            for text in _texts(fields):
                if (session, text) in self._allowed:
                    self._allowed.remove((session, text))
                    return True
        return False

    def _fields(self, message: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """A message as the event of a call, and whether it says exactly what is done."""
        params = _object(message, "params")
        session = str(params.get("sessionId") or "")
        cwd = self._directories.get(session) or os.path.abspath(os.curdir)
        common = {"session_id": session, "cwd": cwd, "hook_event_name": PRE}
        if message.get("method") == WRITE:
            arguments = {"file_path": params.get("path"), "content": params.get("content")}
            return {**common, "tool_name": "Write", "tool_input": arguments}, True
        if message.get("method") == TERMINAL:
            words = [str(word) for word in (params.get("command"), *(params.get("args") or ()))]
            line = words[0] if len(words) == 1 else shlex.join(words)
            return {**common, "cwd": str(params.get("cwd") or cwd), "tool_name": "Bash", "tool_input": {"command": line}}, True
        call = _object(params, "toolCall")
        return {**common, **_call_fields(call)}, isinstance(call.get("rawInput"), dict)


def _call_fields(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call of a tool as the agent describes it. Agents that send no input name the command in the title."""
    kind, title = str(call.get("kind") or "other"), str(call.get("title") or "")
    raw = call.get("rawInput")
    arguments = dict(raw) if isinstance(raw, dict) else {}
    if kind == "execute" and not any(isinstance(arguments.get(key), str | list) for key in ("command", "cmd")):
        arguments["command"] = title
    elif kind == "execute" and "command" not in arguments:
        arguments["command"] = arguments["cmd"]
    locations, contents = call.get("locations"), call.get("content")
    listed = [*(locations if isinstance(locations, list) else ()), *(contents if isinstance(contents, list) else ())]
    paths = [item["path"] for item in listed if isinstance(item, dict) and isinstance(item.get("path"), str)]
    if paths:
        arguments.setdefault("paths", paths)
    change = next((item for item in listed if isinstance(item, dict) and item.get("type") == "diff"), None)
    if change is not None and "new_string" not in arguments:
        arguments |= {
            "file_path": change.get("path"),
            "old_string": change.get("oldText") or "",
            "new_string": change.get("newText"),
        }
    if not arguments:
        arguments = {"title": title}
    return {"tool_name": _TOOLS.get(kind, title or kind), "tool_input": arguments, "tool_use_id": f"/call_{call.get('toolCallId')}"}


def _texts(fields: Mapping[str, Any]) -> list[str]:
    """What a call is about: its command line, or its files."""
    action = action_of(fields, str(fields["cwd"]))
    return [str(action.command)] if action.command else list(action.paths)


def _object(message: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = message.get(key)
    return value if isinstance(value, dict) else {}


def _messages(line: bytes) -> list[dict[str, Any]]:
    """The messages in a line; none if it is not JSON."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
