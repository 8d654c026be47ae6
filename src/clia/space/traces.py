"""Traces: what an agent said and did, bound to its commits.

Invariant: an entry is either pending in the store or in exactly one bound trace. It is redacted before it is stored anywhere.
Binding a trace never changes a commit's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from clia.errors import InvalidInput
from clia.space.model import BoundTrace, TraceChange, TraceHit, agent_commit
from clia.values import refs as names
from clia.values.clock import timestamp
from clia.values.commit_messages import check_text
from clia.values.typed_objects import ConsoleTrace, as_bytes, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit
    from clia.store.interface import StreamEntry

    Chunks = Callable[[str, Sequence[str] | None], tuple[str, int, Sequence[str]]]

ENTRY_MAX = 256 * 1024
SEEN = "seen/"
"""Prefix of the keys of an agent's entries that are recorded once."""
_KEY = re.compile(r"[!-~]{1,256}")
_KIND = re.compile(r"[a-z][a-z0-9-]{0,63}")


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
        _check_entry_text(text)
        at = timestamp(core.clock())
        key = redaction(name, kind)
        with core.store.writing() as transaction:
            before = transaction.values.get(key)
            clean, count, state = self._redact_chunk(text, before.value if before else None)
            if list(state) != (before.value if before else None):
                transaction.values.put(key, list(state))
            entry = self._entry(at, kind, clean, count)
            if data is not None:
                entry["data"] = self._data(data)
            return transaction.streams.append(stream(name), [entry])

    def add_once(self, name: str, entries: Iterable[Mapping[str, Any]]) -> int:
        """Append the entries whose ``key`` is new for the agent, atomically; returns their number."""
        core = self._core
        core.own_head(name)
        made = [self._once(each) for each in _listed(entries)]
        known = SEEN + name
        rebuilt = self._keys(name) if core.store.get(known) is None else set()
        with core.store.writing() as transaction:
            values = transaction.values
            if rebuilt or values.get(known) is None:
                for key in rebuilt:
                    values.put(f"{known}/{key}", 1)
                values.put(known, 1)
            fresh: dict[str, dict[str, Any]] = {}
            for entry in made:
                if entry["key"] not in fresh and values.get(f"{known}/{entry['key']}") is None:
                    fresh[entry["key"]] = entry
            for key in fresh:
                values.put(f"{known}/{key}", 1)
            if fresh:
                transaction.streams.append(stream(name), list(fresh.values()))
        return len(fresh)

    def _once(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        key = entry.get("key") if isinstance(entry, dict) else None
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise _invalid("key", "that counts once has a 'key' of 1 to 256 printable ASCII characters without spaces")
        # The key is an id: redacting it could make two keys equal.
        made = self._cleaned({name: each for name, each in entry.items() if name != "key"}) | {"key": key}
        return made if made.get("data") is None else made | {"data": self._data(made["data"])}

    def _keys(self, name: str) -> set[str]:
        """The keys of all entries of an agent, bound or pending: rebuilds a lost store."""
        found: set[str] = set()
        for cid in self._core.notes.all(names.traces(name)).values():
            trace = self._if_trace(cid)
            found |= {str(each["key"]) for each in (trace.entries if trace else ()) if each.get("key")}
        return found | {str(each.body["key"]) for each in self._waiting(name) if each.body.get("key")}

    def made(self, kind: str, text: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A redacted entry that the caller appends together with other changes. ``data`` is small and clean."""
        clean, count, _ = self._redact_chunk(text, None)
        entry = self._entry(timestamp(self._core.clock()), kind, clean, count)
        return entry if data is None else entry | {"data": dict(data)}

    def _data(self, data: Mapping[str, Any]) -> Any:
        if not isinstance(data, dict):
            raise _invalid("data", "has data that is an object")
        clean = self._core.clean.value(data)
        size = len(as_bytes({"data": clean}))
        return clean if size <= self._entry_max else {"cut": size}

    def _entry(self, at: str, kind: str, text: str, count: int) -> dict[str, Any]:
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
        return [each.body for each in self._waiting(name)]

    def _waiting(self, name: str) -> list[StreamEntry]:
        with self._core.store.reading() as view:
            return view.streams.read(stream(name))

    def drained(self, name: str, commit: str) -> tuple[str, tuple[str, int]] | None:
        """The note that binds all pending entries to a commit, and the last position it includes; None if nothing is pending."""
        waiting = self._waiting(name)
        if not waiting:
            return None
        trace = ConsoleTrace(commit, name, tuple(each.body for each in waiting))
        return as_bytes(trace.to_object()).decode("utf-8"), (stream(name), waiting[-1].position)

    def attach(self, commit: str, entries: Iterable[Mapping[str, Any]] | ConsoleTrace, agent: str | None = None) -> str:
        """Bind a trace to any commit, in the notes of its agent; returns the trace's id."""
        core = self._core
        found = core.read(commit)
        given = _listed(entries)
        owner = found.agent or found.landed or agent
        if owner is None:
            raise InvalidInput(
                f"the commit {commit} belongs to no agent",
                code="no-agent",
                hints=["name the agent whose trace it is"],
                fields={"cid": commit},
            )
        core.require_known(owner)
        if core.head(owner) is not None:
            core.own_head(owner)
        trace = ConsoleTrace(found.cid, owner, tuple(self._cleaned(each) for each in given))
        data = as_bytes(trace.to_object())
        with self._envelope.at_work(owner):
            blob = core.objects.write_blob(data)
            core.notes.bind(names.traces(owner), found.cid, blob, core.person_stamp(), f"attach: trace of {found.cid}\n")
        return blob

    def _cleaned(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise _invalid("text", "is an object with a 'text'")
        core = self._core
        made = dict(core.clean.value({key: each for key, each in entry.items() if key != "text"}))
        at, kind, before = (
            made.setdefault("at", timestamp(core.clock())),
            made.setdefault("kind", "console"),
            made.get("redacted", 0),
        )
        _check_kind(kind)
        if not isinstance(at, str):
            raise _invalid("at", "says when as a text")
        if isinstance(before, bool) or not isinstance(before, int):
            raise _invalid("redacted", "counts what was redacted as a number")
        clean, count, _ = self._redact_chunk(_check_entry_text(entry["text"]), None)
        made.update(self._entry(at, kind, clean, count + before))
        return made

    def cid_for(self, commit: str) -> str | None:
        """The id of the trace bound to a commit."""
        return self._bound(self._core.read(commit))[1]

    def _bound(self, commit: AgentCommit) -> tuple[str, str | None]:
        """The notes ref and the id of a commit's trace."""
        for ref in self._refs(commit):
            cid = self._core.notes.get(ref, commit.cid)
            if cid is not None:
                return ref, cid
        return "", None

    def _refs(self, commit: AgentCommit) -> Iterator[str]:
        """The notes that may hold a commit's trace: of its agents here, then of peers."""
        yield from (names.traces(owner) for owner in self._owners(commit))
        yield from self._of_peers(commit)

    def _of_peers(self, commit: AgentCommit) -> Iterator[str]:
        """The notes of peers' agents about a commit, unless it is a commit of an agent of ours."""
        core, name = self._core, commit.agent or ""
        for ref, _ in core.refs.under(names.PEERS) if names.is_name(name) else ():
            notes = names.remote(ref.removeprefix(names.PEERS), f"notes/trace/{name}")
            if core.notes.get(notes, commit.cid) is not None and not self._is_ours(name, commit.cid):
                yield notes

    def _is_ours(self, name: str, cid: str) -> bool:
        head = self._core.refs.get(names.head(name)) or self._core.refs.get(names.archived(name))
        return head is not None and any(each.cid == cid for each in self._core.own_commits(name, head))

    def _owners(self, commit: AgentCommit) -> list[str]:
        """The agents whose notes may hold a commit's trace: its own, else any."""
        owner = commit.agent or commit.landed
        if owner is not None and names.is_name(owner):
            return [owner]
        return [ref.removeprefix(names.TRACES) for ref, _ in self._core.refs.under(names.TRACES)]

    def trace_for(self, commit: str) -> ConsoleTrace | None:
        """The trace of a commit; for a landing, the traces of all landed commits."""
        found = self._core.read(commit)
        ref, cid = self._bound(found)
        if cid is not None:
            return self._as_bound(ref, cid, found.cid)
        if found.landed is None or found.range is None:
            return None
        traces = [each for each in (self.trace_for(cid) for cid in self._landed_commits(found)) if each is not None]
        entries = tuple(entry for trace in traces for entry in trace.entries)
        return ConsoleTrace(found.cid, found.landed, entries) if traces else None

    def _landed_commits(self, landed: AgentCommit) -> list[str]:
        """The agent's own commits in a landing's range, oldest first."""
        base, _, head = (landed.range or "").partition("..")
        core = self._core
        if core.objects.kind(head) != "commit":
            return []
        hidden = [base] if core.objects.kind(base) == "commit" else []
        own = [each.cid for each in map(agent_commit, core.graph.walk([head], hidden)) if each.agent == landed.landed]
        return own[::-1]

    def _if_trace(self, cid: str) -> ConsoleTrace | None:
        """None for a note of another program."""
        made = parse(self._core.objects.blob(cid))
        if made is None or made["type"] != "console-trace":
            return None
        return ConsoleTrace(made["commit"], made["agent"], tuple(made["entries"]))

    def _as_bound(self, ref: str, cid: str, commit: str) -> ConsoleTrace | None:
        """A trace as read from these notes."""
        trace = self._if_trace(cid)
        if trace is None or not ref.startswith(names.REMOTES):
            return trace
        # A peer's trace belongs to the commit that it is bound to, whatever it claims; malformed entries become text.
        entries = tuple(each if isinstance(each, dict) else {"text": json.dumps(each)} for each in trace.entries)
        return ConsoleTrace(commit, trace.agent, entries)

    def owner(self, cid: str | None) -> str | None:
        """The agent that a trace belongs to."""
        found = None if cid is None else self._if_trace(cid)
        return None if found is None else found.agent

    def session_traces(self, name: str, commits: Iterable[AgentCommit]) -> list[BoundTrace]:
        """The traces of an agent's own commits, newest first; the agent may be ``PEER/AGENT``."""
        named = names.remote_agent(name)
        ref = names.remote(named[0], f"notes/trace/{named[1]}") if named else names.traces(name)
        bound = self._core.notes.all(ref)
        found = ((bound[each.cid], self._as_bound(ref, bound[each.cid], each.cid)) for each in commits if each.cid in bound)
        return [BoundTrace(cid, trace) for cid, trace in found if trace is not None]

    def history(self, commit: str) -> list[TraceChange]:
        """Every binding that a commit's trace had, newest first."""
        found = self._core.read(commit)
        changes: list[TraceChange] = []
        for ref in self._refs(found):
            for each in self._core.notes.history(ref, found.cid):
                changes.append(TraceChange(each.commit, each.blob, each.by, each.message.strip()))
        return changes

    def search(self, matches: Callable[[str], bool], agents: Sequence[str]) -> Iterator[TraceHit]:
        """The entries whose text matches, bound or pending."""
        for name in agents:
            for commit, cid in sorted(self._core.notes.all(names.traces(name)).items()):
                made = parse(self._core.objects.blob(cid))
                entries = made["entries"] if made is not None and made["type"] == "console-trace" else []
                yield from _hits(name, commit, entries, matches)
            yield from _hits(name, None, [each.body for each in self._waiting(name)], matches)


def _hits(name: str, commit: str | None, entries: Sequence[Any], matches: Callable[[str], bool]) -> Iterator[TraceHit]:
    for position, entry in enumerate(entries):
        if isinstance(entry, dict) and matches(
            str(entry.get("text", "")) + json.dumps(entry.get("data") or "", ensure_ascii=False)
        ):
            yield TraceHit(name, commit, position, entry)


def _check_entry_text(text: str) -> str:
    """Any text is allowed, including NUL, which JSON escapes."""
    check_text(text, "text", nul=True)
    return text


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        hints = ["lower-case letters, digits and hyphens: console, tool-call, session"]
        raise InvalidInput(f"{kind!r} is not a valid entry kind", code="invalid-kind", hints=hints, fields={"kind": kind})


def _invalid(field: str, problem: str) -> InvalidInput:
    return InvalidInput(f"an entry of a trace {problem}", code="invalid-entry", fields={"field": field})


def _listed(entries: object) -> tuple[Any, ...]:
    if isinstance(entries, ConsoleTrace):
        return entries.entries
    if isinstance(entries, (str, bytes, dict)) or not isinstance(entries, Iterable):
        raise _invalid("entries", "comes in a list")
    return tuple(entries)
