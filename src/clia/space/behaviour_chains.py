"""Behaviour chains: the versions of a behaviour, the adopted ones, and the current one.

Invariant: a chain only grows. Each commit records an event of a version with its author, reason and evidence; its tree is the
resulting state, so reading the state needs no walk. A chain moves by compare-and-swap.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import NoSuchObject, StaleRef
from clia.git.records import FILE, TreeEntry
from clia.space.events import event_of
from clia.space.model import BEHAVIOUR, EVENT
from clia.trust.statements import RecordedAct
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose
from clia.values.commit_messages import parse as parse_message
from clia.values.typed_objects import Behaviour, as_typed, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.git.objects import GitObjects
    from clia.git.records import Stamp
    from clia.space.core import Core
    from clia.space.envelope import Envelope

    State = Callable[[RecordedAct], list[tuple[str, str]]]

AUTOMATIC = "automatic"
"""The field of an adoption that the operator's policy made, of a version that a person had allowed to run."""
DEFINE, PROPOSE, TRIAL, ADOPT, RETIRE = "define", "propose", "trial", "adopt", "retire"
EVENTS = (DEFINE, PROPOSE, TRIAL, ADOPT, RETIRE)
CURRENT, VERSIONS, ADOPTED, RETIRED = "current", "versions/", "adopted/", "retired/"
_STATES_MAX = 1000


class ChainState(NamedTuple):
    """The state of a chain. ``adopted``: a person allowed the version to run here; ``retired``: it must not run any more."""

    tip: str | None = None
    tree: str | None = None
    current: str | None = None
    versions: frozenset[str] = frozenset()
    adopted: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()  # the adopted versions that the tree marks as added by a person

    def may_run(self, cid: str) -> bool:
        """Whether a person adopted this version and it was not retired. A mark without a version allows nothing."""
        return cid in self.versions and cid not in self.retired and (cid == self.current or cid in self.adopted)


class ChainChange(NamedTuple):
    """A change to make to a version."""

    event: str
    cid: str
    by: Stamp
    why: str = ""
    data: bytes | None = None  # the version's content, if the chain may lack it
    details: Mapping[str, Any] = {}  # evidence and other facts to record


class ChainEntry(NamedTuple):
    """One commit of a chain."""

    commit: str
    event: str
    cid: str
    by: str
    at: int
    why: str
    was: str | None = None  # the version that was current before
    parent: str | None = None  # the version it was derived from
    evidence: tuple[str, ...] = ()
    origin: str | None = None  # the peer that the version came from
    measure: str | None = None  # the measure it was judged by


