"""Agreement between the store and git about an agent's sessions.

Git has the decisions (commits), the state of the session at each commit (checkpoints) and the ends of sessions (events). The store
has the answers. An older copy of the store lacks decisions that git has; a branch that was reset lacks decisions of the store. Then
people would be asked again, and a second, contradictory decision would be recorded.

Invariant: a session continues only if the store has every decision on the agent's branch and is at least at the newest checkpoint
there, every decision in the store is on the branch, and git has no end of the session that the store does not know. The store keeps
the head up to which this was so (``known/``), so that usually two refs are compared. Comparing changes nothing.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError, Conflict, CorruptJournal
from clia.sessions import records
from clia.sessions.checkpoints import known_head, session_counts, session_number
from clia.sessions.model import question_in
from clia.sessions.records import ASK, COUNTS, ENDED, LIVE, OVER
from clia.sessions.request_rows import complete_rows
from clia.space.events import read_events
from clia.space.model import agent_commit
from clia.space.traces import stream as trace_stream
from clia.store.interface import FOREIGN, KNOWN
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.typed_objects import parse
from clia.values.types import DECISION, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.sessions.checkpoints import CheckpointedSession, Checkpoints, KnownHead
    from clia.sessions.records import Journal, Resumed
    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.space.verification import Finding
    from clia.store.interface import StreamEntry, Transaction

BEHIND, MISSING, DIFFERS = "session-behind", "decision-missing", "session-differs"
LOST, NUMBERS, BOUND, UNENDED = "lost-session", "row-differs", "trace-bound", "end-missing"
ENDED_EVENT = "session-ended"
_SHORT = 12


class BranchDecision(NamedTuple):
    """A decision on an agent's branch."""

    cid: str
    session: str
    call: int
    value: Any
    commit: AgentCommit

    def is_of(self, resume: Resumed) -> bool:
        """Whether an answer in the store is this decision, or its former commit from before a rebase."""
        return resume.call == self.call and (resume.decision == self.cid or _same(resume.value, self.value))


class BranchSessions(NamedTuple):
    """What git has of an agent's sessions, on its branch and in its events."""

    head: str
    decisions: tuple[BranchDecision, ...]  # oldest first
    newest: Mapping[str, str]  # the newest commit on the branch with a checkpoint of each session
    over: Mapping[str, Mapping[str, Any]]  # the ends of sessions
    reopened: Mapping[str, Mapping[str, Any]]  # the events of sessions that continued after their end

    def of(self, session: str) -> list[BranchDecision]:
        return [decision for decision in self.decisions if decision.session == session]


class StoredSession(NamedTuple):
    """A session that is live in the store."""

    session: str
    row: Mapping[str, Any]
    entries: Sequence[StreamEntry]
    journal: Journal

    @property
    def has_ended(self) -> bool:
        """Whether the store knows of an end, from before the session was reopened."""
        return any(entry.body.get("event") == OVER for entry in self.entries)


class StoredSessions(NamedTuple):
    """What the store has of an agent's sessions."""

    live: list[StoredSession]
    ended: list[str]
    all: set[str]
    counts: Mapping[str, int]


class SessionDifference(NamedTuple):
    """A session about which store and git do not agree; without a session: the agent's trace."""

    code: str
    agent: str
    session: str
    message: str  # one sentence
    hints: tuple[str, ...] = ()

    def error(self) -> Conflict:
        which = f"session {self.session} of {self.agent!r} is frozen" if self.session else f"sessions of {self.agent!r} are frozen"
        hints = [*self.hints, "compare store and git, and repair the session from git: clia doctor --repair"]
        fields = {"agent": self.agent, "session": self.session}
        return Conflict(f"{which}: {self.message}", code=self.code, hints=hints, fields=fields)


