"""Checkpoints: the state of an agent's session, bound to each of its commits.

Invariant: a checkpoint holds everything that a run depends on, so it can be rebuilt without the store. All but the first are
deltas: the resumes since another commit's checkpoint. The base of checkpoint ``n`` is the one whose number is ``n`` without its
lowest bit, so chains are short (at most one link for each bit) and long deltas are rare. An unchanged state is the same blob.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CorruptJournal, NotFound
from clia.sessions import records
from clia.sessions.records import ASK, CHECKPOINT, COUNTS, ENDED, LIVE, Journal, is_sound, resumed_json, sound_rows
from clia.space.envelope import Binding
from clia.store.interface import KNOWN
from clia.values import refs as names
from clia.values.typed_objects import as_bytes, parse
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.sessions.records import Origin, Resumed
    from clia.space.core import Core
    from clia.store.interface import Store, Transaction, Values, Versioned

    # Writes that happen together with a commit: the notes bound to it, and rows of the store.
    CheckpointWrites = tuple[tuple[Binding, ...], tuple[tuple[str, Any], ...]]

ITSELF = "-"
"""Instead of a session: only what concerns the agent as a whole."""
CHAIN = 50
"""Maximum length of a delta chain. Earlier versions wrote chains of this length."""


class Base(NamedTuple):
    """A checkpoint on which others build."""

    number: int  # among the checkpoints of a session with different states, from 0
    commit: str
    done: int  # number of resumes


class LastCheckpoint(NamedTuple):
    """An agent's newest checkpoint: its session, and the chain of checkpoints that it builds on, with itself as the last."""

    session: str
    chain: tuple[Base, ...]

    @property
    def newest(self) -> Base:
        return self.chain[-1]

    def bases(self) -> tuple[Base, ...]:
        """The chain that the next checkpoint builds on."""
        number = self.newest.number + 1
        return tuple(base for base in self.chain if base.number <= number & (number - 1))


class KnownHead(NamedTuple):
    """The agent's head and the tip of its events when store and git last agreed about its sessions."""

    head: str
    events: str | None


class CheckpointedSession(NamedTuple):
    """A session as of a commit."""

    session: str
    journal: Journal


