"""Purging a leaked text.

Invariant: afterwards no reachable object or row of the agent's traces, their history or its pending entries holds the text. Every
other place that may still hold it is reported.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clia.errors import InvalidInput
from clia.space.events import PURGED, append_event
from clia.space.traces import redaction, stream
from clia.trust.statements import PURGE, RecordedAct
from clia.trust.traces import TOMBSTONES
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.typed_objects import as_bytes, parse, trace_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clia.git.porcelain import GitPorcelain
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.upkeep import Archiving
    from clia.verbs import Count

    State = Callable[[RecordedAct], list[tuple[str, str]]]

MARK = "[purged]"
_SWEEP = "sweep/"
_KEPT = frozenset(("at", "kind", "redacted", "cut"))


class Purged(NamedTuple):
    """The changes, and the places where the text may still be."""

    agent: str  # the agent
    traces: Count  # traces that were rewritten
    pending: Count  # pending entries that were rewritten
    remaining: tuple[str, ...]  # where the text may still be


class _Rewrite(NamedTuple):
    """A purge of notes that is stated and not done yet."""

    tip: str
    new: str
    body: dict[str, Any]
    proofs: list[tuple[str, str]]


class Purging:
    def __init__(
        self, core: Core, envelope: Envelope, porcelain: GitPorcelain, archiving: Archiving, state: State = lambda _: []
    ) -> None:
        """``state`` returns the trailers with a person's statement of an act."""
        self._state = state
        self._core = core
        self._envelope = envelope
        self._porcelain = porcelain
        self._archiving = archiving

    def check(self, agent: str, text: str) -> None:
        """Raise an error unless the text may be purged from the agent's traces."""
        self._core.require_known(agent)
        if len(check_text(text, "text", nul=True)) < 4:
            raise InvalidInput("a text of fewer than four characters would match too much", code="text-too-short")

    def purge(self, agent: str, text: str) -> Purged:
        self.check(agent, text)
        ref = names.traces(agent)
        with self._envelope.alone_with(agent):
            replaced = self._replacements(self._objects(self._core.refs.get(ref)), text)
            rewrite = self._stated(agent, ref, replaced) if replaced else None
            pending, pages = self._clean_buffer(agent, text)
            if rewrite is not None:
                self._rewrite(agent, ref, rewrite)
            remaining = self._sweep(agent, ref)
        return Purged(agent, len(replaced), pending, (*pages, *remaining, *self._elsewhere(agent, ref, text)))

    def _stated(self, agent: str, ref: str, replaced: dict[str, str]) -> _Rewrite | None:
        """The notes without the text, and what the person states about that. Nothing is changed yet."""
        core = self._core
        tip, new = core.refs.get(ref), core.notes.remade(ref, replaced)
        if tip is None or new is None or tip == new:
            return None
        reachable = {commit.cid for commit in core.graph.walk([new])}
        old = [commit for commit in core.graph.walk([tip]) if commit.cid not in reachable]
        first = [commit.cid for commit in old if all(parent in reachable for parent in commit.parents)]
        body = {"event": PURGED, "ref": ref, "gone": first, TOMBSTONES: self._tombstones(replaced)}
        parent = core.refs.get(names.events(agent)) or ""
        act = RecordedAct(PURGE, agent, body, parent, core.empty_tree())
        return _Rewrite(tip, new, body, self._state(act))

    def _rewrite(self, agent: str, ref: str, rewrite: _Rewrite) -> None:
        core, tip, new = self._core, rewrite.tip, rewrite.new
        # First record the objects to remove and the history that must not come back: after a crash the next purge continues with
        # them.
        with core.store.writing() as transaction:
            stored = transaction.values.get(_SWEEP + agent)
            to_sweep = {*(stored.value if stored else ()), *(self._objects(tip) - self._objects(new))}
            transaction.values.put(_SWEEP + agent, sorted(to_sweep))
        append_event(core, names.events(agent), core.person_stamp(), rewrite.body, f"purge of {ref}", rewrite.proofs)
        core.refs.move(ref, tip, new, "clia: purge")

    def _tombstones(self, replaced: Mapping[str, str]) -> list[list[str]]:
        """For each commit whose trace changes, the digests of its entries before and after."""
        rows = []
        for before, after in sorted(replaced.items()):
            notes = [parse(self._core.objects.blob(cid)) or {} for cid in (before, after)]
            if notes[0].get("type") == "console-trace":
                rows.append([str(notes[0]["commit"]), *(trace_digest(note["entries"]) for note in notes)])
        return rows

    def _sweep(self, agent: str, ref: str) -> list[str]:
        """Remove the objects of the old notes history; returns those that could not be removed."""
        core = self._core
        to_sweep = core.store.get(_SWEEP + agent)
        if to_sweep is None:
            return []
        core.refs.forget_past(ref)
        for tracked, cid in core.refs.under(names.TRACKING):
            if tracked.endswith(f"/notes/trace/{agent}") and cid != core.refs.get(ref):
                core.refs.move(tracked, cid, None, "clia: purge")
                core.refs.forget_past(tracked)
        unremoved = self._porcelain.drop_objects(to_sweep.value, self._archiving.drop_objects)
        with core.store.writing() as transaction:
            transaction.values.delete(_SWEEP + agent)
        return [f"object {cid}: it could not be removed" for cid in unremoved]

    def _objects(self, tip: str | None) -> set[str]:
        """Every commit, tree and blob in a notes history."""
        core = self._core
        cids: set[str] = set()
        for commit in core.graph.walk([tip]) if tip else ():
            cids.add(commit.cid)
            if commit.tree not in cids:
                cids.update(core.objects.below(commit.tree, cids))
        return cids

    def _replacements(self, cids: Iterable[str], text: str) -> dict[str, str]:
        """The old and new blob of every note that holds the text."""
        core = self._core
        replaced = {}
        for cid in sorted(cids):
            if core.objects.kind(cid) == "blob":
                data = core.objects.blob(cid)
                cleaned = _without_note(data, text)
                if cleaned != data:
                    replaced[cid] = core.objects.write_blob(cleaned)
        return replaced

    def _clean_buffer(self, agent: str, text: str) -> tuple[int, list[str]]:
        """Replace the text in pending entries; returns their number and what of the store may still hold it."""
        count = 0
        with self._core.store.writing() as transaction:
            for entry in transaction.streams.read(stream(agent)):
                cleaned = without(entry.body, text)
                if cleaned != entry.body:
                    transaction.streams.replace(stream(agent), entry.position, cleaned)
                    count += 1
            for key, _ in transaction.values.scan(redaction(agent)):
                transaction.values.delete(key)  # the saved end of the last entries, kept to find tokens that were cut in two
        remaining = self._core.store.scrub()
        return count, [] if remaining is None else [remaining]

    def _elsewhere(self, agent: str, ref: str, text: str) -> list[str]:
        core = self._core
        head = core.head(agent) or core.refs.get(names.archived(agent))
        own = [commit.cid for commit in core.own_commits(agent, head)] if head else []
        commits = [cid for cid in own if text in core.objects.commit(cid).message]
        remaining = [f"commit {cid}: its message holds the text, and is part of its id" for cid in commits]
        sessions = self._journals(agent, text)
        remaining += [f"session {session}: its journal holds the text, and a replay needs it" for session in sessions]
        remotes = self._porcelain.remotes()
        if core.refs.shared:
            remaining.append(
                "other machines: they keep the text until their next sync with the hub, and the hub keeps it until its next gc"
            )
            # The hub has the ref's current value since the push.
            remotes = [remote for remote in remotes if core.refs.get(names.tracking(remote, ref)) != core.refs.get(ref)]
        remaining += [f"remote {remote}: if {ref} was published, ask its owner to purge it too" for remote in remotes]
        if core.refs.under(names.ANNOUNCE):
            remaining.append(f"peers: each one that has {ref} keeps its copy; announce the rewrite: clia announce")
        remaining.append("files of commits: purge covers traces only")
        return [*remaining, "clones, backups and disk snapshots made before now", "terminals and logs where the text was shown"]

    def _journals(self, agent: str, text: str) -> list[str]:
        """The agent's sessions whose recorded events or rows hold the text."""
        prefixes = [f"{kind}/{agent}/" for kind in ("session", "live", "ended")]
        with self._core.store.reading() as view:
            streams = view.streams.names(prefixes[0])
            bodies = [(name, entry.body) for name in streams for entry in view.streams.read(name)]
            bodies += [row for prefix in prefixes[1:] for row in view.values.scan(prefix)]
        return sorted({name.rpartition("/")[2] for name, body in bodies if without(body, text) != body})


