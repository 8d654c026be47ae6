"""The agents of captured sessions and their sub-agents.

Invariant: a session keeps its agent: the owner of the checkout it works in, the agent named by CLIA_AGENT, or one spawned for
it. The agent's own record says which session it was spawned for, so a later ingest finds the same agent.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from clia.capture.entries import key_of, nth_report
from clia.capture.events import END, NOTE, SUB_STOP, ToolEvent, digest, is_internal, time_field
from clia.capture.service import CapturedSession, row_key
from clia.capture.tools import TOOLS
from clia.capture.transcripts import (
    OwnTranscripts,
    TranscriptCursor,
    TranscriptEvents,
    copied_lines,
    first_lines,
    has_grown,
    hook_key,
    read_bytes,
    read_on,
    restart,
)
from clia.errors import Conflict, InvalidInput
from clia.git.libgit2 import find_repository
from clia.values.refs import is_name
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.capture.changes.directory_looks import DirectoryLook
    from clia.capture.events import HookReport
    from clia.capture.later_calls import LaterCall
    from clia.capture.spool_reader import SpoolRecord
    from clia.capture.tools import ToolReader
    from clia.capture.transcripts import LineParser
    from clia.facade.space import Space

FORKED = "forked-from"
"""The relation from a session to the one that it continues independently."""


class IncomingEvent(NamedTuple):
    """An event reported by a hook, with its context."""

    tool: ToolReader
    report: HookReport
    record: SpoolRecord
    later_calls: Callable[[], Sequence[LaterCall]] = tuple
    """The later tool calls of the session, which may have changed files since the event. A call writes an event to the spool before
    it changes the directory. After a prompt, every later event counts as a call, because its turn continued."""
    is_past: Callable[[], bool] = lambda: False
    """Whether later events of the session wait."""


class IngestedSession:
    """A session or sub-agent during one ingest: its saved state, and the events to trace."""

    def __init__(self, tool: ToolReader, captured: CapturedSession) -> None:
        self.tool = tool
        self.captured = captured
        self.queue: list[tuple[ToolEvent, str]] = []  # each with the id of its spool record
        self.records: list[SpoolRecord] = []  # to remove once the queue is recorded
        self.has_subs: bool | None = None  # whether it started sub-agents; None: not looked up yet
        self.look: DirectoryLook | None = None  # the last look at its directory

    @property
    def agent(self) -> str:
        return self.captured.agent

    @property
    def parser(self) -> LineParser:
        """The parser of its transcript's lines. It leaves out the ids of prompts if hooks do not report them."""
        parse = self.tool.from_sub_line if self.captured.sub else self.tool.from_line
        return parse if self.captured.prompt_ids else lambda line: parse({**line, "promptId": None})