class Checkpoints:
    """The link between an agent's commits and its session."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def live_flow(self, name: str) -> str | None:
        """The flow that the agent's live session runs."""
        live = live_row(self._core.store, name)
        return None if live is None else live[1]["flow"]

    def busy_with(self, name: str) -> str | None:
        """Why the agent cannot be archived now: a live session or an open question; None if it can be archived."""
        rows = self._core.store.scan(f"{LIVE}{name}/")
        return f"session {records.split(rows[0][0])[1]} waits for an answer" if rows else None

    def has_had_sessions(self, name: str) -> bool:
        """Whether the store knows a session of the agent, live or ended."""
        return self._core.store.get(COUNTS + name) is not None

    def agree(self, name: str, head: str, session: str | None = None) -> tuple[tuple[str, Any], ...]:
        """Raise ``Conflict`` if store and git differ about a session of the agent, or about any; the caller holds its lock.

        Returns the rows to put with the next change.
        """
        stored = self._core.store.get(KNOWN + name)
        agreed_head = self._agreed(name, head, stored, session)
        is_new = agreed_head is not None and (stored is None or stored.value != list(agreed_head))
        return ((KNOWN + name, list(agreed_head)),) if agreed_head is not None and is_new else ()

    def is_known(self, name: str, head: str) -> bool:
        """Whether store and git agree about the agent's sessions, without reading history."""
        stored = self._core.store.get(KNOWN + name)
        return stored is not None and stored.value == [head, self._core.refs.get(names.events(name))]

    def _agreed(self, name: str, head: str, stored: Versioned | None, session: str | None) -> KnownHead | None:
        """The head and the events on which store and git agree; None if they differ about another session."""
        now = KnownHead(head, self._core.refs.get(names.events(name)))
        agreed_head = None if stored is None else known_head(stored.value)
        if agreed_head == now or (agreed_head is None and self._core.refs.get(names.sessions(name)) is None):
            return now  # else the store is of an earlier version, or the agent had no session when it was copied
        from clia.sessions.agreement import Agreement  # rarely needed

        agree = Agreement(self._core, self).require(name, now, agreed_head, session)
        if agree and agreed_head is not None and agreed_head.head != head and not self._core.contains(head, agreed_head.head):
            from clia.space.rewritten import Rewritten  # as above

            Rewritten(self._core).carry(name, head)  # the branch was rebased
        return now if agree else None

    def writes_for(self, name: str, head: str, commit: str, *, traced: bool) -> CheckpointWrites:
        """The checkpoint to write with a commit on a head; ``traced``: the commit binds a trace. The caller holds the lock."""
        with self._core.store.reading() as view:
            live = live_row(view.values, name)
            if live is None and not traced:
                return (), ()
            agreed_head = view.values.get(KNOWN + name)
            notes, puts = ((), ()) if live is None else self._checkpoint(view, name, commit, *live)
        agreed = self._agreed(name, head, agreed_head, ITSELF if live is None else live[0])
        return notes, puts if agreed is None else (*puts, (KNOWN + name, [commit, agreed.events]))

    def _checkpoint(self, view: Transaction, name: str, commit: str, session: str, row: Mapping[str, Any]) -> CheckpointWrites:
        core, notes = self._core, names.sessions(name)
        stored = view.values.get(CHECKPOINT + name)
        last = None if stored is None else _last(stored.value, session)
        if last is not None and last.newest.done == row["done"]:
            blob = core.notes.get(notes, last.newest.commit)
            if blob is not None:
                return (Binding(notes, commit, core.objects.blob(blob).decode("utf-8")),), ()
        chain = () if last is None else last.bases()
        if not chain or core.notes.get(notes, chain[-1].commit) is None:
            journal = records.read_journal(view, name, session)
            full = full_checkpoint(journal.origin, journal.resumes, None if row.get("forked") else row.get("on"))
            return checkpoint_writes(name, session, commit, full)
        tail = _tail(view, name, session, row, row["done"] - chain[-1].done)
        delta = {"base": chain[-1].commit, "resumes": list(map(resumed_json, tail)), "depth": len(chain), "done": row["done"]}
        return checkpoint_writes(name, session, commit, delta, last)

    def find(self, name: str, commit: str) -> CheckpointedSession:
        """The session as of a commit of the agent: from its checkpoint, or because it started there."""
        # below commits that plain git added
        own_commit = next((own.cid for own in self._core.own_commits(name, commit)), commit)
        session = self.at(name, own_commit) or self._begun_on(name, own_commit)
        if session is not None:
            return session
        raise NotFound(
            f"no checkpoint of a session of {name!r} is bound to {commit[:12]}",
            code="no-checkpoint",
            hints=[
                "only commits made by clia while a session is live have a checkpoint",
                f"without a session: clia spawn NAME --at {commit[:12]}",
            ],
            fields={"agent": name, "commit": commit},
        )

    def at(self, name: str, commit: str) -> CheckpointedSession | None:
        """The state in the commit's own checkpoint, if it has one."""
        checkpoint = self._note(name, commit)
        if checkpoint is None:
            return None
        session, last = checkpoint["session"], checkpoint
        deltas: list[list[Any]] = []
        for _ in range(CHAIN + 2):
            deltas.append(last["resumes"])
            if "base" not in last:
                return CheckpointedSession(session, self._joined(name, commit, last, deltas))
            base = self._note(name, last["base"])
            if base is None:
                break
            last = base
        raise _broken(name, commit, "builds on another one that does not exist")

    def _joined(self, name: str, commit: str, first: Mapping[str, Any], parts: Sequence[Sequence[Any]]) -> Journal:
        try:
            resumes = [records.resumed_from(resume) for part in reversed(parts) for resume in part]
            return Journal(records.origin_from(first["origin"]), resumes)
        except (KeyError, TypeError):
            raise _broken(name, commit, "cannot be read") from None

    def _note(self, name: str, commit: str) -> dict[str, Any] | None:
        """The checkpoint of a commit; None if it has none or a foreign note."""
        core = self._core
        blob = core.notes.get(names.sessions(name), commit)
        core.objects.require([blob] if blob is not None else ())
        note = None if blob is None else parse(core.objects.blob(blob))
        return note if note is not None and _is_sound(note) else None

    def number_in(self, blob: str) -> str | None:
        """The session number in the note with this id; None if it is not a checkpoint."""
        body = parse(self._core.objects.blob(blob))
        number = body.get("session") if body is not None and body.get("type") == "session" else None
        return number if isinstance(number, str) and number.isascii() and number.isdigit() else None

    def _begun_on(self, name: str, commit: str) -> CheckpointedSession | None:
        """The session that started when this commit was the head, at its start; a later checkpoint also names that commit."""
        from clia.sessions.model import FAILED, FINISHED  # not needed to write a commit

        core = self._core
        with core.store.reading() as view:
            for prefix in (LIVE, ENDED):
                for key, row in sound_rows(view.values.scan(f"{prefix}{name}/")):
                    session = records.split(key)[1]
                    # A session that ended before its first request cannot be forked.
                    waited = row["done"] > 0 or row["status"] not in (FINISHED, FAILED)
                    if row.get("on") == commit and not session.startswith(ASK) and waited and not row.get("forked"):
                        return CheckpointedSession(session, Journal(records.read_origin(view, name, session), []))
        for other in core.notes.all(names.sessions(name)):
            checkpoint = self._note(name, other)
            if checkpoint is not None and checkpoint.get("on") == commit and "origin" in checkpoint:
                return CheckpointedSession(checkpoint["session"], self._joined(name, other, checkpoint, []))
        return None


def known_head(value: Any) -> KnownHead | None:
    """The row of an agent; None if it is invalid."""
    try:
        agreed_head = KnownHead(*value)
    except TypeError:
        return None
    return (
        agreed_head if names.is_id(agreed_head.head) and (agreed_head.events is None or names.is_id(agreed_head.events)) else None
    )


