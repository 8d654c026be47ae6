"""Relations between agents, as an index over git.

Invariant: an edge exists because a commit states it (a spawn, a session merge, or an event on its source's chain) and no event
retracts that commit. The index remembers how far it has read each chain, so it includes what plain git fetched or wrote, and a
rebuild gives the same result. Before each query it reads the refs that have moved since.
"""

from __future__ import annotations

import re
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from typing import NamedTuple, TypeVar

from clia.errors import InvalidInput, NotFound, StoreError
from clia.space.core import UNREADABLE
from clia.space.events import append_event, read_events, texts_in
from clia.store.interface import Edge
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.types import SESSION_MERGE, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.store.interface import Edges, Transaction

    T = TypeVar("T")

SUB_AGENT, REVIEWS, MERGES = "sub-agent-of", "reviews", "merges"
RENAMED_FROM = "renamed-from"
"""The relation of an agent to its former name."""
_KIND = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_READ = "read/"
_SOURCES = (_READ + "agents/", _READ + "events/")
_SEEN, _NEWEST = _READ + "seen", _READ + "newest"
_UNREAD = _READ + "failed/"
"""By source, the tip at which it could not be read. It is read again when the tip moves, and by ``verify``."""
REWOUND = "rewound/"
"""By source: tips that were read and are no longer part of its history. ``rebuild`` forgets them."""
_REWOUND_MAX = 100
RECENT_MAX, RECENT_MIN = 1_000, 500
_REFS = {names.ARCHIVE: "agents/", names.HEADS: "agents/", names.EVENTS: "events/"}