class BehaviourChains:
    def __init__(self, core: Core, envelope: Envelope, state: State = lambda _: []) -> None:
        """``state`` returns the trailers with a person's statement of an act."""
        self._core = core
        self._envelope = envelope
        self._state = state
        self._states: dict[str, ChainState] = {}  # keyed by tip: a commit's state never changes

    def names(self) -> list[str]:
        return [name for name, _ in self.tips()]

    def tips(self) -> list[tuple[str, str]]:
        """Each behaviour and its chain's tip, sorted by name."""
        chains = ((ref.removeprefix(names.BEHAVIOURS), tip) for ref, tip in self._core.refs.under(names.BEHAVIOURS))
        return [(name, tip) for name, tip in chains if names.is_name(name)]

    def state(self, name: str) -> ChainState:
        return self.at(self._core.refs.get(names.behaviour(name)))

    def at(self, tip: str | None) -> ChainState:
        """The state of a chain at one of its commits."""
        if tip is None:
            return ChainState()
        if tip not in self._states:
            if len(self._states) >= _STATES_MAX:
                self._states.clear()
            self._states[tip] = read_state(self._core.objects, tip)
        return self._states[tip]

    def may_run(self, cid: str) -> bool:
        """Whether a person adopted this version here, under any name."""
        return any(state.may_run(cid) for _, state in self.states())

    def states(self) -> Iterator[tuple[str, ChainState]]:
        """Each behaviour and its state, sorted by name. An unreadable chain allows nothing and hides no other."""
        for name, tip in self.tips():
            with suppress(NoSuchObject):
                yield name, self.at(tip)

    def history(self, tip: str) -> Iterator[ChainEntry]:
        """The history of a chain, newest first, including what other clones did once chains are united."""
        for commit in self._core.graph.walk([tip]):
            text, trailers = parse_message(commit.message)
            cid = next((value for key, value in trailers if key == BEHAVIOUR), None)
            if cid is None:
                continue
            body = event_of(commit) or {}
            event, evidence = body.get("event"), body.get("evidence")
            texts = {key: value for key, value in body.items() if isinstance(value, str)}
            yield ChainEntry(
                commit.cid,
                event if event in EVENTS else DEFINE,
                cid,
                f"{commit.author.name} <{commit.author.email}>",
                commit.author.at,
                text,
                texts.get("was"),
                texts.get("parent"),
                tuple(filter(names.is_id, evidence)) if isinstance(evidence, list) else (),
                texts.get("from"),
                texts.get("measure"),
            )

    def change(self, name: str, decide: Callable[[ChainState], ChainChange | None]) -> ChainState:
        """Write the change that ``decide`` returns for the current state, if any; returns the new state."""
        core = self._core
        ref = names.behaviour(name)
        core.fresh(names.behaviour_lock(name))
        with self._envelope.among_others(), core.locks.hold(names.behaviour_lock(name)):
            while True:
                before = self.state(name)
                change = decide(before)
                if change is None:
                    return before
                new = self._write(name, before, change)
                core.reached("objects-written")
                try:
                    core.refs.move(ref, before.tip, new, f"clia: behaviour {change.event}")  # "clia: adopt" is what others did
                except StaleRef:
                    continue  # plain git moved it
                core.reached("committed")
                return self.at(new)

    def _write(self, name: str, before: ChainState, change: ChainChange) -> str:
        core = self._core
        event, cid = change.event, change.cid
        body = {"event": event, "cid": cid, **change.details} | ({"was": before.current} if before.current else {})
        trailers = [(BEHAVIOUR, cid), (EVENT, canonical_bytes(body).decode("utf-8"))]
        tree = core.objects.update_tree(before.tree, self._files(before, change))
        if event != PROPOSE and body.get(AUTOMATIC) is not True:
            verb, person = RETIRE if event == RETIRE else ADOPT, f"{change.by.name} <{change.by.email}>"
            trailers += self._state(RecordedAct(verb, name, body, before.tip or "", tree, change.why, person))
        message = compose(change.why, trailers, f"{event} {name}")
        return core.objects.write_commit(tree, [before.tip] if before.tip else [], change.by, core.person_stamp(), message)

    def _files(self, before: ChainState, change: ChainChange) -> dict[str, TreeEntry | None]:
        event, cid = change.event, change.cid
        write = self._core.objects.write_blob
        empty = TreeEntry(FILE, write(b""))
        # Recorded once: from now on not every version of the chain was added by a person.
        files: dict[str, TreeEntry | None] = {f"{ADOPTED}{version}": empty for version in before.adopted - before.marked}
        if change.data is not None:
            files[f"{VERSIONS}{cid}.json"] = TreeEntry(FILE, write(change.data))
        if event == RETIRE:
            files |= {f"{RETIRED}{cid}": empty}
            files |= {CURRENT: None} if cid == before.current else {}
        elif event != PROPOSE:
            files |= {f"{ADOPTED}{cid}": empty}
            files |= {f"{RETIRED}{cid}": None} if cid in before.retired else {}
            files |= {CURRENT: TreeEntry(FILE, write(f"{cid}\n".encode("ascii")))} if event != TRIAL else {}
        return files


