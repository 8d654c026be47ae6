"""Observations of behaviours and profiles: how commits, events, notes and reverts are read.

Invariant: observations follow from named objects (a commit and its ancestors, a chain, a tree of notes), never from the time or
order of reading. Objects that a clone does not have are counted as gaps, never guessed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import NamedTuple

from clia.behaviours.statistics import rounded
from clia.errors import CliaError, InvalidInput, NoSuchObject
from clia.sessions.model import STATUSES
from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.types import DECISION, SESSION_MERGE, SPAWN, is_type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.git.records import Commit
    from clia.space.core import Core
    from clia.space.model import AgentCommit

UNKNOWN_BEHAVIOUR = ""
"""The behaviour that gaps are counted for."""
GAP = "gap"
KIND, SESSION, VERDICT, MERGE, OUTCOME = "kind/", "session/", "decision/", "merge/", "outcome/"
LANDED, REVERTED = "landed", "reverted"
MERGED_AFTER, LANDED_AFTER = "merged-after/", "landed-after/"  # followed by seconds
TRACE, TOKENS = "trace/", "tokens/"
_YES = frozenset(("yes", "y", "approve", "approved", "accept", "accepted", "ok", "true", "1"))
_NO = frozenset(("no", "n", "reject", "rejected", "refuse", "refused", "deny", "denied", "decline", "declined", "false", "0"))
_PASSED = frozenset(("pass", "passed", "passing", "ok", "success", "succeeded", "green", "true"))
_FAILED = frozenset(("fail", "failed", "failing", "failure", "error", "broken", "red", "false"))
_OTHER = "other"
_TOKENS_MAX = 10**12
"""Larger token counts in a trace are ignored, so that sums stay in range."""
_VERDICT_KEYS = ("approved", "approve", "decision", "verdict", "answer", "value")


class Observation(NamedTuple):
    """One observation of a subject: a behaviour, or a profile. ``origin`` is its commit; for a gap, the missing object."""

    subject: str
    key: str
    at: int
    origin: str
    times: int = 1


def day_of(at: int) -> str:
    """The day of a timestamp in UTC; commits may have any timestamp."""
    return datetime.fromtimestamp(min(max(at, 0), 253402300799), UTC).date().isoformat()


def gap(missing: str = "") -> Observation:
    """A gap, with the missing object if it is known."""
    return Observation(UNKNOWN_BEHAVIOUR, GAP, 0, missing)


def gap_of(err: CliaError) -> Observation:
    missing = err.fields.get("cid")
    return gap(str(missing) if names.is_id(missing) else "")


def subjects_of(commit: AgentCommit) -> tuple[str, ...]:
    """The behaviour and the profile that a commit was made with; anything but an id is ignored."""
    return tuple(cid for cid in (commit.behaviour, commit.profile) if cid is not None and names.is_id(cid))


class HistoryReader:
    """Reads commits of one pass with a cache, because merges visit the same commits repeatedly."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.cut_off = core.graph.cut_off()
        self.between = core.graph.ranges()
        self._ran: dict[str, tuple[tuple[str, ...], int] | None] = {}
        self._squashed: dict[str, tuple[str, str] | None] = {}

    def commit(self, cid: str) -> AgentCommit:
        return self.read(self.core.objects.commit(cid))

    def read(self, raw: Commit) -> AgentCommit:
        commit = agent_commit(raw)
        subjects = subjects_of(commit)
        is_work = commit.agent and commit.kind != SPAWN
        self._ran[commit.cid] = (subjects, commit.committer.at) if subjects and is_work else None
        return commit

    def ran(self, cid: str) -> tuple[tuple[str, ...], int] | None:
        """The subjects and time of an agent's commit; None if it has none."""
        if cid not in self._ran:
            self.commit(cid)
        return self._ran[cid]

    def squashed(self, cid: str) -> tuple[str, str] | None:
        """The agent and head that a commit squashed; None if it is not a squash."""
        if cid not in self._squashed:
            commit = self.commit(cid)
            head = (commit.range or "").partition("..")[2] if commit.landed and len(commit.parents) == 1 else ""
            is_squash = names.is_id(head) and self.core.objects.kind(head) == "commit"
            self._squashed[cid] = (commit.landed, head) if commit.landed and is_squash else None
        return self._squashed[cid]


# Commits


def of_commit(record: HistoryReader, commit: AgentCommit) -> Iterator[Observation]:
    """The observations from one of an agent's own commits."""
    at, cid = commit.committer.at, commit.cid
    outcome = outcome_of(commit.meta.get("outcome"))
    for subject in subjects_of(commit):
        yield Observation(subject, KIND + (commit.kind if commit.kind and is_type_name(commit.kind) else _OTHER), at, cid)
        if outcome is not None:
            yield Observation(subject, OUTCOME + outcome, at, cid)
        if commit.kind == DECISION:
            yield Observation(subject, VERDICT + verdict_of(_json(commit.value)), at, cid)
    if commit.kind == SESSION_MERGE and len(commit.parents) == 2:
        yield from _of_merge(record, commit)


def _of_merge(record: HistoryReader, commit: AgentCommit) -> Iterator[Observation]:
    at, cid = commit.committer.at, commit.cid
    ours, theirs = commit.parents
    try:
        oldest = subjects_between(record, theirs, [ours])
    except CliaError as err:
        yield gap_of(err)
        return
    for subject, began in oldest.items():
        yield Observation(subject, MERGE + "merged", at, cid)
        yield Observation(subject, MERGED_AFTER + str(rounded(at - began)), at, cid)


