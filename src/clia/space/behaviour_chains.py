"""The chains of behaviours: every version of a skill, which of them people let run, and which is current.

Invariant: a chain only grows. Each commit on it says what happened to which version, who did it, why and on what evidence; its
tree is the state that all of them lead to, so that nothing has to be walked to know what may run. It moves by compare and swap.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import NoSuchObject, StaleRef
from clia.git.records import FILE, TreeEntry
from clia.space.events import event_of
from clia.space.model import BEHAVIOUR, EVENT
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

DEFINE, PROPOSE, TRIAL, ADOPT, RETIRE = "define", "propose", "trial", "adopt", "retire"
EVENTS = (DEFINE, PROPOSE, TRIAL, ADOPT, RETIRE)
CURRENT, VERSIONS, ADOPTED, RETIRED = "current", "versions/", "adopted/", "retired/"
_KNOWN_MAX = 1000


class ChainState(NamedTuple):
    """What a chain says now. ``adopted``: a person let it run here; ``retired``: it shall run no more, whoever let it before."""

    tip: str | None = None
    tree: str | None = None
    current: str | None = None
    versions: frozenset[str] = frozenset()
    adopted: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()  # of the adopted, those that the tree says so of

    def may_run(self, cid: str) -> bool:
        """Whether a person let a version run, and nobody has taken that back. It must be one: a mark alone lets nothing run."""
        return cid in self.versions and cid not in self.retired and (cid == self.current or cid in self.adopted)


class ChainChange(NamedTuple):
    """What is to happen to a version."""

    event: str
    cid: str
    by: Stamp
    why: str = ""
    data: bytes | None = None  # the version itself, where the chain may not have it yet
    said: Mapping[str, Any] = {}  # evidence, and what else is worth knowing later


class ChainEntry(NamedTuple):
    """One commit on a chain, read."""

    commit: str
    event: str
    cid: str
    by: str
    at: int
    why: str
    was: str | None = None  # what was current before
    parent: str | None = None  # the version that it came from
    evidence: tuple[str, ...] = ()
    origin: str | None = None  # the peer whose version it is
    measure: str | None = None  # what it was judged by


class BehaviourChains:
    def __init__(self, core: Core, envelope: Envelope) -> None:
        self._core = core
        self._envelope = envelope
        self._states: dict[str, ChainState] = {}  # by the tip that says so; what a commit says never changes

    def names(self) -> list[str]:
        return [name for name, _ in self.tips()]

    def tips(self) -> list[tuple[str, str]]:
        """Each behaviour with its chain's tip, sorted by name."""
        found = ((ref.removeprefix(names.BEHAVIOURS), tip) for ref, tip in self._core.refs.under(names.BEHAVIOURS))
        return [each for each in found if names.is_name(each[0])]

    def state(self, name: str) -> ChainState:
        return self.at(self._core.refs.get(names.behaviour(name)))

    def at(self, tip: str | None) -> ChainState:
        """What a chain says at a commit of it."""
        if tip is None:
            return ChainState()
        found = self._states.get(tip)
        if found is None:
            if len(self._states) >= _KNOWN_MAX:
                self._states.clear()
            found = self._states[tip] = read_state(self._core.objects, tip)
        return found

    def may_run(self, cid: str) -> bool:
        """Whether a person let a version run here, under any name."""
        return any(state.may_run(cid) for _, state in self.states())

    def states(self) -> Iterator[tuple[str, ChainState]]:
        """Each behaviour with what its chain says, sorted by name. One that cannot be read lets nothing run, and hides no other."""
        for name, tip in self.tips():
            try:
                found = self.at(tip)
            except NoSuchObject:
                continue
            yield name, found

    def history(self, tip: str) -> Iterator[ChainEntry]:
        """What happened on a chain, newest first. What other clones did is there too, once chains are united."""
        for commit in self._core.graph.walk([tip]):
            text, trailers = parse_message(commit.message)
            cid = next((value for key, value in trailers if key == BEHAVIOUR), None)
            if cid is None:
                continue
            body = event_of(commit) or {}
            event, evidence = body.get("event"), body.get("evidence")
            said = {key: each for key, each in body.items() if isinstance(each, str)}
            yield ChainEntry(
                commit.cid,
                event if event in EVENTS else DEFINE,
                cid,
                f"{commit.author.name} <{commit.author.email}>",
                commit.author.at,
                text,
                said.get("was"),
                said.get("parent"),
                tuple(each for each in evidence if names.is_id(each)) if isinstance(evidence, list) else (),
                said.get("from"),
                said.get("measure"),
            )

    def change(self, name: str, decide: Callable[[ChainState], ChainChange | None]) -> ChainState:
        """Writes what ``decide`` makes of the chain as it is; nothing where it says None. The state afterwards."""
        core = self._core
        ref = names.behaviour(name)
        core.fresh(names.behaviour_lock(name))
        with self._envelope.among_others(), core.locks.hold(names.behaviour_lock(name)):
            while True:
                before = self.state(name)
                wanted = decide(before)
                if wanted is None:
                    return before
                new = self._write(name, before, wanted)
                core.reached("objects-written")
                try:
                    core.refs.move(ref, before.tip, new, f"clia: {wanted.event}")
                except StaleRef:
                    continue  # plain git moved it
                core.reached("committed")
                return self.at(new)

    def _write(self, name: str, before: ChainState, wanted: ChainChange) -> str:
        core = self._core
        event, cid = wanted.event, wanted.cid
        body = {"event": event, "cid": cid, **wanted.said} | ({"was": before.current} if before.current else {})
        trailers = [(BEHAVIOUR, cid), (EVENT, canonical_bytes(body).decode("utf-8"))]
        whole = compose(wanted.why, trailers, f"{event} {name}")
        tree = core.objects.update_tree(before.tree, self._files(before, wanted))
        return core.objects.write_commit(tree, [before.tip] if before.tip else [], wanted.by, core.person_stamp(), whole)

    def _files(self, before: ChainState, wanted: ChainChange) -> dict[str, TreeEntry | None]:
        event, cid = wanted.event, wanted.cid
        write = self._core.objects.write_blob
        nothing = TreeEntry(FILE, write(b""))
        # Said once and for all versions: from now on not every version of the chain is a person's.
        files: dict[str, TreeEntry | None] = {f"{ADOPTED}{each}": nothing for each in before.adopted - before.marked}
        if wanted.data is not None:
            files[f"{VERSIONS}{cid}.json"] = TreeEntry(FILE, write(wanted.data))
        if event == RETIRE:
            files |= {f"{RETIRED}{cid}": nothing}
            files |= {CURRENT: None} if cid == before.current else {}
        elif event != PROPOSE:
            files |= {f"{ADOPTED}{cid}": nothing}
            files |= {f"{RETIRED}{cid}": None} if cid in before.retired else {}
            files |= {CURRENT: TreeEntry(FILE, write(f"{cid}\n".encode("ascii")))} if event != TRIAL else {}
        return files


