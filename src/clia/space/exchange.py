"""Bringing a space to and from other clones.

Invariant: nothing that is only here is ever overwritten or pruned: what is fetched lands in refs of its own, and is taken
over by compare and swap where it is new, or ahead, or can be united. Nothing is published unless asked.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import NotFound, StaleRef
from clia.space.adoption import DIVERGED, Taking, lock_of
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.git.records import Pushed
    from clia.git.workbench import GitWorkbench
    from clia.space.core import Core
    from clia.space.envelope import Envelope


class Adopted(NamedTuple):
    """What became of a ref of another clone; ``diverged`` ones, and those that hold what was ``purged`` here, were left."""

    ref: str
    what: str
    cid: str


def fetch_rules(remote: str) -> list[str]:
    """What git is told to fetch: everything of a space, into refs that belong to the remote."""
    return [f"+{source}*:{names.TRACKING}{remote}/{kind}*" for kind, source in names.KINDS]


class Exchange:
    def __init__(self, core: Core, envelope: Envelope, workbench: GitWorkbench) -> None:
        self._core = core
        self._envelope = envelope
        self._workbench = workbench
        self._taking = Taking(core)

    def adopt(self, remote: str, continues: Callable[[str], bool]) -> list[Adopted]:
        """Takes over what was fetched from a remote. ``continues``: whether a chain of keys goes on from ours."""
        found = []
        top = f"{names.TRACKING}{remote}/"
        for kind, target in names.KINDS:
            for tracked, cid in self._core.refs.under(top + kind):
                ref = target + tracked.removeprefix(top + kind)
                if not names.is_shared(ref) or self._holds(ref, cid) or not self._taking.is_sound(ref, cid):
                    continue
                # Nobody but the keys themselves decides who the space is: of two chains that differ, ours stays.
                done = self._take(ref, cid) if ref != names.KEYS or continues(cid) else DIVERGED
                if done is not None:
                    found.append(Adopted(ref, done, cid))
        return found

    def _holds(self, ref: str, theirs: str) -> bool:
        ours = self._core.refs.get(ref)
        return ours == theirs or (ours is not None and self._core.graph.descends(ours, theirs))

    def _take(self, ref: str, theirs: str) -> str | None:
        core = self._core
        with self._envelope.at_work(lock_of(ref)):
            try:
                return self._taking.settle(ref, core.refs.get(ref), theirs)
            except StaleRef:
                return DIVERGED  # moved by plain git just now; the next time will tell

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
