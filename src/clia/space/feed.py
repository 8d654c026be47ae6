"""The feed of ref changes: agents that moved, appeared or disappeared, flows, and peers.

Invariant: each change is reported once, however many processes look. The known refs and the entries about them are written in one
transaction, and only if nobody looked in between; refs are read after the record of the last look, so an older state is never
news. The first look only records. Changes between two looks are reported as one. Clones that share the feed each remember their
own refs; the last report on each agent is shared, so a clone that comes later with the same or an older state adds nothing.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from clia.errors import CliaError, Conflict
from clia.store.interface import ABSENT, FEED
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.space.core import Core
    from clia.store.interface import Store, Transaction, Versioned

SEEN = "feed/refs"
"""The version of each bucket. Every look that finds something changes it: concurrent lookers race for it."""
BUCKET = "feed/refs/"
TOLD = "feed/told/"
"""The last report on each agent and flow, for clones that share the feed."""
_BUCKETS = 256  # one change among 100,000 refs writes about 25 kB
_AGENT, _ARCHIVED, _FLOW, _PEER, _REMOTE = "agents/", "archive/", "flows/", "peers/", "remotes/"
_WATCHED = {
    _AGENT: names.HEADS,
    _ARCHIVED: names.ARCHIVE,
    _FLOW: names.BEHAVIOURS,
    _PEER: names.PEERS,
    _REMOTE: names.REMOTES,
}
_PLACES = 100
"""Maximum number of a peer's refs named in one entry; the total is always given."""

HEAD, ARCHIVED, RESTORED, GONE, CHANGED_FLOW, CHANGED_PEER = "head", "archived", "restored", "gone", "flow", "peer"


KEPT = 10_000
"""Entries kept when the feed is trimmed."""


def oldest(store: Store) -> int:
    """The first position that is still available, or will be."""
    with store.reading() as view:
        kept = view.streams.read(FEED, limit=1)
        return kept[0].position if kept else view.streams.end(FEED) + 1


def trim(store: Store, keep: int = KEPT) -> int:
    """Delete all but the newest entries; returns how many were deleted."""
    with store.reading() as view:
        upto = view.streams.end(FEED) - keep
    dropped = upto - oldest(store) + 1
    if dropped <= 0:
        return 0  # the usual case: blocks no writer
    with store.writing() as transaction:
        transaction.streams.forget(FEED, upto)
    return dropped


class _KnownRefs(NamedTuple):
    """The refs as of the last look."""

    version: int  # of the record; ABSENT before the first look
    since: str | None  # time of the first look: identifies this record after a store was lost
    versions: Mapping[str, int]  # of the buckets
    buckets: Mapping[str, Mapping[str, str]]
    refs: Mapping[str, str]

    @property
    def first(self) -> bool:
        return self.since is None


_NOTHING = _KnownRefs(ABSENT, None, {}, {}, {})


