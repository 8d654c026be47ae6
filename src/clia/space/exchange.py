"""Bringing a space to and from other clones.

Invariant: nothing that is only here is ever overwritten or pruned: what is fetched lands in refs of its own, and is taken
over by compare and swap where it is new, or ahead, or can be united. Nothing is published unless asked.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import NotFound, StaleRef
from clia.kernel import refs as names
from clia.space.behaviour_chains import unite as unite_behaviours
from clia.space.events import PURGED, event_of, read_events, revoked_by, unite
from clia.space.registry import OBJECTS_LOCK, TYPES_LOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.ports.repository import Entry
    from clia.ports.workbench import Pushed, Workbench
    from clia.space.core import Core
    from clia.space.envelope import Envelope

NEW, AHEAD, UNITED, DIVERGED, REFUSED = "new", "ahead", "united", "diverged", "purged"
KEYS_LOCK, CAPABILITIES_LOCK = "@keys", "@capabilities"
_LOCKS = {
    names.SPACE: "@adopt",
    names.TYPES: TYPES_LOCK,
    names.OBJECTS: OBJECTS_LOCK,
    names.KEYS: KEYS_LOCK,
    names.CAPABILITIES: CAPABILITIES_LOCK,
}
"""What is no agent's own has a lock of its own."""
_KINDS = (("clia/", "refs/clia/"), ("notes/", "refs/notes/clia/"), ("heads/", names.HEADS))


class Adopted(NamedTuple):
    """What became of a ref of another clone; ``diverged`` ones, and those that hold what was ``purged`` here, were left."""

    ref: str
    what: str
    cid: str


def fetch_rules(remote: str) -> list[str]:
    """What git is told to fetch: everything of a space, into refs that belong to the remote."""
    return [f"+{source}*:{names.TRACKING}{remote}/{kind}*" for kind, source in _KINDS]


