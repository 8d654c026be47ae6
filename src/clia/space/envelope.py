"""The one shape of every verb that has several steps.

Invariant: whatever instant the process dies at, the next one at work on the agent either finishes the verb or undoes it,
once. The point of no return is the move of one ref; what must follow it is written down before, in the store, and what
went before it is taken back where it never came.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.errors import CliaError, GitError, StaleRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.ports.store import Transaction
    from clia.ports.workbench import Workbench
    from clia.space.core import Core

SPACE_LOCK = "@space"
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


class Envelope:
    """Locks, intents and recovery."""

    def __init__(self, core: Core, workbench: Workbench) -> None:
        self._core = core
        self._workbench = workbench

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """The agent is ours, and whole: what a dead process left is settled."""
        core = self._core
        with core.locks.hold(SPACE_LOCK, shared=True), core.locks.hold(name):
            core.reached("locked")
            self._recover(name)
            core.reached("recovered")
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else of ours is at work in the whole space."""
        with self._core.locks.hold(SPACE_LOCK):
            self.recover_all(holding_space=True)
            yield

    def carry_out(self, intent: Intent) -> None:
        """Steps 4 to 8; the objects are written. ``StaleRef`` where the point of no return is lost: all is taken back."""
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
        self._finish(intent)

    def recover_all(self, *, holding_space: bool = False) -> list[str]:
        """Settles every intent whose owner is dead; the agents that had one.

        What cannot be settled now (a full disk, a repository that may only be read) stays for the next verb on that agent.
        """
        settled = []
        for name in self.unfinished():
            with suppress(CliaError), self._core.locks.attempt(name) as free:
                if free:
                    self._settle_for(name, holding_space=holding_space)
                    settled.append(name)
        return settled

    def _settle_for(self, name: str, *, holding_space: bool) -> None:
        if holding_space:
            self._recover(name)
        else:
            with self._core.locks.hold(SPACE_LOCK, shared=True):
                self._recover(name)

    def unfinished(self) -> list[str]:
        with self._core.store.reading() as view:
            return [key.removeprefix(INTENT) for key, _ in view.values.scan(INTENT)]

    def _recover(self, name: str) -> None:
        core = self._core
        with core.store.reading() as view:
            row = view.values.get(INTENT + name)
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

    def _finish(self, intent: Intent) -> None:
        core = self._core
        by = core.person_stamp()
        for binding in intent.notes:
            blob = core.objects.write_blob(binding.text.encode("utf-8"))
            core.notes.bind(binding.ref, binding.commit, blob, by, f"{intent.verb}: trace of {binding.commit}\n")
        for move in intent.after:
            self._follow_up(move)
        for place, old, new in intent.follow:
            self._bring_along(place, old, new)
        core.reached("notes-bound")
        with core.store.writing() as transaction:
            if transaction.values.delete(INTENT + intent.agent):
                _settle(transaction, intent)
        core.reached("finished")

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

    def _bring_along(self, place: str, old: str, new: str) -> None:
        try:
            self._workbench.follow(place, old, new)
        except GitError:
            # The landing stands. Something in that worktree changed under us; git shows it to its owner as a difference.
            return

    def _undo(self, intent: Intent) -> None:
        core = self._core
        for move in reversed(intent.before):
            if core.refs.get(move.ref) == move.new:
                core.refs.move(move.ref, move.new, move.old, f"clia: undo {intent.verb}")
        with core.store.writing() as transaction:
            transaction.values.delete(INTENT + intent.agent)


def _settle(transaction: Transaction, intent: Intent) -> None:
    if intent.drain is not None:
        transaction.streams.forget(*intent.drain)
    for each in intent.appends:
        transaction.streams.append(each.stream, each.bodies)
    for key, value in intent.puts:
        transaction.values.put(key, value)


def _from_json(row: dict[str, Any]) -> Intent:
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
    )
