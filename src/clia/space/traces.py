"""Traces: what an agent said and did, bound to its commits.

Invariant: an entry is either pending in the store or in exactly one bound trace. It is redacted before it is stored anywhere.
A commit names the trace that it gets by the digest of its entries; binding never changes a commit's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.space.core import UNREADABLE
from clia.space.model import BoundTrace, TraceChange, TraceHit, agent_commit
from clia.values import refs as names
from clia.values.commit_messages import TRACE, check_text
from clia.values.commit_messages import parse as parse_message
from clia.values.typed_objects import ConsoleTrace, as_bytes, parse, trace_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.git.records import NoteChange
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit
    from clia.store.interface import StreamEntry

    Chunks = Callable[[str, Sequence[str] | None], tuple[str, int, Sequence[str]]]

ENTRY_MAX = 256 * 1024
ATTACHED = "trace-attached"
"""Another trace was attached to a commit that names one."""
SEEN = "seen/"
"""Prefix of the keys of an agent's entries that are recorded once."""
_KEY = re.compile(r"[!-~]{1,256}")
_KIND = re.compile(r"[a-z][a-z0-9-]{0,63}")


class PendingTrace(NamedTuple):
    """The pending entries that belong to the next commit."""

    digest: str | None = None  # of the entries; None: there are none
    until: int | None = None  # position of the last one; None: of any

    @property
    def trailers(self) -> list[tuple[str, str | None]]:
        return [(TRACE, self.digest)]


def trace_in(message: str) -> str | None:
    """The digest of the trace that a commit names."""
    return next((value for key, value in parse_message(message)[1] if key == TRACE), None)


def stream(name: str) -> str:
    return f"trace/{name}"


def redaction(name: str, kind: str = "") -> str:
    """The store key for the end of an agent's last entry of a kind."""
    return f"redaction/{name}/{kind}"


