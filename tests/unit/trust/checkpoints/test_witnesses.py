"""A witness signs one history of a log, whatever it is asked and wherever it dies."""

from __future__ import annotations

import random
from pathlib import Path  # noqa: TC003  # pytest evaluates it

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from clia.errors import CliaError, Conflict, Denied, FileError, InvalidInput, NotFound
from clia.testing import Crash, crash_at
from clia.trust.checkpoints import witnesses
from clia.trust.checkpoints.merkle import consistency_proof, leaf_hash, root_hash
from clia.trust.checkpoints.signed_notes import (
    LOG_SIGNATURE,
    CheckpointHead,
    NoteKey,
    SignedNote,
    read_head,
    sign_note,
    verified_by,
)
from clia.trust.checkpoints.witnesses import CheckpointRequest, Witness, WitnessState

LOG, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
KEY = Ed25519PrivateKey.from_private_bytes(b"\x03" * 32)
ORIGIN = "clia.invalid/space/machine-1"
LOGS = {ORIGIN: [NoteKey(ORIGIN, LOG_SIGNATURE, LOG.public_key().public_bytes_raw())]}
LEAVES = [leaf_hash(bytes([number])) for number in range(40)]
FORK = [*LEAVES[:3], *(leaf_hash(b"other" + bytes([number])) for number in range(40))]


def witness(directory: Path, reached: object = None, at: int = 1000) -> Witness:
    return Witness("w.example", KEY, WitnessState(str(directory), reached or (lambda _: None)), lambda: at)  # type: ignore[arg-type]


def request(
    old: int, size: int, leaves: list[bytes] = LEAVES, key: Ed25519PrivateKey = LOG, origin: str = ORIGIN
) -> CheckpointRequest:
    head = CheckpointHead(origin, size, root_hash(leaves[:size]))
    note = SignedNote(head.text, (sign_note(head.text, key, origin),))
    return CheckpointRequest(old, consistency_proof(leaves[:size], old), note, head)


def test_it_cosigns_what_extends_the_last_checkpoint(tmp_path: Path) -> None:
    for old, size in ((0, 3), (3, 3), (3, 8), (8, 40)):
        asked = request(old, size)
        signature = witness(tmp_path).add_checkpoint(asked, LOGS)
        assert verified_by(SignedNote(asked.note.text, (signature,)), [witness(tmp_path).key]) == {witness(tmp_path).key: 1000}


def test_a_size_that_is_not_the_last_one_is_refused_with_the_size_it_knows(tmp_path: Path) -> None:
    witness(tmp_path).add_checkpoint(request(0, 8), LOGS)
    for old, size in ((0, 9), (3, 9), (0, 3), (3, 3)):
        with pytest.raises(Conflict) as caught:
            witness(tmp_path).add_checkpoint(request(old, size), LOGS)
        assert (caught.value.code, caught.value.fields) == ("other-size", {"size": 8})


def test_another_history_is_never_cosigned(tmp_path: Path) -> None:
    witness(tmp_path).add_checkpoint(request(0, 5), LOGS)
    for asked, code in ((request(5, 9, FORK), "inconsistent-checkpoint"), (request(5, 5, FORK), "other-size")):
        with pytest.raises(Conflict) as caught:
            witness(tmp_path).add_checkpoint(asked, LOGS)
        assert caught.value.code == code
    assert read_head(str(witness(tmp_path).state.last(ORIGIN)).partition("\n\n")[0] + "\n").size == 5


def test_unknown_logs_and_signers_and_senseless_requests_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[CheckpointRequest, type[CliaError]]] = [
        (request(0, 3, origin="clia.invalid/other"), NotFound),
        (request(0, 3, key=OTHER), Denied),
        (request(0, 3)._replace(note=SignedNote(request(0, 4).note.text, request(0, 3).note.signatures)), Denied),
        (request(9, 3), InvalidInput),
        (request(0, 3)._replace(proof=[b"x" * 32]), InvalidInput),
        (request(0, 3)._replace(old_size=1, proof=[b"x" * 32] * 64), InvalidInput),
    ]
    for asked, error in cases:
        with pytest.raises(error):
            witness(tmp_path).add_checkpoint(asked, LOGS)
    assert witness(tmp_path).state.last(ORIGIN) is None


def test_a_damaged_state_is_an_error_and_not_a_new_start(tmp_path: Path) -> None:
    witness(tmp_path).add_checkpoint(request(0, 5), LOGS)
    next(tmp_path.glob("*.checkpoint")).write_text("")
    with pytest.raises(FileError) as caught:
        witness(tmp_path).add_checkpoint(request(0, 5, FORK), LOGS)
    assert caught.value.code == "witness-state-damaged"


def test_the_time_of_a_cosignature_never_goes_back(tmp_path: Path) -> None:
    witness(tmp_path, at=5000).add_checkpoint(request(0, 5), LOGS)
    asked = request(5, 6)
    signature = witness(tmp_path, at=10).add_checkpoint(asked, LOGS)
    assert verified_by(SignedNote(asked.note.text, (signature,)), [witness(tmp_path).key]) == {witness(tmp_path).key: 5000}


@pytest.mark.parametrize("step", witnesses.STEPS)
def test_a_witness_that_dies_signs_one_history(tmp_path: Path, step: str) -> None:
    with pytest.raises(Crash):
        witness(tmp_path, crash_at(step)).add_checkpoint(request(0, 5), LOGS)
    saved = witness(tmp_path).state.last(ORIGIN)
    if step == "cosignature-saved":
        with pytest.raises(Conflict):
            witness(tmp_path).add_checkpoint(request(0, 5, FORK), LOGS)
    else:
        assert saved is None
    assert witness(tmp_path).add_checkpoint(request(5 if saved else 0, 5), LOGS)


def test_random_requests_of_two_histories_with_crashes_never_get_both_signed(tmp_path: Path) -> None:
    for seed in range(60):
        directory, generator = tmp_path / str(seed), random.Random(seed)  # noqa: S311  # a test
        signed: list[CheckpointHead] = []
        for _ in range(25):
            leaves = generator.choice([LEAVES, FORK])
            size, step = generator.randrange(1, 40), generator.choice([*witnesses.STEPS, None, None, None])
            last = witness(directory).state.last(ORIGIN)
            old = generator.choice([0, 0 if last is None else read_head(last.text).size])
            asked = request(min(old, size), size, leaves)
            try:
                witness(directory, crash_at(step) if step else None).add_checkpoint(asked, LOGS)
                signed.append(asked.head)
            except (CliaError, Crash):
                continue
        histories = [[root_hash(leaves[:size]) for size in range(41)] for leaves in (LEAVES, FORK)]
        assert any(all(head.root == history[head.size] for head in signed) for history in histories)
        assert [head.size for head in signed] == sorted(head.size for head in signed)
