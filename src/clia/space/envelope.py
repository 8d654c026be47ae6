"""The envelope: locks, intents and recovery for verbs with several steps.

Invariant: whenever a process dies, the next one that works on the agent either finishes the verb or undoes it, exactly once. The
move of one ref is the point of no return. Later steps are recorded in the store before that move; earlier steps are undone if the
ref never moved.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from clia.errors import CliaError, Conflict, StaleRef, StoreError
from clia.store.interface import INTENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.git.porcelain import GitPorcelain
    from clia.space.core import Core
    from clia.store.interface import Transaction, Versioned

SPACE_LOCK, GATE = "@space", "@gate"
LOST = "lost/"
"""Intents of other machines that were undone, by machine and agent. They may still reach the hub."""
STEPS = ("locked", "recovered", "objects-written", "intent-recorded", "secondary-refs", "committed", "notes-bound", "finished")
"""The named crash points. ``ref-locked`` lies within ``secondary-refs`` and ``committed``, inside a ref's own lock."""


class RefMove(NamedTuple):
    """A move of a ref; ``new`` None deletes it."""

    ref: str
    old: str | None
    new: str | None


class Binding(NamedTuple):
    """A note to bind. The text is kept until then, because nothing else refers to its blob."""

    ref: str
    commit: str
    text: str


class Append(NamedTuple):
    stream: str
    bodies: tuple[Any, ...]
    until: int | None = None  # the stream's expected end: if another process appended, this is skipped


class Intent(NamedTuple):
    """Everything a verb does before and after its point of no return."""

    agent: str
    verb: str
    point: RefMove
    before: tuple[RefMove, ...] = ()
    notes: tuple[Binding, ...] = ()
    after: tuple[RefMove, ...] = ()
    follow: tuple[tuple[str, str, str], ...] = ()  # people's worktrees to update: directory, old and new commit
    drain: tuple[str, int] | None = None  # a stream, and the position up to which it is bound in a note
    appends: tuple[Append, ...] = ()
    puts: tuple[tuple[str, Any], ...] = ()
    deletes: tuple[str, ...] = ()
    discards: tuple[str, ...] = ()  # prefixes of rows whose keys are not used again


