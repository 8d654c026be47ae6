"""A witness: it cosigns checkpoints that extend the last one it saw, and nothing else.

Invariant: for each log, a witness only signs checkpoints that extend each other, for any client, in any order, and wherever its
process dies: what it signs is on disk before the signature leaves. A state that cannot be read is an error, never a new start.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import NamedTuple

from clia.errors import BadSignature, Conflict, Denied, FileError, InvalidInput, NotFound
from clia.store import private_files
from clia.store.private_files import FileLocks
from clia.trust.checkpoints.merkle import is_consistent
from clia.trust.checkpoints.signed_notes import (
    COSIGNATURE,
    CheckpointHead,
    NoteKey,
    NoteSignature,
    SignedNote,
    cosign,
    read_head,
    read_note,
    verified_by,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

STEPS = ("cosignature-written", "cosignature-saved")
"""The crash points: the new state is in a temporary file; it is the state, and the signature has not left."""
UNKNOWN_LOG, UNTRUSTED, OTHER_SIZE, FORKED = "unknown-log", "untrusted-checkpoint", "other-size", "inconsistent-checkpoint"
PROOF_MAX = 63
_LOCK_SECONDS = 30


class CheckpointRequest(NamedTuple):
    """A checkpoint to cosign, with the proof that it extends the one of ``old_size``."""

    old_size: int
    proof: Sequence[bytes]
    note: SignedNote
    head: CheckpointHead


class WitnessState:
    """The last checkpoint of each log that a witness cosigned, in files."""

    def __init__(self, directory: str, reached: Callable[[str], None]) -> None:
        self._directory = directory
        self._reached = reached

    @contextmanager
    def held(self, origin: str) -> Iterator[None]:
        """Let no other process or thread cosign this log."""
        private_files.make_directory(self._directory)
        with FileLocks(os.path.join(self._directory, "locks"), _LOCK_SECONDS).hold(_name_of(origin)):
            yield

    def last(self, origin: str) -> SignedNote | None:
        """The last checkpoint that was cosigned; None if this log is new."""
        path = self._path(origin)
        try:
            with open(path, encoding="utf-8") as file:
                note = read_note(file.read())
            if read_head(note.text).origin != origin:
                raise BadSignature("it is of another log", code="malformed-note")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, BadSignature) as err:
            reason = err.message if isinstance(err, BadSignature) else str(err)
            hints = ["restore the directory of the witness from a backup: without it, the witness could sign a second history"]
            message = f"{path} cannot be read: {reason}"
            raise FileError(message, code="witness-state-damaged", hints=hints, fields={"path": path}) from None
        return note

    def save(self, origin: str, note: SignedNote) -> None:
        """Replace the last checkpoint; it survives a power cut."""
        path = self._path(origin)
        temporary = f"{path}.{os.getpid()}.new"
        try:
            with open(temporary, "w", encoding="utf-8", opener=private_files.open_file) as file:
                file.write(str(note))
                file.flush()
                os.fsync(file.fileno())
            self._reached("cosignature-written")
            os.replace(temporary, path)
            directory = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
        self._reached("cosignature-saved")

    def _path(self, origin: str) -> str:
        return os.path.join(self._directory, f"{_name_of(origin)}.checkpoint")


class Witness:
    """A witness with its key and its state. ``clock`` returns seconds since the epoch."""

    def __init__(self, name: str, private: Ed25519PrivateKey, state: WitnessState, clock: Callable[[], int]) -> None:
        self._private = private
        self._clock = clock
        self.state = state
        self.key = NoteKey(name, COSIGNATURE, private.public_key().public_bytes_raw())

    def add_checkpoint(self, request: CheckpointRequest, logs: Mapping[str, Sequence[NoteKey]]) -> NoteSignature:
        """Cosign a checkpoint of one of the ``logs``, which are given by origin with their keys.

        Errors: ``NotFound`` (unknown-log); ``Denied`` (untrusted-checkpoint); ``InvalidInput``; ``Conflict`` (other-size) with the
        field ``size`` if the request does not start at the last checkpoint; ``Conflict`` (inconsistent-checkpoint).
        """
        head = request.head
        self._check_trusted(request.note, logs.get(head.origin))
        if request.old_size > head.size or (request.old_size == 0 and request.proof) or len(request.proof) > PROOF_MAX:
            message = "the old size is larger than the checkpoint, or its proof is too long"
            raise InvalidInput(message, code="invalid-proof", fields={"field": "old"})
        with self.state.held(head.origin):
            note = self.state.last(head.origin)
            last = CheckpointHead(head.origin, 0, b"") if note is None else read_head(note.text)
            if request.old_size != last.size or (head.size == last.size and head.root != last.root and last.size):
                message = f"the last cosigned checkpoint of {head.origin} has size {last.size}, and this one does not follow it"
                raise Conflict(message, code=OTHER_SIZE, fields={"size": last.size})
            if not is_consistent(last.size, head.size, request.proof, last.root, head.root):
                message = f"checkpoint {head.size} of {head.origin} does not extend checkpoint {last.size}, which was cosigned"
                raise Conflict(message, code=FORKED, fields={"size": last.size})
            signature = cosign(request.note.text, self._private, self.key.name, self._time(note))
            self.state.save(head.origin, request.note.with_signatures([signature]))
        return signature

    def _check_trusted(self, note: SignedNote, keys: Sequence[NoteKey] | None) -> None:
        if keys is None:
            origin = read_head(note.text).origin
            raise NotFound(f"this witness does not know the log {origin}", code=UNKNOWN_LOG, fields={"origin": origin})
        try:
            signed = verified_by(note, keys)
        except BadSignature as err:
            raise Denied(err.message, code=UNTRUSTED) from None
        if not signed:
            raise Denied("the checkpoint is not signed by its log", code=UNTRUSTED)

    def _time(self, last: SignedNote | None) -> int:
        """The time of the next cosignature, which is never before that of the last one."""
        before = [] if last is None else verified_by(last, [self.key]).values()
        return max([self._clock(), *before])


def _name_of(origin: str) -> str:
    return hashlib.sha256(origin.encode("utf-8")).hexdigest()
