"""Cosigning from a clone: a witness checks what the clone has, and adds its cosignatures to it.

The witness needs no store: a plain clone with the refs of the space will do, as in a CI job. Its cosignatures are in
``refs/clia/cosignatures/WITNESS``, which only it writes.

Invariant: a checkpoint is cosigned only if its machine is enrolled and signed it, the logs contain all that it names, and it
extends the last one that this witness cosigned, as its own state or its own ref says.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from clia.errors import CliaError, Conflict, NotFound
from clia.git.records import Stamp
from clia.trust.checkpoints.checks import CheckpointChecks, log_keys
from clia.trust.checkpoints.merkle import consistency_proof
from clia.trust.checkpoints.records import CheckpointLog, read_cosigned, write_cosigned
from clia.trust.checkpoints.signed_notes import CheckpointHead, SignedNote, read_head, verified_by
from clia.trust.checkpoints.witnesses import FORKED, CheckpointRequest, Witness
from clia.trust.verification import TrustChecks
from clia.values import refs as names
from clia.verbs import Count  # noqa: TC001  # the annotations of records are read at run time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.git.repository import Git
    from clia.trust.key_chain import KeyChain

COSIGNED, REFUSED = "cosigned", "refused"
STEPS = ("cosignatures-written",)
"""The crash point: the witness has signed and kept its state; its ref has not moved."""


class WitnessedCheckpoint(NamedTuple):
    """What a witness did with the checkpoints of one machine."""

    machine: str  # the machine
    size: Count  # the size of its checkpoint
    state: str  # cosigned or refused
    checkpoint: str  # the checkpoint: what clia verify --since takes
    reason: str  # why it was refused; empty if it was cosigned


def witness_ref(witness: Witness) -> str:
    """The ref with the cosignatures of a witness."""
    return names.cosignatures(f"witness-{hashlib.sha256(witness.key.text.encode('utf-8')).hexdigest()[:12]}")


def cosign_clone(
    git: Git, witness: Witness, root: str | None, now: int, reached: Callable[[str], None]
) -> list[WitnessedCheckpoint]:
    """Cosign the newest checkpoint of each machine of a clone. ``root``: the fingerprint that the space must have."""
    checks = TrustChecks(git)
    chain = checks.key_chain()
    if chain.root is None or chain.problem is not None:
        raise NotFound("this clone has no chain of keys, or a broken one", code="keys-missing", hints=["check it: clia verify"])
    if root is not None and chain.root.fingerprint != root:
        message = f"the root of the space is {chain.root.fingerprint}, not {root}"
        raise Conflict(message, code="wrong-root", hints=["this is another space, or one whose keys were replaced"])
    checkpoints = CheckpointChecks(checks, chain, git)
    checkpoints.check()
    problems = {finding.ref: finding.message for finding in checks.findings} | {item.cid: item.message for item in checks.findings}
    results = [
        _cosign(git, witness, chain, log, problems.get(log.cid) or problems.get(names.checkpoints(log.newest.machine)))
        for log in checkpoints.logs()
    ]
    results += [
        WitnessedCheckpoint(ref.removeprefix(names.CHECKPOINTS), 0, REFUSED, "", problems[ref])
        for ref in sorted(ref for ref in problems if ref is not None and ref.startswith(names.CHECKPOINTS))
        if all(result.machine != ref.removeprefix(names.CHECKPOINTS) for result in results)
    ]
    _write(git, witness, chain, now, reached)
    return results


def _cosign(git: Git, witness: Witness, chain: KeyChain, log: CheckpointLog, problem: str | None) -> WitnessedCheckpoint:
    machine, head = log.newest.machine, log.head
    try:
        if problem is not None:
            raise Conflict(problem, code=FORKED)
        last = _last(git, witness, head.origin)
        if last.size and not log.has(last):
            older = head.size < last.size
            what = "is older than" if older else "does not extend"
            raise Conflict(f"it {what} checkpoint {last.size}, which this witness cosigned", code=FORKED)
        proof = consistency_proof(log.leaves(), last.size)
        witness.add_checkpoint(CheckpointRequest(last.size, proof, log.note, head), log_keys(chain))
    except CliaError as err:
        return WitnessedCheckpoint(machine, head.size, REFUSED, head.name, err.message)
    return WitnessedCheckpoint(machine, head.size, COSIGNED, head.name, "")


def _last(git: Git, witness: Witness, origin: str) -> CheckpointHead:
    """The last checkpoint that the witness cosigned. A witness that lost its state, such as a CI job, knows it from its own ref."""
    with witness.state.held(origin):
        note = witness.state.last(origin)
        last = CheckpointHead(origin, 0, b"") if note is None else read_head(note.text)
        tip = git.refs.get(witness_ref(witness))
        for recorded in [] if tip is None else read_cosigned(git.objects, tip):
            head = read_head(recorded.text)
            if head.origin == origin and head.size > last.size and verified_by(recorded, [witness.key]):
                last = head
                witness.state.save(origin, recorded)
    return last


def _write(git: Git, witness: Witness, chain: KeyChain, now: int, reached: Callable[[str], None]) -> None:
    """Point the ref of the witness at what it cosigned in this space."""
    notes: dict[str, SignedNote] = {}
    for origin in log_keys(chain):
        note = witness.state.last(origin)
        if note is not None:
            notes[origin] = note
    ref = witness_ref(witness)
    tip = git.refs.get(ref)
    if notes:
        by = Stamp(witness.key.name, "witness@clia.invalid", now)
        commit = write_cosigned(git.objects, notes.values(), by)
        reached("cosignatures-written")
        if commit != tip:
            git.refs.move(ref, tip, commit, "clia: cosign")