def subjects_between(record: HistoryReader, head: str, hidden: Sequence[str]) -> dict[str, int]:
    """The subjects of commits reachable from ``head`` but not from ``hidden``, each with the time of its oldest commit.

    ``NoSuchObject`` if this is unknown, which is always the case in a shallow clone.
    """
    check_complete_history(record, head, *hidden)
    if not all(record.core.objects.kind(cid) == "commit" for cid in (head, *hidden)):
        return {}  # an event can name anything
    oldest: dict[str, int] = {}
    for cid in record.between(head, hidden):
        ran = record.ran(cid)
        if ran is not None:
            subjects, at = ran
            oldest |= {subject: min(at, oldest.get(subject, at)) for subject in subjects}
    return oldest


def check_complete_history(record: HistoryReader, *cids: str) -> None:
    """``NoSuchObject`` if this clone does not have the complete history of some commits."""
    kind = record.core.objects.kind
    missing = [*sorted(record.cut_off)[:1], *(cid for cid in cids if kind(cid) is None)]
    if missing:
        raise NoSuchObject(f"the history is incomplete: {missing[0]} is missing", fields={"cid": missing[0]})


def verdict_of(value: Any) -> str:
    """Whether a decision approved or rejected: a boolean, 1 or 0, a word, or an object with one."""
    if isinstance(value, dict):
        value = next((value[key] for key in _VERDICT_KEYS if key in value), None)
    word = str(value).strip().casefold() if isinstance(value, (str, bool, int)) else ""
    return "approved" if word in _YES else "rejected" if word in _NO else _OTHER


def outcome_of(value: Any) -> str | None:
    """Whether the ``outcome`` of a commit is passed or failed; None if neither."""
    if isinstance(value, dict):
        value = value.get("status")
    word = str(value).strip().casefold() if isinstance(value, (str, bool)) else ""
    return "passed" if word in _PASSED else "failed" if word in _FAILED else None


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


# Events


class SessionEnd(NamedTuple):
    """How a session ended."""

    session: str
    behaviour: str
    status: str


def ended_of(body: Mapping[str, Any]) -> SessionEnd | None:
    flow, session, status = body.get("flow"), body.get("session"), body.get("status")
    if body.get("event") != "session-ended" or not names.is_id(flow):
        return None
    session_id = session if names.is_name(session) else ascii(session)[:64]  # stores do not accept every text
    return SessionEnd(str(session_id), str(flow), status if status in STATUSES else _OTHER)


class LandedWork(NamedTuple):
    """Work that landed on a branch: its new head, the agent's head, the branch and its previous head."""

    cid: str
    head: str
    onto: str
    base: str | None
    at: int
    subjects: tuple[str, ...] = ()


def landing_of(body: Mapping[str, Any], at: int) -> LandedWork | None:
    cid, head, onto, base = (body.get(key) for key in ("cid", "head", "onto", "base"))
    if body.get("event") != "landed" or not (names.is_id(cid) and names.is_id(head) and _is_of_people(onto)):
        return None
    return LandedWork(str(cid), str(head), str(onto), str(base) if names.is_id(base) else None, at)


def _is_of_people(onto: Any) -> bool:
    """Whether an event names a valid branch that is not an agent's."""
    try:
        return isinstance(onto, str) and names.branch(onto) == onto and not onto.startswith(names.HEADS)
    except InvalidInput:
        return False


def of_refusal(record: HistoryReader, body: Mapping[str, Any], at: int, origin: str) -> Iterator[Observation]:
    """The observations from a merge with conflicts; both heads are ids."""
    try:
        oldest = subjects_between(record, str(body["theirs"]), [str(body["ours"])])
    except CliaError as err:
        yield gap_of(err)
        return
    for subject in oldest:
        yield Observation(subject, MERGE + "refused", at, origin)


# Traces


def of_trace(record: HistoryReader, cid: str, blob: str) -> Iterator[Observation]:
    """The size of a commit's trace, and its token counts."""
    kind = record.core.objects.kind
    if kind(cid) not in (None, "commit") or kind(blob) not in (None, "blob"):
        return  # plain git can attach notes to anything
    try:
        commit = record.commit(cid)
        data = record.core.objects.blob(blob)
    except CliaError as err:
        yield gap_of(err)
        return
    subjects = subjects_of(commit)
    if not subjects:
        return
    at = commit.committer.at
    trace = _json(data.decode("utf-8", "replace"))
    entries = trace.get("entries") if isinstance(trace, dict) else None
    entries = entries if isinstance(entries, list) else []
    tokens = tokens_of(entries)
    for subject in subjects:
        yield Observation(subject, TRACE + "entries", at, cid, len(entries))
        yield Observation(subject, TRACE + "bytes", at, cid, len(data))
        for side, count in tokens.items():
            yield Observation(subject, TOKENS + side, at, cid, count)


def tokens_of(entries: Sequence[Any]) -> dict[str, int]:
    """The input and output tokens of a trace, by the usual field names."""
    tokens: dict[str, int] = {}
    for entry in entries:
        data = entry.get("data") if isinstance(entry, dict) else None
        usage = data.get("usage") if isinstance(data, dict) else None
        for side, fields in (("input", ("input_tokens", "prompt_tokens")), ("output", ("output_tokens", "completion_tokens"))):
            count = next((usage[key] for key in fields if type(usage.get(key)) is int), 0) if isinstance(usage, dict) else 0
            if 0 < count <= _TOKENS_MAX:
                tokens[side] = tokens.get(side, 0) + count
    return tokens