class Agreement(NamedTuple):
    core: Core
    checkpoints: Checkpoints

    def require(self, name: str, now: KnownHead, known: KnownHead | None, session: str | None) -> bool:
        """Raise the difference about a session, or about any of the agent's; False if only others differ.

        ``now``: the agent's refs; ``known``: those that the store knows.
        """
        if not self._is_news(name, now, known):
            return True
        differences = [other for other in self.differences(name) if other.code != UNENDED]
        concerned = [other for other in differences if session is None or other.session in ("", session)]
        if concerned:
            raise concerned[-1].error()  # about a session rather than the trace
        return not differences

    def _is_news(self, name: str, now: KnownHead, known: KnownHead | None) -> bool:
        """Whether git may have something about sessions that the store did not know when it was last compared."""
        core, (head, events) = self.core, now
        if known is None:
            return True
        if known.head != head:
            if core.objects.kind(known.head) != "commit" and core.refs.shared:
                return False  # another machine made it, and the hub is away
            newer = self._newer(name, head, known.head)
            if newer is None or any(commit.kind == DECISION or self._has_note(name, commit.cid) for commit in newer):
                return True
        if events == known.events or events is None:
            return events != known.events
        if known.events is not None and not core.contains(events, known.events):
            return True
        return any(_is_of_session(event.body) for event in read_events(core, events, known.events))

    def _newer(self, name: str, head: str, known: str) -> list[AgentCommit] | None:
        """The agent's commits since a known one; None if that is not on the branch."""
        newer: list[AgentCommit] = []
        for commit in map(agent_commit, self.core.graph.first_parents(head)):
            if commit.cid == known:
                return newer
            if commit.agent == name:
                newer.append(commit)
                if commit.kind == SPAWN:
                    break
        return None

    def _has_note(self, name: str, commit: str) -> bool:
        return any(self.core.notes.get(ref, commit) is not None for ref in (names.sessions(name), names.traces(name)))

    # Comparing

    def is_foreign(self, name: str) -> bool:
        """Whether an agent belongs to another clone."""
        return self.core.clone is None and self.core.store.get(FOREIGN + name) is not None

    def findings(self) -> Iterator[Finding]:
        """The differences about all agents, for ``verify``; none in a clone whose store never had a session."""
        from clia.space.verification import Finding  # not needed to continue a session

        core = self.core
        if not core.store.scan(COUNTS):
            return
        for prefix in (names.HEADS, names.ARCHIVE):
            for ref, head in core.refs.under(prefix):
                name = ref.removeprefix(prefix)
                try:
                    differences = self.differences(name) if names.is_name(name) else []
                except CliaError as err:
                    yield Finding(err.code, err.message, ref, err.fields.get("cid"))
                    continue
                for difference in differences:
                    which = f"session {difference.session} of {name!r}" if difference.session else f"agent {name!r}"
                    message = f"{which}: {difference.message}; repair it with: clia doctor --repair"
                    yield Finding(difference.code, message, ref, head)

    def branch(self, name: str, head: str) -> BranchSessions:
        """Read what git has of an agent's sessions."""
        core = self.core
        bound = core.notes.all(names.sessions(name))
        numbers: dict[str, str | None] = {}
        newest: dict[str, str] = {}
        decisions: list[BranchDecision] = []
        for commit in core.own_commits(name, head):
            decision = _decision(commit)
            decisions += [] if decision is None else [decision]
            blob = bound.get(commit.cid)
            if blob is not None:
                if blob not in numbers:
                    numbers[blob] = self.checkpoints.number_in(blob)
                session = numbers[blob]
                if session is not None and session_number(session) > 0:
                    newest.setdefault(session, commit.cid)
        last = last_events(core, name)
        over = {session: body for session, body in last.items() if body.get("event") == ENDED_EVENT}
        reopened = {session: body for session, body in last.items() if session not in over}
        return BranchSessions(head, tuple(reversed(decisions)), newest, over, reopened)

    def differences(self, name: str) -> list[SessionDifference]:
        """Every difference between store and git about an agent's sessions; the head may be active or archived."""
        core = self.core
        head = core.refs.get(names.head(name)) or core.refs.get(names.archived(name))
        if head is None:
            return []  # reported by the health check
        if self.is_foreign(name):
            return []
        with core.store.reading() as view:
            known_row, pending = view.values.get(KNOWN + name), view.streams.read(trace_stream(name))
            has_sessions = core.refs.get(names.sessions(name)) is not None or view.values.get(COUNTS + name) is not None
            stored = _stored(view, name) if has_sessions else None
        # The trace first: repairing a session may make the branch known.
        differences = self._of_trace(name, head, None if known_row is None else known_head(known_row.value), pending)
        if stored is None:
            return differences
        branch = self.branch(name, head)
        differences += self._of_numbers(name, branch, stored) + self._lost(name, branch, stored)
        for session in stored.live:
            differences += self._of_live(name, branch, session)
        return differences + _of_ended(name, branch, stored)

    def _of_live(self, name: str, branch: BranchSessions, stored: StoredSession) -> list[SessionDifference]:
        """The difference about a session that is live in the store."""
        session, resumes = stored.session, stored.journal.resumes
        decisions = branch.of(session)
        proved = self.proved(name, branch, session, stored.journal)
        git_resumes = [] if proved is None else proved.journal.resumes
        shared = common(git_resumes, resumes)
        at = branch.newest.get(session, "")[:_SHORT]
        if shared < min(len(git_resumes), len(resumes)):
            text = f"answer {shared + 1} differs between the store and the checkpoint of {at}"
            return [SessionDifference(DIFFERS, name, session, text)]
        over = None if stored.has_ended else branch.over.get(session)
        if over is not None:
            text = f"git has its end ({over.get('status')}), which the store does not have"
            return [SessionDifference(BEHIND, name, session, text)]
        answered = {resume.call for resume in (*resumes, *git_resumes)}
        unknown = [decision for decision in decisions if decision.call not in answered]
        waiting = {call[0] for call in stored.row["pending"]}
        if len(git_resumes) > len(resumes):
            what = _described(unknown[0]) if unknown else f"{len(git_resumes) - len(resumes)} answers, at {at}"
            return [SessionDifference(BEHIND, name, session, f"git has {what}, which the store does not have")]
        for decision in unknown:
            if decision.call in waiting and self.is_for(decision, _payload(stored.row, decision.call)):
                text = f"git has {_described(decision)}, which the store does not have"
                return [SessionDifference(BEHIND, name, session, text)]
        return self._missing(name, branch, decisions, stored)

    def is_for(self, decision: BranchDecision, payload: Any) -> bool:
        """Whether a decision answers a request with this payload. Another request may have its number if answers were lost."""
        question = decision.commit.meta.get("asked")
        clean = self.core.clean.value(payload)
        if decision.commit.meta.get("cut"):
            return isinstance(question, dict) and question_in(clean).startswith(str(question.get("question")))
        return "asked" not in decision.commit.meta or _same(question, clean)

    def _missing(
        self, name: str, branch: BranchSessions, decisions: list[BranchDecision], stored: StoredSession
    ) -> list[SessionDifference]:
        """Decisions in the store that are not on the branch."""
        for resume in stored.journal.resumes:
            if resume.decision is not None and not self.is_on(branch, decisions, resume):
                text = f"the decision {resume.decision[:_SHORT]} on {stored.session}.{resume.call} is not on its branch any more"
                hint = f"if the branch was moved by mistake, move it back to a commit that contains {resume.decision}"
                return [SessionDifference(MISSING, name, stored.session, text, (hint,))]
        return []

    def is_on(self, branch: BranchSessions, decisions: Sequence[BranchDecision], resume: Resumed) -> bool:
        """Whether the decision of an answer is on the branch, as it was made or rewritten."""
        return any(decision.is_of(resume) for decision in decisions) or self.core.contains(branch.head, str(resume.decision))

    def proved(self, name: str, branch: BranchSessions, session: str, journal: Journal | None) -> CheckpointedSession | None:
        """The session as of its newest checkpoint on the branch. None if there is none, or if it is of another run."""
        commit = branch.newest.get(session)
        if commit is None:
            return None
        try:
            checkpoint = self.checkpoints.at(name, commit)
        except CorruptJournal:
            if journal is None:
                raise
            return None  # nothing to compare with; verify reports it
        if checkpoint is None or (journal is not None and _run(checkpoint.journal) != _run(journal)):
            return None
        return checkpoint

    def _lost(self, name: str, branch: BranchSessions, stored: StoredSessions) -> list[SessionDifference]:
        """Sessions in git that have no end, neither there nor in the store."""
        lost = sorted(set(branch.newest) - set(branch.over) - stored.all, key=session_number)
        text = "git has it as of {}, but the store has lost it; later answers are lost"
        return [SessionDifference(LOST, name, session, text.format(branch.newest[session][:_SHORT])) for session in lost]

    def _of_numbers(self, name: str, branch: BranchSessions, stored: StoredSessions) -> list[SessionDifference]:
        """Numbers that git has used and the store would use again."""
        used = {decision.session for decision in branch.decisions} | branch.newest.keys() | branch.over.keys()
        differences = []
        for counter, prefix in (("last", ""), ("asks", ASK)):
            numbers = [session_number(session.removeprefix(prefix)) for session in used if session.startswith(prefix)]
            highest = max(numbers, default=0)
            session = f"{prefix}{highest}"
            if counter in stored.counts and stored.counts[counter] < highest and session not in stored.all:
                text = "git has it, but the store would give its number to another one"
                differences.append(SessionDifference(NUMBERS, name, session, text))
        return differences

    def _of_trace(self, name: str, head: str, known: KnownHead | None, pending: Sequence[StreamEntry]) -> list[SessionDifference]:
        """Pending entries of a trace that git has bound to a commit already."""
        count = len(self.bound_again(name, head, known, pending))
        text = f"{count} pending entries of its trace are bound to a commit already"
        return [SessionDifference(BOUND, name, "", text)] if count else []

    def bound_again(self, name: str, head: str, known: KnownHead | None, pending: Sequence[StreamEntry]) -> list[StreamEntry]:
        """The pending entries that are bound to commits which the store does not know."""
        newer = self._newer(name, head, known.head) if pending and known is not None else None
        bound = self.core.notes.among(names.traces(name), [commit.cid for commit in newer or ()])
        traces = [parse(self.core.objects.blob(blob)) or {} for blob in bound.values()]
        texts = {_text(entry) for trace in traces for entry in trace.get("entries") or ()}
        return [entry for entry in pending if _text(entry.body) in texts] if texts else []


