"""The one shape of every verb that has several steps.

Invariant: whatever instant the process dies at, the next one at work on the agent either finishes the verb or undoes it,
once. The point of no return is the move of one ref; what must follow it is written down before, in the store, and what
went before it is taken back where it never came.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from clia.errors import CliaError, Conflict, GitError, StaleRef, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.ports.store import Transaction
    from clia.ports.workbench import Workbench
    from clia.space.core import Core

SPACE_LOCK, GATE = "@space", "@gate"
INTENT = "intent/"
STEPS = ("locked", "recovered", "objects-written", "intent-recorded", "secondary-refs", "committed", "notes-bound", "finished")
"""The named crash points. Within ``secondary-refs`` and ``committed`` lies ``ref-locked``, inside a ref's own lock."""


class RefMove(NamedTuple):
    ref: str
    old: str | None
    new: str


class Binding(NamedTuple):
    """A note to be bound; its text is kept until it is, since nothing else keeps the blob."""

    ref: str
    commit: str
    text: str


class Append(NamedTuple):
    stream: str
    bodies: tuple[Any, ...]


class Intent(NamedTuple):
    """What a verb is about to do, beyond the point of no return and before it."""

    agent: str
    verb: str
    point: RefMove
    before: tuple[RefMove, ...] = ()
    notes: tuple[Binding, ...] = ()
    after: tuple[RefMove, ...] = ()
    follow: tuple[tuple[str, str, str], ...] = ()  # worktrees of people that go along: directory, old and new commit
    drain: tuple[str, int] | None = None  # a stream, and how far it went into a note
    appends: tuple[Append, ...] = ()
    puts: tuple[tuple[str, Any], ...] = ()
    deletes: tuple[str, ...] = ()