class Envelope:
    def __init__(self, core: Core, porcelain: Callable[[], GitPorcelain], meet: Callable[[str], bool] | None = None) -> None:
        """``meet`` syncs an agent with the hub and returns whether its state is certain."""
        self._core = core
        self._porcelain = porcelain
        self._meet = meet

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """Hold the agent's lock. It is synchronised with the hub, and intents of dead processes are settled."""
        core = self._core
        with self.among_others(), core.locks.hold(name):
            core.reached("locked")
            self._recover(name)
            core.reached("recovered")
            yield

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold only the lock, while the agent is synchronised with the hub."""
        with self.among_others(), self._core.locks.hold(name):
            yield

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Hold the space's lock shared. A gate in front of it closes while a process waits for exclusive use."""
        self._core.store.require_sound()
        with ExitStack() as stack:
            with self._core.locks.hold(GATE, shared=True):
                stack.enter_context(self._core.locks.hold(SPACE_LOCK, shared=True))
            stack.enter_context(self._core.logged())
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the space exclusively in this clone, with every intent settled."""
        core = self._core
        core.store.require_sound()
        with core.locks.hold(GATE), core.locks.hold(SPACE_LOCK), core.logged():
            for name in [key.removeprefix(INTENT) for key, row in core.store.scan(INTENT) if self._is_mine(row)]:
                with core.locks.hold(name):
                    self._recover(name)
            yield

    @contextmanager
    def alone_with(self, name: str) -> Iterator[None]:
        """Hold the space exclusively in this clone, and the agent's lock."""
        with self.alone(), self._core.locks.hold(name):
            self._recover(name)
            yield

    def carry_out(self, intent: Intent) -> list[str]:
        """Carry out an intent whose objects are written. Raises ``StaleRef``, with everything undone, if the ref has moved.

        Returns warnings about worktrees that could not be updated. A failure after the point of no return is not an error.
        """
        core = self._core
        core.reached("objects-written")
        with core.store.writing() as transaction:
            if not self._is_still_ours(transaction, intent):
                raise _taken_over(intent.agent)
            transaction.values.put(INTENT + intent.agent, intent._asdict() | {"clone": core.clone})
        core.reached("intent-recorded")
        try:
            if not self._moved_at_once(intent):
                for move in intent.before:
                    core.refs.move(*move, f"clia: {intent.verb}")
                core.reached("secondary-refs")
                core.refs.move(*intent.point, f"clia: {intent.verb}")
        except Exception:
            if not self._landed(intent):
                if intent.point.new is not None and core.refs.is_at_hub(intent.point.ref, intent.point.new):
                    raise  # other machines see it; the next process here that works on the agent finishes it
                if not self._undo(intent):
                    raise _taken_over(intent.agent) from None
                raise
            # The ref has moved and a later step failed, such as its log: the verb must be finished.
        core.reached("committed")
        if not self._landed(intent):
            return []  # only the hub has it: after the next sync, recovery finishes it
        try:
            return self.finish(intent)
        except CliaError as err:
            # It is recorded: an error would make its caller repeat it. The next verb on the agent does what remains.
            core.notify(f"recorded, but not complete yet ({err.message}); the next command on {intent.agent!r} completes it")
            return []

    def _is_still_ours(self, transaction: Transaction, intent: Intent) -> bool:
        """Whether the agent's lock is still ours: a server may release what a silent machine held."""
        if self._core.clone is not None and transaction.values.get(INTENT + intent.agent) is not None:
            return False
        return _fits(transaction, intent)

    def _moved_at_once(self, intent: Intent) -> bool:
        """Move all refs and notes of an intent in one atomic step; False if the backend has none."""
        core = self._core
        if not core.refs.shared:
            return False
        by = core.person_stamp()
        bound: dict[str, RefMove] = {}
        for binding in intent.notes:
            blob = core.objects.write_blob(binding.text.encode("utf-8"))
            ends = core.notes.prepared(binding.ref, binding.commit, blob, by, _about(intent, binding))
            if ends is not None:
                bound[binding.ref] = RefMove(binding.ref, *ends)
        return core.refs.move_together((*intent.before, intent.point, *bound.values(), *intent.after), f"clia: {intent.verb}")

    def followers(self, ref: str, old: str, new: str) -> tuple[tuple[str, str, str], ...]:
        """The worktrees of people to update with a branch; ``Conflict`` if local changes are in the way."""
        place = self._core.refs.followed_by(ref)
        if place is None:
            return ()
        complaint = self._porcelain().can_follow(place, old, new)
        if complaint is not None:
            message = f"the worktree {place} has uncommitted work in the way: {complaint.removeprefix('error: ')}"
            hints = ["commit or stash it there, or switch to another branch"]
            raise Conflict(message, code="uncommitted-work", hints=hints, fields={"worktree": place, "reason": complaint})
        return ((place, old, new),)

    def recover_all(self) -> list[str]:
        """Settle every intent of a dead process; returns their agents.

        An intent that cannot be settled now (full disk, read-only repository) stays for the next verb on its agent.
        """
        settled = []
        for key, _ in self._core.store.scan_at_opening(INTENT):
            name = key.removeprefix(INTENT)
            with suppress(CliaError), self.among_others(), self._core.locks.attempt(name) as free:
                if free:
                    self._recover(name)
                    settled.append(name)
        return settled

    def unfinished(self) -> list[str]:
        return [key.removeprefix(INTENT) for key, _ in self._core.store.scan(INTENT)]

    def _recover(self, name: str) -> None:
        certain = self._meet is None or self._meet(name)
        for key, lost in self._lost(name):
            self._settle_lost(key, _from_json(lost), certain)
        row = self._core.store.get(INTENT + name)
        if row is None:
            return
        intent, is_mine = _from_json(row.value), self._is_mine(row.value)
        if self._landed(intent):
            # The worktree to update is on the machine that began.
            self.finish(intent if is_mine else intent._replace(follow=()))
        elif not certain:
            message = f"an operation on {name!r} may be unfinished, and the hub that has its result is unreachable"
            raise Conflict(message, code="hub-unsettled", hints=["try again when the hub is reachable"], fields={"agent": name})
        else:
            self._undo(intent, None if is_mine else row.value)

    def _lost(self, name: str) -> list[tuple[str, Any]]:
        """Intents on this agent that were undone for other machines, at most one each."""
        if self._core.clone is None:
            return []
        return [(key, row) for key, row in self._core.store.scan(LOST) if isinstance(row, dict) and row.get("agent") == name]

    def _settle_lost(self, key: str, intent: Intent, certain: bool) -> None:
        """Finish the undone intents that landed after all, and forget those that no longer can."""
        core = self._core
        if self._landed(intent):
            self.finish(intent._replace(follow=()))
        elif certain and core.refs.get(intent.point.ref) != intent.point.old:
            with core.store.writing() as transaction:
                transaction.values.delete(key)

    def _is_mine(self, row: Any) -> bool:
        """Whether an intent was recorded in this clone."""
        return not isinstance(row, dict) or row.get("clone") == self._core.clone

    def _landed(self, intent: Intent) -> bool:
        """Whether the point of no return was passed, even if others continued from there or a person moved the ref back."""
        ref, _, new = intent.point
        head = self._core.refs.get(ref)
        if new is None:
            return head is None  # the agent's lock is held since the ref was read
        # Objects that another machine never sent are missing here.
        if head == new or (head is not None and self._core.contains(head, new)):
            return True
        # A later move proves this one; git logs a move before it makes it.
        return any(entry.old == new for entry in self._core.refs.past(ref))

    def finish(self, intent: Intent) -> list[str]:
        """Do what follows the point of no return, once: repeating it changes nothing. Returns warnings about worktrees."""
        core = self._core
        by = core.person_stamp()
        for binding in intent.notes:
            blob = core.objects.write_blob(binding.text.encode("utf-8"))
            core.notes.bind(binding.ref, binding.commit, blob, by, _about(intent, binding))
        for move in intent.after:
            self._follow_up(move)
        complaints = [complaint for follow in intent.follow if (complaint := self._bring_along(*follow)) is not None]
        core.reached("notes-bound")
        with core.store.writing() as transaction:
            if self._is_ours_to_settle(transaction, intent):
                # The session continued before this landed: it is history only.
                fits = _fits(transaction, intent)
                settle(transaction, intent if fits else intent._replace(appends=(), puts=(), deletes=(), discards=()))
        core.reached("finished")
        return complaints

    def _is_ours_to_settle(self, transaction: Transaction, intent: Intent) -> bool:
        """Whether this process settles an intent: the one that deletes it does. Another machine may have undone it."""
        values = transaction.values
        rows = {INTENT + intent.agent: values.get(INTENT + intent.agent)}
        if self._core.clone is not None:
            rows |= {key: values.get(key) for key, _ in values.scan(LOST)}
        keys = [key for key, row in rows.items() if _is_about(row, intent)]
        for key in keys:
            values.delete(key)
        return bool(keys)

    def _follow_up(self, move: RefMove) -> None:
        """Move a secondary ref, unless it was moved already before a crash."""
        core = self._core
        if core.refs.get(move.ref) == move.new:
            return  # not tried again: a process that is killed meanwhile would leave a second note of this move for the log
        try:
            core.refs.move(*move, "clia: follow up")
        except StaleRef as err:
            actual = err.fields["actual"]
            if move.new is None:  # plain git deleted or moved it: what it holds now is not what was put away
                return
            if actual is not None and core.graph.descends(actual, move.new):
                return
            # Only plain git moves it under our lock: unite both histories.
            commit = core.objects.commit(move.new)
            parents = [cid for cid in (actual, move.new) if cid is not None]
            both = core.objects.write_commit(commit.tree, parents, commit.author, commit.committer, "Chains united by clia\n")
            core.refs.move(move.ref, actual, both, "clia: follow up")

    def _bring_along(self, place: str, old: str, new: str) -> str | None:
        """Why a worktree could not be updated. The branch has moved, so git shows its owner the difference."""
        try:
            self._porcelain().follow(place, old, new)
        except CliaError as err:
            return f"{place} could not be updated ({err.message}); to update it later: git read-tree -m -u {old} {new}"
        return None

    def _undo(self, intent: Intent, lost: Mapping[str, Any] | None = None) -> bool:
        """Undo what came before the point of no return. ``lost``: another machine began it, and may still finish it. False if
        another machine already undid it; later operations of that machine stay.
        """
        core = self._core
        for move in reversed(intent.before):
            if core.refs.get(move.ref) == move.new:
                core.refs.move(move.ref, move.new, move.old, f"clia: undo {intent.verb}")
        with core.store.writing() as transaction:
            values = transaction.values
            is_current = _is_about(values.get(INTENT + intent.agent), intent)
            if is_current:
                values.delete(INTENT + intent.agent)
            if is_current and lost is not None:
                values.put(f"{LOST}{lost.get('clone')}/{intent.agent}", dict(lost))
        return is_current


