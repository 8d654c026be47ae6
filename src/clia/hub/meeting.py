"""Staying in step with the hub.

Invariant: work that was acknowledged is never lost, and nothing at the hub is forced. Whoever works on an agent first takes over
what the hub has of it and publishes what this clone owes. Where both went on from one head there is a fork: both lines stay, and
nobody works on the agent here until a person has said what our line is to be called. Where several machines share the store, an
agent whose last work is on another machine, and nowhere else yet, is left to that machine.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from clia.errors import CliaError, Conflict, Denied, GitError, InvalidInput, NotFound, StaleRef, TransportError
from clia.hub import refusals
from clia.hub.ledger import OWED
from clia.hub.records import ELSEWHERE, FORK, PUBLISHED, REMOVED, UNREADABLE, Fork, HubStatus, Synced
from clia.space.adoption import AHEAD, DIVERGED, NEW, REFUSED, Taking, lock_of, owner_of
from clia.space.envelope import INTENT
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from clia.hub.interface import Away, Hub, Move
    from clia.hub.ledger import StoreLedger
    from clia.space.core import Core

    Hold = Callable[[str], AbstractContextManager[None]]
    Progress = Callable[[int, int], None]

_ROUNDS = 5
_AT_ONCE = 50  # agents that are settled before what they owe is sent
_CHAINS = (names.TYPES, names.OBJECTS, names.CAPABILITIES)


class Meeting:
    """``core`` is the space; ``alone`` the same with the refs of this clone only, which move without the hub."""

    def __init__(self, core: Core, alone: Core, hub: Hub, ledger: StoreLedger) -> None:
        self._core = core
        self._alone = alone
        self._hub = hub
        self.ledger = ledger
        self._taking = Taking(alone)
        self.continues: Callable[[str], bool] = lambda _: False
        """Whether a chain of keys goes on from ours; whoever knows about keys says."""
        self.hold: Hold = core.locks.hold
        """Takes a lock as whoever works in the space does."""
        self.whole: Hold = core.locks.hold
        """The same, and what a dead process left is settled."""
        self.recognize: Callable[[], None] = lambda: None
        """``Conflict`` where what was read is another hub; whoever knows about joining says."""
        self.keep_mark: Callable[[], None] = lambda: None
        """The same, after all was read; and a hub that was made anew is told again what it is."""

    def address(self) -> str:
        """Where the hub is, without any password."""
        return self._hub.address()

    def away(self) -> Away | None:
        """Whether the hub could not be reached when somebody tried last."""
        return self._hub.away()

    def meet(self, name: str) -> bool:
        """Brings an agent and the hub together; the caller holds its lock. Whether it is certain now what was done to it.

        It is not where the hub cannot be reached, unless this clone works on the agent without it already: then nothing was sent.
        ``Conflict`` where there is a fork (hub-diverged), or the agent's last work is on another machine (work-elsewhere).
        """
        if not names.is_name(name):
            return True  # not an agent's lock: chains follow the hub when they are moved
        self._check_is_here(name)
        if self._has_seen_all(name):
            return True
        for _ in range(_ROUNDS):
            if not self._hub.fetch(name):
                return self._is_certain(name)
            self._check_space()
            self._follow_chains()
            done, moves = self._settle(name)
            if any(each.what == FORK for each in done):
                raise refusals.diverged(name, self.fork(name))
            try:
                if self._publish(name, moves):
                    self._note(name)
                    return True
            except (TransportError, Denied):
                return self._is_certain(name)  # it can be read, and not written: work goes on here, and is owed
        raise refusals.busy(name)

    def _check_is_here(self, name: str) -> None:
        """``Conflict`` where the last work is on another machine. Whoever has all of it may go on, and owes it then; and whoever
        owed it may have died when the hub had it already."""
        others, last = self.ledger.elsewhere(name), self.ledger.last(name)
        if others and not self._has_last(last) and not (self._hub.fetch(name) and self._has_last(last, self._hub.known)):
            raise refusals.owed_elsewhere(others[0])

    def _check_space(self) -> None:
        """``Conflict`` where the remote's address leads to another space by now."""
        there = self._hub.known(names.SPACE)
        if there is not None and there != self._alone.refs.get(names.SPACE):
            raise refusals.other_space(self._hub.address(), self._hub.remote)
        self.recognize()

    def _is_certain(self, name: str) -> bool:
        """Whether nothing but this clone can have worked on an agent, while the hub is away. ``Conflict`` where another has."""
        last = self.ledger.last(name)
        if last is not None and not self._has_last(last):
            raise refusals.work_not_seen(name)
        return self.ledger.owes(names.head(name))

    def _has_seen_all(self, name: str) -> bool:
        """Whether no machine has done anything since we looked. What plain git did at the hub shows when a ref is moved."""
        ledger = self.ledger
        return self._has_last(ledger.last(name)) and not ledger.owes(names.head(name)) and self._has_last(ledger.last_of_chains())

    def _note(self, lock: str) -> None:
        """What refs are, where the hub has them so: what somebody noted before may never have come.

        Under the lock, and the hub was read since it was taken: else what others have done meanwhile would be forgotten.
        """
        refs = {ref: self._alone.refs.get(ref) for ref in self._refs(lock)}
        if all(cid == self._hub.known(ref) for ref, cid in refs.items()):
            self.ledger.correct(lock, refs)

    def _note_chain(self, lock: str) -> None:
        """The like for what is no agent's, and not met before each use. An agent is noted when somebody works on it."""
        last = None if names.is_name(lock) or self.ledger.is_owed_elsewhere(lock) else self.ledger.last(lock)
        if last is not None and not self._has_last(last) and self._hub.read(*self._refs(lock)):
            self._note(lock)

    def _has_last(self, last: Mapping[str, str | None] | None, get: Callable[[str], str | None] | None = None) -> bool:
        """Whether refs, here or as ``get`` tells, are as was noted, or have gone on from there: plain git works at the hub, too."""
        get = get or self._alone.refs.get
        return last is not None and all(self._has(get(ref), cid) for ref, cid in last.items())

    def _has(self, ours: str | None, cid: str | None) -> bool:
        if ours is None or cid is None or ours == cid:
            return ours == cid
        return self._alone.objects.kind(cid) == "commit" and self._alone.graph.descends(ours, cid)

    def refresh(self, name: str) -> None:
        """Takes over what other machines did to an agent, for whoever goes on from it without working on it.

        ``Conflict`` as for who works on it: work that somebody was told is done would be left out without a word.
        """
        if not names.is_name(name):
            self._settle_owed(name)
        elif not self._has_seen_all(name):
            with self.hold(name):
                self.meet(name)

    def catch_up(self) -> bool:
        """Takes over what all agents share, for whoever misses something of it; whether anything may be new.

        ``NotFound`` (news-elsewhere) where another machine says that there is more, and the hub is away.
        """
        last = self.ledger.last_of_chains()
        if last and self._has_last(last):
            return False
        if self._hub.read(*_CHAINS, names.BEHAVIOURS):
            self._check_space()
            self._follow_chains()
            return True
        if not last:
            return False
        raise refusals.news_not_seen()

    def _settle_owed(self, lock: str) -> None:
        """Publishes what is owed of a chain, if the hub is back."""
        if self.ledger.owes_under(lock) and self._hub.read(*self._refs(lock)):
            with suppress(Conflict, Denied, TransportError), self.hold(lock):
                self._publish(lock, self._settle(lock)[1])

    def seek(self, name: str) -> None:
        """Takes over an agent that is not here and that another machine made. No lock is needed: refs are only made."""
        alone = self._alone
        if not self.ledger.may_be_elsewhere(name):
            return
        if not self._hub.fetch(name):
            self._check_unseen(name)
            return
        refs = [(ref, self._hub.known(ref)) for ref in names.of_agent(name) if alone.refs.get(ref) is None]
        if names.head(name) in dict(refs) and self._hub.known(names.head(name)) is not None:
            self._mark_foreign(name)
        for ref, theirs in sorted(refs, key=lambda each: each[0].startswith(names.HEADS)):  # the head last: all is there then
            if theirs is not None:
                with suppress(StaleRef):  # another process was quicker
                    alone.refs.move(ref, None, theirs, "clia: follow the hub")
        others = self.ledger.elsewhere(name)
        if others and alone.refs.get(names.head(name)) is None and alone.refs.get(names.archived(name)) is None:
            raise refusals.agent_not_seen(
                name, "the one that made it has not published it", *refusals.owed_elsewhere(others[0]).hints
            )

    def _check_unseen(self, name: str) -> None:
        """``NoSuchAgent`` (agent-not-here) where another machine says that there is one: it can be tried again."""
        last = self.ledger.last(name)
        if last is not None and not self._has_last(last):
            raise refusals.agent_not_seen(name, "the hub is away", "wait until the hub is back")

    def _mark_foreign(self, name: str) -> None:
        """Before an agent of another clone can be seen, and worked on. Where the store is shared, so are agents; and one whose
        spawn landed at the hub, and not here, is ours."""
        if self._alone.clone is None and self._alone.store.get(INTENT + name) is None:
            self._alone.mark_foreign(name)

    def _publish(self, lock: str, moves: Sequence[Move]) -> bool:
        """Sends what is owed; False where the hub has moved on meanwhile."""
        try:
            if moves:
                self._hub.send(moves)
        except StaleRef:
            return False
        self.ledger.paid(lock)
        return True

    # What is between here and there

    def _settle(self, lock: str) -> tuple[list[Synced], list[Move]]:
        """Takes over what the hub has; what that came to, and what is to be sent. The caller holds the lock."""
        if names.is_name(lock):
            return self._of_agent(lock)
        return self._of_chains(self._refs(lock))

    def _refs(self, lock: str) -> list[str]:
        """What is moved under a lock."""
        return names.of_agent(lock) if names.is_name(lock) else [owner_of(lock)]

    def _of_agent(self, name: str) -> tuple[list[Synced], list[Move]]:
        events, record, archived, head, *notes = names.of_agent(name)
        done, moves = self._of_chains([events, record])
        more = self._of_head(name, (head, archived))
        return _joined((done, moves), more, self._of_chains(notes))

    def _of_chains(self, refs: Iterable[str]) -> tuple[list[Synced], list[Move]]:
        done: list[Synced] = []
        moves: list[Move] = []
        for ref in refs:
            theirs = self._hub.known(ref)
            what = None if theirs is None else self._taken(ref, theirs)
            ours = self._alone.refs.get(ref)
            if what is not None:
                done.append(Synced(ref, what, theirs if what in (FORK, REFUSED) else ours))
            if what not in (FORK, UNREADABLE) and ours is not None and ours != theirs:
                moves.append((ref, theirs, ours))
        return done, moves

    def _taken(self, ref: str, theirs: str) -> str | None:
        """What became of a ref; what somebody else put there may be anything, and keeps nobody from the rest."""
        try:
            return self._take(ref, theirs)
        except (GitError, NotFound, InvalidInput):
            return UNREADABLE

    def _take(self, ref: str, theirs: str) -> str | None:
        alone = self._alone
        ours = alone.refs.get(ref)
        if ours == theirs:
            return None
        if ours is not None and ref.startswith(names.TRACES):
            here, there = self._taking.was_purged(ref, ours), self._taking.was_purged(ref, theirs)
            if here and not there:
                mine = alone.notes.all(ref)
                alone.refs.move(ref, ours, theirs, "clia: purged at the hub")
                self._taking.carry_notes(ref, mine)
                return AHEAD
            if there and not here:
                self._taking.carry_notes(ref, alone.notes.all(names.tracking(self._hub.remote, ref)))
                return REFUSED
        # Nobody but the keys themselves decides who the space is.
        if not self._taking.is_sound(ref, theirs) or (ref == names.KEYS and not self.continues(theirs)):
            return FORK
        what = self._taking.settle(ref, ours, theirs)
        return FORK if what == DIVERGED else what

    def _of_head(self, name: str, refs: tuple[str, str]) -> tuple[list[Synced], list[Move]]:
        """The head at work and the one in the archive: an agent has one place or the other."""
        alone = self._alone
        ours, theirs = tuple(map(alone.refs.get, refs)), tuple(map(self._hub.known, refs))
        if ours == theirs:
            return [], []
        at, there = ours[0] or ours[1], theirs[0] or theirs[1]
        sent: list[Move] = [(ref, old, new) for ref, old, new in zip(refs, theirs, ours, strict=True) if old != new]
        if at is None or there is None:
            return ([], sent) if there is None else (self._follow(name, refs, ours, theirs), [])
        same_place = at == there and self.ledger.owes(refs[0])  # it was put away or brought back here
        if not same_place and alone.graph.descends(there, at):
            return self._follow(name, refs, ours, theirs), []
        return ([], sent) if alone.graph.descends(at, there) else ([Synced(refs[0], FORK, there)], [])

    def _follow(self, name: str, refs: tuple[str, str], ours: Sequence[str | None], theirs: Sequence[str | None]) -> list[Synced]:
        alone = self._alone
        place = alone.refs.followed_by(refs[0])
        if place is not None and ours[0] != theirs[0]:
            raise refusals.checked_out(name, place)
        if ours == (None, None):
            self._mark_foreign(name)
        done = []
        for ref, old, new in sorted(zip(refs, ours, theirs, strict=True), key=lambda each: each[2] is None):
            if old != new:  # what is new first: the agent is never in neither place
                alone.refs.move(ref, old, new, "clia: follow the hub")
                done.append(Synced(ref, REMOVED if new is None else NEW if old is None else AHEAD, new))
        return done

    def _follow_chains(self) -> None:
        """What all agents share, where the hub has more of it and nothing else is to be said."""
        alone = self._alone
        for ref in (*_CHAINS, *(ref for ref, _ in self._hub.known_under(names.BEHAVIOURS))):
            ours, theirs = alone.refs.get(ref), self._hub.known(ref)
            if theirs is None or ours == theirs or not self._is_sound(ref, theirs):
                continue
            with suppress(StaleRef, GitError, NotFound):  # another process was quicker; or it is no chain
                if ours is None or alone.graph.descends(theirs, ours):
                    alone.refs.move(ref, ours, theirs, "clia: follow the hub")

    def _is_sound(self, ref: str, cid: str) -> bool:
        try:
            return self._taking.is_sound(ref, cid)
        except (GitError, NotFound):
            return False

    # All of it

    def sync(self, progress: Progress | None = None) -> list[Synced]:
        """Brings everything and the hub together."""
        if not self._hub.fetch(insist=True):
            raise self._hub.gone()
        self._check_space()
        self.keep_mark()
        done: list[Synced] = []
        locks = self._out_of_step()
        for start in range(0, len(locks), _AT_ONCE):
            part = locks[start : start + _AT_ONCE]
            done += self._sync_part(part)
            if progress is not None:
                progress(start + len(part), len(locks))
        return done

    def _sync_part(self, locks: Sequence[str]) -> list[Synced]:
        """Some agents and chains: each is settled under its lock, all are sent at once, and then looked at again."""
        done: list[Synced] = []
        sent: dict[str, list[Move]] = {}
        for lock in locks:
            if self.ledger.elsewhere(lock) and not self._is_to_be_had(lock):
                done.append(Synced(names.head(lock), ELSEWHERE, None))
                continue
            if self._core.store.get(INTENT + lock) is not None:
                with suppress(CliaError), self.whole(lock):
                    pass  # what a dead process left is settled first: half of it is nobody's to see
            with self.hold(lock):
                if self._core.store.get(INTENT + lock) is not None:
                    continue
                try:
                    found, sent[lock] = self._settle(lock)
                    self._note_chain(lock)
                except Conflict as err:
                    found, sent[lock] = [Synced(names.head(lock), err.code, None, err.message)], []
            done += found
        for lock, moves in self._send_all(sent, done):
            done += [Synced(ref, PUBLISHED if new else REMOVED, new) for ref, _, new in moves]
            with self.hold(lock):
                if self._is_in_step(lock):  # all of it, since work may have gone on meanwhile
                    self.ledger.paid(lock, by_anyone=self._has_last(self.ledger.last(lock)))
        return done

    def _is_to_be_had(self, lock: str) -> bool:
        """Whether the last work is here, or was at the hub when it was read."""
        last = self.ledger.last(lock)
        return self._has_last(last) or self._has_last(last, self._hub.known)

    def _is_in_step(self, lock: str) -> bool:
        return all(self._alone.refs.get(ref) == self._hub.known(ref) for ref in self._refs(lock))

    def _send_all(self, wanted: Mapping[str, list[Move]], done: list[Synced]) -> list[tuple[str, list[Move]]]:
        """What could be sent: all at once, or, where one of them is lost or refused, each by itself; that one is told."""
        try:
            self._hub.send([move for moves in wanted.values() for move in moves], patient=True)
        except (StaleRef, Denied):
            return [(lock, moves) for lock, moves in wanted.items() if self._could_send(moves, done)]
        return list(wanted.items())

    def _could_send(self, moves: Sequence[Move], done: list[Synced]) -> bool:
        try:
            self._hub.send(moves, patient=True)
        except StaleRef:
            return False  # the next time tells
        except Denied as err:
            done.append(Synced(moves[0][0], err.code, moves[0][2], str(err.fields.get("reason") or err.message)))
            return False
        return True

    def _out_of_step(self) -> list[str]:
        """The locks of all shared refs that are not as they are at the hub, and of what is owed; agents last."""
        here, there = self._here(), self._hub.known_all()
        refs = {ref for ref, _ in here.items() ^ there.items()}
        mine = {key.removeprefix(OWED) for key, _ in self._core.store.scan(OWED)}
        noted = {lock_of(ref) for ref, cid in self.ledger.last_of_chains().items() if here.get(ref) != cid}
        return sorted({lock_of(ref) for ref in refs} | mine | noted, key=lambda lock: (names.is_name(lock), lock))

    def _here(self) -> dict[str, str]:
        return {ref: cid for _, source in names.KINDS for ref, cid in self._alone.refs.under(source) if names.is_shared(ref)}

    def status(self) -> HubStatus:
        """How this clone and the hub stand to each other, as far as is known; nothing is asked."""
        hub, away = self._hub, self._hub.away()
        here, there = self._here(), hub.known_all()
        differ = sorted({ref for ref, _ in here.items() ^ there.items()})
        behind = [ref for ref in differ if self._is_behind(ref, here.get(ref), there.get(ref))]
        forks = [fork for fork in map(self.fork, sorted({lock_of(ref) for ref in differ})) if fork is not None]
        return HubStatus(
            remote=hub.remote,
            address=hub.address(),
            heads=hub.heads,
            clone=self.ledger.clone,
            shared_store=self._core.clone is not None,
            away_since=None if away is None else timestamp(datetime.fromtimestamp(away.since, UTC)),
            away_reason=None if away is None else away.reason,
            refs=len(here),
            owed=tuple(ref for ref in differ if ref not in behind),
            behind=tuple(behind),
            forks=tuple(forks),
            elsewhere=tuple(self.ledger.elsewhere()),
        )

    def _is_behind(self, ref: str, ours: str | None, theirs: str | None) -> bool:
        """Whether it is this clone that has to follow."""
        if ref.startswith((names.HEADS, names.ARCHIVE)) and (ours is None or theirs is None):
            # Put away or brought back: by us, where we owe it and have all that the hub has.
            name = ref.rpartition("/")[2]
            places = (names.head(name), names.archived(name))
            at, there = (next(filter(None, map(get, places)), None) for get in (self._alone.refs.get, self._hub.known))
            if at is not None and there is not None:
                return not (self._alone.graph.descends(at, there) and (at != there or self.ledger.owes(ref)))
        if theirs is None or ours is None:
            return ours is None
        graph = self._alone.graph
        # Where both went on, it is we who follow unless we owe: a purge at the hub, say.
        return graph.descends(theirs, ours) or not (graph.descends(ours, theirs) or self.ledger.owes(ref))

    # Forks

    def fork(self, name: str) -> Fork | None:
        """How an agent here and at the hub went apart, if they did."""
        if not names.is_name(name):
            return None
        refs, graph = (names.head(name), names.archived(name)), self._alone.graph
        ours = self._alone.refs.get(refs[0]) or self._alone.refs.get(refs[1])
        theirs = self._hub.known(refs[0]) or self._hub.known(refs[1])
        if ours is None or theirs is None or graph.descends(ours, theirs) or graph.descends(theirs, ours):
            return None
        ahead, behind = (sum(1 for _ in graph.walk([one], [other])) for one, other in ((ours, theirs), (theirs, ours)))
        return Fork(name, graph.merge_base(ours, theirs), ours, theirs, ahead, behind)

    def yield_to_hub(self, name: str) -> list[Synced]:
        """Gives an agent's name to the hub's line; whoever calls has seen to it that ours is kept, and holds the lock."""
        alone, hub = self._alone, self._hub
        refs = (names.head(name), names.archived(name))
        ours, theirs = tuple(map(alone.refs.get, refs)), tuple(map(hub.known, refs))
        fork = self.fork(name)
        done = self._follow(name, refs, ours, theirs)
        if alone.clone is None and fork is not None and fork.base is None:
            alone.mark_foreign(name)  # two clones gave one name: who has it now is another clone's agent
        record, theirs_record = names.record(name), hub.known(names.record(name))
        if theirs_record is not None and alone.refs.get(record) != theirs_record:
            alone.refs.move(record, alone.refs.get(record), theirs_record, "clia: follow the hub")
        more, moves = self._settle(name)
        self._publish(name, moves)
        return done + more

    def elsewhere(self, agents: Iterable[str] = ()) -> frozenset[str]:
        """Agents whose last work is on another machine; of ``agents`` also those whose work is published, and has not come here
        before the hub went away."""
        unseen = [name for name, last in self.ledger.last_of(agents) if not self._has_last(last)] if self._hub.rests() else ()
        return frozenset((*(each.agent for each in self.ledger.elsewhere()), *unseen))

    def take_over(self, wanted: Iterable[str]) -> None:
        """Works on agents whose last work is on a machine that does not come back: from what the hub has, which must be there."""
        locks = [self.ledger.lock_owed_elsewhere(name) for name in wanted]
        if not locks:
            return
        if not self._hub.fetch(insist=True):
            raise self._hub.gone()
        self._check_space()
        for lock in locks:
            with self.hold(lock):
                self._settle(lock)
                self.ledger.forgive(lock, {ref: self._alone.refs.get(ref) for ref in self._refs(lock)})


def _joined(*parts: tuple[list[Synced], list[Move]]) -> tuple[list[Synced], list[Move]]:
    return [each for done, _ in parts for each in done], [each for _, moves in parts for each in moves]