class Envelope:
    """Locks, intents and recovery."""

    def __init__(self, core: Core, workbench: Workbench) -> None:
        self._core = core
        self._workbench = workbench

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """The agent is ours, and whole: what a dead process left is settled."""
        core = self._core
        with self.among_others(), core.locks.hold(name):
            core.reached("locked")
            self._recover(name)
            core.reached("recovered")
            yield

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Nobody is alone in the space meanwhile. The gate is shut while someone waits to be."""
        with ExitStack() as stack:
            with self._core.locks.hold(GATE, shared=True):
                stack.enter_context(self._core.locks.hold(SPACE_LOCK, shared=True))
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else of ours is at work in the whole space, and nothing is left half done."""
        locks = self._core.locks
        with locks.hold(GATE), locks.hold(SPACE_LOCK):
            for name in self.unfinished():
                with locks.hold(name):
                    self._recover(name)
            yield

    def carry_out(self, intent: Intent) -> list[str]:
        """Steps 4 to 8; the objects are written. ``StaleRef`` where the point of no return is lost: all is taken back.

        What is returned are complaints of worktrees that could not be brought along.
        """
        core = self._core
        core.reached("objects-written")
        with core.store.writing() as transaction:
            transaction.values.put(INTENT + intent.agent, intent._asdict())
        core.reached("intent-recorded")
        try:
            for move in intent.before:
                core.refs.move(*move, f"clia: {intent.verb}")
            core.reached("secondary-refs")
            core.refs.move(*intent.point, f"clia: {intent.verb}")
        except Exception:
            if not self._landed(intent):
                self._undo(intent)
                raise
            # The ref has moved; what failed came after it (its log, say). The verb is done and must be finished.
        core.reached("committed")
        return self._finish(intent)

    def followers(self, ref: str, old: str, new: str) -> tuple[tuple[str, str, str], ...]:
        """The worktree of people that has a branch checked out, if it can go along; ``Conflict`` where work is in the way."""
        place = self._core.refs.followed_by(ref)
        if place is None:
            return ()
        complaint = self._workbench.can_follow(place, old, new)
        if complaint is not None:
            raise Conflict(
                f"the worktree {place} has uncommitted work in the way: {complaint.removeprefix('error: ')}",
                code="uncommitted-work",
                hints=["commit or stash it there, or switch to another branch"],
                fields={"worktree": place, "reason": complaint},
            )
        return ((place, old, new),)

    def recover_all(self) -> list[str]:
        """Settles every intent whose owner is dead; the agents that had one.

        What cannot be settled now (a full disk, a repository that may only be read) stays for the next verb on that agent.
        """
        settled = []
        for name in self.unfinished():
            with suppress(CliaError), self.among_others(), self._core.locks.attempt(name) as free:
                if free:
                    self._recover(name)
                    settled.append(name)
        return settled

    def unfinished(self) -> list[str]:
        return [key.removeprefix(INTENT) for key, _ in self._core.store.scan(INTENT)]

    def _recover(self, name: str) -> None:
        row = self._core.store.get(INTENT + name)
        if row is None:
            return
        intent = _from_json(row.value)
        if self._landed(intent):
            self._finish(intent)
        else:
            self._undo(intent)

    def _landed(self, intent: Intent) -> bool:
        """Whether the point of no return was passed; others may have gone on from there."""
        head = self._core.refs.get(intent.point.ref)
        return head is not None and self._core.graph.descends(head, intent.point.new)

    def _finish(self, intent: Intent) -> list[str]:
        core = self._core
        by = core.person_stamp()
        for binding in intent.notes:
            blob = core.objects.write_blob(binding.text.encode("utf-8"))
            core.notes.bind(binding.ref, binding.commit, blob, by, f"{intent.verb}: note of {binding.commit}\n")
        for move in intent.after:
            self._follow_up(move)
        complaints = [each for each in (self._bring_along(*follow) for follow in intent.follow) if each is not None]
        core.reached("notes-bound")
        with core.store.writing() as transaction:
            if transaction.values.delete(INTENT + intent.agent):
                settle(transaction, intent)
        core.reached("finished")
        return complaints

    def _follow_up(self, move: RefMove) -> None:
        """Moves a ref that goes along; where it was moved already, by us before we died, that is that."""
        core = self._core
        try:
            core.refs.move(*move, "clia: follow up")
        except StaleRef as err:
            actual = err.fields["actual"]
            if actual is not None and core.graph.descends(actual, move.new):
                return
            # Only plain git moves it under our lock. Both histories stay: the chain is united.
            commit = core.objects.commit(move.new)
            parents = [each for each in (actual, move.new) if each is not None]
            both = core.objects.write_commit(commit.tree, parents, commit.author, commit.committer, "Chains united by clia\n")
            core.refs.move(move.ref, actual, both, "clia: follow up")

    def _bring_along(self, place: str, old: str, new: str) -> str | None:
        """Why a worktree could not be brought along. The branch has moved: git shows its owner the difference."""
        try:
            self._workbench.follow(place, old, new)
        except GitError as err:
            return f"{place} could not be brought along ({err.message}); when it can: git read-tree -m -u {old} {new}"
        return None

    def _undo(self, intent: Intent) -> None:
        core = self._core
        for move in reversed(intent.before):
            if core.refs.get(move.ref) == move.new:
                core.refs.move(move.ref, move.new, move.old, f"clia: undo {intent.verb}")
        with core.store.writing() as transaction:
            transaction.values.delete(INTENT + intent.agent)


def settle(transaction: Transaction, intent: Intent) -> None:
    """The last step's changes of the store."""
    if intent.drain is not None:
        transaction.streams.forget(*intent.drain)
    for each in intent.appends:
        transaction.streams.append(each.stream, each.bodies)
    for key, value in intent.puts:
        transaction.values.put(key, value)
    for key in intent.deletes:
        transaction.values.delete(key)


def _from_json(row: dict[str, Any]) -> Intent:
    try:
        return _read(row)
    except (TypeError, KeyError, IndexError, AttributeError):
        message = "the store holds an intent that cannot be read; what was begun cannot be settled"
        raise StoreError(message, code="store-corrupt", hints=["move the store aside and run 'clia rebuild'"]) from None


def _read(row: dict[str, Any]) -> Intent:
    return Intent(
        agent=row["agent"],
        verb=row["verb"],
        point=RefMove(*row["point"]),
        before=tuple(RefMove(*each) for each in row["before"]),
        notes=tuple(Binding(*each) for each in row["notes"]),
        after=tuple(RefMove(*each) for each in row["after"]),
        follow=tuple((each[0], each[1], each[2]) for each in row["follow"]),
        drain=None if row["drain"] is None else (row["drain"][0], row["drain"][1]),
        appends=tuple(Append(each[0], tuple(each[1])) for each in row["appends"]),
        puts=tuple((each[0], each[1]) for each in row["puts"]),
        deletes=tuple(row.get("deletes", ())),
    )