def read_behaviour(objects: GitObjects, cid: str) -> Behaviour | None:
    """The behaviour of an id; None where it names another object, ``NoSuchObject`` where it names none."""
    made = parse(objects.blob(cid)) if names.is_id(cid) else None
    found = as_typed(made) if made else None
    return found if isinstance(found, Behaviour) else None


def read_state(objects: GitObjects, tip: str) -> ChainState:
    """What a chain says at a commit of it."""
    tree = objects.commit(tip).tree
    entries = objects.entries(tree)
    versions = frozenset(path[len(VERSIONS) : -5] for path in entries if path.startswith(VERSIONS) and path.endswith(".json"))
    adopted = _listed(entries, ADOPTED)
    current = entries.get(CURRENT)
    if current is not None and not any(path.startswith((ADOPTED, RETIRED)) for path in entries):
        adopted = versions  # written when only people could add a version; one was current then
    said = None if current is None else objects.blob(current.cid).decode("ascii", "replace").strip()
    return ChainState(tip, tree, said, versions, adopted, _listed(entries, RETIRED), marked=_listed(entries, ADOPTED))


def unite(core: Core, ref: str, ours: str, theirs: str) -> bool:
    """Brings what another clone did with a behaviour into its chain; False where the two are not of one kind.

    People of both clones let versions run, and what either has retired since they parted is retired. What only one of them made
    current is; of two, ours is. Where the other has retired it, nothing is current: a person decides.
    """
    objects = core.objects
    here, there = read_state(objects, ours), read_state(objects, theirs)
    if len(_kinds(objects, here) | _kinds(objects, there)) > 1:
        return False
    retired = (here.retired & there.retired) | (_retired_since(core, ours, theirs) & here.retired)
    retired |= _retired_since(core, theirs, ours) & there.retired
    tree = objects.commit(ours).tree
    mine, yours = objects.entries(tree), objects.entries(objects.commit(theirs).tree)
    nothing = TreeEntry(FILE, objects.write_blob(b""))
    files: dict[str, TreeEntry | None] = {path: each for path, each in yours.items() if path not in mine}
    files |= {f"{ADOPTED}{cid}": nothing for cid in here.adopted | there.adopted}
    files |= {f"{RETIRED}{cid}": nothing if cid in retired else None for cid in here.retired | there.retired}
    current = _current(core, here, there)
    said = {here.current: mine.get(CURRENT), there.current: yours.get(CURRENT)}
    files[CURRENT] = said[current] if current is not None and current not in retired else None
    changes = {path: each for path, each in files.items() if each is not None or path in mine}
    by = core.person_stamp()
    both = objects.write_commit(objects.update_tree(tree, changes), [ours, theirs], by, by, "Two clones' chain united by clia\n")
    core.refs.move(ref, ours, both, "clia: unite behaviours")
    return True


def _current(core: Core, here: ChainState, there: ChainState) -> str | None:
    """What is current after two chains parted: what was made so since, ours where both did."""
    base = core.graph.merge_base(here.tip or "", there.tip or "")
    before = None if base is None else read_state(core.objects, base).current
    return there.current if here.current == before else here.current or there.current


def _retired_since(core: Core, tip: str, other: str) -> frozenset[str]:
    """What one chain has retired that the other does not know of."""
    events = (event_of(commit) or {} for commit in core.graph.walk([tip], [other]))
    return frozenset(str(body.get("cid")) for body in events if body.get("event") == RETIRE)


def _kinds(objects: GitObjects, state: ChainState) -> set[str]:
    found = (_read_kind(objects, cid) for cid in sorted(state.versions))
    return {kind for kind in found if kind is not None}


def _read_kind(objects: GitObjects, cid: str) -> str | None:
    try:
        found = read_behaviour(objects, cid)
    except NoSuchObject:
        return None
    return None if found is None else found.kind


def _listed(entries: Mapping[str, TreeEntry], prefix: str) -> frozenset[str]:
    return frozenset(path.removeprefix(prefix) for path in entries if path.startswith(prefix))
