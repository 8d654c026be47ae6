"""Sync between a clone and the hub.

Invariant: acknowledged work is never lost, and nothing at the hub is overwritten by force. Before working on an agent, a clone
adopts what the hub has of it and publishes its own unpublished work. If both continued from the same head there is a fork: both
lines stay, and the agent is locked here until a person names our line. If machines share a store, an agent with
unpublished work on another machine is left to that machine.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from clia.errors import CliaError, Conflict, Denied, GitError, InvalidInput, NotFound, StaleRef, TransportError
from clia.hub import errors
from clia.hub.log_exchange import exchange_logs
from clia.hub.model import ELSEWHERE, FORK, PUBLISHED, REMOVED, UNREADABLE, Fork, HubStatus, HubSynced
from clia.hub.refs import UNPUBLISHED
from clia.space.remotes import AHEAD, DIVERGED, NEW, REFUSED, Adoption, lock_of, owner_of
from clia.store.interface import INTENT
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from clia.hub.model import Move
    from clia.hub.refs import UnpublishedWork
    from clia.hub.remote import RemoteHub
    from clia.space.core import Core
    from clia.trust.checkpoints.exchange import CheckpointExchange

    Hold = Callable[[str], AbstractContextManager[None]]
    Progress = Callable[[int, int], None]

_ROUNDS = 5
_BATCH = 50  # locks per push
_CHAINS = (names.TYPES, names.OBJECTS, names.GUARDRAILS, names.CAPABILITIES, names.STATEMENTS, names.ATTRIBUTION)


class HubSync:
    """``core`` is the space; ``alone`` is the same space with the refs of this clone only."""

    def __init__(self, core: Core, alone: Core, hub: RemoteHub, unpublished: UnpublishedWork) -> None:
        self._core = core
        self._alone = alone
        self.hub = hub
        self.unpublished = unpublished
        self._adoption = Adoption(alone)
        self.continues_keys: Callable[[str], bool] = lambda _: False
        """Whether a key chain continues ours. Set by the owner of the keys."""
        self.checkpoints: Callable[[], CheckpointExchange | None] = lambda: None
        self.hold: Hold = core.locks.hold
        """Takes a lock as verbs of the space do."""
        self.hold_recovered: Hold = core.locks.hold
        """The same, after recovering from a crashed process."""
        self.check_hub: Callable[[], None] = lambda: None
        """Raises ``Conflict`` if the remote is another hub than the one this clone joined."""
        self.ensure_mark: Callable[[], None] = lambda: None
        """The same after a full fetch; restores the mark of a recreated hub."""

    def sync_agent(self, name: str) -> bool:
        """Sync an agent with the hub; the caller holds its lock. Returns whether its state is certain.

        It is not if the hub is unreachable, unless this clone already works on the agent without it. ``Conflict`` if there
        is a fork (hub-diverged) or another machine has unpublished work (work-elsewhere).
        """
        if not names.is_name(name):
            return True  # chains follow the hub when they are moved
        works, refs = self.unpublished.elsewhere(name), self.unpublished.announced(name)
        if works and not self._has_all(refs) and not (self.hub.fetch(name) and self._has_all(refs, self.hub.tracked)):
            raise errors.unpublished_elsewhere(works[0])  # neither this clone nor the hub has all of it
        if self._is_current(name):
            return True
        for _ in range(_ROUNDS):
            if not self.hub.fetch(name):
                return self._is_exclusive(name)
            self._check_space()
            self._follow_chains()
            results, moves = self._settle(name)
            if any(result.what == FORK for result in results):
                raise errors.diverged(name, self.fork(name))
            try:
                if self._publish(name, moves):
                    self._correct(name)
                    return True
            except (TransportError, Denied):
                return self._is_exclusive(name)  # readable but not writable: work continues here, unpublished
        raise errors.busy(name)

    def _check_space(self) -> None:
        """``Conflict`` if the remote holds another space or is another hub."""
        space = self.hub.tracked(names.SPACE)
        if space is not None and space != self._alone.refs.get(names.SPACE):
            raise errors.other_space(self.hub.address(), self.hub.remote)
        self.check_hub()

    def _is_exclusive(self, name: str) -> bool:
        """While the hub is unreachable: whether only this clone can have worked on an agent. ``Conflict`` if another has."""
        last = self.unpublished.announced(name)
        if last is not None and not self._has_all(last):
            raise errors.work_not_fetched(name)
        return self.unpublished.has(names.head(name))

    def _is_current(self, name: str) -> bool:
        """Whether no machine has announced anything new. Changes by plain git at the hub are noticed when a ref is moved."""
        work = self.unpublished
        return self._has_all(work.announced(name)) and not work.has(names.head(name)) and self._has_all(work.announced_chains())

    def _correct(self, lock: str) -> None:
        """Correct announcements that were never carried out, if our refs match the hub.

        Requires the lock, and a fetch since it was taken; otherwise newer announcements would be lost.
        """
        refs = {ref: self._alone.refs.get(ref) for ref in self._refs(lock)}
        if all(cid == self.hub.tracked(ref) for ref, cid in refs.items()):
            self.unpublished.correct(lock, refs)

    def _correct_chain(self, lock: str) -> None:
        """The same for a chain, which is not synced before each use."""
        last = None if names.is_name(lock) or self.unpublished.is_elsewhere(lock) else self.unpublished.announced(lock)
        if last is not None and not self._has_all(last) and self.hub.read(*self._refs(lock)):
            self._correct(lock)

    def _has_all(self, last: Mapping[str, str | None] | None, get: Callable[[str], str | None] | None = None) -> bool:
        """Whether refs, here or read by ``get``, have the announced values or descend from them."""
        get = get or self._alone.refs.get
        return last is not None and all(self._has(get(ref), cid) for ref, cid in last.items())

    def _has(self, ours: str | None, cid: str | None) -> bool:
        if ours is None or cid is None or ours == cid:
            return ours == cid
        return self._alone.objects.kind(cid) == "commit" and self._alone.graph.descends(ours, cid)

    def refresh(self, name: str) -> None:
        """Adopt the work of other machines on an agent before its state is read.

        ``Conflict`` as for ``sync_agent``: acknowledged work must not be omitted silently.
        """
        if not names.is_name(name):  # publish unpublished work of a chain, if the hub is reachable
            if self.unpublished.has_under(name) and self.hub.read(*self._refs(name)):
                with suppress(Conflict, Denied, TransportError), self.hold(name):
                    self._publish(name, self._settle(name)[1])
        elif not self._is_current(name):
            with self.hold(name):
                self.sync_agent(name)

    def catch_up(self) -> bool:
        """Adopt the chains that all agents share; returns whether anything may be new.

        ``NotFound`` (news-elsewhere) if another machine announced more and the hub is unreachable.
        """
        last = self.unpublished.announced_chains()
        if last and self._has_all(last):
            return False
        if self.hub.read(*_CHAINS, names.BEHAVIOURS):
            self._check_space()
            self._follow_chains()
            return True
        if not last:
            return False
        raise errors.chains_not_fetched()

    def seek(self, name: str) -> None:
        """Adopt an agent that another machine created. No lock is needed: refs are only created."""
        alone = self._alone
        if not self.unpublished.may_exist_elsewhere(name):
            return
        if not self.hub.fetch(name):
            last = self.unpublished.announced(name)
            if last is not None and not self._has_all(last):
                raise errors.agent_not_fetched(name, "the hub is unreachable")
            return
        refs = [(ref, self.hub.tracked(ref)) for ref in names.of_agent(name) if alone.refs.get(ref) is None]
        if names.head(name) in dict(refs) and self.hub.tracked(names.head(name)) is not None:
            self._mark_foreign(name)
        for ref, theirs in sorted(refs, key=lambda item: item[0].startswith(names.HEADS)):  # the head last
            if theirs is not None:
                with suppress(StaleRef):  # another process did it
                    alone.refs.move(ref, None, theirs, "clia: follow the hub")
        unpublished = self.unpublished.elsewhere(name)
        if unpublished and alone.refs.get(names.head(name)) is None and alone.refs.get(names.archived(name)) is None:
            hints = errors.unpublished_elsewhere(unpublished[0]).hints
            raise errors.agent_not_fetched(name, "its machine has not published it", *hints)

    def _mark_foreign(self, name: str) -> None:
        """Mark another clone's agent before it becomes visible. Not if the store is shared, nor for our own unfinished spawn."""
        if self._alone.clone is None and self._alone.store.get(INTENT + name) is None:
            self._alone.mark_foreign(name)

    def _publish(self, lock: str, moves: Sequence[Move]) -> bool:
        """Push moves; False if the hub has moved on."""
        try:
            if moves:
                self.hub.send(moves)
        except StaleRef:
            return False
        self.unpublished.mark_published(lock)
        return True

    # One lock

    def _settle(self, lock: str) -> tuple[list[HubSynced], list[Move]]:
        """Adopt what the hub has; return the results and the moves to push. The caller holds the lock."""
        if not names.is_name(lock):
            return self._settle_chains(self._refs(lock))
        events, record, archived, head, *notes = names.of_agent(lock)
        results, moves = self._settle_chains([events, record])
        for more_results, more_moves in (self._settle_head(lock, (head, archived)), self._settle_chains(notes)):
            results += more_results
            moves += more_moves
        return results, moves

    def _refs(self, lock: str) -> list[str]:
        """Return the refs that a lock protects."""
        return names.of_agent(lock) if names.is_name(lock) else [owner_of(lock)]

    def _settle_chains(self, refs: Iterable[str]) -> tuple[list[HubSynced], list[Move]]:
        results: list[HubSynced] = []
        moves: list[Move] = []
        for ref in refs:
            theirs = self.hub.tracked(ref)
            try:
                result = None if theirs is None else self._adopt(ref, theirs)
            except (GitError, NotFound, InvalidInput):
                result = UNREADABLE  # a failure here does not stop the others
            ours = self._alone.refs.get(ref)
            if result is not None:
                results.append(HubSynced(ref, result, theirs if result in (FORK, REFUSED) else ours))
            if result not in (FORK, UNREADABLE) and ours is not None and ours != theirs:
                moves.append((ref, theirs, ours))
        return results, moves

    def _adopt(self, ref: str, theirs: str) -> str | None:
        alone = self._alone
        ours = alone.refs.get(ref)
        if ours == theirs:
            return None
        if ours is not None and ref.startswith(names.TRACES):
            purged_here, purged_there = self._adoption.was_purged(ref, ours), self._adoption.was_purged(ref, theirs)
            if purged_here and not purged_there:
                notes = alone.notes.all(ref)
                alone.refs.move(ref, ours, theirs, "clia: purged at the hub")
                self._adoption.carry_notes(ref, notes)
                return AHEAD
            if purged_there and not purged_here:
                self._adoption.carry_notes(ref, alone.notes.all(names.tracking(self.hub.remote, ref)))
                return REFUSED
        if ours is not None and ref == names.KEYS and alone.graph.descends(ours, theirs):
            return None  # a key that was rotated while the hub was away
        # Only the key chain itself decides whose space this is.
        if not self._adoption.is_sound(ref, theirs) or (ref == names.KEYS and not self.continues_keys(theirs)):
            return FORK
        result = self._adoption.settle(ref, ours, theirs)
        return FORK if result == DIVERGED else result

    def _settle_head(self, name: str, refs: tuple[str, str]) -> tuple[list[HubSynced], list[Move]]:
        """Settle the head, which is either active or archived."""
        alone = self._alone
        ours, theirs = tuple(map(alone.refs.get, refs)), tuple(map(self.hub.tracked, refs))
        if ours == theirs:
            return [], []
        our_head, their_head = ours[0] or ours[1], theirs[0] or theirs[1]
        sent: list[Move] = [(ref, old, new) for ref, old, new in zip(refs, theirs, ours, strict=True) if old != new]
        if our_head is None or their_head is None:
            return ([], sent) if their_head is None else (self._follow(name, refs, ours, theirs), [])
        same_head = our_head == their_head and self.unpublished.has(refs[0])  # archived or restored here
        if not same_head and alone.graph.descends(their_head, our_head):
            return self._follow(name, refs, ours, theirs), []
        return ([], sent) if alone.graph.descends(our_head, their_head) else ([HubSynced(refs[0], FORK, their_head)], [])

    def _follow(
        self, name: str, refs: tuple[str, str], ours: Sequence[str | None], theirs: Sequence[str | None]
    ) -> list[HubSynced]:
        alone = self._alone
        worktree = alone.refs.followed_by(refs[0])
        if worktree is not None and ours[0] != theirs[0]:
            raise errors.checked_out(name, worktree)
        if ours == (None, None):
            self._mark_foreign(name)
        results = []
        for ref, old, new in sorted(zip(refs, ours, theirs, strict=True), key=lambda move: move[2] is None):
            if old != new:  # new refs first: the agent never disappears
                alone.refs.move(ref, old, new, "clia: follow the hub")
                results.append(HubSynced(ref, REMOVED if new is None else NEW if old is None else AHEAD, new))
        return results

    def _follow_chains(self) -> None:
        """Fast-forward the chains that all agents share."""
        alone = self._alone
        for ref in (*_CHAINS, *(ref for ref, _ in self.hub.tracked_under(names.BEHAVIOURS))):
            ours, theirs = alone.refs.get(ref), self.hub.tracked(ref)
            if theirs is None or ours == theirs:
                continue
            with suppress(StaleRef, GitError, NotFound):  # another process did it, or it is not a chain
                if self._adoption.is_sound(ref, theirs) and (ours is None or alone.graph.descends(theirs, ours)):
                    alone.refs.move(ref, ours, theirs, "clia: follow the hub")

    # Everything

    def sync(self, progress: Progress | None = None) -> list[HubSynced]:
        """Sync everything with the hub."""
        if not self.hub.fetch(retry_now=True):
            raise self.hub.unreachable()
        self._check_space()
        self.ensure_mark()
        results = self._sync_agents(progress)
        if self.hub.local_refs.log is not None:
            self.hub.local_refs.log.settle(self.hub.tracked)
        checkpoints = self.checkpoints() if self._alone.refs.under(names.LOGS, limit=1) else None
        if checkpoints is None:
            exchange_logs(self._alone, self.hub)
        else:
            checkpoints.exchange_with(self.hub, lambda: exchange_logs(self._alone, self.hub))
        return results

    def _sync_agents(self, progress: Progress | None) -> list[HubSynced]:
        results: list[HubSynced] = []
        locks = self._differing_locks()
        for start in range(0, len(locks), _BATCH):
            results += self._sync_part(locks[start : start + _BATCH])
            if progress is not None:
                progress(min(start + _BATCH, len(locks)), len(locks))
        return results

    def _sync_part(self, locks: Sequence[str]) -> list[HubSynced]:
        """Settle each lock, push all moves at once, then check each lock again."""
        results: list[HubSynced] = []
        sent: dict[str, list[Move]] = {}
        for lock in locks:
            if self.unpublished.elsewhere(lock):
                last = self.unpublished.announced(lock)
                if not self._has_all(last) and not self._has_all(last, self.hub.tracked):
                    results.append(HubSynced(names.head(lock), ELSEWHERE, None))
                    continue
            if self._core.store.get(INTENT + lock) is not None:
                with suppress(CliaError), self.hold_recovered(lock):
                    pass  # recover first: half of a verb must not be published
            with self.hold(lock):
                if self._core.store.get(INTENT + lock) is not None:
                    continue
                try:
                    settled, sent[lock] = self._settle(lock)
                    self._correct_chain(lock)
                except Conflict as err:
                    settled, sent[lock] = [HubSynced(names.head(lock), err.code, None, err.message)], []
            results += settled
        for lock, moves in self._send_all(sent, results):
            results += [HubSynced(ref, PUBLISHED if new else REMOVED, new) for ref, _, new in moves]
            with self.hold(lock):
                if all(self._alone.refs.get(ref) == self.hub.tracked(ref) for ref in self._refs(lock)):  # work may have continued
                    self.unpublished.mark_published(lock, by_anyone=self._has_all(self.unpublished.announced(lock)))
        return results

    def _send_all(self, moves_by_lock: Mapping[str, list[Move]], results: list[HubSynced]) -> list[tuple[str, list[Move]]]:
        """Push everything at once, or each lock separately if one is stale or refused; return what was pushed."""
        pushed: list[tuple[str, list[Move]]] = []
        try:
            self.hub.send([move for moves in moves_by_lock.values() for move in moves], patient=True)
            return list(moves_by_lock.items())
        except (StaleRef, Denied):
            pass
        except TransportError as err:
            if err.code != "hub-ref-locked":
                raise
        for lock, moves in moves_by_lock.items():
            try:
                self.hub.send(moves, patient=True)
                pushed.append((lock, moves))
            except StaleRef:
                continue  # the next sync retries
            except Denied as err:
                results.append(HubSynced(moves[0][0], err.code, moves[0][2], str(err.fields.get("reason") or err.message)))
            except TransportError as err:
                if err.code != "hub-ref-locked":
                    raise
                results.append(HubSynced(moves[0][0], err.code, moves[0][2], err.message))
        return pushed

    def _differing_locks(self) -> list[str]:
        """Return the locks of refs that differ from the hub and of unpublished work; agents last."""
        local, remote = self._shared_refs(), self.hub.all_tracked()
        refs = {ref for ref, _ in local.items() ^ remote.items()}
        unpublished = {key.removeprefix(UNPUBLISHED) for key, _ in self._core.store.scan(UNPUBLISHED)}
        announced = {lock_of(ref) for ref, cid in self.unpublished.announced_chains().items() if local.get(ref) != cid}
        return sorted({lock_of(ref) for ref in refs} | unpublished | announced, key=lambda lock: (names.is_name(lock), lock))

    def _shared_refs(self) -> dict[str, str]:
        return {ref: cid for _, source in names.KINDS for ref, cid in self._alone.refs.under(source) if names.is_shared(ref)}

    def status(self) -> HubStatus:
        """Return the status as of the last fetch; the hub is not contacted."""
        hub, away = self.hub, self.hub.outage()
        local, remote = self._shared_refs(), hub.all_tracked()
        differ = sorted({ref for ref, _ in local.items() ^ remote.items()})
        behind = [ref for ref in differ if self._is_behind(ref, local.get(ref), remote.get(ref))]
        forks = [fork for fork in map(self.fork, sorted({lock_of(ref) for ref in differ})) if fork is not None]
        return HubStatus(
            remote=hub.remote,
            address=hub.address(),
            heads=hub.heads,
            clone=self.unpublished.clone,
            shared_store=self._core.clone is not None,
            away_since=None if away is None else timestamp(datetime.fromtimestamp(away.since, UTC)),
            away_reason=None if away is None else away.reason,
            refs=len(local),
            owed=tuple(ref for ref in differ if ref not in behind),
            behind=tuple(behind),
            forks=tuple(forks),
            elsewhere=tuple(self.unpublished.elsewhere()),
        )

    def _is_behind(self, ref: str, ours: str | None, theirs: str | None) -> bool:
        """Whether this clone has to follow the hub."""
        if ref.startswith((names.HEADS, names.ARCHIVE)) and (ours is None or theirs is None):
            # Archived or restored: by us, if it is unpublished and we have everything that the hub has.
            name = ref.rpartition("/")[2]
            places = (names.head(name), names.archived(name))
            our_head, their_head = (next(filter(None, map(get, places)), None) for get in (self._alone.refs.get, self.hub.tracked))
            if our_head is not None and their_head is not None:
                moved_here = our_head != their_head or self.unpublished.has(ref)
                return not (moved_here and self._alone.graph.descends(our_head, their_head))
        if theirs is None or ours is None:
            return ours is None
        graph = self._alone.graph
        # If both moved, we follow unless we have unpublished work: the hub may have been purged.
        return graph.descends(theirs, ours) or not (graph.descends(ours, theirs) or self.unpublished.has(ref))

    # Forks

    def fork(self, name: str) -> Fork | None:
        """Return how an agent diverged from the hub, if it did."""
        if not names.is_name(name):
            return None
        refs, graph = (names.head(name), names.archived(name)), self._alone.graph
        ours = self._alone.refs.get(refs[0]) or self._alone.refs.get(refs[1])
        theirs = self.hub.tracked(refs[0]) or self.hub.tracked(refs[1])
        if ours is None or theirs is None or graph.descends(ours, theirs) or graph.descends(theirs, ours):
            return None
        ahead, behind = (sum(1 for _ in graph.walk([tip], [base])) for tip, base in ((ours, theirs), (theirs, ours)))
        return Fork(name, graph.merge_base(ours, theirs), ours, theirs, ahead, behind)

    def follow_hub(self, name: str) -> list[HubSynced]:
        """Move an agent to the hub's line. The caller has kept ours under another name and holds the lock."""
        alone, hub = self._alone, self.hub
        refs = (names.head(name), names.archived(name))
        ours, theirs = tuple(map(alone.refs.get, refs)), tuple(map(hub.tracked, refs))
        fork = self.fork(name)
        results = self._follow(name, refs, ours, theirs)
        if alone.clone is None and fork is not None and fork.base is None:
            alone.mark_foreign(name)  # two clones used one name: it is now another clone's agent
        record, theirs_record = names.record(name), hub.tracked(names.record(name))
        if theirs_record is not None and alone.refs.get(record) != theirs_record:
            alone.refs.move(record, alone.refs.get(record), theirs_record, "clia: follow the hub")
        settled, moves = self._settle(name)
        self._publish(name, moves)
        return results + settled

    def agents_elsewhere(self, agents: Iterable[str] = ()) -> frozenset[str]:
        """Return agents with unpublished work on another machine; of ``agents``, also those whose published work was not
        fetched before the hub became unreachable."""
        elsewhere = {work.agent for work in self.unpublished.elsewhere()}
        if self.hub.in_backoff():
            elsewhere.update(name for name, refs in self.unpublished.announced_for(agents) if not self._has_all(refs))
        return frozenset(elsewhere)

    def abandon(self, agents: Iterable[str]) -> None:
        """Give up unpublished work of other machines; continue from the hub, which must be reachable."""
        locks = [self.unpublished.lock_elsewhere(name) for name in agents]
        if not locks:
            return
        if not self.hub.fetch(retry_now=True):
            raise self.hub.unreachable()
        self._check_space()
        for lock in locks:
            with self.hold(lock):
                self._settle(lock)
                self.unpublished.discard(lock, {ref: self._alone.refs.get(ref) for ref in self._refs(lock)})
