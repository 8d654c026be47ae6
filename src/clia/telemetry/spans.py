"""Span trees: what agents did, as OpenTelemetry spans.

There is one tree per session of an agent, and one for the agent outside its sessions. A sub-agent's runs are below the run of
its parent that spawned it. Attribute names follow OpenTelemetry's conventions for generative AI, else ``clia.*``.

Invariant: every trace entry is in exactly one span, as an event or as an end of a tool call. Every span but the root is within its
parent's time. A span's id derives from its subject, so the same history yields the same spans. Without ``content``, no text written
by an agent, a person or a tool is exported: only kinds, names, ids and lengths.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, deque
from typing import NamedTuple

from clia.sessions.model import DIVERGED, FAILED
from clia.sessions.runs import ITSELF, LAST, SESSION, runs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from typing import Any

    from clia.sessions.records import Resumed
    from clia.sessions.runs import AgentRecord, AgentRuns, PlacedEntry, SessionRun
    from clia.space.model import AgentCommit

    Attributes = Mapping[str, str | int]

CALL, RESULT, FAILURE = "tool-call", "tool-result", "tool-failure"
TOOL_ENDS = frozenset((CALL, RESULT, FAILURE))
TEXT_MAX = 8 * 1024
NAME_MAX = 200
_WAITS = re.compile(r"([a-z][a-z0-9_-]*) \(([^()\s]+\.\d+)\)")
_PROVIDERS = {"claude-code": "anthropic", "codex": "openai", "gemini": "gcp.gen_ai"}
_LLM = "llm"
_SESSION_FIELDS = {
    "session": "clia.session.id",
    "status": "clia.session.status",
    "request": "clia.request.id",
    "decision": "clia.request.decision",
}


class SpanEvent(NamedTuple):
    """An event of a span."""

    name: str
    at: int  # nanoseconds since the epoch
    attributes: Attributes


class Span(NamedTuple):
    """A span. Trace ids have 32 hexadecimal digits, span ids 16; times are nanoseconds since the epoch, ``start <= end``."""

    trace: str
    id: str
    parent: str | None
    name: str
    start: int
    end: int
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    failed: bool = False
    reason: str = ""  # of the failure, if content is exported
    is_client: bool = False  # it waited for a server


class ToolUse(NamedTuple):
    """A tool call and its end. One of the two may be missing from the trace."""

    key: str
    call: PlacedEntry | None
    end: PlacedEntry | None

    @property
    def ends(self) -> list[PlacedEntry]:
        return [entry for entry in (self.call, self.end) if entry is not None]

    def field(self, name: str) -> str | None:
        """Return a text field that either entry may have."""
        return next((text for text in (text_of(entry.data.get(name)) for entry in self.ends) if text), None)

    @property
    def outcome(self) -> str:
        """``result``, ``failure``, or ``unknown`` if no end was traced."""
        return "unknown" if self.end is None else self.end.kind.removeprefix("tool-")


class AnsweredRequest(NamedTuple):
    """A request of a session and the entry that answers it; ``asked`` and ``kind`` as far as they were traced."""

    id: str
    entry: PlacedEntry
    asked: int
    kind: str | None


class SpanTree(NamedTuple):
    """The spans of one session and of everything spawned in it; parents first."""

    agent: str
    session: str
    spans: tuple[Span, ...]

    @property
    def end(self) -> int:
        return max(span.end for span in self.spans)


class TracedRun(NamedTuple):
    """A session of an agent, or the agent outside its sessions; ``top`` is the root run of the tree."""

    agent: str
    session: str
    top: tuple[str, str]
    above: tuple[str, str] | None


class RunContent:
    """Events and child spans of a run, and the time they cover."""

    def __init__(self) -> None:
        self.events: list[SpanEvent] = []
        self.children: list[Span] = []
        self.start, self.end = LAST, 0

    def covers(self, start: int, end: int) -> None:
        self.start, self.end = min(self.start, start), max(self.end, end)

    def add(self, span: Span) -> None:
        self.children.append(span)
        self.covers(span.start, span.end)


class SpanBuilder:
    """Builds the span trees of a family of agents. ``space`` is part of every id."""

    def __init__(self, space: str, *, content: bool = False) -> None:
        self._space = space
        self._content = content

    def trees(self, stories: Iterable[AgentRecord], selected: Container[str] | None = None) -> list[SpanTree]:
        """Return the trees of a family; ``stories`` lists parents before children. ``selected``: only spans of these agents."""
        runs_by_agent: dict[str, AgentRuns] = {}
        runs: dict[tuple[str, str], TracedRun] = {}
        contents: dict[tuple[str, str], RunContent] = {}
        for story in stories:
            history = runs_by_agent[story.agent] = runs_of(story)
            above = _above(history, runs_by_agent.get(story.parent or ""))
            top = None if above is None else runs[above].top
            for session in (ITSELF, *history.windows):
                key = (story.agent, session)
                runs[key] = TracedRun(*key, top or key, above)
            contents |= self._contents(history, {session: runs[story.agent, session] for session in (ITSELF, *history.windows)})
        for key in reversed(runs):
            above = runs[key].above
            if above is not None and contents[key].start <= contents[key].end:
                contents[above].covers(contents[key].start, contents[key].end)
        spans: dict[tuple[str, str], list[Span]] = {}
        for key, run in runs.items():
            is_recorded = contents[key].start <= contents[key].end
            if is_recorded and (selected is None or run.agent in selected):
                listed = spans.setdefault(run.top, [])
                listed.append(self._of_run(run, runs_by_agent[run.agent], contents[key]))
                listed += sorted(contents[key].children, key=lambda span: (span.start, span.end, span.id))
        return [SpanTree(*top, tuple(listed)) for top, listed in spans.items()]

    def _contents(self, history: AgentRuns, runs: Mapping[str, TracedRun]) -> dict[tuple[str, str], RunContent]:
        """Return the content of each run of an agent."""
        contents = {session: RunContent() for session in runs}
        runs_by_commit = {commit.cid: session for session, _, commit in history.commits}
        bound: dict[tuple[str, str | None], list[PlacedEntry]] = {}
        for entry in history.entries:
            contents[entry.run].covers(entry.at, entry.at)
            cid = entry.commit if runs_by_commit.get(entry.commit or "") == entry.run else None
            bound.setdefault((entry.run, cid), []).append(entry)
        for session, at, commit in history.commits:
            contents[session].add(self._commit(runs[session], at, commit, bound.get((session, commit.cid), [])))
        for use in uses_of(history.entries):
            contents[use.ends[0].run].add(self._tool(runs[use.ends[0].run], use))
        for answered in answers_in(history.entries):
            contents[answered.entry.run].add(self._request(runs[answered.entry.run], history, answered))
        for session, content in contents.items():
            content.events = self._events(bound.get((session, None), []))
            window = history.windows.get(session)
            if window is not None:
                content.covers(window.start, window.start if window.end == LAST else window.end)
        return {(history.story.agent, session): content for session, content in contents.items()}

    # Ids

    def _trace(self, run: TracedRun) -> str:
        return self._hash("trace", *run.top)[:32]

    def _id(self, agent: str, session: str, *words: str) -> str:
        return self._hash("span", agent, session, *words)[:16]

    def _hash(self, *words: str) -> str:
        return hashlib.sha256(json.dumps([self._space, *words]).encode("ascii")).hexdigest()

    def _inside(self, run: TracedRun, key: tuple[str, str], name: str, times: Iterable[int], attributes: Mapping[str, Any]) -> Span:
        """Return a child span of a run."""
        start, *later = sorted(times)
        ids = self._trace(run), self._id(run.agent, run.session, *key), self._id(run.agent, run.session)
        return Span(*ids, name, start, later[-1] if later else start, present(attributes))

    # Spans

    def _of_run(self, run: TracedRun, history: AgentRuns, contents: RunContent) -> Span:
        window = history.windows.get(run.session)
        session_run = None if window is None else window.ran
        span = Span(
            self._trace(run),
            self._id(run.agent, run.session),
            None if run.above is None else self._id(*run.above),
            f"invoke_agent {run.agent}",
            contents.start,
            contents.end,
            present(self._about(run, history, session_run)),
            tuple(contents.events),
        )
        if session_run is None or session_run.status not in (FAILED, DIVERGED):
            return span
        why = cut(session_run.reason) if self._content else ""
        return span._replace(failed=True, reason=why, attributes={**span.attributes, "error.type": session_run.status})

    def _about(self, run: TracedRun, history: AgentRuns, session_run: SessionRun | None) -> dict[str, str | None]:
        story = history.story
        tool, conversation, model = (text_of(story.meta.get(name)) for name in ("tool", "session", "model"))
        behaviours = [commit.behaviour for session, _, commit in history.commits if session == run.session and commit.behaviour]
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": run.agent,
            "gen_ai.agent.id": f"{self._space}/{run.agent}",
            "gen_ai.agent.version": behaviours[-1] if behaviours else None,
            "gen_ai.agent.description": self._content_text(story.title),
            "gen_ai.conversation.id": conversation,
            "gen_ai.provider.name": _PROVIDERS.get(tool or ""),
            "gen_ai.request.model": model,
            "clia.agent.parent": story.parent,
            "clia.agent.tool": tool,
        }
        if session_run is not None:
            attributes |= {
                "gen_ai.agent.version": session_run.flow_cid or attributes["gen_ai.agent.version"],
                "gen_ai.conversation.id": f"{self._space}/{run.agent}/{session_run.id}",
                "clia.session.id": session_run.id,
                "clia.session.status": session_run.status,
                "clia.session.flow": session_run.flow,
                "clia.session.forked_from": session_run.forked,
            }
        return attributes

    def _commit(self, run: TracedRun, at: int, commit: AgentCommit, entries: list[PlacedEntry]) -> Span:
        """Return the span of a commit: from its first trace entry to the commit, with the entries as events."""
        attributes = {
            "clia.commit.id": commit.cid,
            "clia.commit.kind": commit.kind,
            "clia.commit.briefing": commit.briefing,
            "clia.commit.behaviour": commit.behaviour,
            "clia.commit.merged": commit.merged,
            "clia.commit.message": self._content_text(commit.message),
            "clia.request.id": commit.request,
            "clia.request.by": self._content_text(commit.by or ""),
        }
        name = f"clia.commit {cut(commit.kind or '', NAME_MAX)}"
        span = self._inside(run, ("commit", commit.cid), name, [at, *(entry.at for entry in entries)], attributes)
        return span._replace(events=tuple(self._events(entries)))

    def _tool(self, run: TracedRun, use: ToolUse) -> Span:
        tool = use.field("tool")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": use.field("id"),
            "gen_ai.agent.name": run.agent,
            "clia.tool.outcome": use.outcome,
        }
        if use.call is not None:
            attributes["clia.tool.call.length"] = len(use.call.text)
            attributes["gen_ai.tool.call.arguments"] = self._content_text(_as_json(use.call.data.get("input", use.call.text)))
        if use.end is not None:
            attributes["clia.tool.result.length"] = len(use.end.text)
            attributes["gen_ai.tool.call.result"] = self._content_text(use.end.text)
            attributes["clia.commit.id"] = use.end.commit
        failed = use.end is not None and use.end.kind == FAILURE
        if failed:
            attributes["error.type"] = FAILURE
        span = self._inside(
            run, ("tool", use.key), f"execute_tool {tool or ''}".strip(), [entry.at for entry in use.ends], attributes
        )
        return span._replace(failed=failed)

    def _request(self, run: TracedRun, history: AgentRuns, answered: AnsweredRequest) -> Span:
        """Return the span of a request, from question to answer; LLM answers include token usage."""
        session, _, call = answered.id.rpartition(".")
        window = history.windows.get(session)
        answer = None if window is None else next((resumed for resumed in window.ran.answers if str(resumed.call) == call), None)
        attributes: dict[str, Any] = {
            "clia.request.id": answered.id,
            "clia.request.kind": answered.kind,
            "clia.request.decision": text_of(answered.entry.data.get("decision")),
            "clia.request.by": self._content_text((answer and answer.by) or ""),
        }
        name, failed = f"clia.request {answered.kind or ''}".strip(), answer is not None and answer.error is not None
        usage = _usage(answer) if answered.kind == _LLM else {}
        if usage:
            name = f"chat {usage['gen_ai.response.model']}"
        if failed:
            attributes["error.type"] = "given-up"
        span = self._inside(run, ("request", answered.id), name, (answered.asked, answered.entry.at), attributes | usage)
        return span._replace(failed=failed, is_client=bool(usage))

    def _events(self, entries: Iterable[PlacedEntry]) -> list[SpanEvent]:
        return [self._event(entry) for entry in entries if entry.kind not in TOOL_ENDS]

    def _event(self, entry: PlacedEntry) -> SpanEvent:
        attributes: dict[str, Any] = {
            "clia.entry.kind": entry.kind,
            "clia.entry.length": len(entry.text),
            "clia.entry.redacted": entry.redacted or None,
            "clia.entry.text": self._content_text(entry.text),
            "clia.entry.data": self._content_text(_as_json(entry.data)) if entry.data else None,
        }
        if entry.kind == SESSION:
            attributes |= {name: text_of(entry.data.get(field)) for field, name in _SESSION_FIELDS.items()}
        return SpanEvent(f"clia.trace {cut(entry.kind, NAME_MAX)}".strip(), entry.at, present(attributes))

    def _content_text(self, text: str) -> str | None:
        """Return a text, truncated for collectors, if content is exported."""
        return cut(text) if self._content else None


def _above(history: AgentRuns, parent: AgentRuns | None) -> tuple[str, str] | None:
    """Return the parent's run that spawned an agent."""
    if parent is None:
        return None
    born = history.born()
    return parent.story.agent, ITSELF if born is None else parent.at(born)


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _usage(answer: Resumed | None) -> dict[str, Any]:
    """Return model and token counts of an ``llm`` answer."""
    value = answer.value if answer is not None and isinstance(answer.value, dict) else {}
    model, usage = text_of(value.get("model")), value.get("usage")
    if model is None:
        return {}
    tokens = usage if isinstance(usage, dict) else {}
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.response.model": model}
    for field, name in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        count = tokens.get(field)
        attributes[f"gen_ai.usage.{name}"] = count if type(count) is int and 0 <= count < 2**63 else None
    return attributes


