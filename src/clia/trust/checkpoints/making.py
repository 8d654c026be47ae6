"""Making checkpoints: the machine's own log of snapshots.

A checkpoint is made by command, when the space is published or synced with its hub, and by upkeep after some log entries or minutes
(``clia.checkpointEntries``, ``clia.checkpointMinutes``).

Invariant: each checkpoint of a machine extends the one before. The ref moves by compare-and-swap from the checkpoint that was
extended, so two processes never sign two checkpoints of one size. A process that dies leaves the former checkpoint in force.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import BadSignature, CliaError, Conflict, NotFound
from clia.trust.checkpoints.merkle import root_hash
from clia.trust.checkpoints.records import CheckpointLog, read_checkpoint_log, write_checkpoint_log
from clia.trust.checkpoints.signed_notes import CheckpointHead, NoteSignature, SignedNote, sign_note
from clia.trust.checkpoints.snapshots import RecordSnapshot, origin_of, refs_root, shared_refs
from clia.trust.machine_log import log_end
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.git.repository import Git
    from clia.space.core import Core
    from clia.trust.enrolling import TrustKeys
    from clia.trust.machine_log import LogEnd

STEPS = ("checkpoint-written", "checkpoint-made")
"""The crash points: the objects of a checkpoint are written; the ref points at it."""
LOCK = "@checkpoint"
ENTRIES_SETTING, MINUTES_SETTING = "clia.checkpointEntries", "clia.checkpointMinutes"
ENTRIES, MINUTES = 1000, 60
"""Upkeep makes a checkpoint after this number of log entries, or after this number of minutes if anything moved."""
_PREFIXES = (names.HEADS, "refs/clia/", names.NOTES)


class MadeCheckpoint(NamedTuple):
    """A checkpoint of this machine."""

    checkpoint: str  # origin, size and root: what clia verify --since takes
    note: str  # the signed note, as witnesses take it
    at: int  # when it was made, in seconds since the epoch
    new: bool  # whether it is new; false: nothing moved since the last one


class CheckpointWriter:
    """The checkpoints of this clone's machine."""

    def __init__(self, core: Core, git: Git, trust: TrustKeys) -> None:
        self._core = core
        self._git = git
        self._trust = trust

    def own(self) -> CheckpointLog | None:
        """The checkpoints of this machine; None if it has made none."""
        cid = self._git.refs.get(names.checkpoints(self._trust.machine.name()))
        return None if cid is None else read_checkpoint_log(self._git.objects, cid)

    def make(self) -> MadeCheckpoint:
        """Make a checkpoint of what is recorded, unless the last one shows the same."""
        self._check_enrolled()
        if self._git.refs.log is not None:
            self._git.refs.log.recover()
        with self._core.locks.hold(LOCK):
            before = self._own_in_order()
            snapshot, refs = self._snapshot(before)
            if before is not None and snapshot.shows_same(before.newest):
                return MadeCheckpoint(before.head.name, str(before.note), before.newest.at, new=False)
            snapshots = [*(before.snapshots if before is not None else ()), snapshot]
            head = CheckpointHead(self._origin(), len(snapshots), root_hash(leaf.leaf for leaf in snapshots))
            note = SignedNote(head.text, (sign_note(head.text, self._trust.machine.signer().private, head.origin),))
            self._write(before, snapshots, note, refs)
        return MadeCheckpoint(head.name, str(note), snapshot.at, new=True)

    def made(self) -> CheckpointLog:
        """The checkpoints of this machine, with one of now."""
        self.make()
        log = self.own()
        if log is None:  # another program removed the ref just now
            raise Conflict("the checkpoint was removed by another program", code="checkpoint-damaged", hints=["try again"])
        return log

    def make_if_due(self) -> bool:
        """Make a checkpoint if many entries were logged since the last one, or some time ago; returns whether one was made.

        A machine that cannot make one (it is not enrolled, or only a command signs) makes none.
        """
        try:
            return self._is_due() and self.make().new
        except CliaError:
            return False

    def add_cosignatures(self, head: CheckpointHead, signatures: Iterable[NoteSignature]) -> None:
        """Keep verified cosignatures of the newest checkpoint with it. ``Conflict`` if there is a newer one by now."""
        with self._core.locks.hold(LOCK):
            before = self._own_in_order()
            if before is None or before.head != head:
                message, hints = "there is a newer checkpoint by now", ["ask the witness again"]
                raise Conflict(message, code="newer-checkpoint", hints=hints)
            self._write(before, before.snapshots, before.note.with_signatures(signatures), None)

    def _write(
        self, before: CheckpointLog | None, snapshots: Iterable[RecordSnapshot], note: SignedNote, refs: dict[str, str] | None
    ) -> None:
        git, core = self._git, self._core
        commit = write_checkpoint_log(git.objects, before, list(snapshots), note, refs, core.person_stamp())
        core.reached("checkpoint-written")
        ref = names.checkpoints(self._trust.machine.name())
        git.refs.move(ref, None if before is None else before.cid, commit, "clia: checkpoint")
        core.reached("checkpoint-made")

    def _origin(self) -> str:
        return origin_of(self._core.space_id, self._trust.machine.name())

    def _own_in_order(self) -> CheckpointLog | None:
        """The own checkpoints; ``Conflict`` (checkpoint-damaged) if none can follow them."""
        try:
            log = self.own()
        except BadSignature as err:
            reason = err.message
        else:
            if log is None or log.head.origin == self._origin():
                return log
            reason = f"they are of {log.head.origin}"
        ref = names.checkpoints(self._trust.machine.name())
        hints = [f"fetch them from a hub, a remote or a backup: git fetch REMOTE +{ref}:{ref}"]
        raise Conflict(f"the checkpoints of this clone cannot be continued: {reason}", code="checkpoint-damaged", hints=hints)

    def _check_enrolled(self) -> None:
        chain, machine = self._trust.chain(), self._trust.machine
        if chain.root is None:
            raise NotFound("the commits of this space are not signed", code="not-signing", hints=["clia key init starts it"])
        key = machine.public()
        if chain.key_at(key.fingerprint, chain.position) is None:
            hints = [f"enrol it in a clone that is: clia key enrol NAME --machine '{key.text}'"]
            raise Conflict(
                "the key of this clone is not enrolled, so its checkpoints do not count", code="not-enrolled", hints=hints
            )

    def _is_due(self) -> bool:
        if not self._trust.machine.exists() or self._trust.chain().root is None:
            return False
        log = self.own()
        if log is None:
            return True
        own = self._trust.machine.name()
        known_end, tip = log.newest.logs.get(own), self._git.refs.get(names.log(own))
        if tip is None:
            return False
        new = log_end(self._git.objects, own, tip).length - (known_end.length if known_end is not None else 0)
        minutes = self._git.positive_number(MINUTES_SETTING) or MINUTES
        is_old = self._core.now() - log.newest.at >= minutes * 60
        return new >= (self._git.positive_number(ENTRIES_SETTING) or ENTRIES) or (is_old and new > 0)

    def _snapshot(self, before: CheckpointLog | None) -> tuple[RecordSnapshot, dict[str, str]]:
        """What this clone has now."""
        git = self._git
        logs: dict[str, LogEnd] = {}
        for ref, tip in git.refs.under(names.LOGS):
            machine = ref.removeprefix(names.LOGS)
            logs[machine] = log_end(git.objects, machine, tip)
        refs = shared_refs(item for prefix in _PREFIXES for item in git.refs.under(prefix))
        at = max(self._core.now(), before.newest.at if before is not None else 0)
        machine, keys = self._trust.machine.name(), refs.get(names.KEYS)
        return RecordSnapshot(self._core.space_id, machine, at, keys, logs, refs_root(refs), len(refs)), refs