def _about(intent: Intent, binding: Binding) -> str:
    return f"{intent.verb}: note of {binding.commit}\n"


def _is_about(row: Versioned | None, intent: Intent) -> bool:
    return row is not None and row.value.get("point", [])[-1:] == [intent.point.new]


def _fits(transaction: Transaction, intent: Intent) -> bool:
    """Whether the streams of an intent still end where it expects."""
    expected = (append for append in intent.appends if append.until is not None)
    return all(transaction.streams.end(append.stream) + len(append.bodies) == append.until for append in expected)


def _taken_over(name: str) -> Conflict:
    hints = ["check the agent, and try again if needed"]
    return Conflict(f"another machine has continued the work of {name!r}", code="taken-over", hints=hints, fields={"agent": name})


def settle(transaction: Transaction, intent: Intent) -> None:
    """Apply the intent's changes to the store."""
    if intent.drain is not None:
        transaction.streams.forget(*intent.drain)
    for append in intent.appends:
        transaction.streams.append(append.stream, append.bodies)
    for prefix in intent.discards:
        transaction.values.discard(prefix)
    for key, value in intent.puts:
        transaction.values.put(key, value)
    for key in intent.deletes:
        transaction.values.delete(key)


def _from_json(row: dict[str, Any]) -> Intent:
    try:
        return Intent(
            agent=row["agent"],
            verb=row["verb"],
            point=RefMove(*row["point"]),
            before=tuple(RefMove(*move) for move in row["before"]),
            notes=tuple(Binding(*note) for note in row["notes"]),
            after=tuple(RefMove(*move) for move in row["after"]),
            follow=tuple((place, old, new) for place, old, new in row["follow"]),
            drain=None if row["drain"] is None else (row["drain"][0], row["drain"][1]),
            appends=tuple(Append(stream, tuple(bodies), *until) for stream, bodies, *until in row["appends"]),
            puts=tuple((key, value) for key, value in row["puts"]),
            deletes=tuple(row.get("deletes", ())),
            discards=tuple(row.get("discards", ())),
        )
    except (TypeError, KeyError, IndexError, AttributeError, ValueError):
        message = "the store holds an unreadable intent, so an unfinished operation cannot be completed or undone"
        raise StoreError(message, code="store-corrupt", hints=["move the store aside and run 'clia rebuild'"]) from None