def _stored(view: Transaction, name: str) -> StoredSessions:
    """What the store has of an agent's sessions. A damaged one is left out, and reported by the health check."""
    live: list[StoredSession] = []
    for key, row in sorted(complete_rows(view.values, view.values.scan(f"{LIVE}{name}/"))):
        session = records.split(key)[1]
        entries = view.streams.read(records.stream(name, session))
        with suppress(CorruptJournal):
            live.append(StoredSession(session, row, entries, records.journal_in(entries, session)))
    ended = [records.split(key)[1] for key, _ in view.values.scan(f"{ENDED}{name}/")]
    numbers = {records.split(stream)[1] for stream in view.streams.names(f"session/{name}/")}
    return StoredSessions(live, ended, numbers, session_counts(view.values, name))


def _of_ended(name: str, branch: BranchSessions, stored: StoredSessions) -> list[SessionDifference]:
    """The differences about sessions that have ended in the store."""
    differences: list[SessionDifference] = []
    for session in stored.ended:
        if session in branch.reopened:
            text = "git has that it was retried or reopened, which the store does not have"
            differences.append(SessionDifference(BEHIND, name, session, text))
        elif not session.startswith(ASK) and session not in branch.over:
            differences.append(SessionDifference(UNENDED, name, session, "it has ended, but git does not have its end"))
    return differences


