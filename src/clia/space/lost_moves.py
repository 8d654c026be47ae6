"""Refs that went back or vanished although a newer value of them is known.

The refs of a space only go forward, except where ``clia trace purge`` rewrites notes. A program that ignores locks can undo a move,
and people can reset a branch. The former values of a ref are known from its reflog and from the index of relations.

Invariant: finding changes nothing. Repairing only moves a ref forward, to a value that its reflog proves.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from clia.errors import CliaError
from clia.space.model import agent_commit
from clia.space.remotes import Adoption, lock_of
from clia.values import refs as names
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clia.git.reflogs import ReflogEntry
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.relations import Relations

_NOTHING = "0" * 40
_LOGGED = (names.BRANCHES, names.NOTES, "refs/clia/")
_UNDO, _FOLLOWED = "clia: undo ", "clia: follow the hub"
_PURGES = ("clia: purge", "clia: purged at the hub")
REWOUND, MISSING = "ref-rewound", "ref-missing"
ACCEPT = "git reflog expire --expire-unreachable=now {}, then clia rebuild"


class LostMove(NamedTuple):
    """A former value of a ref that is no longer part of its history."""

    ref: str
    cid: str  # the value
    tip: str | None  # where the ref is now
    why: str | None  # the logged move that took the value away; None: no program logged one
    commits: int = 1  # commits of the agent that the ref lost
    restorable: bool = False  # its reflog proves that moving it forward to the value restores it

    @property
    def code(self) -> str:
        return MISSING if self.tip is None else REWOUND

    def message(self) -> str:
        """Describe the loss, and how to restore the value."""
        restore = f"restore it with: git update-ref {self.ref} {self.cid}"
        if self.tip is None:
            return f"{self.ref} is missing, and was {self.cid}; {restore}"
        lacks = f"it lacks {self.commits} commits up to {self.cid}" if self.commits > 1 else f"it lacks {self.cid}"
        if self.restorable:
            return f"{self.ref} went back without a log entry: {lacks}; {restore}"
        hints = f"keep the commits with: git branch NAME {self.cid}; if that was intended: {ACCEPT.format(self.ref)}"
        if self.why is None:
            return f"{self.ref} went back without a log entry, and on from there: {lacks}; {hints}"
        return f"{self.ref} was moved ({self.why}): {lacks}; {hints}"


class UncheckedRef(NamedTuple):
    """A ref that could not be checked, for example because objects are missing."""

    ref: str
    error: CliaError


class _FormerValue(NamedTuple):
    """A value that a ref had."""

    cid: str
    into: str | None  # the value that came after it
    why: str | None
    logged: bool = True


class LostMoves:
    def __init__(self, core: Core, envelope: Envelope, relations: Relations) -> None:
        self._core = core
        self._envelope = envelope
        self._relations = relations

    def find(self) -> Iterator[LostMove | UncheckedRef]:
        """Every lost value, by ref."""
        read = self._relations.rewound()
        logged = {ref for prefix in _LOGGED for ref in self._core.refs.with_past(prefix) if names.is_shared(ref)}
        for ref in sorted(logged | read.keys()):
            try:
                yield from self.of_ref(ref, read.get(ref, ()))
            except CliaError as err:
                yield UncheckedRef(ref, err)

    def of_branch(self, agent: str) -> list[LostMove]:
        """The lost values of an agent's branch, oldest first."""
        ref = names.head(agent)
        return self.of_ref(ref, self._relations.rewound().get(ref, ()))

    def of_ref(self, ref: str, read: Iterable[str] = ()) -> list[LostMove]:
        """The lost values of a ref, oldest first. ``read``: values that the index read before the ref lost them."""
        tip = self._core.refs.get(ref) or self._archived(ref)
        candidates = {candidate.cid: candidate for candidate in _moves(self._core.refs.past(ref), tip)}
        candidates = {cid: _FormerValue(cid, None, None, logged=False) for cid in read} | candidates
        unreached = self._unreached(tip, candidates)
        losses: list[LostMove] = []
        for candidate in reversed(list(candidates.values())):
            loss = self._loss(ref, tip, candidate, [loss.cid for loss in losses]) if candidate.cid in unreached else None
            losses += [] if loss is None else [loss]
        return losses[::-1]

    def repair(self, loss: LostMove) -> bool:
        """Move a ref forward to the value that it lost; False if its reflog does not prove that, or it is checked out."""
        core = self._core
        if not loss.restorable or core.refs.followed_by(loss.ref) is not None:
            return False
        with self._envelope.at_work(lock_of(loss.ref)):
            core.refs.move(loss.ref, loss.tip, loss.cid, "clia: repair")
        return True

    def _archived(self, ref: str) -> str | None:
        name = ref.removeprefix(names.HEADS)
        return self._core.refs.get(names.archived(name)) if name != ref else None

    def _unreached(self, tip: str | None, cids: Iterable[str]) -> set[str]:
        """The commits that are not in a history."""
        missing = set(cids)
        if tip is None or not missing:
            return missing
        for commit in self._core.graph.first_parents(tip):
            missing.discard(commit.cid)
            if not missing:
                return missing
        return {cid for cid in missing if not self._core.contains(tip, cid)}

    def _loss(self, ref: str, tip: str | None, candidate: _FormerValue, lost: list[str]) -> LostMove | None:
        """The loss of a value; None if a later value contains it, it was purged or repeated, or another ref keeps it.

        ``lost``: the values that were lost later.
        """
        core, cid, into, why = self._core, candidate.cid, candidate.into, candidate.why
        if core.objects.kind(cid) != "commit":
            return LostMove(ref, cid, tip, why)
        if into is not None and core.objects.kind(into) == "commit" and core.contains(into, cid):
            return None  # this move went forward; a later one is to blame
        if self._is_deleted(ref, tip, cid):
            return None
        if ref.startswith(names.TRACES) and Adoption(core).was_purged(ref, cid):
            return None
        commits = 1
        silent = candidate.logged and why is None
        if ref.startswith(names.HEADS):
            commits = self._count(ref.removeprefix(names.HEADS), cid, lost if tip is None else [tip, *lost], repeated=not silent)
            renamed = why == _FOLLOWED or (not candidate.logged and core.refs.shared)
            if not commits or (renamed and self._is_kept(ref, cid)):
                return None
        return LostMove(ref, cid, tip, why, commits, silent and (tip is None or core.contains(cid, tip)))

    def _is_deleted(self, ref: str, tip: str | None, cid: str) -> bool:
        """Whether a value is the spawn of an agent that was deleted before it did anything; its name may be used again."""
        name = ref.removeprefix(names.HEADS)
        if name == ref or (tip is None and self._core.refs.get(names.record(name)) is not None):
            return False
        spawn = self._core.read(cid)
        return (spawn.agent, spawn.kind, spawn.formerly) == (name, SPAWN, None)

    def _count(self, name: str, cid: str, others: list[str], *, repeated: bool) -> int:
        """Count an agent's commits in one history that others lack. With ``repeated``, copies by a rebase or an amendment do not
        count as missing."""
        gone = self._own(name, [cid], others)
        copies = self._own(name, others, [cid]) if repeated else Counter()
        return (gone - copies).total()

    def _own(self, name: str, starts: list[str], hidden: list[str]) -> Counter[tuple[object, ...]]:
        """Count an agent's commits by the properties that a rebase and an amendment keep."""
        commits = map(agent_commit, self._core.graph.walk(starts, hidden) if starts else ())
        own = (commit for commit in commits if commit.agent == name and commit.kind is not None)
        return Counter((commit.author, commit.kind, commit.subject, commit.request) for commit in own)

    def _is_kept(self, ref: str, cid: str) -> bool:
        """Whether another agent has a commit: our line of a fork has got another name."""
        heads = (head for other, head in self._core.refs.under(names.HEADS) if other != ref)
        return any(self._core.graph.descends(head, cid) for head in heads)


def _moves(entries: list[ReflogEntry], tip: str | None) -> Iterator[_FormerValue]:
    """The values of a ref since its last purge, by its reflog, each with its successor."""
    last_purge = max((number for number, entry in enumerate(entries) if entry.why in _PURGES), default=0)
    value: str | None = None
    for entry in entries[last_purge:]:
        if value is not None and value != entry.old:
            yield _FormerValue(value, None if entry.old == _NOTHING else entry.old, None)
        if entry.old != _NOTHING and entry.why not in _PURGES and not entry.why.startswith(_UNDO):
            yield _FormerValue(entry.old, entry.new, entry.why)
        value = entry.new
    if value not in (None, tip):
        yield _FormerValue(str(value), tip, None)
