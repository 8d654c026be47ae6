"""Checkpoints: the state of an agent's session, bound to each of its commits.

Invariant: a checkpoint holds everything that a run depends on, so it can be rebuilt without the store. Most are deltas: the resumes
since another commit's checkpoint. Delta chains are short. An unchanged state is the same blob.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CorruptJournal, NotFound
from clia.sessions import records
from clia.sessions.model import FAILED, FINISHED
from clia.sessions.records import (
    ASK,
    CHECKPOINT,
    ENDED,
    LIVE,
    Journal,
    Resumed,
    is_sound,
    origin_from,
    resumed_from,
    resumed_json,
    sound_rows,
)
from clia.space.envelope import Binding
from clia.space.events import read_events
from clia.values import refs as names
from clia.values.typed_objects import as_bytes, parse
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.sessions.records import Origin
    from clia.space.core import Core
    from clia.store.interface import Transaction

CHAIN = 50
"""Maximum length of a delta chain."""


class LastCheckpoint(NamedTuple):
    """An agent's newest checkpoint: session, commit, number of resumes, and distance from a full checkpoint."""

    session: str
    commit: str
    done: int
    depth: int


class CheckpointedSession(NamedTuple):
    """A session as of a commit."""

    session: str
    journal: Journal


class CheckpointWrites(NamedTuple):
    """What is written together with a commit: the notes bound to it, and rows of the store."""

    notes: tuple[Binding, ...] = ()
    puts: tuple[tuple[str, Any], ...] = ()


class Checkpoints:
    """The link between an agent's commits and its session."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def live_flow(self, name: str) -> str | None:
        """The flow that the agent's live session runs."""
        with self._core.store.reading() as view:
            live = live_row(view, name)
        return None if live is None else live[1]["flow"]

    def busy_with(self, name: str) -> str | None:
        """Why the agent cannot be archived now: a live session or an open question. None if it can."""
        with self._core.store.reading() as view:
            rows = view.values.scan(f"{LIVE}{name}/")
        return f"session {records.split(rows[0][0].removeprefix(LIVE))[1]} waits for an answer" if rows else None

    def writes_for(self, name: str, commit: str) -> CheckpointWrites:
        """The checkpoint to write with a commit; the caller holds the agent's lock."""
        core = self._core
        with core.store.reading() as view:
            live = live_row(view, name)
            if live is None:
                return CheckpointWrites()
            session, row = live
            stored = view.values.get(CHECKPOINT + name)
            last = None if stored is None else _last(stored.value, session)
            blob = None if last is None else core.notes.get(names.sessions(name), last.commit)
            if last is not None and blob is not None and last.done == row["done"]:
                text = core.objects.blob(blob).decode("utf-8")
                return CheckpointWrites((Binding(names.sessions(name), commit, text),))
            if last is None or blob is None or last.depth >= CHAIN:
                return checkpoint_writes(name, session, commit, self._whole(view, name, session, row))
            tail = _tail(view, name, session, row, row["done"] - last.done)
        delta = {"base": last.commit, "resumes": [resumed_json(resume) for resume in tail], "depth": last.depth + 1}
        return checkpoint_writes(name, session, commit, delta | {"done": row["done"]})

    def _whole(self, view: Transaction, name: str, session: str, row: Mapping[str, Any]) -> dict[str, Any]:
        journal = records.read_journal(view, name, session)
        return full_checkpoint(journal.origin, journal.resumes, None if row.get("forked") else row.get("on"))

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
                "checkpoints are bound to the commits that clia makes while a session is live",
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
        raise _broken(name, commit, "stands on another one that is not there")

    def _joined(self, name: str, commit: str, first: Mapping[str, Any], parts: Sequence[Sequence[Any]]) -> Journal:
        try:
            resumes = [resumed_from(resume) for part in reversed(parts) for resume in part]
            return Journal(origin_from(first["origin"]), resumes)
        except (KeyError, TypeError):
            raise _broken(name, commit, "cannot be read") from None

    def _note(self, name: str, commit: str) -> dict[str, Any] | None:
        """The checkpoint of a commit; None if it has none or a foreign note."""
        core = self._core
        blob = core.notes.get(names.sessions(name), commit)
        note = None if blob is None else parse(core.objects.blob(blob))
        return note if note is not None and _is_sound(note) else None

    def _begun_on(self, name: str, commit: str) -> CheckpointedSession | None:
        """The session that started when this commit was the head, at its start; a later checkpoint also names that commit."""
        core = self._core
        with core.store.reading() as view:
            for prefix in (LIVE, ENDED):
                for key, row in sound_rows(view.values.scan(f"{prefix}{name}/")):
                    session = records.split(key.removeprefix(prefix))[1]
                    if row.get("on") == commit and not session.startswith(ASK) and _waited(row) and not row.get("forked"):
                        return CheckpointedSession(session, Journal(records.read_origin(view, name, session), []))
        for other in core.notes.all(names.sessions(name)):
            checkpoint = self._note(name, other)
            if checkpoint is not None and checkpoint.get("on") == commit and "origin" in checkpoint:
                return CheckpointedSession(checkpoint["session"], self._joined(name, other, checkpoint, []))
        return None