class Relations:
    def __init__(self, core: Core, envelope: Envelope) -> None:
        self._core = core
        self._envelope = envelope

    def relate(self, src: str, kind: str, dst: str) -> str:
        """Add an edge; returns the id of the event. An existing edge is not added again."""
        self._check(src, kind, dst)
        core = self._core
        with self._envelope.at_work(src):
            core.own_head(src)
            core.require_head(dst)
            present = self._ask(lambda edges: edges.origins(src, kind, dst))
            if present:
                return present[0]
            body = {"event": "edge", "src": src, "kind": kind, "dst": dst}
            event = append_event(core, names.events(src), core.agent_stamp(src), body, f"relate: {src} {kind} {dst}")
            core.reached("committed")
        return event

    def unrelate(self, src: str, kind: str, dst: str) -> str:
        """Remove an edge, whatever stated it; returns the id of the retraction."""
        # An edge from a merge of a peer's agent can be removed, too.
        self._check(src, kind, src if names.remote_agent(check_text(dst, "dst")) else dst)
        core = self._core
        with self._envelope.at_work(src):
            core.own_head(src)
            present = self._ask(lambda edges: edges.origins(src, kind, dst))
            if not present:
                fields = {"src": src, "kind": kind, "dst": dst}
                raise NotFound(f"no relation {src} -{kind}-> {dst}", code="no-such-edge", fields=fields)
            body = {"event": "retract", "src": src, "kind": kind, "dst": dst, "origins": present}
            return append_event(core, names.events(src), core.agent_stamp(src), body, f"unrelate: {src} {kind} {dst}")

    def targets(self, src: str, kind: str) -> list[str]:
        return self._ask(lambda edges: _of_names(edges, src, lambda name: edges.targets(name, kind)), about=src)

    def sources(self, dst: str, kind: str) -> list[str]:
        return self._ask(lambda edges: _of_names(edges, dst, lambda name: edges.sources(name, kind)), about=dst)

    def reachable(self, src: str, kind: str) -> list[str]:
        return self._ask(lambda edges: _of_names(edges, src, lambda name: edges.reachable(name, kind)), about=src)

    def edges(self, touching: str | None = None) -> list[Edge]:
        return self._ask(lambda edges: edges.standing(touching))

    def rewound(self) -> dict[str, list[str]]:
        """By ref: tips that were read and are no longer part of the ref's history."""
        self.catch_up(again=True)
        return {_ref_of(key.removeprefix(REWOUND)): list(cids) for key, cids in self._core.store.scan(REWOUND)}

    def newest(self, limit: int) -> list[str]:
        """The agents at work with the newest heads, newest first; all of them if the recency index is too short."""
        self.catch_up()
        with self._core.store.reading() as view:
            index = RecencyIndex.from_json(_value(view, _NEWEST))
        if index is not None:
            recent = list(islice((name for _, name in index.heads if self._core.refs.get(names.head(name))), limit))
            if index.complete or len(recent) == limit:
                return recent
        heads = (ref.removeprefix(names.HEADS) for ref, _ in self._core.refs.under(names.HEADS))
        return [name for name in heads if names.is_name(name)]

    def _ask(self, question: Callable[[Edges], T], *, about: str | None = None) -> T:
        # A peer's agent may no longer be tracked here, but its edges remain.
        if about is not None and names.remote_agent(check_text(about, "agent")) is None:
            self._core.require_known(about)
        self.catch_up()
        with self._core.store.reading() as view:
            return question(view.edges)

    def catch_up(self, progress: Callable[[int, int], None] | None = None, *, again: bool = False) -> None:
        """Bring the index up to date with the refs. ``again``: also with those that could not be read."""
        with self._core.store.reading() as view:
            marker, behind = self._behind(view, again=again)
            if not behind and (marker is None or marker == _value(view, _SEEN)):
                return
        # If only the marker is behind, failing to write it only makes the next scan slower.
        ignored = () if behind else (StoreError,)
        with suppress(*ignored), self._core.store.writing() as transaction:
            # Look at the refs again inside the transaction: another process may have read further.
            marker, behind = self._behind(transaction, again=again)
            for number, source in enumerate(behind):
                self._read_source(transaction, source, *behind[source])
                if progress:
                    progress(number + 1, len(behind))
            self._update_recency(transaction, {source: tip for source, (_, tip) in behind.items()})
            if marker is not None:
                transaction.values.put(_SEEN, marker)

    def _behind(self, view: Transaction, *, again: bool) -> tuple[Any, dict[str, tuple[str | None, str | None]]]:
        """The refs' marker, and the sources that have moved, with the tip that was read and the current one."""
        look = self._core.refs.look(list(_REFS), _value(view, _SEEN))
        if look.moved is None:
            read = {key.removeprefix(_READ): tip for prefix in _SOURCES for key, tip in view.values.scan(prefix)}
            tips = self.tips()
        else:
            moved = {source for source in map(_source_of, look.moved) if source is not None}
            read = {source: tip for source in moved if (tip := _value(view, _READ + source)) is not None}
            tips = {source: tip for source in moved if (tip := self._tip(source)) is not None}
        changed = sorted(source for source in read.keys() | tips.keys() if read.get(source) != tips.get(source))
        behind = {source: (read.get(source), tips.get(source)) for source in changed}
        failed = {key.removeprefix(_UNREAD): tip for key, tip in view.values.scan(_UNREAD)} if behind or again else {}
        if again:
            return look.state, behind | {source: (_value(view, _READ + source), self._tip(source)) for source in failed}
        return look.state, {source: ends for source, ends in behind.items() if source not in failed or failed[source] != ends[1]}

    def rebuild(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Rebuild the index; returns the number of edges."""
        with self._core.store.writing() as transaction:
            transaction.edges.clear()
            for prefix in (_READ, REWOUND):
                for key, _ in transaction.values.scan(prefix):
                    transaction.values.delete(key)
        self.catch_up(progress)
        with self._core.store.reading() as view:
            return len(view.edges.standing())

    def tips(self) -> dict[str, str]:
        """The tips of everything that the index reads: agent branches, at work or archived, and event chains."""
        tips: dict[str, str] = {}
        for prefix, kind in _REFS.items():  # heads come last and override archived ones
            refs = ((ref.removeprefix(prefix), tip) for ref, tip in self._core.refs.under(prefix))
            tips |= {kind + name: tip for name, tip in refs if names.is_name(name)}
        return tips

    def _tip(self, source: str) -> str | None:
        kind, _, name = source.partition("/")
        get = self._core.refs.get
        if kind == "events":
            return get(names.events(name))
        # An agent archived or restored in between is found at one of the two, or at the first again.
        return get(names.head(name)) or get(names.archived(name)) or get(names.head(name))

    def _update_recency(self, transaction: Transaction, moved: Mapping[str, str | None]) -> None:
        """Bring the recency index up to date, given the new tips of the sources that moved."""
        stored = RecencyIndex.from_json(_value(transaction, _NEWEST))
        index = None if stored is None else stored.moved(dict(self._dated(moved)))
        if index is None:
            index = RecencyIndex.build((at, name) for name, at in self._dated(self.tips()) if at is not None)
        if index != stored:
            transaction.values.put(_NEWEST, index.to_json())

    def _dated(self, tips: Mapping[str, str | None]) -> Iterator[tuple[str, int | None]]:
        """The commit time of each agent's head; None for an agent without one."""
        for source, tip in tips.items():
            kind, _, name = source.partition("/")
            if kind == "agents":
                at = None
                with suppress(*UNREADABLE):
                    at = None if tip is None else self._core.objects.commit(tip).committer.at
                yield name, at

    def _read_source(self, transaction: Transaction, source: str, mark: str | None, tip: str | None) -> None:
        """Read what is new of a source. What cannot be read concerns no other source, and is tried again later."""
        try:
            is_rewritten = mark is not None and not (tip is not None and self._core.contains(tip, mark))
            edges, gone = self._edges_of(source, tip, None if is_rewritten else mark)
        except UNREADABLE:
            transaction.values.put(_UNREAD + source, tip)
            return
        if mark is not None and is_rewritten:
            transaction.edges.drop(source)  # the chain was rewritten, or removed
            if tip is not None or not self._is_deleted(source, mark):
                _remember(transaction, source, mark)
        transaction.edges.add(edges)
        transaction.edges.retract(source, gone)
        if _value(transaction, _UNREAD + source) is not None:
            transaction.values.delete(_UNREAD + source)
        if tip is None:
            transaction.values.delete(_READ + source)
        else:
            transaction.values.put(_READ + source, tip)

    def _is_deleted(self, source: str, mark: str) -> bool:
        """Whether a missing branch is that of an agent that was deleted before it did anything."""
        kind, _, name = source.partition("/")
        if kind != "agents" or self._core.refs.get(names.record(name)) is not None:
            return False
        first = self._core.read(mark)
        return first.agent == name and first.kind == SPAWN

    def _edges_of(self, source: str, tip: str | None, mark: str | None) -> tuple[list[Edge], list[str]]:
        """The edges that a source states after a mark, and the origins that it retracts."""
        kind, _, name = source.partition("/")
        if tip is None:
            return [], []
        if kind == "agents":
            return list(self._of_agent(name, tip, mark)), []
        events = list(read_events(self._core, tip, mark))
        edges = [edge for event in events for edge in stated(name, event.cid, event.body)]
        return edges, [origin for event in events for origin in retracted(event.body)]

    def _of_agent(self, name: str, tip: str, mark: str | None) -> Iterator[Edge]:
        for commit in self._core.own_commits(name, tip):
            if commit.cid == mark:
                return
            if commit.kind == SPAWN and commit.parent:
                yield Edge(commit.parent, SUB_AGENT, name, commit.cid, f"agents/{name}")
            elif commit.kind == SESSION_MERGE and commit.merged:
                yield Edge(name, MERGES, commit.merged, commit.cid, f"agents/{name}")

    def _check(self, src: str, kind: str, dst: str) -> None:
        names.check_name(src)
        names.check_name(dst)
        if kind == RENAMED_FROM:
            hints = [f"rename it: clia rename {dst} {src}"]
            message = f"the relation {kind!r} is recorded by clia rename only"
            raise InvalidInput(message, code="invalid-relation", hints=hints, fields={"kind": kind})
        if not _is_edge(kind, dst):
            hints = ["lower-case words joined by hyphens: reviews, advises"]
            message = f"{kind!r} is not a valid relation kind"
            raise InvalidInput(message, code="invalid-relation", hints=hints, fields={"kind": kind})


def _of_names(edges: Edges, name: str, ask: Callable[[str], list[str]]) -> list[str]:
    """The answers about an agent and about its former names, each once."""
    all_names, answers = [name], list(ask(name))
    while (formerly := edges.targets(all_names[-1], RENAMED_FROM)) and formerly[0] not in all_names:
        all_names.append(formerly[0])
        answers += ask(formerly[0])
    return [answer for answer in dict.fromkeys(answers) if answer not in all_names] if len(all_names) > 1 else answers


def stated(name: str, cid: str, body: Mapping[str, Any]) -> list[Edge]:
    """The edge that an event on an agent's chain states, if any."""
    if body.get("event") == "edge" and body.get("src") == name and _is_edge(body.get("kind"), body.get("dst")):
        return [Edge(name, body["kind"], body["dst"], cid, f"events/{name}")]
    return []


def retracted(body: Mapping[str, Any]) -> list[str]:
    """The origins that an event retracts."""
    return texts_in(body, "retract", "origins")


def _is_edge(kind: object, dst: object) -> bool:
    return isinstance(kind, str) and len(kind) <= 64 and _KIND.fullmatch(kind) is not None and names.is_name(dst)


def _source_of(ref: str) -> str | None:
    """The index's name for the chain of a ref; None for a ref that it does not read."""
    for prefix, kind in _REFS.items():
        name = ref.removeprefix(prefix)
        if name != ref and names.is_name(name):
            return kind + name
    return None


def _ref_of(source: str) -> str:
    """The ref of the index's name for a chain; the head for an agent."""
    kind, _, name = source.partition("/")
    return names.events(name) if kind == "events" else names.head(name)


def _remember(transaction: Transaction, source: str, mark: str) -> None:
    """Record for ``verify`` that a chain lost commits that were read."""
    cids = [cid for cid in _value(transaction, REWOUND + source) or [] if cid != mark]
    transaction.values.put(REWOUND + source, [*cids, mark][-_REWOUND_MAX:])


def _value(view: Transaction, key: str) -> Any:
    row = view.values.get(key)
    return None if row is None else row.value


class RecencyIndex(NamedTuple):
    """The agents, at work or archived, with the newest heads: newest first, at most ``RECENT_MAX``.

    Agents that drop out are not replaced; an index that gets shorter than ``RECENT_MIN`` is rebuilt.
    """

    heads: list[tuple[int, str]]  # commit time and agent
    complete: bool  # whether it lists all agents

    @classmethod
    def build(cls, heads: Iterable[tuple[int, str]]) -> RecencyIndex:
        """The index of these heads: the times and names of all agents."""
        newest = nlargest(RECENT_MAX + 1, heads)
        return cls(sorted(newest[:RECENT_MAX], key=_newest_first), len(newest) <= RECENT_MAX)

    @classmethod
    def from_json(cls, value: Any) -> RecencyIndex | None:
        """None if the value cannot be read: the index is rebuilt then."""
        try:
            heads = [(at, name) for at, name in value["heads"] if type(at) is int and type(name) is str]
            return cls(heads, bool(value["whole"]))
        except (TypeError, KeyError, ValueError):
            return None

    def to_json(self) -> dict[str, Any]:
        return {"heads": [list(head) for head in self.heads], "whole": self.complete}

    def moved(self, heads: Mapping[str, int | None]) -> RecencyIndex | None:
        """The index after some agents moved, by the time of each new head (None: the agent is gone).

        None if the index is too short to tell.
        """
        oldest = self.heads[-1][0] if self.heads else 0
        new = [(at, name) for name, at in heads.items() if at is not None and (self.complete or at >= oldest)]
        merged = sorted([*(head for head in self.heads if head[1] not in heads), *new], key=_newest_first)
        if not self.complete and len(merged) < RECENT_MIN:
            return None
        return RecencyIndex(merged[:RECENT_MAX], self.complete and len(merged) <= RECENT_MAX)


def _newest_first(head: tuple[int, str]) -> tuple[int, str]:
    return -head[0], head[1]