def uses_of(entries: Iterable[PlacedEntry]) -> list[ToolUse]:
    """Return every tool use, in order of start. Ends match calls by id; without one, the tool's oldest open call."""
    pairs: list[list[PlacedEntry | None]] = []
    waiting: dict[tuple[str, str | None], deque[int]] = {}
    for entry in entries:
        if entry.kind not in TOOL_ENDS:
            continue
        call_id, tool = text_of(entry.data.get("id")), text_of(entry.data.get("tool"))
        mark = ("id", call_id) if call_id else ("tool", tool)
        open_calls = waiting.setdefault(mark, deque())
        if entry.kind == CALL:
            open_calls.append(len(pairs))
            pairs.append([entry, None])
        elif open_calls and mark != ("tool", None):
            pairs[open_calls.popleft()][1] = entry
        else:
            pairs.append([None, entry])
    # The key of a use is the tool's call id, which does not depend on which end was traced first.
    counts: Counter[str] = Counter()
    uses = []
    for call, end in pairs:
        use = ToolUse("", call, end)
        call_id = use.field("id")
        key = f"id:{call_id}" if call_id else use.ends[0].identity
        counts[key] += 1
        uses.append(use._replace(key=f"{key}#{counts[key]}"))
    return uses


def answers_in(entries: Iterable[PlacedEntry]) -> list[AnsweredRequest]:
    """Return the answered requests. A session entry ends with the list of requests it waits for."""
    requests: dict[str, tuple[int, str]] = {}
    answers: dict[str, AnsweredRequest] = {}
    for entry in entries:
        if entry.kind != SESSION:
            continue
        request = text_of(entry.data.get("request"))
        if request is not None and request not in answers:
            at, kind = requests.get(request, (entry.at, None))
            answers[request] = AnsweredRequest(request, entry, min(at, entry.at), kind)
        _, waits, listed = entry.text.rpartition("; waits for ")
        for kind, name in _WAITS.findall(listed) if waits else ():
            requests.setdefault(name, (entry.at, kind))
    return list(answers.values())


def text_of(value: object) -> str | None:
    """Return a short text; None for anything else."""
    return cut(value, NAME_MAX) if isinstance(value, str) and value else None


def cut(text: str, limit: int = TEXT_MAX) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def present(attributes: Mapping[str, Any]) -> dict[str, str | int]:
    """Drop empty attributes and make texts valid Unicode, as collectors require."""
    return {
        key: value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None and value != ""
    }
