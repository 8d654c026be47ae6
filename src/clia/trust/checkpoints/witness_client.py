"""Asking a witness for a cosignature over HTTP."""

from __future__ import annotations

from clia.errors import BadSignature, Conflict, Denied, TransportError
from clia.http_client import HttpClient
from clia.trust.checkpoints.merkle import consistency_proof
from clia.trust.checkpoints.signed_notes import NOTE_MAX, SignedNote, read_signature_lines, read_size, verified_by
from clia.trust.checkpoints.witness_protocol import ADD_CHECKPOINT, request_text
from clia.trust.checkpoints.witnesses import OTHER_SIZE, CheckpointRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.http_client import HttpResponse
    from clia.trust.checkpoints.records import CheckpointLog
    from clia.trust.checkpoints.signed_notes import NoteKey, NoteSignature

_TRIES = 3
_REASON_MAX = 300


def request_cosignatures(url: str, log: CheckpointLog, keys: Sequence[NoteKey], seconds: float) -> list[NoteSignature]:
    """The cosignatures of the newest checkpoint by a witness with one of the keys.

    ``Conflict`` (ahead-of-us) if the witness has cosigned a larger checkpoint, or one of another history; ``Denied``
    (witness-refused) if it refuses; ``TransportError`` if it does not answer.
    """
    old, tries_left = 0, _TRIES
    while True:  # the first answer says which size it knows; others may have asked in between
        tries_left -= 1
        response = _ask(url, log, old, seconds)
        if response.status == 200:
            return _signatures(url, response, log.note, keys)
        size = read_size(response.body.decode("utf-8", "replace").strip()) if response.status == 409 else None
        if size is None or size == old or not tries_left:
            raise _refused(url, response)
        if size > log.head.size:
            message = f"the witness at {url} has cosigned checkpoint {size} of this machine, but the newest here is {log.head.size}"
            hints = ["this clone is older than what the witness saw: fetch the newer record, or find out who signs with this key"]
            raise Conflict(message, code="ahead-of-us", hints=hints, fields={"size": size})
        old = size


def _ask(url: str, log: CheckpointLog, old: int, seconds: float) -> HttpResponse:
    request = CheckpointRequest(old, consistency_proof(log.leaves(), old), log.note, log.head)
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    body = request_text(request).encode("utf-8")
    return HttpClient().post(url.rstrip("/") + ADD_CHECKPOINT, headers, body, seconds=seconds, limit=NOTE_MAX)


def _signatures(url: str, response: HttpResponse, note: SignedNote, keys: Sequence[NoteKey]) -> list[NoteSignature]:
    try:
        lines = read_signature_lines(response.body.decode("utf-8", "replace"))
        trusted = {(key.name, key.key_id) for key in verified_by(SignedNote(note.text, tuple(lines)), keys)}
    except BadSignature as err:
        raise TransportError(f"the witness at {url} sent no valid cosignature: {err.message}", code=err.code) from None
    signatures = [line for line in lines if (line.name, line.key_id) in trusted]
    if not signatures:
        hints = ["trust it with the key that it prints: clia witness trust KEY"]
        raise Denied(f"the witness at {url} is not trusted here", code="unknown-witness", hints=hints)
    return signatures


def _refused(url: str, response: HttpResponse) -> Denied:
    reason = response.body.decode("utf-8", "replace").strip()[:_REASON_MAX]
    hints = {404: "let it witness this machine: clia witness serve --log KEY, with the key of clia witness list"}
    message = f"the witness at {url} did not cosign: {response.status} {reason}"
    code = OTHER_SIZE if response.status == 409 else "witness-refused"
    return Denied(message, code=code, hints=[hints[response.status]] if response.status in hints else [])
