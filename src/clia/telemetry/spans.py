"""Trees of spans: what agents did, as collectors of traces want it told.

One tree for each session of an agent, and one for the agent itself, outside its sessions. A sub-agent's runs hang below the run
of its parent in which it was spawned. Names are those of OpenTelemetry's conventions for generative AI where they have one, else
``clia.*``.

Invariant: every entry of a trace is in exactly one span, as an event or as an end of a tool call; every span but a tree's first
lies below another and within its time; the same story makes the same spans. Without ``content`` no text that an agent, a person
or a tool wrote is in any of them: only kinds, names, ids and lengths.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from clia.sessions.model import DIVERGED, FAILED
from clia.sessions.runs import ITSELF, LAST, SESSION, runs_of
from clia.telemetry.records import Span, SpanEvent
from clia.telemetry.span_parts import FAILURE, NAME_MAX, TOOL_ENDS, answers_in, cut, present, text_of, uses_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from typing import Any

    from clia.sessions.records import Resumed
    from clia.sessions.runs import Placed, Ran, Runs, Story
    from clia.space.model import AgentCommit
    from clia.telemetry.span_parts import Answered, Use

_PROVIDERS = {"claude-code": "anthropic", "codex": "openai", "gemini": "gcp.gen_ai"}
_LLM = "llm"


class Tree(NamedTuple):
    """The spans of one session and of all that was spawned in it, each run's own before those inside it."""

    agent: str
    session: str
    spans: tuple[Span, ...]

    @property
    def end(self) -> int:
        return max(each.end for each in self.spans)


class Run(NamedTuple):
    """Where a span is: a session of an agent, or the agent itself; ``top`` is the run that the whole tree hangs from."""

    agent: str
    session: str
    top: tuple[str, str]
    above: tuple[str, str] | None


class Grown:
    """What a run's span holds, and the time that it covers."""

    def __init__(self) -> None:
        self.events: list[SpanEvent] = []
        self.children: list[Span] = []
        self.start, self.end = LAST, 0

    def covers(self, start: int, end: int) -> None:
        self.start, self.end = min(self.start, start), max(self.end, end)

    def add(self, span: Span) -> None:
        self.children.append(span)
        self.covers(span.start, span.end)