class IngestedSessions:
    """The sessions and sub-agents of one ingest."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._captures = space.captures
        self._lives: dict[str, IngestedSession] = {}
        self.transcripts = OwnTranscripts(self._is_here)
        self.spawned = self.spawned_subs = 0

    def unrecorded(self) -> list[IngestedSession]:
        """Sessions with queued events."""
        return [live for live in self._lives.values() if live.queue or live.records]

    def unread(self) -> list[IngestedSession]:
        """Open sessions, and those whose transcripts have grown."""
        agents = set(self._space.agents())
        states = []
        for captured in self._captures.sessions():
            tool = TOOLS.get(captured.tool)
            if tool is None or captured.agent not in agents:
                continue
            if captured.open or has_grown(captured.transcript, cursor_of(captured).offset):
                state = self.get(tool, captured.session, captured.sub)
                states += [] if state is None else [state]
        return states

    def session(self, hook: IncomingEvent, event: ToolEvent) -> IngestedSession:
        report = hook.report
        live = self.get(hook.tool, report.session, "") or self._begin(hook, event)
        self._check_secret(live, hook)
        self.follow(live, hook)
        if report.transcript and report.transcript != live.captured.transcript:
            live.captured = moved(live.captured, report.transcript)
        return live

    def _check_secret(self, live: IngestedSession, hook: IncomingEvent) -> None:
        """Refuse an event of a session in ``clia run`` that lacks the secret of the run, while the run lasts."""
        secret, expected = hook.record.secret, live.captured.secret
        if expected and secret != expected and self._captures.is_running(live.agent):
            message = f"the event does not have the secret of its session, which works in a run of {live.agent}"
            raise InvalidInput(message, code="wrong-run-secret", fields={"agent": live.agent, "session": hook.report.session})
        live.captured = live.captured._replace(secret=secret)

    def follow(self, live: IngestedSession, hook: IncomingEvent) -> None:
        """Continue in the directory of an event if the repository was moved. A missing linked worktree counts as removed."""
        if live.captured.main and not os.path.lexists(live.captured.place) and self._is_main(place := self._place(hook)):
            live.captured = live.captured._replace(place=place)

    def _is_main(self, place: str) -> bool:
        return os.path.realpath(place) == os.path.dirname(os.path.dirname(os.path.realpath(self._space.home)))

    def get(self, tool: ToolReader, session: str, sub: str) -> IngestedSession | None:
        key = row_key(tool.name, session, sub)
        if key not in self._lives:
            captured = self._captures.get(tool.name, session, sub)
            if captured is None or not self._at_work(captured.agent):
                return None
            self._lives[key] = IngestedSession(tool, captured)
        return self._lives[key]

    def _at_work(self, agent: str) -> bool:
        """Whether an agent can continue; an archived one is restored."""
        if self._captures.is_archived(agent):
            self._space.agents.restore(agent)
        return self._captures.is_ours(agent)

    def _enter(self, tool: ToolReader, captured: CapturedSession) -> IngestedSession:
        captured = captured._replace(main=self._is_main(captured.place))
        self._captures.keep(captured)
        live = self._lives[captured.key] = IngestedSession(tool, captured)
        return live

    def _begin(self, hook: IncomingEvent, event: ToolEvent) -> IngestedSession:
        """Create the state of a new session: choose its agent, or spawn one."""
        tool, session = hook.tool, hook.report.session
        place = self._place(hook)
        forked, since = self._forked_from(tool, session, hook.report.transcript or "", hook.record.at)
        name = self._joined(place, hook.record.agent)
        if name is None:
            name = self._named(tool, session, hook.record.agent)
            if self._captures.is_free(name):
                self._spawn(name, hook, place, forked, event)
        tree, at = self._captures.tree_of(name), hook.record.at
        captured = CapturedSession(tool.name, session, "", name, place, started=at, last=at, tree=tree, since=since)
        live = self._enter(tool, captured._replace(begun=hook.record.stored))
        wanted = hook.record.agent
        if wanted and wanted != name:
            why = "which cannot be used for this session" if is_name(wanted) else "which is not a valid agent name"
            live.captured = live.captured._replace(wanted=wanted)
            text = f"CLIA_AGENT is {wanted!r}, {why}; {name} is used instead"
            live.queue.append((ToolEvent(NOTE, text, f"no-name:{hook.record.id}", at=at), hook.record.id))
        return live

    def owned(self, hook: IncomingEvent) -> tuple[IncomingEvent, str]:
        """The event without transcripts of other sessions or projects, and the path of one that it named."""
        report, refused, is_own = hook.report, "", self.transcripts.is_own
        sub = next((event.sub for event in report.events if event.sub), "")
        path, of_sub = report.transcript, report.sub_transcript
        if path and is_own(hook.tool, path, report.session) is False:
            report, refused = report._replace(transcript=None), path
        if of_sub and is_own(hook.tool, of_sub, report.session, sub) is False:
            report, refused = report._replace(sub_transcript=None), of_sub
        return hook._replace(report=report), refused

    def is_empty(self, hook: IncomingEvent) -> bool:
        """Whether only the end of a session is known: some commands of tools report one without a conversation."""
        report = hook.report
        if any(event.what != END for event in report.events) or self.get(hook.tool, report.session, "") is not None:
            return False
        return not any(hook.tool.from_line(line) for line in first_lines(report.transcript or "", 1 << 20))

    def of_an_agent(self, hook: IncomingEvent, event: ToolEvent) -> ToolEvent:
        """The event, or a note if it is the end of an agent that the tool runs internally, of which hooks report nothing else."""
        if event.what != SUB_STOP or self.get(hook.tool, hook.report.session, event.sub) is not None:
            return event
        if os.path.isfile(hook.report.sub_transcript or "") and not is_internal(event.sub):
            return event  # only its start was missed
        return ToolEvent(NOTE, f"an internal agent ended: {event.text}".rstrip(": "), data={"event": "SubagentStop"})

    def _is_here(self, path: str) -> bool:
        """Whether a directory belongs to this repository or to one of its submodules. A missing directory may have belonged to
        it."""
        if not os.path.isabs(path) or not os.path.lexists(path):
            return os.path.isabs(path)
        while (top := find_repository(path)) is not None:
            if self._captures.top_of(top) is not None:
                return True
            if not os.path.isfile(os.path.join(top, ".git")):
                return False
            path = os.path.dirname(top)
        return False

    def _place(self, hook: IncomingEvent) -> str:
        where = hook.record.cwd
        for path in (hook.report.cwd, where):
            top = self._captures.top_of(path) if path and os.path.isabs(path) else None
            if top is not None:
                return top
        damaged = self._captures.place_of(hook.record.agent, where)
        if damaged is not None:
            return damaged  # a program of `clia run` removed its .git
        if os.path.isabs(where) and not os.path.lexists(where):
            return where  # the worktree was removed; its events can still be recorded
        fields = {"cwd": hook.report.cwd or where}
        raise InvalidInput("the event is not from a directory of this repository", code="foreign-event", fields=fields)

    def _joined(self, place: str, name: str) -> str | None:
        """An existing agent: the owner of the checkout, or the one named by CLIA_AGENT."""
        checkout = self._space.checkout_at(place)
        if checkout is not None and self._captures.is_ours(checkout.agent):
            return checkout.agent
        return name if is_name(name) and self._at_work(name) else None

    def _named(self, tool: ToolReader, session: str, wanted_name: str) -> str:
        own = [f"{tool.prefix}-{_brief(session, size)}" for size in (8, 16)] + [f"{tool.prefix}-{digest(session)}"]
        for name in ([wanted_name] if is_name(wanted_name) else []) + own:
            if self._usable(name, tool.name, session):
                return name
        raise Conflict(f"no name is left for the session {session}", code="no-name-left", fields={"session": session})

    def _usable(self, name: str, tool: str, session: str, sub: str = "") -> bool:
        return self._captures.is_free(name) or self._captures.spawned_for(name, tool, session, sub)

    def _spawn(self, name: str, hook: IncomingEvent, place: str, forked: CapturedSession | None, event: ToolEvent) -> None:
        tool, session = hook.tool, hook.report.session
        meta = {"tool": tool.name, "session": session}
        if "model" in event.data:
            meta["model"] = event.data["model"]
        if forked is not None:
            meta["forked"] = forked.session
        briefing = Briefing(f"{tool.name} session {session[:8]}", meta=meta)
        at = self._captures.head_at(place) if forked is None else None
        parent = None if forked is None else forked.agent
        directory = self._directory(hook, place)
        slug = self._identity(hook.record.agent, directory)
        self._space.local.spawn_captured(name, briefing, directory, at, slug=slug, parent=parent)
        self.spawned += 1

    def _identity(self, wanted: str, directory: str) -> str | None:
        """The identity of a session: the one that CLIA_AGENT names, else that of the configuration."""
        local = self._space.local
        return wanted if local.has_identity(wanted, directory) else local.config.capture.identity

    def _directory(self, hook: IncomingEvent | None, place: str) -> str:
        """The directory that a session runs in, if it is in the worktree and still there."""
        for path in () if hook is None else (hook.report.cwd, hook.record.cwd):
            if path and os.path.isabs(path) and os.path.isdir(path) and self._captures.top_of(path) == place:
                return path
        return place if os.path.isdir(place) else os.path.dirname(os.path.dirname(self._space.home))

    def _forked_from(self, tool: ToolReader, session: str, path: str, at: str) -> tuple[CapturedSession | None, str]:
        """The session that this one was forked from, and the fork's time if the copied lines do not show it."""
        since, uuid = copied_lines(path)
        if uuid:
            return self._with_line(tool, session, uuid), since
        for line in first_lines(path, 1 << 20)[:50]:
            claude, codex = line.get("forkedFrom"), line.get("payload")
            for origin, name in ((claude, "sessionId"), (codex, "forked_from_id")):
                other = origin.get(name) if isinstance(origin, dict) else None
                if isinstance(other, str) and other != session:
                    since = (time_field(line, "timestamp") or at) if origin is codex else ""
                    captured = self._captures.get(tool.name, other)
                    if captured is not None and captured.agent in self._space.agents():
                        return captured, since
        return None, since

    def _with_line(self, tool: ToolReader, session: str, uuid: str) -> CapturedSession | None:
        """The newest other session whose transcript has a line."""
        agents, needle = set(self._space.agents()), f'"{uuid}"'.encode()
        others = [row for row in self._captures.sessions() if row.tool == tool.name and not row.sub and row.session != session]
        for captured in sorted(others, key=lambda row: row.last, reverse=True):
            if captured.agent in agents and needle in (read_bytes(captured.transcript, 0) or b""):
                return captured
        return None

    def read_transcript(self, live: IngestedSession, upto: str | None) -> TranscriptEvents:
        """Continue reading the transcript of a session or sub-agent, if it is its own."""
        captured, cursor = live.captured, cursor_of(live.captured)
        if not captured.transcript or not self.transcripts.is_own(live.tool, captured.transcript, captured.session, captured.sub):
            return TranscriptEvents((), cursor)
        reading = read_on(captured.transcript, cursor, live.parser, upto, captured.since)
        if reading.events and not captured.sub and not cursor.begun:
            # Checked after reading: the tool may still be writing the lines that it copies into a fork.
            live.captured = captured = self._with_origin(live)
            reading = read_on(captured.transcript, cursor, live.parser, upto, captured.since)
        return reading

    def _with_origin(self, live: IngestedSession) -> CapturedSession:
        """A session whose conversation begins: a fork skips copied lines, and is related to its origin."""
        captured = live.captured
        forked, since = self._forked_from(live.tool, captured.session, captured.transcript, captured.started)
        if forked is not None and forked.agent != captured.agent:
            self._space.relate(captured.agent, FORKED, forked.agent)
        return captured._replace(since=captured.since or since)

    def add_entries(self, live: IngestedSession, entries: Sequence[dict[str, Any]]) -> int:
        """Append entries to the trace; returns how many are new. An invalid entry is replaced by a note."""
        try:
            return self._space.traces.add_once(live.agent, entries)
        except InvalidInput:
            if len(entries) == 1:
                kind, key = entries[0]["kind"], digest(str(entries[0]["key"]))
                note = {"kind": NOTE, "text": f"a {kind} could not be recorded", "key": f"odd:{key}"}
                return self._space.traces.add_once(live.agent, [note])
        return sum(self.add_entries(live, [entry]) for entry in entries)

    def begin_sub(self, session: IngestedSession, sub: str, kind: str, hook: IncomingEvent | None) -> IngestedSession:
        """Create a sub-agent, at the head of the agent that started it."""
        session.has_subs = True
        tool, parent = session.tool, session.captured
        path = hook.report.sub_transcript if hook is not None else None
        kind = next(filter(None, map(tool.sub_label, first_lines(path or "", 1 << 16)[:1])), kind)
        kind = "".join(char for char in self._captures.clean(kind) if char.isprintable())[:60]
        label = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "agent"
        start = f"{parent.agent[:50].rstrip('-')}-{label[:20].rstrip('-')}"
        names = [f"{start}-{_brief(sub, 6)}", f"{start}-{_brief(sub, 12)}", f"{start}-{digest(sub)}"]
        # Prefer an agent already spawned for it under another name: not every source knows the sub-agent's type.
        owner = (tool.name, parent.session, sub)
        spawned = [agent for agent in self._space.relations.sub_agents(parent.agent) if self._captures.spawned_for(agent, *owner)]
        name = next((agent for agent in (*spawned, *names) if self._usable(agent, *owner)), None)
        if name is None:
            raise Conflict(f"no name is left for the sub-agent {sub}", code="no-name-left", fields={"sub": sub})
        place = parent.place if hook is None else self._place(hook)
        if self._captures.is_free(name):
            meta = {"tool": tool.name, "session": parent.session, "sub": sub, **({"kind": kind} if kind else {})}
            briefing = Briefing(f"{kind or 'sub-agent'} of {parent.agent}", meta=meta)
            head = self._captures.head_at(place) if place != parent.place else None
            directory = self._directory(hook, place)
            self._space.local.spawn_captured(name, briefing, directory, head, slug=kind or None, parent=parent.agent)
            self.spawned_subs += 1
        at = hook.record.at if hook is not None else parent.last
        others = [other for other in self.open_subs(session, place) if other.captured.sub != sub]
        self.share(others)
        captured = CapturedSession(*owner, name, place, started=at, last=at, tree=self._captures.tree_of(name))
        folder, prefix = tool.sub_folder(parent.transcript, parent.session)
        transcript = f"{folder}/{prefix}{sub}.jsonl" if folder else ""
        begun = hook.record.stored if hook is not None else parent.begun
        self._captures.looks.inherit(captured, parent)
        return self._enter(tool, captured._replace(transcript=transcript, shared=bool(others) or hook is None, begun=begun))

    def place_of_session(self, sub: IngestedSession) -> str:
        """The directory of the session that started a sub-agent."""
        session = self.get(sub.tool, sub.captured.session, "")
        return sub.captured.place if session is None else session.captured.place

    def unfinished(self, session: IngestedSession) -> list[IngestedSession]:
        """Other sessions in the same directory whose turn has not ended: they are working, or were killed."""
        agents, place = set(self._space.agents()), session.captured.place
        rows = [row for row in self._captures.sessions() if row.place == place and not row.sub and row.agent in agents]
        begun = [row for row in rows if row.turn or row.key in self._lives]
        lives = (self.get(tool, row.session, "") for row in begun if (tool := TOOLS.get(row.tool)) is not None)
        others = (live for live in lives if live is not None and live.agent != session.agent)
        return [live for live in others if live.captured.turn or live.queue]

    def open_subs(self, session: IngestedSession, place: str) -> list[IngestedSession]:
        """The sub-agents of a session that work in a directory now."""
        if session.has_subs is None:
            session.has_subs = bool(self._captures.subs(session.tool.name, session.captured.session))
        captured = self.subs(session.captured) if session.has_subs else []
        lives = (self.get(session.tool, sub.session, sub.sub) for sub in captured if sub.open and sub.place == place)
        return [live for live in lives if live is not None]

    def share(self, subs: Sequence[IngestedSession]) -> None:
        """Note that others work in the directory of these sub-agents at the same time."""
        for live in subs:
            if not live.captured.shared:
                live.captured = live.captured._replace(shared=True)
                self._captures.keep(live.captured)

    def subs(self, captured: CapturedSession) -> list[CapturedSession]:
        """The sub-agents of a session, with the state of this ingest."""
        stored = self._captures.subs(captured.tool, captured.session)
        return [self._lives[sub.key].captured if sub.key in self._lives else sub for sub in stored]