class Exchange:
    def __init__(self, core: Core, envelope: Envelope, workbench: Workbench) -> None:
        self._core = core
        self._envelope = envelope
        self._workbench = workbench

    def adopt(self, remote: str, continues: Callable[[str], bool]) -> list[Adopted]:
        """Takes over what was fetched from a remote. ``continues``: whether a chain of keys goes on from ours."""
        found = []
        top = f"{names.TRACKING}{remote}/"
        for kind, target in _KINDS:
            for tracked, cid in self._core.refs.under(top + kind):
                ref = target + tracked.removeprefix(top + kind)
                if not _is_known(ref) or self._holds(ref, cid) or (ref == names.CAPABILITIES and not self._are_grants(cid)):
                    continue
                # Nobody but the keys themselves decides who the space is: of two chains that differ, ours stays.
                done = self._take(ref, cid) if ref != names.KEYS or continues(cid) else DIVERGED
                if done is not None:
                    found.append(Adopted(ref, done, cid))
        return found

    def _holds(self, ref: str, theirs: str) -> bool:
        ours = self._core.refs.get(ref)
        return ours == theirs or (ours is not None and self._core.graph.descends(ours, theirs))

    def _are_grants(self, cid: str) -> bool:
        """Whether a commit holds capabilities and nothing else: what a remote makes up grants nothing."""
        paths = self._core.objects.entries(self._core.objects.commit(cid).tree)
        return all(path.endswith(".json") and names.is_id(path.removesuffix(".json")) for path in paths)

    def _take(self, ref: str, theirs: str) -> str | None:
        core = self._core
        with self._envelope.at_work(_lock_of(ref)):
            try:
                return self._settle(ref, core.refs.get(ref), theirs)
            except StaleRef:
                return DIVERGED  # moved by plain git just now; the next time will tell

    def _settle(self, ref: str, ours: str | None, theirs: str) -> str | None:
        core = self._core
        if ref.startswith(names.TRACES) and self._was_purged(ref, theirs):
            return REFUSED
        if ours is None and ref.startswith(names.HEADS):
            return self._settle_head(ref.removeprefix(names.HEADS), theirs)
        if ours is None or core.graph.descends(theirs, ours):
            if ref.startswith(names.HEADS) and core.refs.followed_by(ref) is not None:
                return DIVERGED  # someone has it checked out
            core.refs.move(ref, ours, theirs, "clia: adopt")
            return NEW if ours is None else AHEAD
        if core.graph.descends(ours, theirs):
            return None
        if ref.startswith(names.NOTES):
            core.notes.unite(ref, theirs, core.person_stamp())
            return UNITED
        if ref.startswith(names.BEHAVIOURS):
            return UNITED if unite_behaviours(core, ref, ours, theirs) else DIVERGED
        if ref == names.OBJECTS:
            self._unite_files(ref, ours, theirs)
            return UNITED
        if ref == names.CAPABILITIES:
            self._unite_grants(ours, theirs)
            return UNITED
        if ref == names.TYPES or ref.startswith(names.EVENTS):
            unite(core, ref, theirs)
            return UNITED
        return DIVERGED

    def _settle_head(self, name: str, theirs: str) -> str | None:
        """An agent that is not at work here; it may be archived."""
        core = self._core
        put_away = core.refs.get(names.archived(name))
        if put_away is not None:
            return None if core.graph.descends(put_away, theirs) else DIVERGED
        core.mark_foreign(name)  # before it can be seen, and worked on
        core.refs.move(names.head(name), None, theirs, "clia: adopt")
        return NEW

    def _was_purged(self, ref: str, theirs: str) -> bool:
        """Whether a history holds what was purged from it here."""
        core = self._core
        tip = core.refs.get(names.events(ref.removeprefix(names.TRACES)))
        for event in read_events(core, tip) if tip else ():
            if event.body.get("event") == PURGED and event.body.get("ref") == ref:
                said = event.body.get("gone")
                gone = [cid for cid in said if names.is_id(cid)] if isinstance(said, list) else []
                if any(core.objects.kind(cid) == "commit" and core.graph.descends(theirs, cid) for cid in gone):
                    return True
        return False

    def _unite_files(self, ref: str, ours: str, theirs: str) -> None:
        """Objects are named by their content, so two trees of them never disagree."""
        core = self._core
        tree = core.objects.commit(ours).tree
        here = core.objects.entries(tree)
        new = {path: each for path, each in core.objects.entries(core.objects.commit(theirs).tree).items() if path not in here}
        by = core.person_stamp()
        both = core.objects.write_commit(
            core.objects.update_tree(tree, new), [ours, theirs], by, by, "Objects of two clones united by clia\n"
        )
        core.refs.move(ref, ours, both, "clia: unite objects")

    def _unite_grants(self, ours: str, theirs: str) -> None:
        """What was granted in either clone, and revoked in neither."""
        core = self._core
        here, there = (core.objects.entries(core.objects.commit(each).tree) for each in (ours, theirs))
        events = (event_of(each) or {} for each in core.graph.walk([ours, theirs]))
        revoked = {f"{cid}.json" for body in events for cid in revoked_by(body)}
        changes: dict[str, Entry | None] = {path: each for path, each in there.items() if path not in here}
        changes = {path: each for path, each in changes.items() if path not in revoked}
        changes |= dict.fromkeys(here.keys() & revoked)
        by, tree = core.person_stamp(), core.objects.update_tree(core.objects.commit(ours).tree, changes)
        both = core.objects.write_commit(tree, [ours, theirs], by, by, "Capabilities of two clones united by clia\n")
        core.refs.move(names.CAPABILITIES, ours, both, "clia: unite capabilities")

    def publish(self, agents: Sequence[str], remote: str, *, traces: bool = True, federation: bool = False) -> list[Pushed]:
        """Sends agents to a remote: branch, record, events, types, flows and, where wanted, traces and checkpoints of sessions.

        ``federation``: also the space's public keys and what is granted to peers. All or nothing; no force.
        """
        core = self._core
        if remote not in self._workbench.remotes():
            known = ", ".join(self._workbench.remotes()) or "none"
            raise NotFound(f"there is no remote {remote!r}", code="no-such-remote", hints=[f"remotes here: {known}"])
        wanted = [names.SPACE, names.TYPES, names.OBJECTS, *(ref for ref, _ in core.refs.under(names.BEHAVIOURS))]
        wanted += [names.KEYS, names.CAPABILITIES] if federation else []
        for name in agents:
            core.require_known(name)
            wanted += [names.head(name), names.archived(name), names.record(name), names.events(name)]
            wanted += [names.traces(name), names.sessions(name)] if traces else []
        return self._workbench.push(remote, [ref for ref in wanted if core.refs.get(ref) is not None])

    def set_up(self, remote: str) -> list[str]:
        """Tells git to fetch the space's refs along with everything else; the rules that were missing."""
        return self._workbench.add_fetch_rules(remote, fetch_rules(remote))

    def fetch(self, remote: str) -> None:
        self._workbench.fetch(remote, fetch_rules(remote))


def _lock_of(ref: str) -> str:
    if ref.startswith(names.BEHAVIOURS):
        return names.behaviour_lock(ref.removeprefix(names.BEHAVIOURS))
    return _LOCKS.get(ref) or ref.rpartition("/")[2]


def _is_known(ref: str) -> bool:
    """Whether a ref of another clone is of a kind that is shared; what a remote makes up stays where it was fetched to."""
    if ref in _LOCKS:
        return True  # and no peer, nothing said to one and nothing tracked of one: these belong to one clone
    prefixes = (names.HEADS, names.RECORDS, names.EVENTS, names.ARCHIVE, names.TRACES, names.SESSIONS, names.BEHAVIOURS)
    return any(ref.startswith(prefix) and names.is_name(ref.removeprefix(prefix)) for prefix in prefixes)