def last_events(core: Core, name: str) -> dict[str, Mapping[str, Any]]:
    """The last event in git of each session: its end, or that it was reopened."""
    last: dict[str, Mapping[str, Any]] = {}
    for event in read_events(core, core.refs.get(names.events(name))):
        session = event.body.get("session")
        if isinstance(session, str) and _is_of_session(event.body):
            last.setdefault(session, event.body)
    return last


def _is_of_session(body: Mapping[str, Any]) -> bool:
    return str(body.get("event")).startswith("session-")


def common(first: Sequence[Resumed], second: Sequence[Resumed]) -> int:
    """The number of answers that two runs share. A rebase gives a decision another id."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one[:4] != other[:4]:
            break
        count += 1
    return count


def _run(journal: Journal) -> tuple[str, str, str]:
    """Identify a run: a lost number may have been used twice."""
    return journal.origin.flow, journal.origin.seed, journal.origin.started_at


def _payload(row: Mapping[str, Any], number: int) -> Any:
    return next((call[3] for call in row["pending"] if call[0] == number), None)


def _text(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)


def _decision(commit: AgentCommit) -> BranchDecision | None:
    session, _, call = (commit.request or "").rpartition(".")
    if commit.kind != DECISION or commit.value is None or not session or not session_number(call):
        return None
    try:
        return BranchDecision(commit.cid, session, int(call), json.loads(commit.value), commit)
    except ValueError:
        return None


def _described(decision: BranchDecision) -> str:
    by = f" by {decision.commit.by}" if decision.commit.by else ""
    return f"the decision {decision.cid[:_SHORT]}{by} on {decision.session}.{decision.call}"


def _same(one: Any, other: Any) -> bool:
    return canonical_bytes(one) == canonical_bytes(other)