class RefWatcher:
    """Reports ref changes. If nothing happened, a look reads one small value and asks the refs what moved."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last = _NOTHING
        self._mark: Any = None  # the refs' own marker for the next look
        self._found: Mapping[str, str] = {}

    def look(self) -> int:
        """Report what changed among the refs; returns the number of entries."""
        while True:
            seen = self._seen()
            now = self._refs(seen.refs)
            if not seen.first and (now is seen.refs or now == seen.refs):
                self._last = seen
                return 0
            try:
                return self._tell(seen, now)
            except Conflict as err:
                if err.code != "stale-value":
                    raise
                # Another process looked in between and reported.

    def _refs(self, before: Mapping[str, str]) -> Mapping[str, str]:
        look = self._core.refs.look(list(_WATCHED.values()), self._mark)
        if look.moved is None:
            listed = _watched([self._core.refs.under(prefix) for prefix in _WATCHED.values()])
            self._found = self._found if listed == self._found else listed
        elif look.moved:
            self._found = self._moved(look.moved)
        self._mark = look.seen
        found = self._found
        if found is before:
            return found
        for name in {key.partition("/")[2] for key in before.keys() - found.keys() if key.startswith((_AGENT, _ARCHIVED))}:
            # An agent restored between the two reads was in neither.
            head = self._core.refs.get(names.head(name)) if found.keys().isdisjoint((_AGENT + name, _ARCHIVED + name)) else None
            found = found if head is None else {**found, _AGENT + name: head}
        return found

    def _moved(self, refs: list[str]) -> dict[str, str]:
        """The refs found before, updated with those that moved."""
        wanted: dict[str, str] = {}
        for ref in refs:
            key = _key_of(ref)
            if key is not None and key.startswith((_AGENT, _ARCHIVED)):
                name = key.partition("/")[2]  # the head first: it may be archived between the reads
                wanted |= {_AGENT + name: names.head(name), _ARCHIVED + name: names.archived(name)}
            elif key is not None:
                wanted[key] = ref
        now = {key: self._core.refs.get(ref) for key, ref in wanted.items()}
        found = {key: cid for key, cid in self._found.items() if key not in now}
        return found | {key: cid for key, cid in now.items() if cid is not None}

    def _seen(self) -> _KnownRefs:
        with self._core.store.reading() as view:
            record = view.values.get(SEEN)
            if record is None:
                return _NOTHING
            try:
                return self._read(view, record)
            except (TypeError, KeyError, ValueError, AttributeError):
                return _NOTHING._replace(version=record.version)  # damaged: start from the current refs

    def _read(self, view: Transaction, record: Versioned) -> _KnownRefs:
        last, since, versions = self._last, record.value["since"], {**record.value["versions"]}
        same = last.since == since
        if same and last.version == record.version:
            return last
        kept = {name: last.buckets[name] for name in versions if same and last.versions.get(name) == versions[name]}
        if len(kept) * 2 < len(versions):
            kept = {name: refs for name, refs in _all_buckets(view) if name in versions}
        for name in versions:
            if name not in kept:
                kept[name] = _bucket(view, name)
        return _KnownRefs(record.version, since, versions, kept, _joined(kept))

    def _tell(self, seen: _KnownRefs, now: Mapping[str, str]) -> int:
        core = self._core
        at = timestamp(core.clock())
        since = seen.since or timestamp(core.clock(), "milliseconds")
        changed = {key for key, _ in now.items() ^ seen.refs.items()}
        entries = [] if seen.first else [self._entry(*each, at) for each in _changes(changed, seen.refs, now)]
        entries += [] if seen.first else _of_peers(changed, now, at)
        made = _split(seen.buckets, now, changed)
        with core.store.writing() as transaction:
            versions = dict(seen.versions)
            for name, refs in sorted(made.items()):
                versions[name] = transaction.values.put(BUCKET + name, refs)
            version = transaction.values.put(SEEN, {"since": since, "versions": versions}, expected=seen.version)
            if core.clone is not None:
                entries = [entry for entry in entries if self._is_news(transaction, entry)]
            transaction.streams.append(FEED, entries)
        self._last = _KnownRefs(version, since, versions, {**seen.buckets, **made}, now)
        return len(entries)

    def _entry(self, event: str, what: tuple[str, str], before: str | None, cid: str | None, at: str) -> dict[str, Any]:
        said = {what[0]: what[1], "cid": cid, "before": before, "kind": None if cid is None else self._kind(cid)}
        return {"event": event, **{key: each for key, each in said.items() if each is not None}, "at": at}

    def _is_news(self, transaction: Transaction, entry: Mapping[str, Any]) -> bool:
        """Record a change of an agent or flow unless another clone reported it or a newer one."""
        name = entry.get("agent") or f"flow {entry.get('flow')}"
        if entry["event"] == CHANGED_PEER or "peer" in entry:
            return True  # peers belong to one clone
        key, cid = TOLD + _bucket_of(name), entry.get("cid")
        row = transaction.values.get(key)
        told = dict(row.value) if row is not None and isinstance(row.value, dict) else {}
        event, last = told.get(name, (None, None))
        if last == cid and entry["event"] in (event, HEAD):
            return False  # for the same head, archiving or restoring comes last
        if (event, last) == (entry["event"], cid) or (cid is not None and last not in (None, cid) and self._holds(last, cid)):
            return False
        transaction.values.put(key, {**told, name: [entry["event"], cid]})
        return True

    def _holds(self, newer: str, cid: str) -> bool:
        """Whether a commit is an ancestor of another; a commit that is missing here counts as newer."""
        return self._core.objects.kind(newer) is None or self._core.graph.descends(newer, cid)

    def _kind(self, cid: str) -> str | None:
        """A commit's kind; None for a plain git commit, or a missing one."""
        try:
            return self._core.read(cid).kind
        except CliaError:
            return None