class Traces:
    """``redact_chunk`` takes a text and the state after the last one; it returns the clean text, a count and the new state."""

    def __init__(self, core: Core, envelope: Envelope, redact_chunk: Chunks, entry_max: int = ENTRY_MAX) -> None:
        self._core = core
        self._envelope = envelope
        self._redact_chunk = redact_chunk
        self._entry_max = entry_max

    def add(self, name: str, kind: str, text: str, data: Mapping[str, Any] | None = None) -> int:
        """Append an entry to the pending trace; returns its position."""
        core = self._core
        core.own_head(name)
        _check_kind(kind)
        check_text(text, "text", nul=True)
        at = _time(core)
        key = redaction(name, kind)
        with core.store.writing() as transaction:
            before = transaction.values.get(key)
            clean, count, state = self._redact_chunk(text, before.value if before else None)
            if list(state) != (before.value if before else None):
                transaction.values.put(key, list(state))
            entry = self._limited(at, kind, clean, count)
            if data is not None:
                entry["data"] = self._data(data)
            return transaction.streams.append(stream(name), [entry])

    def add_once(self, name: str, entries: Iterable[Mapping[str, Any]]) -> int:
        """Append the entries whose ``key`` is new for the agent, atomically; returns their number."""
        core = self._core
        core.own_head(name)
        keyed = [self._once(entry) for entry in _listed(entries)]
        seen_key = SEEN + name
        rebuilt = self._keys(name) if core.store.get(seen_key) is None else set()
        with core.store.writing() as transaction:
            values = transaction.values
            if rebuilt or values.get(seen_key) is None:
                for key in rebuilt:
                    values.put(f"{seen_key}/{key}", 1)
                values.put(seen_key, 1)
            new: list[dict[str, Any]] = []
            for entry in keyed:
                if values.get(f"{seen_key}/{entry['key']}") is None:
                    values.put(f"{seen_key}/{entry['key']}", 1)
                    new.append(entry)
            if new:
                transaction.streams.append(stream(name), new)
        return len(new)

    def _once(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        key = entry.get("key") if isinstance(entry, dict) else None
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise _invalid("key", "must have a 'key' of 1 to 256 printable ASCII characters without spaces")
        # The key is an id: redacting it could make two keys equal.
        clean = self._cleaned({name: value for name, value in entry.items() if name != "key"}) | {"key": key}
        return clean if clean.get("data") is None else clean | {"data": self._data(clean["data"])}

    def _keys(self, name: str) -> set[str]:
        """The keys of all entries of an agent, bound or pending: rebuilds a lost store."""
        core = self._core
        bound = [core.notes.all(names.traces(former)).values() for former in self._names(name)]
        traces = map(self.read, [blob for blobs in bound for blob in blobs])
        entries = [entry for trace in traces if trace for entry in trace.entries]
        entries += [pending.body for pending in self._waiting(name)]
        return {str(entry["key"]) for entry in entries if entry.get("key")}

    def _names(self, name: str) -> list[str]:
        """The names of an agent: its own, and its former ones."""
        all_names, former = [name], self._core.former_name(name, self._core.require_head(name))
        while former is not None:
            all_names.append(former[0])
            former = self._core.former_name(*former)
        return all_names

    def entry(self, kind: str, text: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A redacted entry that the caller appends together with other changes. ``data`` is small and clean."""
        clean, count, _ = self._redact_chunk(text, None)
        entry = self._limited(_time(self._core), kind, clean, count)
        return entry if data is None else entry | {"data": dict(data)}

    def _data(self, data: Mapping[str, Any]) -> Any:
        if not isinstance(data, dict):
            raise _invalid("data", "must have an object as its 'data'")
        clean = self._core.clean.value(data)
        size = len(as_bytes({"data": clean}))
        return clean if size <= self._entry_max else {"cut": size}

    def _limited(self, at: str, kind: str, text: str, count: int) -> dict[str, Any]:
        entry: dict[str, Any] = {"at": at, "kind": kind, "text": text}
        if len(text) > self._entry_max:
            entry["text"] = f"{text[: self._entry_max]}\n[cut: {len(text) - self._entry_max} more characters]"
            entry["cut"] = len(text)
        if count:
            entry["redacted"] = count
        return entry

    def pending(self, name: str) -> list[dict[str, Any]]:
        """The pending entries, in order."""
        self._core.require_known(name)
        return [pending.body for pending in self._waiting(name)]

    def _waiting(self, name: str) -> list[StreamEntry]:
        with self._core.store.reading() as view:
            return view.streams.read(stream(name))

    def next_trace(self, name: str) -> PendingTrace:
        """The trace that the next commit gets: the digest that it names, and up to where the pending entries belong to it."""
        waiting = self._waiting(name)
        digest = trace_digest([pending.body for pending in waiting]) if waiting else None
        return PendingTrace(digest, waiting[-1].position if waiting else 0)

    def drained(self, name: str, commit: str, until: int | None = None) -> tuple[str, tuple[str, int]] | None:
        """The note that binds pending entries to a commit, and the last position it includes; None if nothing is pending.

        ``until``: the last position to include; None for all.
        """
        waiting = [pending for pending in self._waiting(name) if until is None or pending.position <= until]
        if not waiting:
            return None
        trace = ConsoleTrace(commit, name, tuple(pending.body for pending in waiting))
        return as_bytes(trace.to_object()).decode("utf-8"), (stream(name), waiting[-1].position)

    def forget_bound(self, name: str) -> int:
        """Remove the pending entries that a trace has already, and return their number: an older copy of a store has them again.

        Entries are bound in order, so this ends at the first one that is in no trace.
        """
        with self._envelope.at_work(name):
            waiting = self._waiting(name)
            traces = map(self.read, self._core.notes.all(names.traces(name)).values()) if waiting else ()
            bound = [entry for trace in traces if trace for entry in trace.entries]
            bound_already = list(takewhile(lambda pending: pending.body in bound, waiting))
            if bound_already:
                with self._core.store.writing() as transaction:
                    transaction.streams.forget(stream(name), bound_already[-1].position)
        return len(bound_already)

    def attach(self, commit: str, entries: Iterable[Mapping[str, Any]] | ConsoleTrace, agent: str | None = None) -> str:
        """Bind a trace to any commit, in the notes of its agent; returns the trace's id."""
        core = self._core
        target = core.read(commit)
        listed = _listed(entries)
        owner = target.agent or target.landed or agent
        if owner is None:
            hints = ["give the agent that the trace belongs to"]
            raise InvalidInput(f"commit {commit} does not belong to an agent", code="no-agent", hints=hints, fields={"cid": commit})
        core.require_known(owner)
        if core.head(owner) is not None:
            core.own_head(owner)
        trace = ConsoleTrace(target.cid, owner, tuple(self._cleaned(entry) for entry in listed))
        data = as_bytes(trace.to_object())
        with self._envelope.at_work(owner):
            blob = core.objects.write_blob(data)
            self._record_attachment(trace, core.notes.get(names.traces(owner), target.cid))
            core.notes.bind(names.traces(owner), target.cid, blob, core.person_stamp(), f"attach: trace of {target.cid}\n")
        return blob

    def _record_attachment(self, trace: ConsoleTrace, before: str | None) -> None:
        """Record that a trace takes the place of the one that its commit names."""
        core = self._core
        named = trace_in(core.objects.commit(trace.commit).message)
        if named is None:
            return
        former = None if before is None else self.read(before)
        digests = [named if former is None else trace_digest(former.entries), trace_digest(trace.entries)]
        if digests[0] != digests[1]:
            from clia.space.events import append_event  # rare
            from clia.trust.traces import TOMBSTONES

            body = {"event": ATTACHED, TOMBSTONES: [[trace.commit, *digests]]}
            subject = f"attach: trace of {trace.commit}"
            append_event(core, names.events(trace.agent), core.person_stamp(), body, subject)

    def _cleaned(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise _invalid("text", "must be an object with a 'text'")
        core = self._core
        clean_entry = dict(core.clean.value({key: value for key, value in entry.items() if key != "text"}))
        at = clean_entry.setdefault("at", _time(core))
        kind = clean_entry.setdefault("kind", "console")
        before = clean_entry.get("redacted", 0)
        _check_kind(kind)
        if not isinstance(at, str):
            raise _invalid("at", "must have its time as text")
        if isinstance(before, bool) or not isinstance(before, int):
            raise _invalid("redacted", "must have a number of redactions")
        clean, count, _ = self._redact_chunk(check_text(entry["text"], "text", nul=True), None)
        return clean_entry | self._limited(at, kind, clean, count + before)

    def cid_for(self, commit: str) -> str | None:
        """The id of the trace bound to a commit."""
        return self._bound(self._core.read(commit))[1]

    def cids_for(self, commits: Iterable[AgentCommit]) -> dict[str, str]:
        """The trace of each of the commits that has one. Notes that cannot be read count as none."""
        by_owner: dict[str | None, list[AgentCommit]] = {}
        for commit in commits:
            owner = commit.agent or commit.landed
            by_owner.setdefault(owner if owner is not None and names.is_name(owner) else None, []).append(commit)
        traces: dict[str, str] = {}
        for owner, owned in by_owner.items():
            refs = [names.traces(owner)] if owner is not None else [ref for ref, _ in self._core.refs.under(names.TRACES)]
            for ref in refs:
                with suppress(*UNREADABLE):
                    traces |= self._core.notes.among(ref, [commit.cid for commit in owned if commit.cid not in traces])
        if self._core.refs.under(names.PEERS, limit=1):
            peers = ((commit, next(self._of_peers(commit), None)) for owned in by_owner.values() for commit in owned)
            traces |= {
                commit.cid: str(self._core.notes.get(ref, commit.cid))
                for commit, ref in peers
                if ref is not None and commit.cid not in traces
            }
        return traces

    def _bound(self, commit: AgentCommit) -> tuple[str, str | None]:
        """The notes ref and the id of a commit's trace. Other agents' notes that cannot be read are skipped."""
        for ref in self._refs(commit):
            with suppress(*(() if ref == names.traces(commit.agent or "") else UNREADABLE)):
                cid = self._core.notes.get(ref, commit.cid)
                if cid is not None:
                    return ref, cid
        return "", None

    def _refs(self, commit: AgentCommit) -> Iterator[str]:
        """The notes that may hold a commit's trace: of its agent here, else of any agent; then of peers."""
        owner = commit.agent or commit.landed
        if owner is not None and names.is_name(owner):
            yield names.traces(owner)
        else:
            yield from [ref for ref, _ in self._core.refs.under(names.TRACES)]
        yield from self._of_peers(commit)

    def _of_peers(self, commit: AgentCommit) -> Iterator[str]:
        """The notes of peers' agents about a commit, unless it is a commit of an agent of this space."""
        core, name = self._core, commit.agent or ""
        for ref, _ in core.refs.under(names.PEERS) if names.is_name(name) else ():
            notes = names.remote(ref.removeprefix(names.PEERS), f"notes/trace/{name}")
            if core.notes.get(notes, commit.cid) is not None and not self._is_ours(name, commit.cid):
                yield notes

    def _is_ours(self, name: str, cid: str) -> bool:
        head = self._core.refs.get(names.head(name)) or self._core.refs.get(names.archived(name))
        return head is not None and any(commit.cid == cid for commit in self._core.own_commits(name, head))

    def trace_for(self, commit: str) -> ConsoleTrace | None:
        """The trace of a commit; for a landing, the traces of all landed commits."""
        target = self._core.read(commit)
        ref, cid = self._bound(target)
        if cid is not None:
            return self._as_bound(ref, cid, target.cid)
        if target.landed is None or target.range is None:
            return None
        traces = [trace for trace in map(self.trace_for, self._landed_commits(target)) if trace is not None]
        entries = tuple(entry for trace in traces for entry in trace.entries)
        return ConsoleTrace(target.cid, target.landed, entries) if traces else None

    def _landed_commits(self, landed: AgentCommit) -> list[str]:
        """The agent's own commits in a landing's range, oldest first."""
        base, _, head = (landed.range or "").partition("..")
        core = self._core
        if core.objects.kind(head) != "commit":
            return []
        hidden = [base] if core.objects.kind(base) == "commit" else []
        commits = map(agent_commit, core.graph.walk([head], hidden))
        return [commit.cid for commit in commits if commit.agent == landed.landed][::-1]

    def read(self, cid: str) -> ConsoleTrace | None:
        """The trace in a note; None for a note of another program."""
        self._core.objects.require([cid])
        note = parse(self._core.objects.blob(cid))
        if note is None or note["type"] != "console-trace":
            return None
        return ConsoleTrace(note["commit"], note["agent"], tuple(note["entries"]))

    def _as_bound(self, ref: str, cid: str, commit: str) -> ConsoleTrace | None:
        """A trace as read from these notes."""
        trace = self.read(cid)
        if trace is None or not ref.startswith(names.REMOTES):
            return trace
        # A peer's trace belongs to the commit that it is bound to, whatever it claims; malformed entries become text.
        entries = tuple(entry if isinstance(entry, dict) else {"text": json.dumps(entry)} for entry in trace.entries)
        return ConsoleTrace(commit, trace.agent, entries)

    def owner(self, cid: str | None) -> str | None:
        """The agent that a trace belongs to; None if it cannot be read, as in a partial clone."""
        try:
            trace = None if cid is None else self.read(cid)
        except UNREADABLE:
            return None
        return None if trace is None else trace.agent

    def session_traces(self, name: str, commits: Iterable[AgentCommit]) -> list[BoundTrace]:
        """The traces of an agent's own commits, newest first; the agent may be ``PEER/AGENT``."""
        remote = names.remote_agent(name)
        ref = names.remote(remote[0], f"notes/trace/{remote[1]}") if remote else names.traces(name)
        notes = self._core.notes.all(ref)
        traced = [commit.cid for commit in commits if commit.cid in notes]
        traces = ((notes[commit], self._as_bound(ref, notes[commit], commit)) for commit in traced)
        return [BoundTrace(cid, trace) for cid, trace in traces if trace is not None]

    def history(self, commit: str) -> list[TraceChange]:
        """Every binding that a commit's trace had, newest first."""
        target = self._core.read(commit)
        changes: list[NoteChange] = []
        for ref in self._refs(target):
            with suppress(*(() if ref == names.traces(target.agent or "") else UNREADABLE)):
                changes += self._core.notes.history(ref, target.cid)
        return [TraceChange(change.commit, change.blob, change.by, change.message.strip()) for change in changes]

    def search(self, matches: Callable[[str], bool], agents: Sequence[str]) -> Iterator[TraceHit]:
        """The entries whose text matches, bound or pending. Of several agents, traces that cannot be read are skipped.

        A rewritten commit has a copy of the trace of its former one. Such entries are hits once, on the agent's branch.
        """
        skipped = UNREADABLE if len(agents) > 1 else ()
        for name in agents:
            notes: dict[str, str] = {}
            with suppress(*skipped):
                notes = self._core.notes.all(names.traces(name))
            all_hits = (self._hits(name, commit, cid, matches, skipped) for commit, cid in sorted(notes.items()))
            yield from self._distinct(name, filter(None, all_hits))
            yield from _hits(name, None, [pending.body for pending in self._waiting(name)], matches)

    def _hits(
        self, name: str, commit: str, cid: str, matches: Callable[[str], bool], skipped: tuple[type[BaseException], ...]
    ) -> _TraceHits | None:
        with suppress(*skipped):
            trace = self.read(cid)
            hits = list(_hits(name, commit, trace.entries if trace else (), matches))
            if trace is not None and hits:
                return _TraceHits(sha256(json.dumps(trace.entries, sort_keys=True).encode()).digest(), commit, hits)
        return None

    def _distinct(self, name: str, traces: Iterable[_TraceHits]) -> Iterator[TraceHit]:
        """The hits in traces without those of former commits that a trace on the branch repeats."""
        contents, former = set[bytes](), list[_TraceHits]()
        for trace in traces:
            if self._is_on_branch(name, trace.commit):
                contents.add(trace.content)
                yield from trace.hits
            else:
                former.append(trace)
        for trace in former:
            if trace.content not in contents:
                contents.add(trace.content)
                yield from trace.hits

    def _is_on_branch(self, name: str, commit: str) -> bool:
        with suppress(*UNREADABLE):
            head = self._core.refs.get(names.head(name)) or self._core.refs.get(names.archived(name))
            return head is not None and self._core.contains(head, commit)
        return False


class _TraceHits(NamedTuple):
    """The entries of one trace that match."""

    content: bytes  # digest of all entries
    commit: str
    hits: list[TraceHit]


def _hits(name: str, commit: str | None, entries: Sequence[Any], matches: Callable[[str], bool]) -> Iterator[TraceHit]:
    for position, entry in enumerate(entries):
        if isinstance(entry, dict) and matches(searchable(entry)):
            yield TraceHit(name, commit, position, entry)


def searchable(entry: Mapping[str, Any]) -> str:
    """The text of an entry that a search looks at."""
    return f"{entry.get('text', '')}{json.dumps(entry.get('data') or '', ensure_ascii=False)}"


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        hints = ["lower-case letters, digits and hyphens: console, tool-call, session"]
        raise InvalidInput(f"{kind!r} is not a valid entry kind", code="invalid-kind", hints=hints, fields={"kind": kind})


def _invalid(field: str, problem: str) -> InvalidInput:
    return InvalidInput(f"a trace entry {problem}", code="invalid-entry", fields={"field": field})


def _listed(entries: object) -> tuple[Any, ...]:
    if isinstance(entries, ConsoleTrace):
        return entries.entries
    if isinstance(entries, (str, bytes, dict)) or not isinstance(entries, Iterable):
        raise _invalid("entries", "must be in a list")
    return tuple(entries)


def _time(core: Core) -> str:
    from clia.values.clock import timestamp  # a commit without new entries needs no time of its own

    return timestamp(core.clock())