def _last(saved: Any, session: str) -> LastCheckpoint | None:
    """The saved newest checkpoint of a session."""
    try:
        of_session, bases = saved
        last = LastCheckpoint(of_session, tuple(Base(*base) for base in bases))
    except (TypeError, ValueError):
        return None
    sound = all(names.is_id(base.commit) and type(base.done) is type(base.number) is int for base in last.chain)
    return last if sound and last.chain and last.session == session else None


def live_row(values: Store | Values, name: str) -> tuple[str, dict[str, Any]] | None:
    """The agent's live session and its row; open questions do not count."""
    rows = ((records.split(key)[1], row) for key, row in values.scan(f"{LIVE}{name}/"))
    live = next(((session, row) for session, row in rows if not session.startswith(ASK)), None)
    if live is not None and not is_sound(live[1]):
        raise damaged_row(name, live[0])
    return live


def session_counts(values: Store | Values, name: str) -> dict[str, int]:
    """The session numbers in use, as far as they can be read."""
    row = values.get(COUNTS + name)
    stored = {} if row is None else row.value
    return {key: count for key, count in stored.items() if type(count) is int} if isinstance(stored, dict) else {}


def damaged_row(name: str, session: str) -> CorruptJournal:
    message = f"the row of session {session} of {name!r} in the store is damaged; its events are intact"
    hints = ["rebuild it with: clia doctor --repair"]
    return CorruptJournal(message, code="damaged-row", hints=hints, fields={"agent": name, "session": session})


def full_checkpoint(origin: Origin, resumes: Sequence[Resumed], on: str | None) -> dict[str, Any]:
    """The content of a checkpoint that needs no other."""
    checkpoint = {"origin": origin._asdict(), "resumes": list(map(resumed_json, resumes)), "depth": 0, "done": len(resumes)}
    return checkpoint | ({"on": on} if on is not None else {})


def checkpoint_writes(
    name: str, session: str, commit: str, checkpoint: Mapping[str, Any], last: LastCheckpoint | None = None
) -> CheckpointWrites:
    """The writes that bind a checkpoint to a commit and remember it. ``last``: the one before, unless it is a full one."""
    text = as_bytes({"type": "session", "agent": name, "session": session, **checkpoint}).decode("utf-8")
    newest = Base(0 if last is None else last.newest.number + 1, commit, checkpoint["done"])
    chain = [*(() if last is None else last.bases()), newest]
    return (Binding(names.sessions(name), commit, text),), ((CHECKPOINT + name, [session, list(map(list, chain))]),)


def _tail(view: Transaction, name: str, session: str, row: Mapping[str, Any], wanted: int) -> list[Resumed]:
    stream = records.stream(name, session)
    resumes = records.resumes_in(view.streams.read(stream, after=row["end"] - wanted), stream)
    # Other events lie in between if the session was reopened.
    return resumes if len(resumes) == wanted else records.read_journal(view, name, session).resumes[row["done"] - wanted :]


def _is_sound(checkpoint: Mapping[str, Any]) -> bool:
    is_session = checkpoint.get("type") == "session" and session_number(checkpoint.get("session")) > 0
    has_start = names.is_id(checkpoint.get("base")) or isinstance(checkpoint.get("origin"), dict)
    return is_session and has_start and isinstance(checkpoint.get("resumes"), list)


def _broken(name: str, commit: str, problem: str) -> CorruptJournal:
    message = f"the checkpoint of {name!r} at {commit[:12]} {problem}"
    hints = [f"fetch the notes of the agent with git: {names.sessions(name)}"]
    return CorruptJournal(message, hints=hints, fields={"agent": name, "commit": commit})


def last_number(core: Core, name: str) -> int:
    """The highest session number in git, so that no number is reused after the store is lost."""
    from clia.space.events import read_events  # as above

    bodies = [event.body for event in read_events(core, core.refs.get(names.events(name)))]
    sessions = [body.get("session") for body in bodies if body.get("event") == "session-ended"]
    if core.refs.get(names.sessions(name)) is not None:
        notes = (parse(core.objects.blob(blob)) for blob in set(core.notes.all(names.sessions(name)).values()))
        sessions += [note.get("session") for note in notes if note is not None and note["type"] == "session"]
    return max(map(session_number, sessions), default=0)


def last_ask(core: Core, name: str) -> int:
    """The highest question number, from the decisions in git."""
    decisions = (commit for commit in core.own_commits(name, core.require_head(name)) if commit.kind == DECISION)
    sessions = ((commit.request or "").partition(".")[0] for commit in decisions)
    return max((session_number(session.removeprefix(ASK)) for session in sessions if session.startswith(ASK)), default=0)


def session_number(session: Any) -> int:
    """The number of a session; 0 if it is not a session."""
    return int(session) if isinstance(session, str) and session.isascii() and session.isdigit() and len(session) < 10 else 0