def _last(saved: Any, session: str) -> LastCheckpoint | None:
    """The saved newest checkpoint of a session."""
    try:
        last = LastCheckpoint(*saved)
    except TypeError:
        return None
    sound = names.is_id(last.commit) and type(last.done) is type(last.depth) is int
    return last if sound and last.session == session else None


def live_row(view: Transaction, name: str) -> tuple[str, dict[str, Any]] | None:
    """The agent's live session and its row; open questions do not count."""
    below = f"{LIVE}{name}/"
    rows = ((key.removeprefix(below), row) for key, row in view.values.scan(below))
    found = next((each for each in rows if not each[0].startswith(ASK)), None)
    if found is not None and not is_sound(found[1]):
        raise damaged_row(name, found[0])
    return found


def counts_of(stored: Any) -> dict[str, int]:
    """The session numbers in use, as far as they can be read."""
    return {key: count for key, count in stored.items() if type(count) is int} if isinstance(stored, dict) else {}


def damaged_row(name: str, session: str) -> CorruptJournal:
    return CorruptJournal(
        f"the row of session {session} of {name!r} in the store is damaged; its events are not",
        code="damaged-row",
        hints=["clia doctor --repair derives it anew"],
        fields={"agent": name, "session": session},
    )


def full_checkpoint(origin: Origin, resumes: Sequence[Resumed], on: str | None) -> dict[str, Any]:
    """The content of a checkpoint that needs no other."""
    checkpoint: dict[str, Any] = {"origin": origin._asdict(), "resumes": [resumed_json(resume) for resume in resumes], "depth": 0}
    checkpoint["done"] = len(resumes)
    return checkpoint | ({"on": on} if on is not None else {})


def checkpoint_writes(name: str, session: str, commit: str, checkpoint: Mapping[str, Any]) -> CheckpointWrites:
    """The writes that bind a checkpoint to a commit and remember it."""
    text = as_bytes({"type": "session", "agent": name, "session": session, **checkpoint}).decode("utf-8")
    last = LastCheckpoint(session, commit, checkpoint["done"], checkpoint["depth"])
    return CheckpointWrites((Binding(names.sessions(name), commit, text),), ((CHECKPOINT + name, list(last)),))


def _tail(view: Transaction, name: str, session: str, row: Mapping[str, Any], wanted: int) -> list[Resumed]:
    stream = records.stream(name, session)
    resumes = records.resumes_in(view.streams.read(stream, after=row["end"] - wanted), stream)
    # Other events lie in between if the session was reopened.
    return resumes if len(resumes) == wanted else records.read_journal(view, name, session).resumes[row["done"] - wanted :]


def _waited(row: Mapping[str, Any]) -> bool:
    """Whether it can be forked: a session may end before its first request."""
    return row["done"] > 0 or row["status"] not in (FINISHED, FAILED)


def _is_sound(checkpoint: Mapping[str, Any]) -> bool:
    well_formed = (
        checkpoint.get("type") == "session"
        and _number(checkpoint.get("session")) > 0
        and isinstance(checkpoint.get("resumes"), list)
    )
    return well_formed and (names.is_id(checkpoint.get("base")) or isinstance(checkpoint.get("origin"), dict))


def _broken(name: str, commit: str, problem: str) -> CorruptJournal:
    return CorruptJournal(
        f"the checkpoint of {name!r} at {commit[:12]} {problem}",
        hints=[f"git fetch the notes of the agent: {names.sessions(name)}"],
        fields={"agent": name, "commit": commit},
    )


def last_number(core: Core, name: str) -> int:
    """The highest session number that git knows of: after losing the store, no number is reused."""
    numbers = [0]
    tip = core.refs.get(names.events(name))
    for event in read_events(core, tip) if tip is not None else ():
        if event.body.get("event") == "session-ended":
            numbers.append(_number(event.body.get("session")))
    if core.refs.get(names.sessions(name)) is not None:
        notes = (parse(core.objects.blob(blob)) for blob in set(core.notes.all(names.sessions(name)).values()))
        numbers += [_number(note.get("session")) for note in notes if note is not None and note["type"] == "session"]
    return max(numbers)


def last_ask(core: Core, name: str) -> int:
    """The highest question number, from the decisions in git."""
    requests = (commit.request or "" for commit in core.own_commits(name, core.require_head(name)) if commit.kind == DECISION)
    return max((_number(request.partition(".")[0].removeprefix(ASK)) for request in requests if request.startswith(ASK)), default=0)


def _number(session: Any) -> int:
    return int(session) if isinstance(session, str) and session.isascii() and session.isdigit() and len(session) < 10 else 0
