"""The event feed of a space: session steps, and the changes of agents, flows and peers.

Positions only grow, and entries never change. Session steps are written with their entry; ref changes appear after the next look. A
reader continues from its position and misses nothing, unless entries were trimmed (see ``oldest``) or the store was lost (``end``
is then lower than the position).

Ref changes. Invariant: each change is reported once, however many processes look. The known refs and the entries about them are
written in one transaction, which fails if another process looked in between; refs are read after the record of the last look, so an
older state is never reported as new. The first look only records. Changes between two looks are reported as one. Clones that share
the feed each remember their own refs; the last report on each agent is shared, so the same or an older state is not reported by a
second clone.
"""

from __future__ import annotations

import threading
import zlib
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple

from clia.errors import CliaError, Conflict, InvalidInput
from clia.store.interface import ABSENT, ANY_VERSION, FEED
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.space.core import Core
    from clia.store.interface import FeedNotifier, Store, Transaction, Versioned

EPOCH = "feed/epoch"
SEEN = "feed/refs"
"""The version of each bucket. Every scan that finds a change updates it, so that concurrent scans conflict."""
BUCKET = "feed/refs/"
TOLD = "feed/told/"
"""The last report on each agent and flow, for clones that share the feed."""
_BUCKETS = 256  # one change among 100,000 refs writes about 25 kB
_AGENT, _ARCHIVED, _FLOW, _PEER, _REMOTE = "agents/", "archive/", "flows/", "peers/", "remotes/"
_PREFIXES = (names.HEADS, names.ARCHIVE, names.BEHAVIOURS, names.PEERS, names.REMOTES)
_WATCHED = dict(zip((_AGENT, _ARCHIVED, _FLOW, _PEER, _REMOTE), _PREFIXES, strict=True))
_PLACES = 100
"""Maximum number of a peer's refs named in one entry; the total is always given."""

HEAD, ARCHIVED, RESTORED, GONE, CHANGED_FLOW, CHANGED_PEER = "head", "archived", "restored", "gone", "flow", "peer"
KEPT = 10_000
"""Entries kept when the feed is trimmed."""


class FeedEntry(NamedTuple):
    position: int  # starts at 1, never reused
    body: dict[str, Any]


class ReaderPosition(NamedTuple):
    """The position of a named reader, and the version of its row."""

    position: int
    version: int


class Feed:
    """The feed of a space. Threads may share it, but only one may wait."""

    def __init__(self, core: Core, notifier: FeedNotifier) -> None:
        self._core = core
        self._store = core.store
        self.notifier = notifier
        self._looking = RefWatcher(core)
        self._one_look = threading.Lock()

    def epoch(self) -> str:
        """The identifier of this feed; it changes when the store is lost and positions restart."""
        return stored_token(self._store, EPOCH, 4)

    def end(self) -> int:
        """The position of the last entry; lower than a reader's position if the store was lost."""
        with self._store.reading() as view:
            return view.streams.end(FEED)

    def oldest(self) -> int:
        """The first position that is still available, or the next one; readers before it have missed entries."""
        return oldest(self._store)

    def read(self, after: int, limit: int = 500) -> list[FeedEntry]:
        """The entries after a position, in order."""
        _check(after, "after", 0)
        _check(limit, "limit", 1)
        with self._store.reading() as view:
            return [FeedEntry(*entry) for entry in view.streams.read(FEED, after, limit)]

    def look(self) -> int:
        """Add entries for ref changes since the last scan, including those by plain git; returns their number."""
        with self._one_look:
            return self._looking.look()

    def trim(self, keep: int = KEPT) -> int:
        """Delete all but the newest entries; returns how many."""
        return trim(self._store, _check(keep, "keep", 0))

    def wait(self, after: int, timeout: float) -> bool:
        """Wait for entries after a position; False on timeout or when the feed is closed."""
        return self.notifier.wait(lambda: self.end() > after, timeout)

    def close(self) -> None:
        """Stop waiting. The space stays open."""
        self.notifier.close()

    # Readers that continue after a restart

    def only_reader(self, name: str) -> AbstractContextManager[bool]:
        """Whether no other process reads under this name while the block runs."""
        return self._core.locks.attempt(name)

    def position_of(self, row: str) -> ReaderPosition:
        """The position kept in a row; a new reader starts at the end of the feed."""
        saved = self._store.get(row)
        end = self.end()
        if saved is not None and type(saved.value) is int and saved.value <= end:
            return ReaderPosition(saved.value, saved.version)
        return self.keep_position(row, ReaderPosition(end, ANY_VERSION))

    def keep_position(self, row: str, reader: ReaderPosition) -> ReaderPosition:
        """Save a position; raises ``Conflict`` if another process has advanced it since ``reader.version``."""
        with self._store.writing() as transaction:
            return reader._replace(version=transaction.values.put(row, reader.position, reader.version))