def moved(captured: CapturedSession, transcript: str) -> CapturedSession:
    """The session, with its transcript moved to another file."""
    cursor = restart(cursor_of(captured), read_bytes(transcript, 0, 1 << 20) or b"")
    return captured._replace(transcript=transcript, standing=cursor.to_json())


def cursor_of(captured: CapturedSession) -> TranscriptCursor:
    return TranscriptCursor.from_json(captured.standing)


def keyed_events(live: IngestedSession) -> list[tuple[ToolEvent, str]]:
    """The queued hook events of a session with the keys that the transcript gives them."""
    captured = live.captured
    if captured.transcript and os.path.isfile(captured.transcript):
        counts = cursor_of(captured).counts
        keyed = ((event, hook_key(event, counts, record)) for event, record in live.queue)
        return [(event, key_of(live, event, key)) for event, key in keyed if key is not None]
    reports = {text: list(records) for text, records in captured.heard.items()}
    events: list[tuple[ToolEvent, str]] = []
    for event, record in live.queue:
        key = hook_key(event, {event.counted or "": nth_report(reports, event.counted, record)}, record)
        events += [] if key is None else [(event, key_of(live, event, key))]
    live.captured = captured._replace(heard=reports)
    return events


def _brief(name: str, size: int) -> str:
    """A short form of an id. A version 7 UUID starts with the time, so its end is used."""
    plain = "".join(char for char in name.lower() if char.isascii() and char.isalnum()) or digest(name)
    return plain[-size:] if len(plain) == 32 and plain[12] == "7" else plain[:size]