def read_behaviour(objects: GitObjects, cid: str) -> Behaviour | None:
    """The behaviour with this id; None for another kind of object, ``NoSuchObject`` if there is none."""
    typed_object = parse(objects.blob(cid)) if names.is_id(cid) else None
    behaviour = as_typed(typed_object) if typed_object else None
    return behaviour if isinstance(behaviour, Behaviour) else None


def read_state(objects: GitObjects, tip: str) -> ChainState:
    """The state of a chain at one of its commits."""
    tree = objects.commit(tip).tree
    entries = objects.entries(tree)
    versions = frozenset(path[len(VERSIONS) : -5] for path in entries if path.startswith(VERSIONS) and path.endswith(".json"))
    marked, retired = (
        frozenset(path.removeprefix(prefix) for path in entries if path.startswith(prefix)) for prefix in (ADOPTED, RETIRED)
    )
    if CURRENT not in entries:
        return ChainState(tip, tree, None, versions, marked, retired, marked)
    current = objects.blob(entries[CURRENT].cid).decode("ascii", "replace").strip()
    # Without any mark, the chain was written when only people could add versions.
    return ChainState(tip, tree, current, versions, marked if marked or retired else versions, retired, marked)


def unite(core: Core, ref: str, ours: str, theirs: str) -> bool:
    """Unite a behaviour's chain with another clone's; False if they are of different kinds.

    Adopted versions of both count, and so do versions that either retired since they diverged. A version that only one clone made
    current stays current; of two, ours does. If the other clone retired it, none is current and a person decides.
    """
    objects = core.objects
    our_state, their_state = read_state(objects, ours), read_state(objects, theirs)
    if len(_kinds(objects, our_state) | _kinds(objects, their_state)) > 1:
        return False
    retired = (our_state.retired & their_state.retired) | (_retired_since(core, ours, theirs) & our_state.retired)
    retired |= _retired_since(core, theirs, ours) & their_state.retired
    tree = objects.commit(ours).tree
    our_entries, their_entries = objects.entries(tree), objects.entries(objects.commit(theirs).tree)
    empty = TreeEntry(FILE, objects.write_blob(b""))
    files: dict[str, TreeEntry | None] = {path: entry for path, entry in their_entries.items() if path not in our_entries}
    files |= {f"{ADOPTED}{cid}": empty for cid in our_state.adopted | their_state.adopted}
    files |= {f"{RETIRED}{cid}": empty if cid in retired else None for cid in our_state.retired | their_state.retired}
    current = _current(core, our_state, their_state)
    current_files = {our_state.current: our_entries.get(CURRENT), their_state.current: their_entries.get(CURRENT)}
    files[CURRENT] = current_files[current] if current is not None and current not in retired else None
    changes = {path: entry for path, entry in files.items() if entry is not None or path in our_entries}
    by = core.person_stamp()
    both = objects.write_commit(objects.update_tree(tree, changes), [ours, theirs], by, by, "Two clones' chain united by clia\n")
    core.refs.move(ref, ours, both, "clia: unite behaviours")
    return True


def _current(core: Core, our_state: ChainState, their_state: ChainState) -> str | None:
    """The current version after two chains diverged: the one set since, ours if both set one."""
    base = core.graph.merge_base(our_state.tip or "", their_state.tip or "")
    before = None if base is None else read_state(core.objects, base).current
    return their_state.current if our_state.current == before else our_state.current or their_state.current


def _retired_since(core: Core, tip: str, other: str) -> frozenset[str]:
    """The versions that one chain retired and the other does not know of."""
    events = (event_of(commit) or {} for commit in core.graph.walk([tip], [other]))
    return frozenset(str(body.get("cid")) for body in events if body.get("event") == RETIRE)


def _kinds(objects: GitObjects, state: ChainState) -> set[str]:
    behaviours = []
    for cid in state.versions:
        with suppress(NoSuchObject):
            behaviours.append(read_behaviour(objects, cid))
    return {behaviour.kind for behaviour in behaviours if behaviour is not None}
