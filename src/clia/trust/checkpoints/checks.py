"""Checking checkpoints: they belong to this space, extend each other, and the logs still contain what they name.

Invariant: a checkpoint that its machine signed and the record no longer contains is a finding, wherever it is found: in the log of
the machine, among the cosigned ones of a witness, or as the one that the caller saw before.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from clia.errors import BadSignature, CliaError, InvalidInput
from clia.trust.checkpoints.records import CheckpointLog, read_checkpoint_log, read_cosigned, read_covered_refs
from clia.trust.checkpoints.signed_notes import (
    COSIGNATURE,
    LOG_SIGNATURE,
    CheckpointHead,
    NoteKey,
    SignedNote,
    read_head,
    read_note,
    read_note_key,
    verified_by,
)
from clia.trust.checkpoints.snapshots import RecordSnapshot, origin_of, refs_root
from clia.trust.key_chain import MACHINE_KEY, WITNESS_KEY
from clia.trust.machine_keys import machine_name
from clia.trust.machine_log import MachineLog, is_prefix, read_machine_log
from clia.trust.ssh_format import read_public_key
from clia.values import refs as names
from clia.verbs import Count  # noqa: TC001  # the annotations of records are read at run time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clia.git.repository import Git
    from clia.trust.key_chain import Enrolment, KeyChain
    from clia.trust.machine_log import LogEnd
    from clia.trust.verification import TrustChecks

_NAME = re.compile(r"(\S+)@([1-9][0-9]{0,18}):([0-9a-f]{64})")
_RAW_KEY = 32


class CheckpointState(NamedTuple):
    """The checkpoints of a record, and the newest one that a trusted witness cosigned."""

    machines: Count  # machines with checkpoints
    newest: str | None  # the newest checkpoint; null: there is none
    at: int | None  # when it was made, by the clock of its machine
    cosigned: str | None  # the newest checkpoint that a trusted witness cosigned
    cosigned_at: int | None  # when, by the clock of the witness
    age: int | None  # seconds since then
    witnesses: tuple[str, ...]  # who cosigned it
    later: Count  # log entries after it; without one: all


class EndorsedHistory(NamedTuple):
    """The unsigned history of a space, endorsed by people."""

    by: str  # who endorsed it
    strength: str  # how strongly that is proved
    checkpoint: str  # the checkpoint that they endorsed
    reason: str  # why


class _Cosigned(NamedTuple):
    """A checkpoint with the witnesses that cosigned it."""

    head: CheckpointHead
    at: int
    witnesses: tuple[str, ...]
    snapshot: RecordSnapshot


class CheckpointChecks:
    """The checkpoints of a space. ``witnesses``: keys of witnesses that count in addition to the enrolled ones."""

    def __init__(self, checks: TrustChecks, chain: KeyChain, git: Git, witnesses: Sequence[str] = ()) -> None:
        self._checks = checks
        self._chain = chain
        self._git = git
        self._logs: dict[str, CheckpointLog] = {}  # by origin
        self._machine_logs: dict[str, MachineLog] = {}
        self._cosigned: list[_Cosigned] = []
        self._witnesses = [*witness_keys(chain), *(read_note_key(text, "witness") for text in witnesses)]

    def check(self, since: CheckpointHead | None = None) -> None:
        """Check all checkpoints. ``since``: one that the record must still contain."""
        refs = self._checks.refs
        for ref in sorted(ref for ref in refs if ref.startswith(names.CHECKPOINTS)):
            self._read(ref, refs[ref])
        for ref, note in self._notes():
            self._check_note(ref, note)
        for ref, cid in self._git.refs.under(names.ROLLED_BACK):
            self._rolled_back(ref, cid)
        if since is not None:
            self._check_contained(since, "this checkpoint was seen before", None)

    def state(self, now: int | None) -> CheckpointState:
        """A summary for the report."""
        newest = max(self._logs.values(), key=lambda log: log.newest.at, default=None)
        cosigned = max(self._cosigned, key=lambda item: (item.at, item.snapshot.moves), default=None)
        later = sum(len(self._machine_log(ref.removeprefix(names.LOGS)).lines) for ref in self._checks.refs if _is_log(ref))
        name, at = (None, None) if newest is None else (newest.head.name, newest.newest.at)
        if cosigned is None:
            return CheckpointState(len(self._logs), name, at, None, None, None, (), later)
        age = None if now is None else max(0, now - cosigned.at)
        later = max(0, later - cosigned.snapshot.moves)
        return CheckpointState(len(self._logs), name, at, cosigned.head.name, cosigned.at, age, cosigned.witnesses, later)

    def is_cosigned(self) -> bool:
        return bool(self._cosigned)

    def logs(self) -> list[CheckpointLog]:
        """The checkpoints of the machines that signed them."""
        return list(self._logs.values())

    def cosigned(self) -> dict[str, tuple[str, ...]]:
        """The witnesses of each cosigned checkpoint, by its name."""
        return {item.head.name: item.witnesses for item in self._cosigned}

    def ends_at(self, head: CheckpointHead) -> Mapping[str, LogEnd]:
        """The ends of the logs at a checkpoint; none if the record does not contain it."""
        log = self._logs.get(head.origin)
        return log.snapshots[head.size - 1].logs if log is not None and head.size and log.has(head) else {}

    def endorsed(self) -> list[EndorsedHistory]:
        """Endorsements of the history before the chain of keys; each must name a checkpoint of this record."""
        endorsed = []
        for item in self._chain.endorsements:
            head = _head_of(item.until)
            if head is None or not self._contains(head):
                message = f"{item.by} endorsed a checkpoint that this record does not have: {item.until[:200]}"
                self._checks.found("unknown-checkpoint", message, names.KEYS, item.commit)
            else:
                endorsed.append(EndorsedHistory(item.by, item.strength, item.until, item.reason))
        return endorsed

    # Reading

    def _read(self, ref: str, cid: str) -> None:
        """Read and check the checkpoints of one machine."""
        name = ref.removeprefix(names.CHECKPOINTS)
        enrolment = machine_enrolments(self._chain).get(name)
        if enrolment is None:
            self._checks.found("unknown-machine", f"{ref} has checkpoints of a machine that is not enrolled", ref, cid)
            return
        try:
            log = read_checkpoint_log(self._git.objects, cid)
            if log.head.origin != origin_of(self._chain.space, name) or any(not self._is_own(item, name) for item in log.snapshots):
                message = f"{ref} has checkpoints of another space or machine: {log.head.origin[:200]}"
                self._checks.found("foreign-checkpoint", message, ref, cid)
                return
            if not verified_by(log.note, [log_key(log.head.origin, enrolment)]):
                raise BadSignature("it is not signed by its machine", code="bad-signature")
        except CliaError as err:
            code = err.code if err.code == "malformed-checkpoint" else "forged-checkpoint"
            code = "malformed-checkpoint" if err.code in ("malformed-note", "no-such-object") else code
            self._checks.found(code, f"the checkpoints of {ref} do not count: {err.message}", ref, cid)
            return
        self._logs[log.head.origin] = log
        for snapshot in log.snapshots:
            if not self._check_logs(cid, snapshot):
                break
        self._check_refs(ref, cid, log)

    def _is_own(self, snapshot: RecordSnapshot, machine: str) -> bool:
        return (snapshot.space, snapshot.machine) == (self._chain.space, machine)

    def _check_logs(self, cid: str, snapshot: RecordSnapshot) -> bool:
        """Whether the logs still have the ends that a snapshot names."""
        for machine, end in snapshot.logs.items():
            log = self._machine_log(machine)
            if is_prefix(end, log):
                continue
            ref = names.log(machine)
            if len(log.lines) < end.length:
                message = f"{ref} has {len(log.lines)} entries, but a checkpoint of {snapshot.machine} names {end.length}"
                self._checks.found("truncated-log", message, ref, cid)
            else:
                message = f"entry {end.length} of {ref} is not the one that a checkpoint of {snapshot.machine} names"
                self._checks.found("spliced-log", message, ref, cid)
            return False
        if snapshot.keys is not None and snapshot.keys not in self._chain.positions:
            message = f"a checkpoint of {snapshot.machine} names keys that the chain lacks: {snapshot.keys}"
            self._checks.found("truncated-keys", message, names.KEYS, cid)
            return False
        return True

    def _check_refs(self, ref: str, cid: str, log: CheckpointLog) -> None:
        try:
            covered = read_covered_refs(self._git.objects, log)
        except CliaError:
            covered = {}
        if (refs_root(covered), len(covered)) != (log.newest.refs, log.newest.ref_count):
            message = f"the refs of {ref} have another root than its newest snapshot"
            self._checks.found("malformed-checkpoint", message, ref, cid)

    def _machine_log(self, machine: str) -> MachineLog:
        """The log of a machine; empty if it is missing or cannot be read, which is another finding."""
        if machine not in self._machine_logs:
            tip = self._checks.refs.get(names.log(machine))
            log = MachineLog(machine, [])
            with suppress(CliaError):
                log = log if tip is None else read_machine_log(self._git.objects, machine, tip)
            self._machine_logs[machine] = log
        return self._machine_logs[machine]

    # Cosignatures

    def _notes(self) -> Iterator[tuple[str, SignedNote]]:
        """All signed notes: of the machines, and of the witnesses."""
        for log in self._logs.values():
            yield names.checkpoints(log.newest.machine), log.note
        for ref, cid in sorted(self._checks.refs.items()):
            if ref.startswith(names.COSIGNATURES):
                for note in read_cosigned(self._git.objects, cid):
                    yield ref, note

    def _check_note(self, ref: str, note: SignedNote) -> None:
        try:
            head = read_head(note.text)
        except BadSignature:
            return  # of another program
        enrolment = machine_enrolments(self._chain).get(head.origin.rpartition("/")[2])
        try:
            cosigned = verified_by(note, self._witnesses)
        except BadSignature as err:
            self._checks.found(err.code, f"{ref}: {err.message}", ref, self._checks.refs.get(ref))
            return
        if enrolment is None or head.origin != origin_of(self._chain.space, machine_name(read_public_key(enrolment.key.public))):
            if cosigned:
                message = f"{ref} has a checkpoint of another space: {head.origin[:200]}"
                self._checks.found("foreign-checkpoint", message, ref, self._checks.refs.get(ref))
            return
        try:
            is_signed = bool(verified_by(note, [log_key(head.origin, enrolment)]))
        except BadSignature as err:
            self._checks.found("forged-checkpoint", f"{ref}: {err.message}", ref, self._checks.refs.get(ref))
            return
        who = ", ".join(sorted(key.name for key in cosigned))
        if (is_signed or cosigned) and self._check_contained(head, f"cosigned by {who}" if who else "signed", ref) and cosigned:
            snapshot = self._logs[head.origin].snapshots[head.size - 1]
            names_of = tuple(sorted(key.name for key in cosigned))
            self._cosigned.append(_Cosigned(head, max(cosigned.values()), names_of, snapshot))

    def _contains(self, head: CheckpointHead) -> bool:
        log = self._logs.get(head.origin)
        return log is not None and head.size > 0 and log.has(head)

    def _check_contained(self, head: CheckpointHead, why: str, ref: str | None) -> bool:
        """Whether the record still contains a checkpoint; a finding if not."""
        if self._contains(head):
            return True
        log, own = self._logs.get(head.origin), names.checkpoints(head.origin.rpartition("/")[2])
        space = head.origin.split("/")[1] if head.origin.count("/") == 2 else ""
        if space != self._chain.space:
            message = f"the checkpoint is of another space: {head.origin[:200]}"
            self._checks.found("foreign-checkpoint", message, ref or own)
        elif log is None or log.head.size < head.size:
            size = 0 if log is None else log.head.size
            message = f"{own} ends at checkpoint {size}, but there was a checkpoint {head.size} ({why}): the record was rolled back"
            self._checks.found("rolled-back", message, own, self._checks.refs.get(own))
        else:
            message = f"checkpoint {head.size} of {own} is another one than that which was {why}: there are two histories"
            self._checks.found("forked-checkpoint", message, own, self._checks.refs.get(own))
        return False

    def _rolled_back(self, ref: str, cid: str) -> None:
        """A remote that had an older checkpoint after a newer one, as this clone noticed when it synced."""
        remote, _, place = ref.removeprefix(names.ROLLED_BACK).partition("/")
        machine, _, missing = place.partition("/")
        try:
            older = read_checkpoint_log(self._git.objects, cid).head
        except CliaError:
            return
        log = self._logs.get(older.origin)
        if log is not None and not missing and not log.has(older):
            message = f"{remote} has another checkpoint {older.size} of {machine} than this clone: there are two histories"
            self._checks.found("forked-checkpoint", message, names.checkpoints(machine), cid)
        elif log is not None:
            older = older._replace(size=0) if missing else older
            cosigned = [item for item in self._cosigned if item.head.origin == older.origin and item.head.size > older.size]
            who = sorted({witness for item in cosigned for witness in item.witnesses})
            witnessed = f"cosigned by {', '.join(who)}" if who else "not cosigned"
            message = f"{remote} went back to checkpoint {older.size} of {machine}; this clone had seen a newer one ({witnessed})"
            self._checks.found("remote-rolled-back", message, names.checkpoints(machine), cid)


def read_checkpoint_name(text: str, field: str = "since") -> CheckpointHead:
    """A checkpoint as people name it: the line that ``clia witness checkpoint`` prints, or a signed note."""
    head = _head_of(text.strip())
    if head is None and "\n" in text.strip():
        try:
            head = read_head(read_note(text).text)
        except BadSignature:
            head = None
    if head is None:
        hints = ["it is ORIGIN@SIZE:ROOT, as clia witness checkpoint prints it, or a file with the signed note"]
        raise InvalidInput(f"not a checkpoint: {text[:100]!r}", code="invalid-checkpoint", hints=hints, fields={"field": field})
    return head


def _head_of(text: str) -> CheckpointHead | None:
    match = _NAME.fullmatch(text)
    return None if match is None else CheckpointHead(match[1], int(match[2]), bytes.fromhex(match[3]))


def machine_enrolments(chain: KeyChain) -> dict[str, Enrolment]:
    """The last enrolment of each machine, by its name."""
    machines = (enrolment for enrolment in chain.enrolments if enrolment.key.kind == MACHINE_KEY)
    return {machine_name(read_public_key(enrolment.key.public)): enrolment for enrolment in machines}


def log_key(origin: str, enrolment: Enrolment) -> NoteKey:
    """The key with which a machine signs its checkpoints."""
    return NoteKey(origin, LOG_SIGNATURE, read_public_key(enrolment.key.public).blob[-_RAW_KEY:])


def log_keys(chain: KeyChain) -> dict[str, list[NoteKey]]:
    """The keys of all machines that are enrolled now, by the origins of their checkpoints."""
    origins = {origin_of(chain.space, name): item for name, item in machine_enrolments(chain).items() if item.until is None}
    return {origin: [log_key(origin, enrolment)] for origin, enrolment in origins.items()}


def witness_keys(chain: KeyChain) -> list[NoteKey]:
    """The keys of the witnesses that are enrolled now."""
    keys = [item.key for item in chain.enrolments if item.key.kind == WITNESS_KEY and item.until is None]
    return [NoteKey(key.owner, COSIGNATURE, read_public_key(key.public).blob[-_RAW_KEY:]) for key in keys]


def _is_log(ref: str) -> bool:
    return ref.startswith(names.LOGS)