class Teller:
    """Makes the trees of agents that belong together. ``space`` is part of every id."""

    def __init__(self, space: str, *, content: bool = False) -> None:
        self._space = space
        self._content = content

    def trees(self, stories: Iterable[Story], wanted: Container[str] | None = None) -> list[Tree]:
        """Of a family, where an agent comes after its parent; only with the spans of some agents, if so wanted."""
        known: dict[str, Runs] = {}
        runs: dict[tuple[str, str], Run] = {}
        grown: dict[tuple[str, str], Grown] = {}
        for story in stories:
            found = known[story.agent] = runs_of(story)
            above = _above(found, known.get(story.parent or ""))
            top = None if above is None else runs[above].top
            for session in (ITSELF, *found.windows):
                key = (story.agent, session)
                runs[key] = Run(*key, top or key, above)
            grown |= self._grown(found, {session: runs[story.agent, session] for session in (ITSELF, *found.windows)})
        for key in reversed(runs):
            above = runs[key].above
            if above is not None and grown[key].start <= grown[key].end:
                grown[above].covers(grown[key].start, grown[key].end)
        spans: dict[tuple[str, str], list[Span]] = {}
        for key, run in runs.items():
            if grown[key].start <= grown[key].end and (wanted is None or run.agent in wanted):  # else nothing was recorded in it
                listed = spans.setdefault(run.top, [])
                listed.append(self._of_run(run, known[run.agent], grown[key]))
                listed += sorted(grown[key].children, key=lambda each: (each.start, each.end, each.id))
        return [Tree(*top, tuple(listed)) for top, listed in spans.items()]

    def _grown(self, found: Runs, runs: Mapping[str, Run]) -> dict[tuple[str, str], Grown]:
        """What is in each run of an agent."""
        made = {session: Grown() for session in runs}
        places = {commit.cid: session for session, _, commit in found.commits}
        bound: dict[tuple[str, str | None], list[Placed]] = {}
        for entry in found.entries:
            made[entry.run].covers(entry.at, entry.at)
            commit = entry.commit if places.get(entry.commit or "") == entry.run else None
            bound.setdefault((entry.run, commit), []).append(entry)
        for session, at, each in found.commits:
            made[session].add(self._commit(runs[session], at, each, bound.get((session, each.cid), [])))
        for use in uses_of(found.entries):
            made[use.ends[0].run].add(self._tool(runs[use.ends[0].run], use))
        for answered in answers_in(found.entries):
            made[answered.entry.run].add(self._request(runs[answered.entry.run], found, answered))
        for session, grown in made.items():
            grown.events = self._events(bound.get((session, None), []))
            window = found.windows.get(session)
            if window is not None:
                grown.covers(window.start, window.start if window.end == LAST else window.end)
        return {(found.story.agent, session): each for session, each in made.items()}

    # Ids

    def _trace(self, run: Run) -> str:
        return self._hash("trace", *run.top)[:32]

    def _id(self, agent: str, session: str, *words: str) -> str:
        return self._hash("span", agent, session, *words)[:16]

    def _hash(self, *words: str) -> str:
        return hashlib.sha256(json.dumps([self._space, *words]).encode("ascii")).hexdigest()

    def _inside(self, run: Run, key: tuple[str, str], name: str, times: Iterable[int], made: Mapping[str, Any]) -> Span:
        """A span right below a run's own."""
        start, *later = sorted(times)
        ids = self._trace(run), self._id(run.agent, run.session, *key), self._id(run.agent, run.session)
        return Span(*ids, name, start, later[-1] if later else start, present(made))

    # Spans

    def _of_run(self, run: Run, found: Runs, grown: Grown) -> Span:
        window = found.windows.get(run.session)
        ran = None if window is None else window.ran
        made = self._about(run, found, ran)
        failed = ran is not None and ran.status in (FAILED, DIVERGED)
        span = Span(
            self._trace(run),
            self._id(run.agent, run.session),
            None if run.above is None else self._id(*run.above),
            f"invoke_agent {run.agent}",
            grown.start,
            grown.end,
            present(made),
            tuple(grown.events),
        )
        if ran is None or not failed:
            return span
        why = cut(ran.reason) if self._content else ""
        return span._replace(failed=True, reason=why, attributes={**span.attributes, "error.type": ran.status})

    def _about(self, run: Run, found: Runs, ran: Ran | None) -> dict[str, str | None]:
        story = found.story
        tool, conversation, model = (text_of(story.meta.get(name)) for name in ("tool", "session", "model"))
        behaviours = [commit.behaviour for session, _, commit in found.commits if session == run.session and commit.behaviour]
        made = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": run.agent,
            "gen_ai.agent.id": f"{self._space}/{run.agent}",
            "gen_ai.agent.version": behaviours[-1] if behaviours else None,
            "gen_ai.agent.description": self._told(story.title),
            "gen_ai.conversation.id": conversation,
            "gen_ai.provider.name": _PROVIDERS.get(tool or ""),
            "gen_ai.request.model": model,
            "clia.agent.parent": story.parent,
            "clia.agent.tool": tool,
        }
        if ran is not None:
            made |= {
                "gen_ai.agent.version": ran.flow_cid or made["gen_ai.agent.version"],
                "gen_ai.conversation.id": f"{self._space}/{run.agent}/{ran.id}",
                "clia.session.id": ran.id,
                "clia.session.status": ran.status,
                "clia.session.flow": ran.flow,
                "clia.session.forked_from": ran.forked,
            }
        return made

    def _commit(self, run: Run, at: int, commit: AgentCommit, entries: list[Placed]) -> Span:
        """From the first thing traced for it up to the commit, with what was traced as its events."""
        made = {
            "clia.commit.id": commit.cid,
            "clia.commit.kind": commit.kind,
            "clia.commit.briefing": commit.briefing,
            "clia.commit.behaviour": commit.behaviour,
            "clia.commit.merged": commit.merged,
            "clia.commit.message": self._told(commit.message),
            "clia.request.id": commit.request,
            "clia.request.by": self._told(commit.by or ""),
        }
        name = f"clia.commit {cut(commit.kind or '', NAME_MAX)}"
        span = self._inside(run, ("commit", commit.cid), name, [at, *(each.at for each in entries)], made)
        return span._replace(events=tuple(self._events(entries)))

    def _tool(self, run: Run, use: Use) -> Span:
        tool = use.said("tool")
        made: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": use.said("id"),
            "gen_ai.agent.name": run.agent,
            "clia.tool.outcome": use.outcome,
        }
        if use.call is not None:
            made["clia.tool.call.length"] = len(use.call.text)
            made["gen_ai.tool.call.arguments"] = self._told(_as_json(use.call.data.get("input", use.call.text)))
        if use.end is not None:
            made["clia.tool.result.length"] = len(use.end.text)
            made["gen_ai.tool.call.result"] = self._told(use.end.text)
            made["clia.commit.id"] = use.end.commit
        failed = use.end is not None and use.end.kind == FAILURE
        if failed:
            made["error.type"] = FAILURE
        span = self._inside(run, ("tool", use.key), f"execute_tool {tool or ''}".strip(), [each.at for each in use.ends], made)
        return span._replace(failed=failed)

    def _request(self, run: Run, found: Runs, answered: Answered) -> Span:
        """How long a session waited for an answer; a language model's answer also says what it took."""
        session, _, call = answered.id.rpartition(".")
        window = found.windows.get(session)
        given = None if window is None else next((each for each in window.ran.given if str(each.call) == call), None)
        made: dict[str, Any] = {
            "clia.request.id": answered.id,
            "clia.request.kind": answered.kind,
            "clia.request.decision": text_of(answered.entry.data.get("decision")),
            "clia.request.by": self._told((given and given.by) or ""),
        }
        name, failed = f"clia.request {answered.kind or ''}".strip(), given is not None and given.error is not None
        usage = _usage(given) if answered.kind == _LLM else {}
        if usage:
            name = f"chat {usage['gen_ai.response.model']}"
        if failed:
            made["error.type"] = "given-up"
        span = self._inside(run, ("request", answered.id), name, (answered.asked, answered.entry.at), made | usage)
        return span._replace(failed=failed, is_client=bool(usage))

    def _events(self, entries: Iterable[Placed]) -> list[SpanEvent]:
        return [self._event(each) for each in entries if each.kind not in TOOL_ENDS]

    def _event(self, entry: Placed) -> SpanEvent:
        made: dict[str, Any] = {
            "clia.entry.kind": entry.kind,
            "clia.entry.length": len(entry.text),
            "clia.entry.redacted": entry.redacted or None,
            "clia.entry.text": self._told(entry.text),
            "clia.entry.data": self._told(_as_json(entry.data)) if entry.data else None,
        }
        if entry.kind == SESSION:
            for field in ("session", "status", "request", "decision"):
                made[_SESSION_FIELDS[field]] = text_of(entry.data.get(field))
        return SpanEvent(f"clia.trace {cut(entry.kind, NAME_MAX)}".strip(), entry.at, present(made))

    def _told(self, text: str) -> str | None:
        """What somebody wrote, where that is asked for; cut to a length that collectors take."""
        return cut(text) if self._content else None


_SESSION_FIELDS = {
    "session": "clia.session.id",
    "status": "clia.session.status",
    "request": "clia.request.id",
    "decision": "clia.request.decision",
}


def _above(found: Runs, parent: Runs | None) -> tuple[str, str] | None:
    """The run of its parent that an agent was spawned in."""
    if parent is None:
        return None
    born = found.born()
    return parent.story.agent, ITSELF if born is None else parent.at(born)


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _usage(given: Resumed | None) -> dict[str, Any]:
    """Model and tokens, as an ``llm`` request is answered with."""
    value = given.value if given is not None and isinstance(given.value, dict) else {}
    model, usage = text_of(value.get("model")), value.get("usage")
    if model is None:
        return {}
    tokens = usage if isinstance(usage, dict) else {}
    made: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.response.model": model}
    for field, name in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        count = tokens.get(field)
        made[f"gen_ai.usage.{name}"] = count if type(count) is int and 0 <= count < 2**63 else None
    return made
