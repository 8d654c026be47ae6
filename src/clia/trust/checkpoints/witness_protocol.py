"""The messages between logs and witnesses: C2SP tlog-witness, ``add-checkpoint``.

A request is the line ``old SIZE``, the hashes of a consistency proof, an empty line, and the checkpoint as a signed note.
"""

from __future__ import annotations

import base64
import binascii

from clia.errors import BadSignature, InvalidInput
from clia.trust.checkpoints.merkle import HASH_SIZE
from clia.trust.checkpoints.signed_notes import NOTE_MAX, read_head, read_note, read_size
from clia.trust.checkpoints.witnesses import PROOF_MAX, CheckpointRequest

ADD_CHECKPOINT = "/add-checkpoint"
SIZE_TYPE = "text/x.tlog.size"
REQUEST_MAX = 4 * NOTE_MAX + 8192
"""Maximum length of a request in bytes."""


def request_text(request: CheckpointRequest) -> str:
    """The body of a request."""
    proof = "".join(f"{base64.b64encode(node).decode('ascii')}\n" for node in request.proof)
    return f"old {request.old_size}\n{proof}\n{request.note}"


def read_request(body: bytes) -> CheckpointRequest:
    """Parse the body of a request; ``InvalidInput`` (malformed-request) for anything else."""
    try:
        head, separator, text = body.decode("utf-8").partition("\n\n")
        lines = head.split("\n")
        size = read_size(lines[0].removeprefix("old ")) if lines[0].startswith("old ") else None
        if size is None or not separator or len(lines) > PROOF_MAX + 1:
            raise ValueError("it starts with the line 'old SIZE', up to 63 hashes, and an empty line")
        proof = [base64.b64decode(line, validate=True) for line in lines[1:]]
        if any(len(node) != HASH_SIZE for node in proof):
            raise ValueError("a hash of the proof has another length")
        note = read_note(text)
        return CheckpointRequest(size, proof, note, read_head(note.text))
    except (ValueError, binascii.Error, BadSignature) as err:
        reason = err.message if isinstance(err, BadSignature) else str(err)
        raise InvalidInput(f"the request cannot be read: {reason}", code="malformed-request", fields={"field": "body"}) from None
