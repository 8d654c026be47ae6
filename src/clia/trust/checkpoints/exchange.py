"""Exchanging checkpoints and cosignatures with hubs and other remotes, and noticing that a remote went back.

Invariant: the checkpoints of a machine only grow here. Those of a remote replace ours if they extend ours and their machine, which
is enrolled, signed them. A remote that shows less than it showed before leaves a local ref, which ``clia verify`` reports.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from clia.errors import BadSignature, CliaError, GitError, StaleRef
from clia.trust.checkpoints.checks import log_key, machine_enrolments
from clia.trust.checkpoints.records import CheckpointLog, read_checkpoint_log, read_cosigned, write_cosigned
from clia.trust.checkpoints.signed_notes import SignedNote, read_head, verified_by
from clia.trust.checkpoints.snapshots import origin_of
from clia.trust.machine_log import continues
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.git.repository import Git
    from clia.space.core import Core
    from clia.trust.checkpoints.making import CheckpointWriter
    from clia.trust.enrolling import TrustKeys

    Move = tuple[str, str | None, str | None]

STEPS = ("remote-checkpoint-seen",)
"""The crash point: what a remote showed is noted; ours has not changed yet."""
MISSING = "missing"
SYNC_SECONDS = 60
"""A sync makes a checkpoint if the last one is older; work on several machines syncs every few seconds."""
_WHY = "clia: checkpoint"


class CheckpointHub(Protocol):
    """What the exchange needs of a hub."""

    remote: str

    def read(self, *refs: str) -> bool:
        """Fetch some refs; False if the hub is unreachable."""

    def send(self, moves: Sequence[Move]) -> None:
        """Move refs at the hub, all or none; ``StaleRef`` if one has moved."""


class CheckpointExchange:
    """The checkpoints of this clone and of its remotes."""

    def __init__(self, core: Core, git: Git, trust: TrustKeys, writer: CheckpointWriter) -> None:
        self._core = core
        self._git = git
        self._trust = trust
        self._writer = writer

    def renew(self, seconds: int = 0) -> None:
        """Make a checkpoint, unless the last one is newer than some seconds, or this machine cannot make one."""
        with suppress(CliaError):
            log = self._writer.own()
            if log is None or not seconds or self._core.now() - log.newest.at >= seconds:
                self._writer.make()

    def settle(self, remote: str, theirs: Mapping[str, str], *, complete: bool = True) -> list[Move]:
        """Adopt what a remote has in addition to ours; returns the moves to push, with the values that it has now.

        ``theirs``: the refs below ``refs/clia/checkpoints`` and ``refs/clia/cosignatures`` of the remote. ``complete``: it has no
        others, so one that it showed before and that is not among them is gone.
        """
        git = self._git
        ours = dict(item for prefix in (names.CHECKPOINTS, names.COSIGNATURES) for item in git.refs.under(prefix))
        seen_machines = {ref.removeprefix(f"{names.SEEN}{remote}/") for ref, _ in git.refs.under(f"{names.SEEN}{remote}/")}
        moves: list[Move] = []
        for ref in sorted({*ours, *theirs, *map(names.checkpoints, seen_machines)} if complete else theirs):
            if ref.startswith(names.CHECKPOINTS):
                new = self._settle_log(remote, ref, ours.get(ref), theirs.get(ref))
            else:
                new = self._settle_cosigned(ref, ours.get(ref), theirs.get(ref))
            if new is not None and new != theirs.get(ref):
                moves.append((ref, theirs.get(ref), new))
        return moves

    def exchange_with(self, hub: CheckpointHub, exchange_logs: Callable[[], None]) -> None:
        """Exchange everything with the hub, and the logs in between: the hub must have all that a checkpoint names."""
        self.renew(SYNC_SECONDS)
        exchange_logs()
        kinds = (names.CHECKPOINTS, names.COSIGNATURES)
        if not hub.read(*kinds):
            return
        fetched = [item for kind in kinds for item in self._git.refs.under(names.tracking(hub.remote, kind))]
        moves = self.settle(hub.remote, {str(names.tracked(ref)): cid for ref, cid in fetched})
        if moves:
            with suppress(StaleRef):  # another machine sent newer ones; the next sync settles it
                hub.send(moves)
                self.pushed(hub.remote, moves)

    def missing_logs(self, theirs: Mapping[str, str]) -> list[tuple[str, str | None, str]]:
        """The moves that give a remote all entries of the logs that we have: checkpoints name them."""
        git, moves = self._git, []
        for ref, cid in git.refs.under(names.LOGS):
            their_cid = theirs.get(ref)
            if their_cid is None or (their_cid != cid and continues(git.objects, ref.removeprefix(names.LOGS), cid, their_cid)):
                moves.append((ref, their_cid, cid))
        return moves

    def pushed(self, remote: str, moves: Sequence[Move]) -> None:
        """Note what a remote has after a push: it must not show less later."""
        for ref, _, new in moves:
            if ref.startswith(names.CHECKPOINTS) and new is not None:
                self._note(names.SEEN, remote, ref.removeprefix(names.CHECKPOINTS), new)

    # Checkpoints of machines

    def _settle_log(self, remote: str, ref: str, our_cid: str | None, their_cid: str | None) -> str | None:
        """Settle the checkpoints of one machine; returns what the remote should have, or None to leave it as it is."""
        machine = ref.removeprefix(names.CHECKPOINTS)
        theirs = None if their_cid is None else self._sound(machine, their_cid)
        if their_cid is not None and theirs is None:
            return None  # forged, damaged or of a machine that is not enrolled here: it neither counts nor is overwritten
        self._compare_with_seen(remote, machine, theirs)
        ours = None if our_cid is None else self._sound(machine, our_cid)
        if theirs is None or ours is None:
            if theirs is not None:
                self._adopt(ref, our_cid, theirs.cid)
            return None if ours is None else ours.cid
        if ours.head == theirs.head:
            return self._with_more_signatures(ref, ours, theirs)
        if theirs.has(ours.head):
            self._adopt(ref, ours.cid, theirs.cid)
            return theirs.cid
        if ours.has(theirs.head):
            return ours.cid
        self._note(names.ROLLED_BACK, remote, machine, theirs.cid)
        return None

    def _with_more_signatures(self, ref: str, ours: CheckpointLog, theirs: CheckpointLog) -> str:
        if {item[:2] for item in theirs.note.signatures} > {item[:2] for item in ours.note.signatures}:
            self._adopt(ref, ours.cid, theirs.cid)
            return theirs.cid
        more = {item[:2] for item in ours.note.signatures} > {item[:2] for item in theirs.note.signatures}
        return ours.cid if more else theirs.cid

    def _sound(self, machine: str, cid: str) -> CheckpointLog | None:
        """Checkpoints that their machine signed, and that belong to this space."""
        enrolment = machine_enrolments(self._trust.chain()).get(machine)
        try:
            log = read_checkpoint_log(self._git.objects, cid)
            origin = origin_of(self._core.space_id, machine)
            if enrolment is None or log.head.origin != origin or not verified_by(log.note, [log_key(origin, enrolment)]):
                return None
        except CliaError:
            return None
        return log

    def _compare_with_seen(self, remote: str, machine: str, theirs: CheckpointLog | None) -> None:
        """Note that a remote shows less than it showed before."""
        cid = self._git.refs.get(f"{names.SEEN}{remote}/{machine}")
        seen_log = None if cid is None else self._sound(machine, cid)
        if seen_log is not None and (theirs is None or theirs.head.size < seen_log.head.size):
            place = machine if theirs is not None else f"{machine}/{MISSING}"
            self._note(names.ROLLED_BACK, remote, place, seen_log.cid if theirs is None else theirs.cid)
            size = 0 if theirs is None else theirs.head.size
            message = f"{remote} went back to checkpoint {size} of {machine}; it had checkpoint {seen_log.head.size}"
            self._core.notify(f"{message}: it was rolled back, and clia verify reports it")
        elif theirs is not None and (seen_log is None or theirs.head.size > seen_log.head.size):
            self._note(names.SEEN, remote, machine, theirs.cid)
        self._core.reached("remote-checkpoint-seen")

    def _note(self, prefix: str, remote: str, place: str, cid: str) -> None:
        ref = f"{prefix}{remote}/{place}"
        with suppress(StaleRef, GitError):  # another process notes the same
            self._git.refs.move(ref, self._git.refs.get(ref), cid, _WHY)

    def _adopt(self, ref: str, old: str | None, new: str) -> None:
        with suppress(StaleRef):  # this machine made one just now, or another process adopted it
            self._git.refs.move(ref, old, new, _WHY)

    # Cosignatures

    def _settle_cosigned(self, ref: str, our_cid: str | None, their_cid: str | None) -> str | None:
        """Unite the checkpoints that a witness cosigned: the largest one of each log."""
        ours, theirs = self._newest(our_cid), self._newest(their_cid)
        if not theirs:
            return our_cid if ours else None
        united = theirs | {origin: note for origin, note in ours.items() if _is_newer(note, theirs.get(origin))}
        if united == theirs:
            new = str(their_cid)
        elif united == ours:
            new = str(our_cid)
        else:
            new = write_cosigned(self._git.objects, united.values(), self._core.person_stamp())
        if new != our_cid:
            self._adopt(ref, our_cid, new)
        return new

    def _newest(self, cid: str | None) -> dict[str, SignedNote]:
        """The checkpoints of a witness that machines of this space signed, by origin."""
        notes: dict[str, SignedNote] = {}
        machines = machine_enrolments(self._trust.chain())
        for note in [] if cid is None else read_cosigned(self._git.objects, cid):
            with suppress(BadSignature):
                origin = read_head(note.text).origin
                enrolment = machines.get(origin.rpartition("/")[2])
                if enrolment is not None and verified_by(note, [log_key(origin, enrolment)]):
                    notes[origin] = note
        return notes


def _is_newer(note: SignedNote, other: SignedNote | None) -> bool:
    return other is None or _rank(note) > _rank(other)


def _rank(note: SignedNote) -> tuple[int, int, bytes]:
    """Larger checkpoints are newer, then later cosignatures."""
    times = [int.from_bytes(item.data[:8], "big") for item in note.signatures if len(item.data) == 72]
    return read_head(note.text).size, max(times, default=0), str(note).encode("utf-8")