def _watched(listed: list[list[tuple[str, str]]]) -> dict[str, str]:
    """The refs of agents, flows and peers, by short name."""
    return {key: cid for refs in listed for ref, cid in refs if (key := _key_of(ref)) is not None}


def _key_of(ref: str) -> str | None:
    """The short name of a ref; None for any other ref."""
    for short, prefix in _WATCHED.items():
        if ref.startswith(prefix):
            name = ref[len(prefix) :]
            return short + name if names.is_name(name.partition("/")[0] if short == _REMOTE else name) else None
    return None


def _of_peers(changed: set[str], new: Mapping[str, str], at: str) -> Iterator[dict[str, Any]]:
    """One entry for each peer: a sync may move thousands of refs."""
    found: dict[str, list[str]] = {}
    for key in sorted(changed):
        if key.startswith((_PEER, _REMOTE)):
            _, peer, *place = key.split("/", 2)
            found.setdefault(peer, []).extend(place)
    for peer, places in sorted(found.items()):
        moved = {"places": places[:_PLACES], "moved": len(places)}
        yield {"event": CHANGED_PEER if _PEER + peer in new else GONE, "peer": peer, **moved, "at": at}


def _changes(
    changed: set[str], old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, str], str | None, str | None]]:
    """The changes of agents, then flows, sorted by name: what happened, before and after."""
    flows = {key for key in changed if key.startswith(_FLOW)}
    for name in sorted({key.partition("/")[2] for key in changed if key.startswith((_AGENT, _ARCHIVED))}):
        at_work, archived = _AGENT + name, _ARCHIVED + name
        event = _agent_event((old.get(at_work), old.get(archived)), (new.get(at_work), new.get(archived)))
        if event is not None:
            yield event[0], ("agent", name), event[1], event[2]
    for key in sorted(flows):
        yield CHANGED_FLOW if key in new else GONE, ("flow", key.removeprefix(_FLOW)), old.get(key), new.get(key)


def _agent_event(
    old: tuple[str | None, str | None], new: tuple[str | None, str | None]
) -> tuple[str, str | None, str | None] | None:
    """What happened to an agent, given its head and its archived head; None if nothing visible."""
    (head_before, kept_before), (head, kept) = old, new
    before = head_before or kept_before
    if head is not None:
        if head == head_before:
            return None  # only the archived head changed
        return (HEAD if head_before is not None or kept_before is None else RESTORED), before, head
    return (ARCHIVED, before, kept) if kept is not None else (GONE, before, None)


def _bucket_of(key: str) -> str:
    return f"{zlib.crc32(key.encode()) % _BUCKETS:02x}"


def _split(buckets: Mapping[str, Mapping[str, str]], now: Mapping[str, str], changed: set[str]) -> dict[str, dict[str, str]]:
    """The buckets that changed, including those that became empty."""
    made: dict[str, dict[str, str]] = {}
    for key in changed:
        name = _bucket_of(key)
        made.setdefault(name, dict(buckets.get(name, {})))
        if key in now:
            made[name][key] = now[key]
        else:
            made[name].pop(key, None)
    return made


def _all_buckets(view: Transaction) -> Iterator[tuple[str, Mapping[str, str]]]:
    return ((key.removeprefix(BUCKET), refs) for key, refs in view.values.scan(BUCKET))


def _bucket(view: Transaction, name: str) -> Mapping[str, str]:
    kept = view.values.get(BUCKET + name)
    refs: Mapping[str, str] = {} if kept is None else kept.value
    return refs


def _joined(buckets: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for refs in buckets.values():
        found.update(refs)
    return found