def stored_token(store: Store, key: str, size: int) -> str:
    """The random token in a row, created on first use; all processes get the same one."""
    row = store.get(key)
    if row is not None and isinstance(row.value, str):
        return row.value
    with store.writing() as transaction:
        row = transaction.values.get(key)
        if row is not None and isinstance(row.value, str):
            return row.value
        token = token_hex(size)
        transaction.values.put(key, token)
    return token


def _check(number: int, field: str, least: int) -> int:
    if type(number) is not int or number < least:
        raise InvalidInput(f"{field} must be at least {least}", code="invalid-number", fields={"field": field})
    return number


def oldest(store: Store) -> int:
    """The first position that is still available, or will be."""
    with store.reading() as view:
        first = view.streams.read(FEED, limit=1)
        return first[0].position if first else view.streams.end(FEED) + 1


def trim(store: Store, keep: int = KEPT) -> int:
    """Delete all but the newest entries; returns how many were deleted."""
    with store.reading() as view:
        upto = view.streams.end(FEED) - keep
    dropped = max(upto - oldest(store) + 1, 0)
    if dropped:  # usually not: blocks no writer
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


_NOTHING = _KnownRefs(ABSENT, None, {}, {}, {})


class RefWatcher:
    """Reports ref changes. If nothing happened, a scan reads one small value and the refs' own marker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last = _NOTHING
        self._mark: Any = None  # the refs' own marker for the next look
        self._found: Mapping[str, str] = {}

    def look(self) -> int:
        """Report what changed among the refs; returns the number of entries."""
        while True:
            recorded = self._known()
            now = self._refs(recorded.refs)
            if recorded.since is not None and (now is recorded.refs or now == recorded.refs):
                self._last = recorded
                return 0
            try:
                return self._report(recorded, now)
            except Conflict as err:
                if err.code != "stale-value":
                    raise
                # Another process reported it in between.

    def _refs(self, before: Mapping[str, str]) -> Mapping[str, str]:
        look = self._core.refs.look(list(_WATCHED.values()), self._mark)
        if look.moved is None:
            refs = (ref for prefix in _WATCHED.values() for ref in self._core.refs.under(prefix))
            listed = {key: cid for ref, cid in refs if (key := _key_of(ref)) is not None}
            self._found = self._found if listed == self._found else listed
        elif look.moved:
            self._found = self._moved(look.moved)
        self._mark = look.state
        current = self._found
        if current is before:
            return current
        for name in {key.partition("/")[2] for key in before.keys() - current.keys() if key.startswith((_AGENT, _ARCHIVED))}:
            # An agent restored between the two reads was in neither.
            head = self._core.refs.get(names.head(name)) if current.keys().isdisjoint((_AGENT + name, _ARCHIVED + name)) else None
            current = current if head is None else {**current, _AGENT + name: head}
        return current

    def _moved(self, refs: list[str]) -> dict[str, str]:
        """The refs found before, updated with those that moved."""
        refs_to_read: dict[str, str] = {}
        for ref in refs:
            key = _key_of(ref)
            if key is not None and key.startswith((_AGENT, _ARCHIVED)):
                name = key.partition("/")[2]  # the head first: it may be archived between the reads
                refs_to_read |= {_AGENT + name: names.head(name), _ARCHIVED + name: names.archived(name)}
            elif key is not None:
                refs_to_read[key] = ref
        now = {key: self._core.refs.get(ref) for key, ref in refs_to_read.items()}
        unchanged = {key: cid for key, cid in self._found.items() if key not in now}
        return unchanged | {key: cid for key, cid in now.items() if cid is not None}

    def _known(self) -> _KnownRefs:
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
        buckets = {name: last.buckets[name] for name in versions if same and last.versions.get(name) == versions[name]}
        if len(buckets) * 2 < len(versions):
            rows = ((key.removeprefix(BUCKET), refs) for key, refs in view.values.scan(BUCKET))
            buckets = {name: refs for name, refs in rows if name in versions}
        for name in versions.keys() - buckets.keys():
            row = view.values.get(BUCKET + name)
            buckets[name] = {} if row is None else row.value
        all_refs: dict[str, str] = {}
        for refs in buckets.values():
            all_refs.update(refs)
        return _KnownRefs(record.version, since, versions, buckets, all_refs)

    def _report(self, recorded: _KnownRefs, now: Mapping[str, str]) -> int:
        core = self._core
        at = timestamp(core.clock())
        changed = {key for key, _ in now.items() ^ recorded.refs.items()}
        entries: list[dict[str, Any]] = []
        if recorded.since is not None:
            entries = [self._entry(*change, at) for change in _changes(changed, recorded.refs, now)]
            entries += _of_peers(changed, now, at)
        since = recorded.since or timestamp(core.clock(), "milliseconds")
        changed_buckets = _split(recorded.buckets, now, changed)
        with core.store.writing() as transaction:
            versions = dict(recorded.versions)
            for name, refs in sorted(changed_buckets.items()):
                versions[name] = transaction.values.put(BUCKET + name, refs)
            version = transaction.values.put(SEEN, {"since": since, "versions": versions}, expected=recorded.version)
            if core.clone is not None:
                entries = [entry for entry in entries if self._is_news(transaction, entry)]
            transaction.streams.append(FEED, entries)
        self._last = _KnownRefs(version, since, versions, {**recorded.buckets, **changed_buckets}, now)
        return len(entries)

    def _entry(self, event: str, subject: tuple[str, str], before: str | None, cid: str | None, at: str) -> dict[str, Any]:
        kind = None
        if cid is not None:
            with suppress(CliaError):  # a missing commit, which has no kind, as a plain git commit
                kind = self._core.read(cid).kind
        facts = {subject[0]: subject[1], "cid": cid, "before": before, "kind": kind}
        return {"event": event, **{key: value for key, value in facts.items() if value is not None}, "at": at}

    def _is_news(self, transaction: Transaction, entry: Mapping[str, Any]) -> bool:
        """Record a change of an agent or flow unless another clone reported it or a newer one."""
        name = entry.get("agent") or f"flow {entry.get('flow')}"
        if entry["event"] == CHANGED_PEER or "peer" in entry:
            return True  # peers belong to one clone
        key, cid = TOLD + _bucket_of(name), entry.get("cid")
        row = transaction.values.get(key)
        reports = dict(row.value) if row is not None and isinstance(row.value, dict) else {}
        event, last = reports.get(name, (None, None))
        if last == cid and entry["event"] in (event, HEAD):
            return False  # for the same head, archiving or restoring comes last
        if (
            cid is not None
            and last not in (None, cid)
            and (self._core.objects.kind(last) is None or self._core.contains(last, cid))
        ):
            return False  # a commit that is missing here counts as newer
        transaction.values.put(key, {**reports, name: [entry["event"], cid]})
        return True


def _key_of(ref: str) -> str | None:
    """The short name of a ref; None for any other ref."""
    for short, prefix in _WATCHED.items():
        if ref.startswith(prefix):
            name = ref[len(prefix) :]
            return short + name if names.is_name(name.partition("/")[0] if short == _REMOTE else name) else None
    return None


def _of_peers(changed: set[str], new: Mapping[str, str], at: str) -> Iterator[dict[str, Any]]:
    """One entry for each peer: a sync may move thousands of refs."""
    places_of: dict[str, list[str]] = {}
    for key in sorted(changed):
        if key.startswith((_PEER, _REMOTE)):
            _, peer, *place = key.split("/", 2)
            places_of.setdefault(peer, []).extend(place)
    for peer, places in sorted(places_of.items()):
        moved = {"places": places[:_PLACES], "moved": len(places)}
        yield {"event": CHANGED_PEER if _PEER + peer in new else GONE, "peer": peer, **moved, "at": at}


def _changes(
    changed: set[str], old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, str], str | None, str | None]]:
    """The changes of agents, then flows, sorted by name: the event, and the values before and after."""
    for name in sorted({key.partition("/")[2] for key in changed if key.startswith((_AGENT, _ARCHIVED))}):
        at_work, archived = _AGENT + name, _ARCHIVED + name
        event = agent_event((old.get(at_work), old.get(archived)), (new.get(at_work), new.get(archived)))
        if event is not None:
            yield event[0], ("agent", name), event[1], event[2]
    for key in sorted(key for key in changed if key.startswith(_FLOW)):
        yield CHANGED_FLOW if key in new else GONE, ("flow", key.removeprefix(_FLOW)), old.get(key), new.get(key)


def agent_event(
    old: tuple[str | None, str | None], new: tuple[str | None, str | None]
) -> tuple[str, str | None, str | None] | None:
    """The event of an agent, given its head and its archived head before and after; None if no change is visible."""
    (head_before, archived_before), (head, archived) = old, new
    before = head_before or archived_before
    if head is not None:
        if head == head_before:
            return None  # only the archived head changed
        return (HEAD if head_before is not None or archived_before is None else RESTORED), before, head
    return (ARCHIVED if archived is not None else GONE), before, archived


def _bucket_of(key: str) -> str:
    return f"{zlib.crc32(key.encode()) % _BUCKETS:02x}"


def _split(buckets: Mapping[str, Mapping[str, str]], now: Mapping[str, str], changed: set[str]) -> dict[str, dict[str, str]]:
    """The buckets that changed, including those that became empty."""
    changed_buckets: dict[str, dict[str, str]] = {}
    for key in changed:
        name = _bucket_of(key)
        bucket = changed_buckets.setdefault(name, dict(buckets.get(name, {})))
        if key in now:
            bucket[key] = now[key]
        else:
            bucket.pop(key, None)
    return changed_buckets