def _without_note(data: bytes, text: str) -> bytes:
    """A note without the text; a note of another program is treated as plain bytes."""
    note = parse(data)
    if note is None or note["type"] != "console-trace":
        return without_bytes(data, text)
    return as_bytes({**note, "entries": [without(entry, text) for entry in note["entries"]]})


def without_bytes(data: bytes, text: str) -> bytes:
    """Bytes with the text replaced, also where it is escaped as in JSON."""
    spellings = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    for spelling in sorted(spellings, key=len, reverse=True):
        data = data.replace(spelling.encode("utf-8"), MARK.encode("utf-8"))
    return data


def without(entry: Any, text: str) -> Any:
    """An entry without the text; its time, kind and counts stay."""
    if not isinstance(entry, dict):
        return _cleaned(entry, text)
    return {key: value if key in _KEPT else _cleaned(value, text) for key, value in entry.items()}


def _cleaned(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(text, MARK)
    if isinstance(value, dict):
        cleaned: dict[str, Any] = {}
        for key, inner in value.items():
            name = _cleaned(key, text)
            while name != key and (name in cleaned or name in value):
                name += "'"  # keep the names distinct
            cleaned[name] = _cleaned(inner, text)
        return cleaned
    if isinstance(value, list):
        return [_cleaned(inner, text) for inner in value]
    return value
