"""Recording the events of one ingest as agents, trace entries, sub-agents, commits and merges.

Invariant: recording is idempotent. An entry is identified by its key, an agent by its record, a commit by the event that ended the
turn, and a repeated merge is up to date; so an interrupted ingest simply starts again. A session's events stay in order: after
one that cannot be recorded, the rest waits. Working directories are only read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from clia.capture import transcripts
from clia.capture.agents import IngestedSessions, cursor_of, keyed_events, moved
from clia.capture.changes.file_rules import not_recorded
from clia.capture.changes.git_activity import is_here, looked, noticed
from clia.capture.changes.late_changes import with_written
from clia.capture.entries import IngestCounts, combined, entry_of, key_of, not_read, not_taken
from clia.capture.events import (
    BOUNDS,
    CALL,
    END,
    NOTE,
    PROMPT,
    SAID,
    START,
    SUB_START,
    SUB_STOP,
    TURN_END,
    ToolEvent,
    digest,
    is_id,
    is_internal,
    is_reading,
    time_field,
)
from clia.capture.later_calls import calls_in_transcript, moment_of, named_files
from clia.capture.service import MARK, DirectoryChange, paths_inside
from clia.capture.turns import heard, subject, turn_after, unfinished_subject, watched
from clia.errors import CliaError, InvalidInput, NotFound
from clia.space.attribution.attributions import HEAD
from clia.space.core import CommitText
from clia.space.model import Conflicts, Merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.capture.agents import IncomingEvent, IngestedSession
    from clia.capture.spool_reader import SpoolRecord
    from clia.facade.space import Space

OFFERS = "offers-merge"
"""The relation from a sub-agent to its starter while its work is not merged."""
_BODY = 4000


class Recorder:
    def __init__(self, space: Space, remove: Callable[[SpoolRecord], None]) -> None:
        self._space = space
        self._captures = space.captures
        self._remove = remove
        self.lives = IngestedSessions(space)
        self._counts = dict.fromkeys(IngestCounts._fields, 0)

    @property
    def done(self) -> IngestCounts:
        return IngestCounts(**self._counts | {"agents": self.lives.spawned, "sub_agents": self.lives.spawned_subs})

    # Events, in order

    def take(self, hook: IncomingEvent) -> None:
        """Record an event, or queue it until the next start or end."""
        queued: IngestedSession | None = None
        hook, refused = self.lives.owned(hook)
        for event in map(partial(self.lives.of_an_agent, hook), hook.report.events if not self.lives.is_empty(hook) else ()):
            live = self._live(hook, event)
            if event.what == CALL and not event.sub and not is_reading(event.data.get("tool")):
                self.lives.share(self.lives.open_subs(live, live.captured.place))
            live.captured = noticed(live.captured, event, hook.record, self._captures.commit_of)
            live.captured = watched(live.captured, event, hook.record.commit if is_here(live.captured, hook.record) else "")
            if refused and live.captured.refused != refused:
                live.captured = live.captured._replace(refused=refused)
                self._queue(live, not_read(refused), hook.record)
            if event.what in BOUNDS:
                self._bound(hook, live, event)
                queued = None
            else:
                if event.what == PROMPT and not event.sub:
                    self._prompted(hook, live)
                self._queue(live, event, hook.record)
                live.captured = heard(live.captured, hook.record)
                queued = live
        self._counts["events"] += 1
        if queued is None:
            self._remove(hook.record)
        else:
            queued.records.append(hook.record)

    def _bound(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> None:
        acts = {
            START: self._started,
            SUB_START: self._sub_started,
            SUB_STOP: self._sub_stopped,
            TURN_END: self._turn_ended,
            END: self._ended,
        }
        self.flush(live, hook.record.at)
        acts[event.what](hook, live, event)
        live.captured = heard(live.captured, hook.record)
        self._captures.keep(live.captured)
        self._captures.reached("event-recorded")

    def _queue(self, live: IngestedSession, event: ToolEvent, record: SpoolRecord) -> None:
        live.queue.append((event._replace(at=event.at or record.at), record.id))
        live.captured = live.captured._replace(last=max(live.captured.last, record.at))

    def _trace_now(self, live: IngestedSession, event: ToolEvent, record: SpoolRecord) -> None:
        self._queue(live, event, record)
        self.flush(live, record.at)

    # The agent of an event

    def _live(self, hook: IncomingEvent, event: ToolEvent) -> IngestedSession:
        session = self.lives.session(hook, event)
        if not event.sub:
            return session
        live = self.lives.get(hook.tool, hook.report.session, event.sub)
        if live is None:
            clean = False
            if event.what == SUB_START and not any(sub.open for sub in self.lives.subs(session.captured)):
                self.flush(session, hook.record.at)
                self._accept(session)  # first, or the work of other sub-agents would count as the session's
                # Existing changes are not the sub-agent's work; if they cannot be committed, only files that it names are.
                clean = self._commit(hook, session, "the files when a sub-agent started", trace_alone=False)
            live = self.lives.begin_sub(session, event.sub, hook.report.sub_kind, hook)
            if live.captured.place == session.captured.place and (not clean or session.captured.writing):
                live.captured = live.captured._replace(shared=True)
                self._captures.keep(live.captured)
        elif event.what in (SUB_START, CALL) and not live.captured.open:  # it continues, and others have worked since
            live.captured = live.captured._replace(open=True, shared=True)
        self.lives.follow(live, hook)
        path = hook.report.sub_transcript
        if path and path != live.captured.transcript:
            live.captured = moved(live.captured, path)
        return live

    # Starts and ends

    def _started(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> None:
        live.captured = live.captured._replace(open=True)
        if event.data.get("source") == "compact":
            self._trace_now(live, event._replace(what=NOTE), hook.record)
            return
        # Changes from before the session or after its last turn are not its work; changes of an interrupted turn are.
        self._accept(live)
        if live.captured.turn:
            self._commit(hook, live, "left when the session was interrupted", trace_alone=False, broken_off=True)
        elif self._captures.is_running(live.agent):
            self._commit(hook, live, "the files when the session started", trace_alone=False)  # they are the program's
        else:
            self._record_baseline(hook, live, "the files when the session started")
        self._trace_now(live, event._replace(what=NOTE), hook.record)

    def _prompted(self, hook: IncomingEvent, live: IngestedSession) -> None:
        """Commit what people changed since the last turn, or what an interrupted one left, if this prompt starts the next one."""
        prompts = [self._captures.clean(event.text)[:_BODY] for event, _ in live.queue if event.what == PROMPT]
        prompt = prompts[-1] if prompts else live.captured.prompt
        if live.captured.turn or any(event.what in (PROMPT, CALL) for event, _ in live.queue):
            self.flush(live, hook.record.at)  # the transcript may have this prompt, too
        if live.captured.turn == "interrupted":
            self._accept(live)
            self._commit(hook, live, unfinished_subject(live.captured._replace(prompt=prompt)))
            live.captured = live.captured._replace(turn="")
            return
        if not live.captured.turn and not self._captures.is_running(live.agent):
            self._record_baseline(hook, live, "the files when the turn started")

    def _record_baseline(self, hook: IncomingEvent, live: IngestedSession, message: str) -> None:
        """Commit the files as the session found them. Those of its running sub-agents are left to them."""
        for other in self.lives.unfinished(live):
            self._commit_unfinished(hook, other)
        change = self._left(live, self._found(hook, live), leave=True)
        try:
            self._captures.record_baseline(live.captured, message, change)
        except InvalidInput as err:
            self._trace_now(live, not_taken(hook, err), hook.record)
            return
        self._captures.reached("baseline-recorded")
        if change.now is not None:
            self._looked(live, change.now)

    def _commit_unfinished(self, hook: IncomingEvent, live: IngestedSession) -> None:
        """Commit the files that another session's open turn named: it may have been killed, and they are not the person's."""
        self.flush(live, hook.record.at)
        now = self._look(hook, live) if live.captured.paths else None
        if now is not None:
            mark = {"tool": live.tool.name, "session": live.captured.session, "event": hook.record.id}
            text = CommitText(subject(live.captured.prompt, "an unfinished turn"), {MARK: mark})
            change = self._captures.without_late(live.captured, DirectoryChange(now, live.captured.tree, live.captured.paths))
            commit = self._captures.record(live.captured, text, change, trace_alone=False)
            self._counts["commits"] += commit is not None
            live.captured = live.captured._replace(paths=(), wrote={})  # later changes of them may be a person's
            self._captures.keep(live.captured)

    def _sub_started(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> None:
        session = self.lives.session(hook, event)
        self._trace_now(session, ToolEvent(NOTE, f"sub-agent {live.agent} started", f"sub-start:{digest(event.sub)}"), hook.record)
        self._captures.keep(session.captured)

    def _sub_stopped(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> None:
        session = self.lives.session(hook, event)
        self._said(hook, live, event)
        self._finish_sub(hook, session, live)
        self._trace_now(session, ToolEvent(NOTE, f"sub-agent {live.agent} ended", f"sub-stop:{hook.record.id}"), hook.record)
        self._captures.keep(session.captured)

    def _finish_sub(self, hook: IncomingEvent, session: IngestedSession, live: IngestedSession) -> None:
        """Commit and offer a sub-agent's work. If others worked in the same directory, only the files it named."""
        # Files that the session wrote and has not committed contain its lines, too.
        named = [path for path in live.captured.paths if path not in session.captured.paths]
        self._commit(hook, live, subject(live.captured.prompt, f"{live.agent}: work done"), named=named)
        offered = self._captures.offers(live.agent)
        if offered:
            self._space.relate(live.agent, OFFERS, session.agent)
        live.captured = live.captured._replace(open=False, offered=offered, paths=(), wrote={})

    def _turn_ended(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> None:
        message = self._said(hook, live, event)
        running = event.data.get("running")
        others = self.lives.open_subs(live, live.captured.place)
        for sub in others:
            if running is not None and sub.captured.sub not in running:  # its end was not reported
                self._close_sub(hook, live, sub)
        self._accept(live)
        failed = "model error: " if event.data.get("error") else ""
        text = subject(f"{failed}{live.captured.prompt}", f"{failed}a turn")
        body = self._captures.clean(message).strip()[:_BODY]
        self._commit(hook, live, f"{text}\n\n{body}" if body else text, leave=running is not None)
        live.captured = live.captured._replace(turn="")

    def _ended(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> None:
        self._discover(live, hook.record.at)
        for captured in self.lives.subs(live.captured):
            sub = self.lives.get(hook.tool, captured.session, captured.sub) if captured.open else None
            if sub is not None:
                self._close_sub(hook, live, sub)
        self._accept(live)
        text = f"the end of the session: {self._captures.clean(event.text)}"
        self._commit(hook, live, unfinished_subject(live.captured) if live.captured.turn else text)
        live.captured = live.captured._replace(open=False, turn="")

    def _close_sub(self, hook: IncomingEvent, session: IngestedSession, sub: IngestedSession) -> None:
        self.flush(sub, hook.record.at)
        self._finish_sub(hook, session, sub)
        self._captures.keep(sub.captured)

    def _said(self, hook: IncomingEvent, live: IngestedSession, event: ToolEvent) -> str:
        """Trace the last message that a hook reports, unless the transcript has it."""
        if event.text.strip():
            self._trace_now(live, ToolEvent(SAID, event.text, counted=event.counted), hook.record)
        return event.text

    def _accept(self, live: IngestedSession) -> None:
        """Merge the work that sub-agents offer, if it merges: the directory already has it.

        The work of a sub-agent in its own worktree stays offered: the tool may merge or discard it.
        """
        for captured in self.lives.subs(live.captured):
            is_here = captured.place == live.captured.place
            ready = is_here and captured.offered and captured.agent in self._space.agents()
            sub = self.lives.get(live.tool, captured.session, captured.sub) if ready else None
            if sub is not None and self._merge(live.agent, sub.agent):
                with suppress(NotFound):
                    self._space.relations.retract(sub.agent, OFFERS, live.agent)
                self._captures.merged(live.captured, sub.captured)
                sub.captured = sub.captured._replace(offered=False)
                self._captures.keep(sub.captured)

    def _merge(self, into: str, from_: str) -> bool:
        """Whether everything is merged. A refusal is recorded once, not after every turn."""
        refused = self._space.history.last_refused(into, from_) is not None
        if refused and self._space.history.conflicts(into, from_) is not None:
            return False
        result = self._space.merge(into, from_, message=f"merge the work of {from_}")
        self._counts["merges"] += isinstance(result, Merged)
        return not isinstance(result, Conflicts)

    def _commit(
        self,
        hook: IncomingEvent,
        live: IngestedSession,
        message: str,
        *,
        named: Sequence[str] | None = None,
        leave: bool = False,
        trace_alone: bool = True,
        broken_off: bool = False,
    ) -> bool:
        """Commit for the agent, unless this event was committed before; the trace alone if the files cannot be read.

        ``named``: commit only these files, because others may have changed the rest. ``leave``: the tool said which sub-agents
        still run; one that works alone in the directory made all changes. ``broken_off``: the tool may have been killed, and
        people may have changed files since. Returns whether the whole directory is committed.
        """
        if self._captures.has_recorded(live.agent, hook.record.id):
            return True
        mark = {"tool": hook.tool.name, "session": hook.report.session, "event": hook.record.id}
        text = CommitText(message, {MARK: mark | ({HEAD: live.captured.base} if live.captured.base else {})})
        captured, change = live.captured, self._left(live, self._seen(hook, live, named), leave=leave)
        of_turn = self._captures.without_late(captured, change) if broken_off else change
        try:
            if live.look is not None:
                self._captures.record_found_lines(captured, live.look, of_turn)
            commit = self._captures.record(captured, text, of_turn, trace_alone=trace_alone)
            if of_turn.now is not None and of_turn != change:
                later = change._replace(before=of_turn.now)
                self._captures.record_baseline(captured, "the files after the session was broken off", later)
        except InvalidInput as err:
            self._trace_now(live, not_taken(hook, err), hook.record)
            commit = self._captures.record(captured, text, DirectoryChange(None))
        self._captures.reached("turn-recorded")
        self._counts["commits"] += commit is not None
        live.captured = live.captured._replace(moves=(), git=live.captured.git.committed())
        if change.now is None or change.only is not None:
            return False
        self._looked(live, change.now)
        return True

    def _looked(self, live: IngestedSession, tree: str) -> None:
        """The directory was committed as the last look saw it."""
        if live.look is not None:
            self._captures.looks.keep(live.captured, live.look)
        live.captured = looked(live.captured, tree)

    def _found(self, hook: IncomingEvent, live: IngestedSession) -> DirectoryChange:
        """The directory as a session or turn found it, without the files that it may have changed since."""
        is_known = self._captures.looks.has_found(live.captured)
        is_due = named_files(hook.later_calls()) is not None and not live.captured.shared
        now = self._look(hook, live, as_found=True) if is_due or not is_known else None
        # Again, after reading the directory: later calls do not matter.
        named = None if now is None else named_files([*hook.later_calls(), *calls_in_transcript(live, hook.record.at)])
        is_certain = is_due and named is not None
        if live.look is not None and (is_certain or not is_known):  # now: if this ingest is killed, the next one may be late
            self._captures.looks.keep(live.captured, live.look)
        if now is None or named is None or not is_certain:
            return DirectoryChange(None)  # the turn commits them
        return self._captures.without(DirectoryChange(now, live.captured.tree), paths_inside(live.captured.place, named))

    def _seen(self, hook: IncomingEvent, live: IngestedSession, named: Sequence[str] | None) -> DirectoryChange:
        """The state of the directory, limited to this agent's work."""
        now = self._look(hook, live)
        if now is None:
            return DirectoryChange(None)
        # Checked after reading the directory: later calls do not matter. A sub-agent in its own worktree is always alone there.
        apart = bool(live.captured.sub) and live.captured.place != self.lives.place_of_session(live)
        later = [*hook.later_calls(), *calls_in_transcript(live, hook.record.at)]
        change = DirectoryChange(now, live.captured.tree)
        if apart or not (live.captured.shared or later):
            return change
        if named is not None:
            others = set(paths_inside(live.captured.place, [path for call in hook.later_calls() for path in call.paths]))
            return change._replace(only=tuple(path for path in named if path not in others))
        named_later = None if live.captured.shared else named_files(later)
        written = paths_inside(live.captured.place, named_later or ())
        if named_later is None or {*written} & {*live.captured.paths}:
            return DirectoryChange(None)  # the next end of a turn commits them
        return self._captures.without(change, written)

    def _left(self, live: IngestedSession, change: DirectoryChange, *, leave: bool) -> DirectoryChange:
        """A change of a session without that of its running sub-agents, which commit it when they end."""
        subs = self.lives.open_subs(live, live.captured.place) if change.now is not None and not live.captured.sub else []
        if not subs:
            return change
        if leave and not any(sub.captured.shared for sub in subs):
            return DirectoryChange(None)
        for sub in subs:
            self.flush(sub, live.captured.last or None)
        own = {*live.captured.paths}
        paths = [path for sub in subs for path in sub.captured.paths if path not in own]
        return self._captures.without(change, paths)

    def _look(self, hook: IncomingEvent, live: IngestedSession, *, as_found: bool = False) -> str | None:
        live.look = None
        if self._captures.top_of(live.captured.place) is None:
            return None  # the directory is gone
        try:
            moment = moment_of(hook)
            live.look = self._captures.looks.look(live.captured, moment, as_found=as_found)
            if as_found and not moment.is_past and hook.is_past():  # the session may have made files while they were read
                live.look = self._captures.looks.look(live.captured, moment_of(hook), as_found=True)
        except CliaError as err:  # a missing filter: record the trace anyway
            self._trace_now(live, not_taken(hook, err, "read", "not-looked"), hook.record)
            return None
        left_out = live.look.unrecorded(live.captured.left_out)
        self._counts["left_out"] += len(left_out.items() - live.captured.left_out.items())
        live.captured = live.captured._replace(left_out=left_out)
        if live.look.left_out:
            self._trace_now(live, not_recorded(live.look.left_out), hook.record)
        return live.look.tree

    # Entries

    def flush(self, live: IngestedSession, upto: str | None) -> None:
        """Record the queue and the transcript's events up to a time, ordered by time."""
        before = live.captured
        try:
            self._trace(live, upto)
            if live.queue or live.captured != before:
                self._captures.keep(live.captured)
        except BaseException:
            live.captured = before  # keep the old cursor: nothing was recorded
            raise
        live.queue.clear()
        for record in live.records:
            self._remove(record)
        live.records.clear()

    def _trace(self, live: IngestedSession, upto: str | None) -> None:
        read, subs = self._transcribed(live, upto)
        for sub in subs:  # before saving the cursor
            self.flush(sub, upto)
        events = [(event, key_of(live, event, event.key)) for event in read]
        keyed = keyed_events(live)
        # Each entry stays at its place in time; for the same key both sources count.
        merged = sorted([*keyed, *events], key=lambda pair: pair[0].at or "")
        by_hooks, by_lines = ({key: event for event, key in reversed(pairs)} for pairs in (keyed, events))
        entries = [entry_of(combined(by_lines.get(key, event), by_hooks.get(key)), key) for event, key in merged]
        if entries:
            self._captures.reached("entries-made")
            self._counts["entries"] += self.lives.add_entries(live, entries)
        self._captures.reached("entries-recorded")
        self._learn(live, read, [event for event, _ in keyed])

    def _learn(self, live: IngestedSession, read: Sequence[ToolEvent], reported: Sequence[ToolEvent]) -> None:
        """Update the current prompt and written files. Hook events are newer than transcript lines."""
        prompts = [event.text for events in (read, reported) for event in events if event.what == PROMPT]
        captured, turn = live.captured, live.captured.turn
        calls = [event for event in (*read, *reported) if event.what == CALL]
        paths = [path for call in calls for path in paths_inside(captured.place, call.paths)]
        if any(event.what in (PROMPT, CALL) for event in reported):  # a notification starts a turn without a prompt
            turn = "open"
        wrote = captured.wrote
        for call in calls:
            if call.texts:
                wrote = with_written(wrote, paths_inside(captured.place, call.paths), call.texts)
        live.captured = captured._replace(
            wrote=wrote,
            turn=turn_after(turn, read),
            prompt=self._captures.clean(prompts[-1])[:_BODY] if prompts else captured.prompt,
            paths=tuple(dict.fromkeys((*captured.paths, *paths))),
        )

    def _transcribed(self, live: IngestedSession, upto: str | None) -> tuple[list[ToolEvent], list[IngestedSession]]:
        """The agent's new events in its transcript, and the sub-agents that have new events in it too."""
        reading = self.lives.read_transcript(live, upto)
        self._counts["unreadable"] += reading.unreadable
        live.captured = captured = live.captured._replace(standing=reading.cursor.to_json())
        # Older versions write a sub-agent's lines into the session's transcript.
        subs: dict[str, IngestedSession] = {}
        for event in reading.events if not captured.sub else ():
            if event.sub:
                sub = self.lives.get(live.tool, captured.session, event.sub) or self.lives.begin_sub(live, event.sub, "", None)
                sub.queue.append((event, event.key or ""))
                subs[event.sub] = sub
        return [event for event in reading.events if event.sub in ("", captured.sub)], list(subs.values())

    # Sessions without new events

    def catch_up(self, live: IngestedSession) -> None:
        """Read a transcript to its end, and find sub-agents that no hook reported."""
        offset = -1
        while offset < (offset := cursor_of(live.captured).offset):
            self.flush(live, None)
        if live.captured.open:
            self._discover(live, None)
            return
        mark = {MARK: {"tool": live.tool.name, "session": live.captured.session}}
        text = CommitText("transcript entries after the end of the session", mark)
        self._counts["commits"] += self._captures.record(live.captured, text, DirectoryChange(None)) is not None

    def _discover(self, live: IngestedSession, upto: str | None) -> None:
        """Find sub-agents that only have a transcript; those that started after ``upto`` are left for later."""
        captured = live.captured
        folder, prefix = live.tool.sub_folder(captured.transcript, captured.session) if not captured.sub else ("", "")
        for name in transcripts.list_folder(folder) if folder else ():
            sub = name.removeprefix(prefix).removesuffix(".jsonl")
            path = os.path.join(folder, name)
            is_known = is_internal(sub) or self.lives.get(live.tool, captured.session, sub) is not None
            if is_known or name != f"{prefix}{sub}.jsonl" or not is_id(sub):
                continue
            begun = next((time_field(line, "timestamp") for line in transcripts.first_lines(path, 1 << 16)), None)
            is_due = upto is None or begun is None or begun <= upto
            if is_due and self.lives.transcripts.is_own(live.tool, path, captured.session, sub):
                self.flush(self.lives.begin_sub(live, sub, "", None), upto)
